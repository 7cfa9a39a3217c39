//! Selection of the share that applies to a unit.

use std::collections::BTreeMap;

use super::units::Candidate;
use super::warnings::Warnings;
use crate::domain::id::PciAddress;
use crate::domain::layout::{Item, Share, ShareOf, Targets, Which};

/// Requested shares, and the units they may apply to.
#[derive(Debug)]
pub(super) struct Shares<'a> {
    by_device: BTreeMap<PciAddress, &'a [Share]>,
    candidates: &'a [Candidate],
}

impl<'a> Shares<'a> {
    pub(super) fn new(targets: &'a Targets, candidates: &'a [Candidate]) -> Self {
        let targets = targets.devices.iter();
        let by_device = targets.filter_map(|target| {
            let sharing = target.time_slicing.as_ref()?;
            Some((target.pci, sharing.shares.as_slice()))
        });
        Self {
            by_device: by_device.collect(),
            candidates,
        }
    }

    /// The share that applies to a unit: the most specific, else the first.
    pub(super) fn of(&self, candidate: &Candidate) -> Option<&'a Share> {
        let mut best: Option<&'a Share> = None;
        for share in self.asked(candidate) {
            let counts_more = best.is_none_or(|best| weight(&share.of) > weight(&best.of));
            if counts_more && self.speaks_of(share, candidate) {
                best = Some(share);
            }
        }
        best
    }

    fn asked(&self, candidate: &Candidate) -> &'a [Share] {
        let asked = self.by_device.get(&candidate.unit.pci);
        asked.copied().unwrap_or_default()
    }

    fn speaks_of(&self, share: &Share, candidate: &Candidate) -> bool {
        match &share.of {
            ShareOf::Everything => true,
            ShareOf::Profile(profile) => {
                let partition = candidate.unit.partition.as_ref();
                partition.is_some_and(|partition| partition.profile == *profile)
            }
            ShareOf::Resource { name, which } => {
                candidate.name == *name
                    && match which {
                        Which::All => true,
                        Which::First(count) => self.comes_before(share, candidate, *count),
                        Which::These(items) => items.iter().any(|item| is(item, candidate)),
                    }
            }
        }
    }

    /// Returns whether the unit is among the first `count` units to which the share could apply.
    fn comes_before(&self, share: &Share, candidate: &Candidate, count: u32) -> bool {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let alike = self.alike(share, candidate);
        let mut first = alike.take(count);
        first.any(|other| other.unit.uuid == candidate.unit.uuid)
    }

    /// Units of the same name on devices with the same share.
    fn alike<'s>(
        &'s self,
        share: &'s Share,
        candidate: &'s Candidate,
    ) -> impl Iterator<Item = &'a Candidate> + 's {
        self.candidates
            .iter()
            .filter(move |other| other.name == candidate.name && self.asked(other).contains(share))
    }

    /// Warns about shares that apply to fewer units than they name.
    pub(super) fn complain(&self, warnings: &mut Warnings) {
        let mut seen: Vec<&Share> = Vec::new();
        for share in self.by_device.values().copied().flatten() {
            // Each device may spell a profile differently.
            let same = |known: &&&Share| match share.of {
                ShareOf::Profile(_) => known.place == share.place,
                ShareOf::Everything | ShareOf::Resource { .. } => **known == share,
            };
            if seen.iter().find(same).is_none() {
                seen.push(share);
                self.complain_of(share, warnings);
            }
        }
    }

    fn complain_of(&self, share: &Share, warnings: &mut Warnings) {
        let named = match &share.of {
            ShareOf::Everything => return,
            ShareOf::Profile(_) => {
                let of_place = |candidate: &Candidate| {
                    self.asked(candidate).iter().any(|other| {
                        let same = other.place == share.place;
                        same && matches!(other.of, ShareOf::Profile(_))
                            && self.speaks_of(other, candidate)
                    })
                };
                if !self.candidates.iter().any(of_place) {
                    warnings.say(nothing(&share.of));
                }
                return;
            }
            ShareOf::Resource { name, .. } => {
                let all = self.candidates.iter();
                all.filter(|one| one.name == *name && self.asked(one).contains(share))
            }
        };
        let named: Vec<&Candidate> = named.collect();
        if named.is_empty() {
            return warnings.say(nothing(&share.of));
        }
        match &share.of {
            ShareOf::Resource {
                which: Which::First(count),
                ..
            } if named.len() < usize::try_from(*count).unwrap_or(usize::MAX) => {
                let (of, has) = (&share.of, named.len());
                warnings.say(format!("{of} shall be shared, and there are {has}"));
            }
            ShareOf::Resource {
                which: Which::These(items),
                name,
            } => {
                for item in items {
                    if !named.iter().any(|one| is(item, one)) {
                        warnings.say(format!("{item} shall be shared, and is no {name} here"));
                    }
                }
            }
            ShareOf::Everything | ShareOf::Profile(_) | ShareOf::Resource { .. } => {}
        }
    }
}

fn nothing(of: &ShareOf) -> String {
    format!("{of} shall be shared, and nothing is given out as that here")
}

/// Specificity of a share.
fn weight(of: &ShareOf) -> u8 {
    match of {
        ShareOf::Everything => 0,
        ShareOf::Profile(_) => 1,
        ShareOf::Resource { which, .. } => match which {
            Which::All => 1,
            Which::First(_) => 2,
            Which::These(_) => 3,
        },
    }
}

fn is(item: &Item, candidate: &Candidate) -> bool {
    match item {
        Item::Index(index) => candidate.index == Some(*index),
        Item::Partition(index, ordinal) => {
            candidate.index == Some(*index) && candidate.ordinal == Some(*ordinal)
        }
        Item::Gpu(uuid) => candidate.gpu.as_ref() == Some(uuid),
        Item::Mig(uuid) => candidate.unit.uuid == uuid.as_str(),
    }
}
