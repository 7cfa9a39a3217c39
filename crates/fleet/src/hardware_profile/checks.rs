//! Checks of a profile: of its own fields, and of the nodes that it reaches.

use std::collections::BTreeSet;

use octavo_model::id::TypeName;

use super::{
    CandidateNode, Finding, HardwareProfile, Identifier, MatchingNodes, Scheduling, matching_nodes,
};
use crate::cluster::{ClusterSnapshot, Selector};

/// Cluster data for checking profiles.
#[derive(Debug, Clone, Copy)]
pub struct ClusterContext<'a> {
    /// Nodes and pods.
    pub snapshot: &'a ClusterSnapshot,
    /// Nodes that the selector of the profile matches.
    pub selected: &'a [CandidateNode<'a>],
}

/// Kueue's queues in a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum LocalQueues {
    /// Unknown: not read, or no permission.
    #[default]
    Unknown,
    /// Kueue is not installed.
    NoKueue,
    /// Names of the `LocalQueue`s in all namespaces.
    Known(BTreeSet<String>),
}

/// Labels, or prefixes of labels, whose values change when devices are shared, partitioned or get another driver.
/// Source: k8s-device-plugin, README, "Catalog of Labels"; ROCm/k8s-device-plugin.
const UNSTABLE_LABELS: [&str; 12] = [
    "nvidia.com/gpu.product",
    "nvidia.com/gpu.replicas",
    "nvidia.com/gpu.sharing-strategy",
    "nvidia.com/gpu.count",
    "nvidia.com/gpu.memory",
    "nvidia.com/gpu.multiprocessors",
    "nvidia.com/gpu.slices.",
    "nvidia.com/gpu.engines.",
    "nvidia.com/mig",
    "nvidia.com/mps.",
    "nvidia.com/cuda.driver",
    "amd.com/compute-partitioning",
];

/// Determines the nodes that `profile` reaches, and the findings about it. Without a cluster only its own fields are
/// checked.
pub fn check_profile(
    profile: &HardwareProfile,
    around: Option<ClusterContext<'_>>,
    queues: &LocalQueues,
) -> (Option<MatchingNodes>, Vec<Finding>) {
    let mut findings: Vec<Finding> = Vec::new();
    findings.extend(profile.unreadable.iter().cloned().map(Finding::Unreadable));
    findings.extend(profile.identifiers.iter().filter_map(counts));
    let reached = around.and_then(|around| {
        let reached = matching_nodes(profile, around.selected)?;
        check_reach(profile, &reached, around.snapshot, &mut findings);
        Some(reached)
    });
    findings.extend(check_labels(profile, reached.as_ref()));
    findings.extend(check_queue(profile, queues));
    if !profile.kind.is_current() {
        findings.push(Finding::LegacyKind(profile.kind));
    }
    if profile.is_disabled {
        findings.push(Finding::Disabled);
    }
    (reached, findings)
}

/// Checks the counts of a resource against each other.
fn counts(one: &Identifier) -> Option<Finding> {
    let max = one.max.as_ref().map(|max| max.quantity);
    let why = if one.default.quantity < one.min.quantity {
        "the default is below the minimum"
    } else if max.is_some_and(|max| max < one.default.quantity) {
        "the default is above the maximum"
    } else {
        return None;
    };
    let resource = one.resource.clone();
    Some(Finding::Counts { resource, why })
}

fn check_reach(
    profile: &HardwareProfile,
    reached: &MatchingNodes,
    snapshot: &ClusterSnapshot,
    findings: &mut Vec<Finding>,
) {
    if reached.selected == 0 {
        let label = profile.selector().and_then(|all| first_missing_label(all, snapshot));
        // A cluster without nodes is no defect of a profile without a selector.
        if profile.selector().is_some_and(|all| !all.is_empty()) {
            findings.push(Finding::NothingSelected { label });
        }
        return;
    }
    // Workloads without devices are kept off accelerator nodes on purpose.
    let is_excluded = profile.devices().is_empty() && reached.nodes > 0;
    for (taint, nodes) in reached.tainted.iter().filter(|_| !is_excluded) {
        findings.push(Finding::Untolerated {
            taint: taint.clone(),
            nodes: *nodes,
            of: reached.offering,
        });
    }
    findings.extend(check_devices(profile, reached, snapshot));
    findings.extend(check_types(profile, reached));
}

