//! Resolves a layout into the desired state of each device of a node.

mod names;
mod select;
mod sharing;
mod split;

use super::error::{DeviceRef, Reason, RuleError, RuleWarning, Surprise};
use super::{
    DeviceTarget, Dialect, Layout, MigTarget, MigWish, Place, ProfileCount, Rule, Selector,
    Targets, UnverifiedDevice,
};
use crate::domain::catalog::GpuInstanceProfile;
use crate::domain::id::PciAddress;
use crate::domain::inventory::{Condition, Device, Inventory, Mig, MigMode, MigState, Vendor};
use crate::domain::profile::ProfileName;

/// A layout resolved on one node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Resolved {
    /// The desired state of the devices.
    pub targets: Targets,
    /// The devices that rules select, including those with nothing to do, in no particular order.
    pub covered: Vec<PciAddress>,
    /// Possibly unintended effects of the rules.
    pub warnings: Vec<RuleWarning>,
}

/// Resolves `layout` for the devices of `inventory`.
///
/// Profile names are looked up in the catalog of each device. Counts are checked against what fits on an empty device,
/// profile by profile. The planner decides whether everything fits together and next to instances in use.
///
/// # Errors
/// Returns all errors, not only the first.
pub fn resolve(
    layout: &Layout,
    dialect: Dialect,
    inventory: &Inventory,
) -> Result<Resolved, Vec<RuleError>> {
    let mut report = Report::new(layout);
    let chosen = select::choose(layout, dialect, inventory, &mut report);
    let mut targets = Targets::default();
    for chosen in &chosen {
        let case = Case {
            chosen: *chosen,
            inventory,
        };
        match chosen.unreadable() {
            Some(reason) => targets
                .unverified
                .push(case.unverified(reason, &mut report)),
            None => targets.devices.extend(case.target(&mut report)),
        }
    }
    targets.devices.sort_by_key(|target| target.pci);
    targets.unverified.sort_by_key(|device| device.pci);
    if report.errors.is_empty() {
        Ok(Resolved {
            targets,
            covered: chosen.iter().map(|chosen| chosen.device.pci).collect(),
            warnings: report.warnings,
        })
    } else {
        Err(report.errors)
    }
}

/// A device and the rule that selects it.
#[derive(Debug, Clone, Copy)]
struct Chosen<'a> {
    device: &'a Device,
    rule: &'a Rule,
    /// One-based number of the rule.
    number: usize,
}

impl Chosen<'_> {
    /// Returns the reason why the device cannot be compared with the rule; `None` if it can. MIG capability does not
    /// matter to a rule that neither partitions nor selects by it.
    fn unreadable(&self) -> Option<String> {
        let Self { device, rule, .. } = self;
        let by_capability = match &rule.devices {
            Selector::All | Selector::Rest => false,
            Selector::Matching(criteria) => criteria.mig_capable.is_some(),
        };
        match (&device.condition, Capability::of(device)) {
            (_, Capability::No) if rule.mig.is_some() => None,
            (Condition::Failing { reason }, _) => Some(format!("failing: {reason}")),
            (_, Capability::Untold(why)) if rule.mig.is_some() || by_capability => Some(why),
            (Condition::Working | Condition::PciOnly { .. }, _) => None,
        }
    }
}

/// A device, its rule, and the inventory of the node.
#[derive(Clone, Copy)]
struct Case<'a> {
    chosen: Chosen<'a>,
    inventory: &'a Inventory,
}

/// Marker error: the cause is already in the report.
struct Reported;

/// A profile of a rule after lookup.
struct Entry<'a> {
    count: &'a ProfileCount,
    profile: &'a GpuInstanceProfile,
}

impl<'a> Case<'a> {
    fn unverified(self, reason: String, report: &mut Report<'_>) -> UnverifiedDevice {
        let Chosen { device, rule, .. } = self.chosen;
        let surprise = Surprise::Unverified {
            why: reason.clone(),
        };
        report.warning(self.chosen, rule.place, surprise);
        UnverifiedDevice {
            pci: device.pci,
            rule: rule.place,
            reason,
        }
    }

    fn target(self, report: &mut Report<'_>) -> Option<DeviceTarget> {
        let Chosen { device, rule, .. } = self.chosen;
        let mig = match &rule.mig {
            None => None,
            Some(wish) => self.mig(wish, report).ok()?,
        };
        let time_slicing = match &rule.time_slicing {
            None => None,
            Some(wish) => Some(self.time_slicing(wish, mig.as_ref(), report)?),
        };
        (mig.is_some() || time_slicing.is_some()).then_some(DeviceTarget {
            pci: device.pci,
            rule: rule.place,
            mig,
            time_slicing,
        })
    }

    /// Returns the MIG target; `None` if nothing has to be done because the device has no MIG mode to disable.
    fn mig(
        self,
        wish: &'a MigWish,
        report: &mut Report<'_>,
    ) -> Result<Option<MigTarget>, Reported> {
        let state = match (Capability::of(self.chosen.device), wish) {
            (Capability::No, MigWish::Disabled) => return Ok(None),
            (Capability::No, MigWish::Enabled(_)) => {
                report.error(self.chosen, self.chosen.rule.place, Reason::NotMigCapable);
                return Err(Reported);
            }
            // Unreachable in practice: such a device is unverified and has no target.
            (Capability::Untold(_), _) => return Err(Reported),
            (Capability::Yes(state), _) => state,
        };
        match wish {
            MigWish::Disabled => Ok(Some(MigTarget::Disabled)),
            MigWish::Enabled(counts) => {
                let partitions = self.partitions(state, counts, report);
                partitions.map(Some).ok_or(Reported)
            }
        }
    }

