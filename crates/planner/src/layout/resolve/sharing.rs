//! Looks up time-sliced profiles of a rule in the catalog of each device.

use octavo_model::catalog::GpuInstanceProfile;
use octavo_model::profile::ProfileName;
use octavo_model::source_position::SourcePosition;

use super::split::impossible_split;
use super::{Capability, Diagnostics, ResolveContext};
use crate::layout::error::RuleWarningKind;
use crate::layout::{MigTarget, ShareTarget, TimeSlicing};
use crate::split;

impl<'a> ResolveContext<'a> {
    /// Returns the time-slicing of the rule with profiles as the device spells them. Profiles are not looked up on a
    /// device that cannot be partitioned or that reports no profiles.
    pub(super) fn time_slicing(
        self,
        spec: &TimeSlicing,
        mig: Option<&MigTarget>,
        report: &mut Diagnostics<'_>,
    ) -> Option<TimeSlicing> {
        let mut sharing = spec.clone();
        let Capability::Yes(state) = Capability::from_device(self.selected.device) else {
            return Some(sharing);
        };
        if state.catalog.profiles().is_empty() {
            return Some(sharing);
        }
        let mut wrong = false;
        for share in &mut sharing.shares {
            let ShareTarget::Profile(profile) = &mut share.of else {
                continue;
            };
            match self.own_profile((share.position, profile), report) {
                Some((own, known)) => {
                    if !contains_partition(mig, known, &own) {
                        let kind =
                            RuleWarningKind::SharedProfileMissing { profile: own.to_string() };
                        report.warning(self.selected, share.position, kind);
                    }
                    *profile = own;
                }
                None => wrong = true,
            }
        }
        (!wrong).then_some(sharing)
    }

    fn own_profile(
        self,
        (position, requested): (SourcePosition, &ProfileName),
        report: &mut Diagnostics<'_>,
    ) -> Option<(ProfileName, &'a GpuInstanceProfile)> {
        let Capability::Yes(state) = Capability::from_device(self.selected.device) else {
            return None;
        };
        let known = self.look_up((state, position), requested, report)?;
        let size = u32::from(requested.compute_slices());
        let named = |size: u32| known.name.with_compute_slices(size);
        match named(size).filter(|_| requested.compute_slices() == requested.gpu_slices()) {
            Some(whole) => Some((whole, known)),
            None if split::compute_sizes(known).contains(&size) => Some((named(size)?, known)),
            None => {
                report.error(self.selected, position, impossible_split(known, requested));
                None
            }
        }
    }
}

/// Returns true if the desired state contains such a partition, or may contain one because partitions stay unchanged.
fn contains_partition(
    mig: Option<&MigTarget>,
    known: &GpuInstanceProfile,
    own: &ProfileName,
) -> bool {
    let size = u32::from(own.compute_slices());
    match mig {
        None => true,
        Some(MigTarget::Disabled) => false,
        Some(MigTarget::Enabled(instances)) => {
            instances.iter().any(|one| one.profile_id == known.id && one.compute.contains(&size))
        }
    }
}

#[cfg(test)]
mod tests {
    use octavo_model::source_position::SourcePosition;

    use crate::layout::tests_support::*;
    use crate::layout::{Rule, Selector, Share, ShareTarget, TimeSlicing};

    fn shared(profiles: &[&str]) -> TimeSlicing {
        let of = |(column, name): (u32, &&str)| Share {
            position: SourcePosition { line: 7, column },
            of: ShareTarget::Profile(name.parse().unwrap()),
            ..Share::everything(2)
        };
        TimeSlicing {
            position: SourcePosition::default(),
            shares: (1..).zip(profiles).map(of).collect(),
            slice: None,
        }
    }

    fn rule_of(mig: Option<&[(&str, u32)]>, profiles: &[&str]) -> Rule {
        Rule { time_slicing: Some(shared(profiles)), ..rule(Selector::All, mig.map(mig_spec)) }
    }

    #[test]
    fn shared_profile_uses_the_device_spelling() {
        let node = node([H200.gpu(0), t4(1)]);
        let resolved = resolve_octavo([rule_of(None, &["3g.70gb", "1c.3g.71gb"])], &node).unwrap();
        let of = |index: usize| -> Vec<String> {
            let sharing = resolved.targets.devices[index].time_slicing.clone();
            let shares = sharing.unwrap().shares;
            shares.iter().map(|share| share.of.to_string()).collect()
        };
        assert_eq!(of(0), ["3g.71gb", "1c.3g.71gb"]);
        // A device without profiles cannot contradict them.
        assert_eq!(of(1), ["3g.70gb", "1c.3g.71gb"]);
        let warnings: Vec<String> = resolved.warnings.iter().map(ToString::to_string).collect();
        assert_eq!(
            warnings,
            [
                "layout \"test\", rule 1: GPU 0 (0000:01:00.0): 3g.70gb is read as 3g.71gb, the name on this device"
            ]
        );
    }

    #[test]
    fn i12_unknown_shared_profile_is_an_error_with_its_position() {
        let node = node([A100_80.gpu(0)]);
        let errors =
            resolve_octavo([rule_of(None, &["2g.10gb", "3c.4g.40gb"])], &node).unwrap_err();
        let messages: Vec<String> =
            errors.iter().map(|error| format!("{} {error}", error.position)).collect();
        assert_eq!(messages.len(), 2, "{messages:?}");
        assert!(messages[0].starts_with("7:1 ") && messages[0].contains("does not offer 2g.10gb"));
        assert!(
            messages[1].starts_with("7:2 ") && messages[1].contains("3c.4g.40gb is not available")
        );
    }

    #[test]
    fn shared_profile_without_partition_is_a_warning() {
        let node = node([A100_80.gpu(0)]);
        let made: &[(&str, u32)] = &[("3g.40gb", 1), ("2c.3g.40gb", 1)];
        let shared = ["3g.40gb", "2c.3g.40gb", "1c.3g.40gb", "1g.10gb"];
        let resolved = resolve_octavo([rule_of(Some(made), &shared)], &node).unwrap();
        let warnings: Vec<u32> = resolved.warnings.iter().map(|one| one.position.column).collect();
        assert_eq!(warnings, [3, 4]);
    }
}
