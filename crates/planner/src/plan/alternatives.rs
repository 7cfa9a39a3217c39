//! Alternatives to a target that a device does not support.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::arrange::ArrangementQuery;
use super::profile_table::ProfileTable;
use super::work_budget::{BudgetExceeded, WorkBudget};
use super::{HardwareRule, rules};
use crate::layout::InstanceTarget;
use crate::split;

/// Number of alternatives.
const MAX_ALTERNATIVES: usize = 3;

/// Returns the hardware rule that forbids `instances` on the empty device, if there is one.
pub(super) fn violated_rule(
    table: &ProfileTable<'_>,
    instances: &[InstanceTarget],
    work: &mut WorkBudget,
) -> Result<Option<HardwareRule>, BudgetExceeded> {
    let profiles = table.profiles.len();
    work.spend(profiles.saturating_add(instances.len().saturating_mul(profiles)))?;
    if let Err(rule) = rules::check_instances(table, instances) {
        return Ok(Some(rule));
    }
    let fits = fits(table, instances, work)?;
    Ok((!fits).then_some(HardwareRule::NoArrangement))
}

/// Returns true if an arrangement exists.
fn fits(
    table: &ProfileTable<'_>,
    instances: &[InstanceTarget],
    work: &mut WorkBudget,
) -> Result<bool, BudgetExceeded> {
    let query = ArrangementQuery { table, existing: &[], instances, refused: &|_, _| false };
    query.fits(work)
}

/// Returns the combinations of profiles closest to `requested`: fewest changed instances, then most slices used. If the
/// work budget ends before all combinations are examined, returns the closest so far.
pub(super) fn find_alternatives(
    table: &ProfileTable<'_>,
    requested: &[InstanceTarget],
    work: &mut WorkBudget,
) -> Vec<Vec<InstanceTarget>> {
    let mut found: Vec<Vec<u32>> = Vec::new();
    let mut counts = vec![0; table.profiles.len()];
    let _ended_early = combinations(table, 0, &mut counts, &mut found, work);
    let mut ranked: Vec<(usize, Reverse<u32>, Vec<InstanceTarget>)> = found
        .into_iter()
        .filter(|counts| counts.iter().any(|count| *count > 0))
        .map(|counts| rank_alternative(table, requested, &counts))
        .collect();
    ranked.sort();
    ranked.truncate(MAX_ALTERNATIVES);
    ranked.into_iter().map(|(_, _, instances)| instances).collect()
}

/// Enumerates every combination that fits. Every part of a fitting combination fits, so the others are not extended.
fn combinations(
    table: &ProfileTable<'_>,
    from: usize,
    counts: &mut Vec<u32>,
    found: &mut Vec<Vec<u32>>,
    work: &mut WorkBudget,
) -> Result<(), BudgetExceeded> {
    // The later ranking takes time proportional to the size.
    let size: usize = counts.iter().filter_map(|n| usize::try_from(*n).ok()).sum();
    work.spend(size.saturating_mul(16))?;
    found.push(counts.clone());
    for at in from..table.profiles.len() {
        work.spend(table.profiles.len())?;
        add(counts, at, 1);
        if rules::check_counts(table, counts).is_ok()
            && fits(table, &unsplit_instances(table, counts), work)?
        {
            combinations(table, at, counts, found, work)?;
        }
        add(counts, at, -1);
    }
    Ok(())
}

fn add(counts: &mut [u32], at: usize, by: i32) {
    if let Some(count) = counts.get_mut(at) {
        *count = count.saturating_add_signed(by);
    }
}

/// Returns unsplit instances with these counts by profile.
fn unsplit_instances(table: &ProfileTable<'_>, counts: &[u32]) -> Vec<InstanceTarget> {
    let pairs = table.profiles.iter().zip(counts);
    let all = pairs.flat_map(|(profile, count)| {
        let instance = InstanceTarget {
            profile_id: profile.source.id,
            compute: vec![profile.gpu_slices()],
            placement: None,
        };
        (0..*count).map(move |_| instance.clone())
    });
    all.collect()
}

/// Returns the ranking key and the instances of an alternative: changed instances, then slices used. Reuses the
/// requested instances where possible.
fn rank_alternative(
    table: &ProfileTable<'_>,
    requested: &[InstanceTarget],
    counts: &[u32],
) -> (usize, Reverse<u32>, Vec<InstanceTarget>) {
    let mut by_profile: BTreeMap<u32, Vec<&InstanceTarget>> = BTreeMap::new();
    for instance in requested {
        let same = by_profile.entry(instance.profile_id).or_default();
        same.push(instance);
    }
    let (mut retained, mut slices) = (0_usize, 0_u32);
    let mut instances = Vec::new();
    for (profile, count) in table.profiles.iter().zip(counts) {
        slices = slices.saturating_add(profile.gpu_slices().saturating_mul(*count));
        let same = by_profile.get(&profile.source.id);
        let usable = same
            .into_iter()
            .flatten()
            .filter(|instance| split::is_possible(profile.source, &instance.compute));
        let count = usize::try_from(*count).unwrap_or(usize::MAX);
        let taken: Vec<InstanceTarget> = usable.take(count).map(|one| (*one).clone()).collect();
        retained = retained.saturating_add(taken.len());
        let fresh = count.saturating_sub(taken.len());
        instances.extend(taken);
        instances.extend((0..fresh).map(|_| InstanceTarget {
            profile_id: profile.source.id,
            compute: vec![profile.gpu_slices()],
            placement: None,
        }));
    }
    instances.sort();
    let changed = requested.len().max(instances.len()).saturating_sub(retained);
    (changed, Reverse(slices), instances)
}
