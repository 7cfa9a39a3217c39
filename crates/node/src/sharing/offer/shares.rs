//! Selection of the share that applies to a unit.

use std::collections::BTreeMap;

use octavo_model::id::PciAddress;
use octavo_planner::layout::{Share, ShareTarget, TargetScope, Targets, UnitRef, UnitSelector};

use super::Warnings;
use super::units::Candidate;

/// Requested shares, and the units they may apply to.
#[derive(Debug)]
pub(super) struct Shares<'a> {
    by_device: BTreeMap<PciAddress, &'a [Share]>,
    candidates: &'a [Candidate],
}

impl<'a> Shares<'a> {
    pub(super) fn new(targets: &'a Targets, candidates: &'a [Candidate]) -> Self {
        let targets = targets.devices.iter();
        let of_layout = targets.filter(|target| target.scope == TargetScope::Layout);
        let by_device = of_layout.filter_map(|target| {
            let sharing = target.time_slicing.as_ref()?;
            Some((target.pci, sharing.shares.as_slice()))
        });
        Self { by_device: by_device.collect(), candidates }
    }

    /// The share that applies to a unit: the most specific, else the first.
    pub(super) fn share_for(&self, candidate: &Candidate) -> Option<&'a Share> {
        let mut best: Option<&'a Share> = None;
        for share in self.requested(candidate) {
            let counts_more =
                best.is_none_or(|best| specificity(&share.of) > specificity(&best.of));
            if counts_more && self.applies_to(share, candidate) {
                best = Some(share);
            }
        }
        best
    }

    fn requested(&self, candidate: &Candidate) -> &'a [Share] {
        let requested = self.by_device.get(&candidate.unit.pci);
        requested.copied().unwrap_or_default()
    }

    fn applies_to(&self, share: &Share, candidate: &Candidate) -> bool {
        match &share.of {
            ShareTarget::AllUnits => true,
            ShareTarget::Profile(profile) => {
                let partition = candidate.unit.partition.as_ref();
                partition.is_some_and(|partition| partition.profile == *profile)
            }
            ShareTarget::Resource { name, which } => {
                candidate.name == *name
                    && match which {
                        UnitSelector::All => true,
                        UnitSelector::First(count) => self.is_among_first(share, candidate, *count),
                        UnitSelector::Listed(items) => {
                            items.iter().any(|item| matches_item(item, candidate))
                        }
                    }
            }
        }
    }

    /// Returns whether the unit is among the first `count` units to which the share could apply.
    fn is_among_first(&self, share: &Share, candidate: &Candidate, count: u32) -> bool {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let alike = self.matching_candidates(share, candidate);
        let mut first = alike.take(count);
        first.any(|other| other.unit.uuid == candidate.unit.uuid)
    }

    /// Units of the same name on devices with the same share.
    fn matching_candidates<'s>(
        &'s self,
        share: &'s Share,
        candidate: &'s Candidate,
    ) -> impl Iterator<Item = &'a Candidate> + 's {
        self.candidates.iter().filter(move |other| {
            other.name == candidate.name && self.requested(other).contains(share)
        })
    }

    /// Warns about shares that apply to fewer units than they name.
    pub(super) fn warn_unused(&self, warnings: &mut Warnings) {
        let mut seen: Vec<&Share> = Vec::new();
        for share in self.by_device.values().copied().flatten() {
            // Each device may spell a profile differently.
            let same = |known: &&&Share| match share.of {
                ShareTarget::Profile(_) => known.position == share.position,
                ShareTarget::AllUnits | ShareTarget::Resource { .. } => **known == share,
            };
            if seen.iter().find(same).is_none() {
                seen.push(share);
                self.warn_unused_share(share, warnings);
            }
        }
    }

    fn warn_unused_share(&self, share: &Share, warnings: &mut Warnings) {
        let named = match &share.of {
            ShareTarget::AllUnits => return,
            ShareTarget::Profile(_) => {
                let of_place = |candidate: &Candidate| {
                    self.requested(candidate).iter().any(|other| {
                        let same = other.position == share.position;
                        same && matches!(other.of, ShareTarget::Profile(_))
                            && self.applies_to(other, candidate)
                    })
                };
                if !self.candidates.iter().any(of_place) {
                    warnings.add(no_such_resource(&share.of));
                }
                return;
            }
            ShareTarget::Resource { name, .. } => {
                let all = self.candidates.iter();
                all.filter(|one| one.name == *name && self.requested(one).contains(share))
            }
        };
        let named: Vec<&Candidate> = named.collect();
        if named.is_empty() {
            return warnings.add(no_such_resource(&share.of));
        }
        match &share.of {
            ShareTarget::Resource { which: UnitSelector::First(count), .. }
                if named.len() < usize::try_from(*count).unwrap_or(usize::MAX) =>
            {
                let (target, has) = (&share.of, named.len());
                warnings.add(format!("the layout shares {target}, but only {has} exist"));
            }
            ShareTarget::Resource { which: UnitSelector::Listed(items), name } => {
                for item in items {
                    if !named.iter().any(|one| matches_item(item, one)) {
                        warnings.add(format!(
                            "the layout shares {item}, which is not a {name} on this node"
                        ));
                    }
                }
            }
            ShareTarget::AllUnits | ShareTarget::Profile(_) | ShareTarget::Resource { .. } => {}
        }
    }
}

fn no_such_resource(target: &ShareTarget) -> String {
    format!("the layout shares {target}, but this node has no such resource")
}

/// Specificity of a share.
fn specificity(target: &ShareTarget) -> u8 {
    match target {
        ShareTarget::AllUnits => 0,
        ShareTarget::Profile(_) => 1,
        ShareTarget::Resource { which, .. } => match which {
            UnitSelector::All => 1,
            UnitSelector::First(_) => 2,
            UnitSelector::Listed(_) => 3,
        },
    }
}

fn matches_item(item: &UnitRef, candidate: &Candidate) -> bool {
    match item {
        UnitRef::Index(index) => candidate.index == Some(*index),
        UnitRef::Partition(index, ordinal) => {
            candidate.index == Some(*index) && candidate.ordinal == Some(*ordinal)
        }
        UnitRef::Gpu(uuid) => candidate.gpu.as_ref() == Some(uuid),
        UnitRef::Mig(uuid) => candidate.unit.uuid == uuid.as_str(),
    }
}