    fn partitions(
        self,
        state: &'a MigState,
        counts: &'a [ProfileCount],
        report: &mut Report<'_>,
    ) -> Option<MigTarget> {
        if let (true, Some(first)) = (state.catalog.profiles().is_empty(), counts.first()) {
            let reason = Reason::NoProfiles {
                mig_is_off: state.current == MigMode::Disabled,
            };
            report.error(self.chosen, first.place, reason);
            return None;
        }
        let entries: Vec<Option<Entry<'a>>> = counts
            .iter()
            .map(|count| self.entry(state, count, report))
            .collect();
        let complete = entries.iter().all(Option::is_some);
        let entries: Vec<Entry<'a>> = entries.into_iter().flatten().collect();
        let (mut instances, wrong) = split::instances(&state.catalog, &entries);
        let fits = wrong.is_empty();
        for (place, reason) in wrong {
            report.error(self.chosen, place, reason);
        }
        instances.sort_unstable();
        (complete && fits).then_some(MigTarget::Enabled(instances))
    }

    fn entry(
        self,
        state: &'a MigState,
        count: &'a ProfileCount,
        report: &mut Report<'_>,
    ) -> Option<Entry<'a>> {
        let profile = self.look_up((state, count.place), &count.profile, report)?;
        Some(Entry { count, profile })
    }

    /// Returns the GPU instance profile that a name denotes on the device.
    fn look_up(
        self,
        (state, place): (&'a MigState, Place),
        asked: &ProfileName,
        report: &mut Report<'_>,
    ) -> Option<&'a GpuInstanceProfile> {
        let reason = match names::look_up(state, asked) {
            Ok(found) => {
                if !found.exact {
                    let surprise = Surprise::OtherSpelling {
                        asked: asked.to_string(),
                        own: names::own_spelling(found.profile, asked),
                    };
                    report.warning(self.chosen, place, surprise);
                }
                return Some(found.profile);
            }
            Err(names::Missing::SameName(ids)) => Reason::SameName {
                name: asked.gpu_instance().to_string(),
                ids,
            },
            Err(names::Missing::Ambiguous(candidates)) => Reason::Ambiguous {
                asked: asked.to_string(),
                candidates,
            },
            Err(names::Missing::Unknown(offers)) => Reason::UnknownProfile {
                asked: asked.to_string(),
                offers,
                elsewhere: names::elsewhere(self.inventory, asked),
            },
        };
        report.error(self.chosen, place, reason);
        None
    }
}

/// Partitioning capability of a device.
enum Capability<'a> {
    Yes(&'a MigState),
    No,
    /// Unknown, for this reason.
    Untold(String),
}

impl<'a> Capability<'a> {
    /// MIG exists on NVIDIA GPUs only: another vendor's device never has it, whatever its driver reports.
    fn of(device: &'a Device) -> Self {
        if device.vendor != Vendor::Nvidia {
            return Self::No;
        }
        match (&device.condition, &device.mig) {
            (_, Mig::NotCapable) => Self::No,
            (Condition::Working, Mig::Capable(state)) => Self::Yes(state),
            (Condition::Failing { reason }, _) => Self::Untold(format!("failing: {reason}")),
            (Condition::PciOnly { .. }, _) => {
                Self::Untold("no driver library speaks for it".to_owned())
            }
            (Condition::Working, Mig::Unknown) => {
                let why = device.problems.first().map_or_else(
                    || "the driver did not tell".to_owned(),
                    |problem| format!("{}: {}", problem.what, problem.error),
                );
                Self::Untold(why)
            }
        }
    }
}

/// Collects errors and warnings, merging devices with the same problem into one message.
struct Report<'a> {
    layout: &'a Layout,
    errors: Vec<RuleError>,
    warnings: Vec<RuleWarning>,
}

impl<'a> Report<'a> {
    fn new(layout: &'a Layout) -> Self {
        Self {
            layout,
            errors: Vec::new(),
            warnings: Vec::new(),
        }
    }

    fn error(&mut self, chosen: Chosen<'_>, place: Place, reason: Reason) {
        let device = DeviceRef::of(chosen.device);
        let same = |error: &&mut RuleError| {
            error.rule == Some(chosen.number) && error.place == place && error.reason == reason
        };
        if let Some(known) = self.errors.iter_mut().find(same) {
            known.devices.push(device);
            return;
        }
        self.errors.push(RuleError {
            place,
            layout: self.layout.name.clone(),
            rule: Some(chosen.number),
            devices: vec![device],
            reason,
        });
    }

    /// Adds an error that concerns no device.
    fn error_of(&mut self, place: Place, rule: Option<usize>, reason: Reason) {
        self.errors.push(RuleError {
            place,
            layout: self.layout.name.clone(),
            rule,
            devices: Vec::new(),
            reason,
        });
    }

    fn warning(&mut self, chosen: Chosen<'_>, place: Place, surprise: Surprise) {
        let device = DeviceRef::of(chosen.device);
        let same = |warning: &&mut RuleWarning| {
            warning.rule == chosen.number && warning.place == place && warning.surprise == surprise
        };
        if let Some(known) = self.warnings.iter_mut().find(same) {
            known.devices.push(device);
            return;
        }
        self.warnings.push(RuleWarning {
            place,
            layout: self.layout.name.clone(),
            rule: chosen.number,
            devices: vec![device],
            surprise,
        });
    }

    /// Adds a warning that concerns no device.
    fn warning_of(&mut self, place: Place, rule: usize, surprise: Surprise) {
        self.warnings.push(RuleWarning {
            place,
            layout: self.layout.name.clone(),
            rule,
            devices: Vec::new(),
            surprise,
        });
    }
}
