//! Comparison of a layout with the labels that GPU Feature Discovery wrote to a node. It covers the content of these labels: partitions by
//! profile, and replicas.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use octavo_fleet::type_labels::parse_product_label;
use octavo_model::text::join;
use octavo_node::mig_strategy::MigStrategy;
use octavo_planner::layout::{MigSpec, ShareTarget, TimeSlicing};

use super::objects::NodeObject;
use super::rules::{Gpus, NodeRule};

/// Text of a node on which nothing changes.
pub const NO_CHANGE: &str = "no change";

/// Result of the comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LabelComparison {
    /// The labels match the layout.
    Equal,
    /// The labels differ.
    Differs(Vec<String>),
    /// The labels do not show it.
    Unknown(&'static str),
}

impl fmt::Display for LabelComparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Equal => f.write_str(NO_CHANGE),
            Self::Differs(differences) => f.write_str(&join(differences, "; ")),
            Self::Unknown(reason) => write!(f, "unknown: {reason}"),
        }
    }
}

/// Partitions of a node by profile, in the notation of labels.
type Partitions = BTreeMap<String, u64>;

/// Compares the labels of a node with these rules and this sharing.
pub(super) fn compare(
    node: &NodeObject,
    strategy: MigStrategy,
    rules: &[NodeRule],
    sharing: Option<&TimeSlicing>,
) -> LabelComparison {
    let Some(gpus) = node.count("nvidia.com/gpu.count") else {
        return LabelComparison::Unknown("GPU Feature Discovery has not labeled the node");
    };
    let observed = match strategy {
        MigStrategy::Mixed => mixed_partitions(node),
        MigStrategy::Single => single_partitions(node, gpus),
        MigStrategy::None => Partitions::new(),
    };
    let desired = match (rules, strategy) {
        ([], _) => Ok(observed.clone()),
        (_, MigStrategy::None) if node.label("nvidia.com/mig.capable") == Some("false") => {
            Ok(Partitions::new())
        }
        (_, MigStrategy::None) => {
            Err("with the MIG strategy none, no label shows the partitions of the node")
        }
        (_, MigStrategy::Single) => single_desired(rules, &observed),
        (_, MigStrategy::Mixed) => mixed_desired(rules, gpus),
    };
    let desired = match desired {
        Ok(desired) => desired,
        Err(reason) => return LabelComparison::Unknown(reason),
    };
    let mut differences = partition_differences(&desired, &observed);
    differences.extend(replica_differences(node, strategy, &desired, sharing));
    if differences.is_empty() {
        LabelComparison::Equal
    } else {
        LabelComparison::Differs(differences)
    }
}

/// Partitions that the labels of the strategy `mixed` report.
fn mixed_partitions(node: &NodeObject) -> Partitions {
    let keys = node.metadata.labels.keys();
    let all = keys.filter_map(|key| {
        let profile = key.strip_prefix("nvidia.com/mig-")?.strip_suffix(".count")?;
        Some((profile.to_owned(), node.count(key).filter(|count| *count > 0)?))
    });
    all.collect()
}

/// Partitions that the labels of the strategy `single` report: then the GPU is a partition.
fn single_partitions(node: &NodeObject, count: u64) -> Partitions {
    let product = node.label("nvidia.com/gpu.product").unwrap_or_default();
    let (_, profile, _) = parse_product_label(product);
    profile.map(|profile| (profile.to_owned(), count)).into_iter().collect()
}

/// Partitions that the rules give a node with this number of GPUs.
fn mixed_desired(rules: &[NodeRule], gpus: u64) -> Result<Partitions, &'static str> {
    let listed = rules.iter().map(|rule| rule.gpus.listed()).sum::<u64>();
    let mut uncovered = gpus;
    let mut all = Partitions::new();
    for rule in rules {
        let own = match &rule.gpus {
            Gpus::Listed(_) => rule.gpus.listed(),
            Gpus::Others => gpus.saturating_sub(listed),
        };
        uncovered = uncovered.saturating_sub(own);
        for (profile, count) in per_gpu(&rule.mig) {
            let sum: &mut u64 = all.entry(profile).or_default();
            *sum = sum.saturating_add(count.saturating_mul(own));
        }
    }
    all.retain(|_, count| *count > 0);
    if uncovered > 0 {
        return Err("the MIG configuration does not cover all GPUs of the node");
    }
    Ok(all)
}

/// Partitions that the rules give a node with the strategy `single`. Its number of GPUs is not known, so the observed number is assumed
/// if each GPU has its share of it.
fn single_desired(rules: &[NodeRule], observed: &Partitions) -> Result<Partitions, &'static str> {
    let [NodeRule { gpus: Gpus::Others, mig }] = rules else {
        return Err("with the MIG strategy single, no label shows which GPUs are partitioned");
    };
    let wanted = per_gpu(mig);
    let all = wanted.into_iter().map(|(profile, count)| {
        let seen =
            observed.get(&profile).copied().filter(|seen| seen.checked_rem(count) == Some(0));
        (profile, seen.unwrap_or(count))
    });
    Ok(all.collect())
}

fn per_gpu(mig: &MigSpec) -> Partitions {
    match mig {
        MigSpec::Disabled => Partitions::new(),
        MigSpec::Enabled(counts) => {
            let name = |profile: String| profile.replace('+', ".");
            let all = counts.iter();
            all.map(|one| (name(one.profile.to_string()), u64::from(one.count))).collect()
        }
    }
}

fn partition_differences(desired: &Partitions, observed: &Partitions) -> Vec<String> {
    let profiles: BTreeSet<&String> = desired.keys().chain(observed.keys()).collect();
    let count = |of: &Partitions, profile: &String| of.get(profile).copied().unwrap_or_default();
    let all = profiles.into_iter().filter_map(|profile| {
        let (wanted, seen) = (count(desired, profile), count(observed, profile));
        (wanted != seen).then(|| format!("{profile}: {seen} in labels, {wanted} in layout"))
    });
    all.collect()
}

/// Differences between the replicas of the labels and those of the layout.
fn replica_differences(
    node: &NodeObject,
    strategy: MigStrategy,
    partitions: &Partitions,
    sharing: Option<&TimeSlicing>,
) -> Vec<String> {
    let desired = |resource: &str| {
        let mut shares = sharing.into_iter().flat_map(|sharing| &sharing.shares);
        let share = shares.find(|share| {
            matches!(&share.of, ShareTarget::Resource { name, .. } if name.as_str() == resource)
        });
        share.map_or(1, |share| u64::from(share.replicas))
    };
    // If all GPUs have partitions, the label of whole GPUs is 0.
    let whole = ("nvidia.com/gpu".to_owned(), "nvidia.com/gpu.replicas".to_owned());
    let of_profiles = partitions.keys().filter(|_| strategy == MigStrategy::Mixed).map(|profile| {
        let resource = format!("nvidia.com/mig-{profile}");
        let label = format!("{resource}.replicas");
        (resource, label)
    });
    let all = [whole].into_iter().chain(of_profiles).filter_map(|(resource, label)| {
        let seen = node.count(&label).filter(|seen| *seen > 0)?;
        let wanted = desired(&resource);
        (seen != wanted)
            .then(|| format!("{resource}: {seen} replicas in labels, {wanted} in layout"))
    });
    all.collect()
}

impl Gpus {
    /// Number of listed GPUs.
    fn listed(&self) -> u64 {
        match self {
            Self::Listed(gpus) => u64::try_from(gpus.len()).unwrap_or(u64::MAX),
            Self::Others => 0,
        }
    }
}
