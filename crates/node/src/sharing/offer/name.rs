//! Units under one resource name, and their conflicts: a pod requests a name and cannot choose among its units.

use std::collections::BTreeSet;

use octavo_model::resource::ResourceName;
use octavo_planner::layout::{ResourceRename, Share};

use super::units::Candidate;
use super::warnings::Warnings;

/// A unit, and the share that applies to it.
#[derive(Debug)]
pub(super) struct NamedUnit<'a> {
    pub(super) candidate: &'a Candidate,
    pub(super) share: Option<&'a Share>,
}

/// The resource name of shared units.
pub(super) fn renamed(name: &ResourceName, rename: &ResourceRename) -> ResourceName {
    match rename {
        ResourceRename::No => name.clone(),
        ResourceRename::Shared => name.shared(),
        ResourceRename::To(other) => other.clone(),
    }
}

/// Warns about conflicts between the units.
pub(super) fn warn_conflicts(name: &ResourceName, all: &[NamedUnit<'_>], warnings: &mut Warnings) {
    let kinds: BTreeSet<String> = all.iter().map(kind).collect();
    if kinds.len() > 1 {
        let kinds: Vec<String> = kinds.into_iter().collect();
        warnings.add(format!(
            "{name} consists of {}, and a pod cannot choose among them; use a separate name for each",
            kinds.join(" and ")
        ));
    }
    let shared = all.iter().filter_map(|one| one.share);
    let strict = shared.clone().filter(|share| share.fail_requests_greater_than_one);
    let (shared, strict) = (shared.count(), strict.count());
    if shared > 0 && shared < all.len() {
        warnings.add(format!(
            "{name} is shared in {shared} of {} units, and a pod cannot choose among them; rename the shared units",
            all.len()
        ));
    }
    if strict > 0 && strict < shared {
        warnings.add(format!(
            "{name}: failRequestsGreaterThanOne is set for {strict} of {shared} shared units; it applies to all of \
             them"
        ));
    }
    for one in all {
        warn_memory_exceeded(one, warnings);
    }
}

fn kind(named: &NamedUnit<'_>) -> String {
    match &named.candidate.unit.partition {
        None => "whole GPUs".to_owned(),
        Some(partition) => format!("partitions {}", partition.profile),
    }
}

/// Warns if the memory of all replicas exceeds that of the unit.
fn warn_memory_exceeded(named: &NamedUnit<'_>, warnings: &mut Warnings) {
    let Candidate { unit, display_name: called, .. } = named.candidate;
    let Some((share, has)) = named.share.zip(unit.memory) else {
        return;
    };
    let Some(each) = share.memory_per_replica else {
        return;
    };
    let all = u64::from(share.replicas).saturating_mul(each.get());
    if all > has.get() {
        let what =
            format!("{} replicas of {each} need {all} MiB, but it has {has}", share.replicas);
        warnings.add_for(called, &what);
    }
}
