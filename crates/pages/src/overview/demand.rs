//! Pending pods: what they request, and why they wait.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use octavo_fleet::access::{Visibility, VisibleTypes};
use octavo_fleet::availability::{
    Availability, CountBasis, Demand, Obstacle, Obstacles, Shape, UnitType,
};

use crate::availability::wait;

/// Maximum number of rows.
const MAX_ROWS: usize = 50;

/// Pending pods.
#[derive(Debug)]
pub(crate) struct PendingPods {
    /// True if the cluster is watched, so that pods are known.
    pub(crate) is_followed: bool,
    /// True if the cluster was read.
    pub(crate) is_known: bool,
    pub(crate) pods: u64,
    pub(crate) rows: Vec<DemandRow>,
    /// Number of pods that are not shown.
    pub(crate) more: u64,
    /// True if other pods may wait, whose number is not shown because the user may not see their team or type.
    pub(crate) is_incomplete: bool,
    /// Text if no pod waits.
    pub(crate) none: &'static str,
}

/// Pending pods with the same request and reason.
#[derive(Debug)]
pub(crate) struct DemandRow {
    pub(crate) id: String,
    /// Namespace; empty if it is not shown.
    pub(crate) namespace: String,
    pub(crate) pods: u64,
    pub(crate) units: u64,
    pub(crate) product: String,
    pub(crate) shape: String,
    pub(crate) resource: String,
    pub(crate) reasons: Vec<String>,
    pub(crate) wait: Option<String>,
}

/// Request of pending pods, and what they wait for.
type Group<'a> = (&'a str, &'a UnitType, &'a str, &'a Shape, Option<&'a Obstacles>);

/// Pending pods of all namespaces, without the names of the namespaces.
pub(super) fn pending(
    availability: &Availability,
    is_followed: bool,
    visibility: &Visibility,
) -> PendingPods {
    let seen = availability.demands.iter();
    let seen = seen.filter(|one| visibility.shows_type(one.kind.as_str()));
    let seen = seen.map(|one| ("", one));
    let is_all = visibility.types == VisibleTypes::All;
    let limited = (!is_all).then_some("No pod requests one of the types that you can view.");
    collect(availability, is_followed, limited, seen)
}

/// Pending pods by namespace; of one namespace, if it is given.
pub(crate) fn pending_by_namespace(
    availability: &Availability,
    is_followed: bool,
    namespace: Option<&str>,
) -> PendingPods {
    let seen = availability.demands.iter();
    let seen = seen.filter(|one| namespace.is_none_or(|wanted| wanted == one.namespace));
    let seen = seen.map(|one| (one.namespace.as_str(), one));
    let limited = namespace.map(|_| "No pod of this namespace waits for an accelerator.");
    collect(availability, is_followed, limited, seen)
}

/// Groups the pods that are `seen`. If these are not all, `limited` is the text for none.
fn collect<'a>(
    availability: &'a Availability,
    is_followed: bool,
    limited: Option<&'static str>,
    seen: impl Iterator<Item = (&'a str, &'a Demand)>,
) -> PendingPods {
    let mut groups: BTreeMap<Group<'_>, Counts> = BTreeMap::new();
    let mut all = 0_u64;
    for (namespace, one) in seen {
        let group =
            (namespace, &one.kind, one.resource.as_str(), &one.shape, one.obstacles.as_ref());
        let counts = groups.entry(group).or_default();
        counts.pods = counts.pods.saturating_add(one.pods);
        counts.distinct = counts.distinct.saturating_add(one.distinct_pods);
        counts.units = counts.units.saturating_add(one.units);
        all = all.saturating_add(one.distinct_pods);
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|((namespace, ..), counts)| (*namespace, Reverse(counts.pods)));
    // The first resource of a pod may be one that the reader does not see.
    let most = groups.iter().map(|(_, counts)| counts.pods).max();
    // The number of omitted pods covers all namespaces and types.
    let omitted = if limited.is_none() { availability.omitted_pods } else { 0 };
    let more = groups.iter().skip(MAX_ROWS);
    let more = more.fold(omitted, |sum, (_, counts)| sum.saturating_add(counts.distinct));
    let shown = groups.into_iter().take(MAX_ROWS).enumerate();
    PendingPods {
        is_followed,
        is_known: availability.basis == CountBasis::Cluster,
        pods: all.max(most.unwrap_or(0)).saturating_add(omitted),
        rows: shown.map(|(number, one)| row(availability, number, one)).collect(),
        more,
        is_incomplete: limited.is_some() && availability.omitted_pods > 0,
        none: limited.unwrap_or("No pod waits for an accelerator."),
    }
}

/// Numbers of a group: its pods, those that are counted in it only, and the units that they request.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    pods: u64,
    distinct: u64,
    units: u64,
}

fn row(
    availability: &Availability,
    number: usize,
    ((namespace, kind, resource, shape, obstacles), counts): (Group<'_>, Counts),
) -> DemandRow {
    let mut rows = availability.rows.iter();
    let capacity = rows.find(|row| {
        (&row.key.kind, row.key.resource.as_str(), &row.key.shape) == (kind, resource, shape)
    });
    // The wait time of a row is that until one unit is free.
    let is_occupied = obstacles.is_some_and(|all| all.contains_key(&Obstacle::Occupied));
    let capacity =
        capacity.filter(|row| is_occupied && counts.units == counts.pods && row.nodes > 0);
    DemandRow {
        id: format!("pending-{number}"),
        namespace: namespace.to_owned(),
        pods: counts.pods,
        units: counts.units,
        product: match kind {
            UnitType::Known(_) => kind.product_name(),
            UnitType::Mixed | UnitType::Unknown => "any type".to_owned(),
        },
        shape: shape_words(shape),
        resource: resource.to_owned(),
        reasons: reasons(obstacles),
        wait: capacity.and_then(|row| wait(row.wait)),
    }
}

/// Shape of one unit, in words.
pub(crate) fn shape_words(shape: &Shape) -> String {
    match shape {
        Shape::Device => "whole device".to_owned(),
        Shape::Mig(name) | Shape::AmdPartition(name) => format!("partition {name}"),
        Shape::TimeSlice => "time slice".to_owned(),
        Shape::MigTimeSlice(name) => format!("time slice of {name}"),
        Shape::NeuronCore => "NeuronCore".to_owned(),
    }
}

fn reasons(obstacles: Option<&Obstacles>) -> Vec<String> {
    let Some(obstacles) = obstacles else {
        return vec![
            "the reason was not determined: there are too many different requests".to_owned(),
        ];
    };
    if obstacles.is_empty() {
        return vec!["no node has this resource".to_owned()];
    }
    if obstacles.keys().all(|one| *one == Obstacle::TooSmall) {
        return vec!["no node has so many units".to_owned()];
    }
    // Nodes that the pod does not select matter only if it selects none.
    let is_selective = obstacles.keys().any(|one| *one != Obstacle::NotSelected);
    let shown = obstacles.iter();
    let shown = shown.filter(|(one, _)| !is_selective || **one != Obstacle::NotSelected);
    shown.map(|(one, nodes)| one.describe(*nodes)).collect()
}
