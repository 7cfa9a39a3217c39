//! Hardware rules that do not depend on placements.

use super::HardwareRule;
use super::board::{Board, BoardProfile, MediaEngines};
use crate::layout::InstanceTarget;
use crate::split;

/// Checks `instances` against all rules that do not depend on placements, and returns the first violated one.
pub(super) fn check_instances(
    board: &Board<'_>,
    instances: &[InstanceTarget],
) -> Result<(), HardwareRule> {
    let mut counts = vec![0_u32; board.profiles.len()];
    for instance in instances {
        let profile_id = instance.profile_id;
        let (at, profile) =
            board.find(profile_id).ok_or(HardwareRule::NoSuchProfile { profile_id })?;
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
    check_counts(board, &counts)
}

/// Checks the counts by profile, in the board's order, and returns the first violated rule.
pub(super) fn check_counts(board: &Board<'_>, counts: &[u32]) -> Result<(), HardwareRule> {
    check_media_engines(board, counts)?;
    for (profile, count) in requested(board, counts) {
        let most = max_instances(board, profile);
        if count > most {
            let profile_id = profile.source.id;
            return Err(HardwareRule::TooMany { profile_id, requested: count, most });
        }
    }
    let each = requested(board, counts).map(|(profile, n)| profile.gpu_slices().saturating_mul(n));
    let slices = each.fold(0_u32, u32::saturating_add);
    if slices > board.gpu_slices {
        return Err(HardwareRule::GpuSlices { requested: slices, most: board.gpu_slices });
    }
    let each =
        requested(board, counts).map(|(profile, n)| profile.min_memory_slices().saturating_mul(n));
    let memory = each.fold(0_u32, u32::saturating_add);
    if memory > board.memory_slices {
        return Err(HardwareRule::MemorySlices { requested: memory, most: board.memory_slices });
    }
    Ok(())
}

fn check_media_engines(board: &Board<'_>, counts: &[u32]) -> Result<(), HardwareRule> {
    // Only these profiles exclude others, and a valid set has at most one of them, so this takes linear time.
    let special = requested(board, counts).filter(|(profile, _)| {
        matches!(profile.media, MediaEngines::Extensions | MediaEngines::All)
    });
    for (profile, count) in special {
        let (profile_id, media) = (profile.source.id, profile.media);
        if count > 1 && media.excludes(media) {
            return Err(HardwareRule::Exclusive { profile_id, other: profile_id });
        }
        let mut others =
            requested(board, counts).filter(|(other, _)| other.source.id != profile_id);
        if let Some((other, _)) = others.find(|(other, _)| media.excludes(other.media)) {
            return Err(HardwareRule::Exclusive { profile_id, other: other.source.id });
        }
    }
    Ok(())
}

/// Returns the profiles with a count of at least one.
fn requested<'a, 'b>(
    board: &'b Board<'a>,
    counts: &'b [u32],
) -> impl Iterator<Item = (&'b BoardProfile<'a>, u32)> {
    let pairs = board.profiles.iter().zip(counts.iter().copied());
    pairs.filter(|(_, count)| *count > 0)
}

/// Returns the maximum instances of one profile on an empty device.
fn max_instances(board: &Board<'_>, profile: &BoardProfile<'_>) -> u32 {
    let by_slices = board.gpu_slices.checked_div(profile.gpu_slices());
    profile.max_instances.min(by_slices.unwrap_or(u32::MAX))
}