/// First label of the selector that no node has.
fn first_missing_label(selector: &Selector, snapshot: &ClusterSnapshot) -> Option<String> {
    let has = |key: &str, value: &str| {
        let mut nodes = snapshot.nodes.values();
        nodes.any(|node| node.label(key) == Some(value))
    };
    let mut labels = selector.iter();
    let (key, value) = labels.find(|(key, value)| !has(key, value))?;
    Some(format!("{key}={value}"))
}

/// Device resources that no reached node offers, or not in the requested amount.
fn check_devices(
    profile: &HardwareProfile,
    reached: &MatchingNodes,
    snapshot: &ClusterSnapshot,
) -> Vec<Finding> {
    let devices = profile.devices();
    let requested = profile.identifiers.iter();
    let requested = requested.filter(|one| devices.contains(&one.resource));
    requested
        .filter_map(|one| {
            let resource = one.resource.clone();
            let most = reached.max_per_node.get(&resource);
            if most == 0 {
                let elsewhere = snapshot.nodes.values();
                let elsewhere = elsewhere.filter(|node| node.allocatable.get(&resource) > 0);
                let elsewhere = u32::try_from(elsewhere.count()).unwrap_or(u32::MAX);
                return Some(Finding::NotAdvertised { resource, elsewhere });
            }
            let default = one.default.quantity.rounded_up();
            let max = one.max.as_ref().map_or(0, |max| max.quantity.rounded_up());
            let (count, requested) =
                if default > most { ("default", default) } else { ("maximum", max) };
            (requested > most).then_some(Finding::TooMany { resource, count, requested, most })
        })
        .collect()
}

/// Types that it reaches but does not declare. A profile without devices accepts any node, and one without a selector
/// and without declared types accepts every type on purpose.
fn check_types(profile: &HardwareProfile, reached: &MatchingNodes) -> Option<Finding> {
    if profile.devices().is_empty() {
        return None;
    }
    let types: Vec<TypeName> = reached.names().into_iter().cloned().collect();
    let declared = &profile.annotations.types;
    if declared.is_empty() {
        let selects = profile.selector().is_some_and(|all| !all.is_empty());
        return (selects && types.len() > 1)
            .then_some(Finding::SeveralTypes { types, mixed: reached.mixed });
    }
    let other: Vec<TypeName> = types.into_iter().filter(|name| !declared.contains(name)).collect();
    (!other.is_empty()).then(|| Finding::OtherType { declared: declared.clone(), reached: other })
}

fn check_labels(profile: &HardwareProfile, reached: Option<&MatchingNodes>) -> Vec<Finding> {
    let only = match reached.map(MatchingNodes::names).as_deref() {
        Some([one]) => Some((*one).clone()),
        Some(_) | None => None,
    };
    let keys = profile.selector().into_iter().flat_map(|all| all.keys());
    let keys = keys.filter(|key| UNSTABLE_LABELS.iter().any(|start| key.starts_with(start)));
    keys.map(|key| Finding::ChangingLabel { key: key.clone(), instead: only.clone() }).collect()
}

fn check_queue(profile: &HardwareProfile, queues: &LocalQueues) -> Option<Finding> {
    let Scheduling::Queue { local_queue, .. } = &profile.scheduling else {
        return None;
    };
    let is_kueue_here = match queues {
        LocalQueues::Unknown => return None,
        LocalQueues::NoKueue => false,
        LocalQueues::Known(names) if names.contains(local_queue) => return None,
        LocalQueues::Known(_) => true,
    };
    Some(Finding::NoQueue { queue: local_queue.clone(), is_kueue_here })
}
