//! What stands under one name, and what of it does not go together: a pod asks for a name and cannot choose among its units.

use std::collections::BTreeSet;

use super::units::Candidate;
use super::warnings::Warnings;
use crate::domain::layout::{Rename, Share};
use crate::domain::sharing::ResourceName;

/// A unit, and the share that counts for it.
#[derive(Debug)]
pub(super) struct Named<'a> {
    pub(super) candidate: &'a Candidate,
    pub(super) share: Option<&'a Share>,
}

/// What a resource is called once it is shared.
pub(super) fn renamed(name: &ResourceName, rename: &Rename) -> ResourceName {
    match rename {
        Rename::No => name.clone(),
        Rename::Shared => name.shared(),
        Rename::To(other) => other.clone(),
    }
}

/// Says what does not go together.
pub(super) fn complain(name: &ResourceName, all: &[Named<'_>], warnings: &mut Warnings) {
    let kinds: BTreeSet<String> = all.iter().map(kind).collect();
    if kinds.len() > 1 {
        let kinds: Vec<String> = kinds.into_iter().collect();
        warnings.say(format!(
            "{name} is {}, and a pod cannot choose among them; let them have names of their own",
            kinds.join(" and ")
        ));
    }
    let shared = all.iter().filter_map(|one| one.share);
    let strict = shared
        .clone()
        .filter(|share| share.fail_requests_greater_than_one);
    let (shared, strict) = (shared.count(), strict.count());
    if shared > 0 && shared < all.len() {
        warnings.say(format!(
            "{name} is shared in {shared} of {} units, and a pod cannot choose among them; rename what is shared",
            all.len()
        ));
    }
    if strict > 0 && strict < shared {
        warnings.say(format!(
            "{name}: failRequestsGreaterThanOne is said of {strict} of {shared} units that are shared; it counts for all of them"
        ));
    }
    for one in all {
        too_much(one, warnings);
    }
}

fn kind(named: &Named<'_>) -> String {
    match &named.candidate.unit.partition {
        None => "whole GPUs".to_owned(),
        Some(partition) => format!("partitions {}", partition.profile),
    }
}

/// What the replicas shall be content with has to be there.
fn too_much(named: &Named<'_>, warnings: &mut Warnings) {
    let Candidate { unit, called, .. } = named.candidate;
    let Some((share, has)) = named.share.zip(unit.memory) else {
        return;
    };
    let Some(each) = share.memory_per_replica else {
        return;
    };
    let all = u64::from(share.replicas).saturating_mul(each.get());
    if all > has.get() {
        let what = format!(
            "{} replicas of {each} are {all} MiB, and it has {has}",
            share.replicas
        );
        warnings.of(called, &what);
    }
}
