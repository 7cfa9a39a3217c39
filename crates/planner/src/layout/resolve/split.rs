//! Converts profile names and counts into GPU instances, packing compute instances into as few of them as possible.

use std::collections::BTreeMap;

use octavo_model::catalog::{GpuInstanceProfile, ProfileCatalog};
use octavo_model::profile::ProfileName;
use octavo_model::source_position::SourcePosition;

use super::ResolvedProfile;
use crate::layout::error::RuleErrorKind;
use crate::layout::{InstanceTarget, limits};
use crate::split;

/// All requests for one profile.
struct ProfileRequest<'a> {
    profile: &'a GpuInstanceProfile,
    /// Position of the last name of this profile.
    position: SourcePosition,
    /// GPU instances with one compute instance that spans all slices.
    whole: u64,
    /// Number of compute instances by slices.
    parts: BTreeMap<u32, u64>,
}

/// Returns the GPU instances that `entries` request, and the errors.
pub(super) fn instances(
    catalog: &ProfileCatalog,
    entries: &[ResolvedProfile<'_>],
) -> (Vec<InstanceTarget>, Vec<(SourcePosition, RuleErrorKind)>) {
    let mut wrong = Vec::new();
    let mut groups: BTreeMap<u32, ProfileRequest<'_>> = BTreeMap::new();
    for entry in entries {
        let ResolvedProfile { count, profile } = entry;
        let group = groups.entry(profile.id).or_insert_with(|| ProfileRequest::new(profile));
        group.position = count.position;
        if let Err(reason) = group.add(entry) {
            wrong.push((count.position, reason));
        }
    }
    let mut made = Vec::new();
    for group in groups.values() {
        match group.instances(u64::from(limits::max_instances(catalog, group.profile))) {
            Ok(instances) => made.extend(instances),
            Err(reason) => wrong.push((group.position, reason)),
        }
    }
    (made, wrong)
}

/// Returns the error of a compute instance profile that GPU instances of `profile` do not offer.
pub(super) fn impossible_split(
    profile: &GpuInstanceProfile,
    requested: &ProfileName,
) -> RuleErrorKind {
    let legal = split::compute_sizes(profile).into_iter();
    RuleErrorKind::ComputeSplit {
        requested: requested.to_string(),
        whole: profile.name.to_string(),
        legal: legal
            .filter_map(|size| Some(profile.name.with_compute_slices(size)?.to_string()))
            .collect(),
    }
}

/// Returns the name of a compute instance with `size` slices in a GPU instance of `profile`.
pub(super) fn compute_name(profile: &GpuInstanceProfile, size: u32) -> String {
    let name = profile.name.with_compute_slices(size);
    name.unwrap_or_else(|| profile.name.clone()).to_string()
}

impl<'a> ProfileRequest<'a> {
    fn new(profile: &'a GpuInstanceProfile) -> Self {
        Self { profile, position: SourcePosition::default(), whole: 0, parts: BTreeMap::new() }
    }

    fn add(&mut self, entry: &ResolvedProfile<'_>) -> Result<(), RuleErrorKind> {
        let requested = &entry.count.profile;
        let count = u64::from(entry.count.count);
        if requested.compute_slices() == requested.gpu_slices() {
            self.whole = self.whole.saturating_add(count);
            return Ok(());
        }
        let size = u32::from(requested.compute_slices());
        if !split::compute_sizes(self.profile).contains(&size) {
            return Err(impossible_split(self.profile, requested));
        }
        let sum = self.parts.entry(size).or_default();
        *sum = sum.saturating_add(count);
        Ok(())
    }

    /// Returns at most `max_instances` GPU instances. Every count is checked against this limit before anything is allocated.
    fn instances(&self, most: u64) -> Result<Vec<InstanceTarget>, RuleErrorKind> {
        if self.whole > most {
            return Err(RuleErrorKind::TooMany {
                profile: self.profile.name.to_string(),
                requested: self.whole,
                most,
            });
        }
        for (size, count) in &self.parts {
            let most = most.saturating_mul(u64::from(split::max_instances(self.profile, *size)));
            if *count > most {
                return Err(RuleErrorKind::TooMany {
                    profile: compute_name(self.profile, *size),
                    requested: *count,
                    most,
                });
            }
        }
        let mut splits = self.pack();
        let all = u64::try_from(splits.len()).unwrap_or(u64::MAX).saturating_add(self.whole);
        if all > most {
            return Err(RuleErrorKind::TooManyGpuInstances {
                profile: self.profile.name.to_string(),
                requested: all,
                most,
            });
        }
        splits.extend((0..self.whole).map(|_| vec![self.profile.resources.gpu_slices]));
        let targets = splits.into_iter().map(|compute| InstanceTarget {
            profile_id: self.profile.id,
            compute,
            placement: None,
        });
        Ok(targets.collect())
    }

    /// Packs compute instances first-fit, largest first. This needs the fewest GPU instances on every existing device:
    /// where a board has room for two GPU instances of a profile, the sizes are 1 and 2, or 1, 2 and all.
    fn pack(&self) -> Vec<Vec<u32>> {
        let mut splits: Vec<Vec<u32>> = Vec::new();
        for (size, count) in self.parts.iter().rev() {
            for _ in 0..*count {
                let split_with_room = splits.iter_mut().find_map(|known| {
                    let mut wider = known.clone();
                    wider.push(*size);
                    split::is_possible(self.profile, &wider).then_some((known, wider))
                });
                match split_with_room {
                    Some((known, wider)) => *known = wider,
                    None => splits.push(vec![*size]),
                }
            }
        }
        splits
    }
}
