//! Labels that select the nodes of a pool, and no other nodes of its type.

use std::collections::{BTreeMap, BTreeSet};

use octavo_fleet::cluster::ClusterNode;
use octavo_fleet::summary::SHARING_LABEL;
use octavo_fleet::type_labels::NVIDIA_PRODUCT_LABEL;

/// Maximum number of labels of a selector. Source: Kueue v0.19.2, `ResourceFlavorSpec.NodeLabels`.
pub(crate) const MAX_LABELS: usize = 8;
/// Labels that distinguish layouts, in the order of preference: first those that an administrator sets.
const LAYOUT_LABELS: [&str; 6] = [
    "octavo.dev/layout",
    "nvidia.com/mig.config",
    "octavo.dev/amd-compute-partition",
    "octavo.dev/amd-memory-partition",
    "octavo.dev/neuron-logical-core-size",
    NVIDIA_PRODUCT_LABEL,
];
/// Prefix and suffix of the labels of MIG profiles. Not their counts: a failed GPU would move its node out of the pool.
const MIG_PREFIX: &str = "nvidia.com/mig-";
const MIG_SUFFIX: &str = ".product";

/// Returns the labels that select all of `nodes` and none of `others`, starting with the label of their type.
///
/// # Errors
///
/// Returns the indices of the others that the labels cannot exclude.
pub(crate) fn labels(
    type_label: (&str, &str),
    nodes: &[&ClusterNode],
    others: &[&ClusterNode],
) -> Result<BTreeMap<String, String>, BTreeSet<usize>> {
    let mut chosen = vec![type_label];
    // Pods expect the same kind of device.
    chosen.extend(common(SHARING_LABEL, nodes));
    let mut rest: BTreeSet<usize> = (0..others.len()).collect();
    rest.retain(|at| others.get(*at).is_some_and(|node| chosen.iter().all(|one| has(node, *one))));
    let candidates = candidates(nodes);
    while !rest.is_empty() && chosen.len() < MAX_LABELS {
        let excluded = |label: (&str, &str)| {
            let nodes = rest.iter().filter_map(|at| others.get(*at));
            nodes.filter(|node| !has(node, label)).count()
        };
        // Of equally good labels, the first.
        let best = candidates.iter().rev().max_by_key(|label| excluded(**label));
        let Some(best) = best.filter(|label| excluded(**label) > 0) else {
            break;
        };
        rest.retain(|at| others.get(*at).is_some_and(|node| has(node, *best)));
        chosen.push(*best);
    }
    if !rest.is_empty() {
        return Err(rest);
    }
    Ok(chosen.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
}

/// Labels with a common value that can distinguish layouts, the preferred ones first.
fn candidates<'a>(nodes: &[&'a ClusterNode]) -> Vec<(&'a str, &'a str)> {
    let fixed = LAYOUT_LABELS.iter().filter_map(|key| common(key, nodes));
    let keys = nodes.first().into_iter().flat_map(|node| node.labels.keys());
    let profiles = keys.filter(|key| key.starts_with(MIG_PREFIX) && key.ends_with(MIG_SUFFIX));
    fixed.chain(profiles.filter_map(|key| common(key, nodes))).collect()
}

/// The label, if all nodes have it with the same value.
fn common<'a>(key: &str, nodes: &[&'a ClusterNode]) -> Option<(&'a str, &'a str)> {
    let (own, value) = nodes.first()?.labels.get_key_value(key)?;
    let is_common = nodes.iter().all(|node| node.label(key) == Some(value));
    is_common.then_some((own, value))
}

fn has(node: &ClusterNode, (key, value): (&str, &str)) -> bool {
    node.label(key) == Some(value)
}
