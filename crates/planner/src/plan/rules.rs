//! Hardware rules that do not depend on placements.

use super::HardwareRule;
use super::profile_table::{MediaEngines, PlaceableProfile, ProfileTable};
use crate::layout::InstanceTarget;
use crate::split;

/// Checks `instances` against all rules that do not depend on placements, and returns the first violated one.
pub(super) fn check_instances(
    table: &ProfileTable<'_>,
    instances: &[InstanceTarget],
) -> Result<(), HardwareRule> {
    let mut counts = vec![0_u32; table.profiles.len()];
    for instance in instances {
        let profile_id = instance.profile_id;
        let (at, profile) =
            table.find(profile_id).ok_or(HardwareRule::NoSuchProfile { profile_id })?;
        if !split::is_possible(profile.source, &instance.compute) {
            return Err(HardwareRule::ComputeSplit {
                profile_id,
                compute: instance.compute.clone(),
            });
        }
        if let Some(count) = counts.get_mut(at) {
            *count = count.saturating_add(1);
        }
    }
    check_counts(table, &counts)
}

/// Checks the counts by profile, in the order of the table, and returns the first violated rule.
pub(super) fn check_counts(table: &ProfileTable<'_>, counts: &[u32]) -> Result<(), HardwareRule> {
    check_media_engines(table, counts)?;
    for (profile, count) in requested(table, counts) {
        let most = max_instances(table, profile);
        if count > most {
            let profile_id = profile.source.id;
            return Err(HardwareRule::TooMany { profile_id, requested: count, most });
        }
    }
    let each = requested(table, counts).map(|(profile, n)| profile.gpu_slices().saturating_mul(n));
    let slices = each.fold(0_u32, u32::saturating_add);
    if slices > table.gpu_slices {
        return Err(HardwareRule::GpuSlices { requested: slices, most: table.gpu_slices });
    }
    let each =
        requested(table, counts).map(|(profile, n)| profile.min_memory_slices().saturating_mul(n));
    let memory = each.fold(0_u32, u32::saturating_add);
    if memory > table.memory_slices {
        return Err(HardwareRule::MemorySlices { requested: memory, most: table.memory_slices });
    }
    Ok(())
}

fn check_media_engines(table: &ProfileTable<'_>, counts: &[u32]) -> Result<(), HardwareRule> {
    // Only these profiles exclude others, and a valid set has at most one of them, so this takes linear time.
    let special = requested(table, counts).filter(|(profile, _)| {
        matches!(profile.media, MediaEngines::Extensions | MediaEngines::All)
    });
    for (profile, count) in special {
        let (profile_id, media) = (profile.source.id, profile.media);
        if count > 1 && media.excludes(media) {
            return Err(HardwareRule::Exclusive { profile_id, other: profile_id });
        }
        let mut others =
            requested(table, counts).filter(|(other, _)| other.source.id != profile_id);
        if let Some((other, _)) = others.find(|(other, _)| media.excludes(other.media)) {
            return Err(HardwareRule::Exclusive { profile_id, other: other.source.id });
        }
    }
    Ok(())
}

/// Returns the profiles with a count of at least one.
fn requested<'a, 'b>(
    table: &'b ProfileTable<'a>,
    counts: &'b [u32],
) -> impl Iterator<Item = (&'b PlaceableProfile<'a>, u32)> {
    let pairs = table.profiles.iter().zip(counts.iter().copied());
    pairs.filter(|(_, count)| *count > 0)
}

/// Returns the maximum instances of one profile on an empty device.
fn max_instances(table: &ProfileTable<'_>, profile: &PlaceableProfile<'_>) -> u32 {
    let by_slices = table.gpu_slices.checked_div(profile.gpu_slices());
    profile.max_instances.min(by_slices.unwrap_or(u32::MAX))
}
