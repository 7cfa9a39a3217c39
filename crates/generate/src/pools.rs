//! Pools: nodes of one type that offer the same resources, with the labels that select them.

use std::collections::{BTreeMap, BTreeSet};

use octavo_fleet::api::NodeRow;
use octavo_fleet::availability::Shape;
use octavo_fleet::cluster::{Amounts, CPU, ClusterNode, MEMORY, Readiness, Taint};
use octavo_fleet::hardware_profile::{TYPE_LABEL, selecting_label};
use octavo_fleet::summary::SHARING_LABEL;
use octavo_fleet::type_labels::NVIDIA_PRODUCT_LABEL;
use octavo_model::accelerators::Catalog;
use octavo_model::id::TypeName;

use crate::error::GenerateError;
use crate::note::{Exclusion, Note};
use crate::pool_labels::labels;

/// Maximum number of taints of a pool. Source: Kueue v0.19.2, `ResourceFlavorSpec.Tolerations`.
pub(crate) const MAX_TAINTS: usize = 8;

/// Nodes of one type that offer the same accelerator resources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodePool {
    /// Name: the type, followed by the layout unless whole devices are allocated.
    pub name: String,
    /// Type of the devices.
    pub type_name: TypeName,
    /// Labels that select exactly these nodes of the type.
    pub labels: BTreeMap<String, String>,
    /// Permanent taints that all nodes have.
    pub taints: Vec<Taint>,
    /// The nodes as the API server reports them, ordered by name.
    pub nodes: Vec<ClusterNode>,
    /// Allocatable CPU, memory and accelerators of all nodes.
    pub allocatable: Amounts,
}

/// Pools of a fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pools {
    /// Pools ordered by type and layout; at least one.
    pub all: Vec<NodePool>,
    /// Notes for the user.
    pub notes: Vec<Note>,
}

/// Usable node, with the label that names its type.
struct Candidate<'a> {
    node: &'a ClusterNode,
    label: (&'a str, &'a str),
    layout: Layout<'a>,
}

/// Resources that a node offers, and its sharing mode.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Layout<'a> {
    sharing: Option<&'a str>,
    units: BTreeSet<(&'a str, Shape)>,
}

/// Nodes of a future pool.
struct Group<'a> {
    layouts: BTreeSet<Layout<'a>>,
    nodes: Vec<&'a ClusterNode>,
}

/// Nodes by type.
type ByType<'a> = BTreeMap<TypeName, Vec<Candidate<'a>>>;

/// Excluded nodes by reason.
type Excluded = BTreeMap<Exclusion, Vec<String>>;

impl NodePool {
    /// Returns `true` if pods share devices or partitions in turns, without isolation of memory and faults.
    pub fn is_time_sliced(&self) -> bool {
        self.nodes.iter().any(|node| {
            let product = node.label(NVIDIA_PRODUCT_LABEL);
            let mut units = node.allocatable.accelerators();
            node.label(SHARING_LABEL) == Some("time-slicing")
                || units.any(|(name, _)| match Shape::from_resource(name, product) {
                    Shape::TimeSlice | Shape::MigTimeSlice(_) => true,
                    Shape::Device | Shape::NeuronCore | Shape::Mig(_) | Shape::AmdPartition(_) => {
                        false
                    }
                })
        })
    }
}

impl Pools {
    /// Groups the nodes. `rows` name the types of the nodes, and `cluster` has their labels and resources.
    ///
    /// # Errors
    ///
    /// Fails if no node can be used.
    pub fn new(rows: &[NodeRow], cluster: &[ClusterNode]) -> Result<Self, GenerateError> {
        let mut excluded = Excluded::new();
        let by_type = by_type(rows, cluster, &mut excluded);
        let mut notes = Vec::new();
        let mut all: Vec<NodePool> = Vec::new();
        for (type_name, candidates) in by_type {
            let (label, candidates) = with_common_label(candidates, &mut excluded);
            for (group, selector) in separated(label, groups(candidates)) {
                let name = unused_name(&type_name, &group.layouts, &all);
                if label.0 != TYPE_LABEL {
                    let label = format!("{}={}", label.0, label.1);
                    notes.push(Note::VendorLabel { pool: name.clone(), label });
                }
                if group.layouts.len() > 1 {
                    notes.push(Note::Merged { pool: name.clone() });
                }
                let pool = pool((name, type_name.clone()), &group.nodes, selector, &mut notes);
                all.push(pool);
            }
        }
        notes.extend(excluded.into_iter().map(|(why, mut nodes)| {
            nodes.sort_unstable();
            Note::Excluded { why, nodes }
        }));
        notes.extend(unavailable(&all));
        notes.sort_unstable();
        if all.is_empty() {
            return Err(GenerateError::NoNodes(notes));
        }
        Ok(Self { all, notes })
    }
}

/// Usable nodes by type.
fn by_type<'a>(
    rows: &[NodeRow],
    cluster: &'a [ClusterNode],
    excluded: &mut Excluded,
) -> ByType<'a> {
    let catalog = Catalog::built_in();
    let known: BTreeMap<&str, &ClusterNode> =
        cluster.iter().map(|node| (node.name.as_str(), node)).collect();
    // Rows can repeat a node that changed while their pages were read.
    let rows: BTreeMap<&str, &NodeRow> = rows.iter().map(|row| (row.name.as_str(), row)).collect();
    let mut by_type = ByType::new();
    for (name, row) in rows {
        let candidate = match row.types.as_slice() {
            [] => continue,
            [one] => one
                .type_name
                .as_deref()
                .and_then(|name| name.parse().ok())
                .ok_or(Exclusion::UnknownType)
                .and_then(|type_name: TypeName| {
                    let node = known.get(name).copied().ok_or(Exclusion::NotInCluster)?;
                    candidate(node, &type_name, &catalog).map(|candidate| (type_name, candidate))
                }),
            _ => Err(Exclusion::Mixed),
        };
        match candidate {
            Ok((type_name, candidate)) => by_type.entry(type_name).or_default().push(candidate),
            Err(why) => excluded.entry(why).or_default().push(name.to_owned()),
        }
    }
    by_type
}

fn candidate<'a>(
    node: &'a ClusterNode,
    type_name: &TypeName,
    catalog: &Catalog,
) -> Result<Candidate<'a>, Exclusion> {
    let label = selecting_label(node, type_name, catalog).ok_or(Exclusion::Unlabeled)?;
    let product = node.label(NVIDIA_PRODUCT_LABEL);
    let units = node.allocatable.accelerators();
    let units: BTreeSet<(&str, Shape)> =
        units.map(|(name, _)| (name, Shape::from_resource(name, product))).collect();
    if units.is_empty() {
        return Err(Exclusion::NoResource);
    }
    Ok(Candidate { node, label, layout: Layout { sharing: node.label(SHARING_LABEL), units } })
}

/// Selects the nodes that one label matches: Octavo's if any node has it, otherwise the most frequent one.
fn with_common_label<'a>(
    candidates: Vec<Candidate<'a>>,
    excluded: &mut Excluded,
) -> ((&'a str, &'a str), Vec<Candidate<'a>>) {
    let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for candidate in &candidates {
        let count = counts.entry(candidate.label).or_default();
        *count = count.saturating_add(1);
    }
    let rank = |(label, count): &(&(&str, &str), &usize)| (label.0 == TYPE_LABEL, **count);
    // Of equally frequent labels, the first.
    let label = counts.iter().rev().max_by_key(rank).map(|(label, _)| *label).unwrap_or_default();
    let (selected, others): (Vec<_>, Vec<_>) =
        candidates.into_iter().partition(|candidate| candidate.label == label);
    for other in others {
        let why = Exclusion::OtherLabel(format!("{}={}", label.0, label.1));
        excluded.entry(why).or_default().push(other.node.name.clone());
    }
    (label, selected)
}

/// Groups nodes by layout.
fn groups(candidates: Vec<Candidate<'_>>) -> Vec<Group<'_>> {
    let mut groups: BTreeMap<Layout<'_>, Vec<&ClusterNode>> = BTreeMap::new();
    for Candidate { node, layout, .. } in candidates {
        groups.entry(layout).or_default().push(node);
    }
    let groups = groups.into_iter();
    groups.map(|(layout, nodes)| Group { layouts: [layout].into(), nodes }).collect()
}

/// Adds the labels of each group, and merges groups that labels cannot separate.
fn separated<'a>(
    label: (&str, &str),
    mut groups: Vec<Group<'a>>,
) -> Vec<(Group<'a>, BTreeMap<String, String>)> {
    loop {
        let mut selectors = Vec::new();
        let mut overlap = None;
        for (at, group) in groups.iter().enumerate() {
            let others = groups.iter().enumerate().filter(|(other, _)| *other != at);
            let others: Vec<(usize, &ClusterNode)> = others
                .flat_map(|(other, group)| group.nodes.iter().map(move |node| (other, *node)))
                .collect();
            let nodes: Vec<&ClusterNode> = others.iter().map(|(_, node)| *node).collect();
            match labels(label, &group.nodes, &nodes) {
                Ok(labels) => selectors.push(labels),
                Err(rest) => {
                    let of = rest.iter().filter_map(|index| others.get(*index));
                    overlap = Some((at, of.map(|(other, _)| *other).collect::<BTreeSet<usize>>()));
                    break;
                }
            }
        }
        let Some((at, with)) = overlap else {
            return groups.into_iter().zip(selectors).collect();
        };
        let mut merged = Group { layouts: BTreeSet::new(), nodes: Vec::new() };
        let mut rest = Vec::new();
        for (other, group) in groups.into_iter().enumerate() {
            if other == at || with.contains(&other) {
                merged.layouts.extend(group.layouts);
                merged.nodes.extend(group.nodes);
            } else {
                rest.push(group);
            }
        }
        merged.nodes.sort_by(|one, other| one.name.cmp(&other.name));
        rest.push(merged);
        rest.sort_by(|one, other| one.layouts.cmp(&other.layouts));
        groups = rest;
    }
}

fn pool(
    (name, type_name): (String, TypeName),
    nodes: &[&ClusterNode],
    labels: BTreeMap<String, String>,
    remarks: &mut Vec<Note>,
) -> NodePool {
    let mut taints: BTreeMap<&Taint, Vec<String>> = BTreeMap::new();
    let mut allocatable = Amounts::default();
    for node in nodes {
        let permanent: BTreeSet<&Taint> =
            node.taints.iter().filter(|taint| taint.forbids_permanently()).collect();
        for taint in permanent {
            taints.entry(taint).or_default().push(node.name.clone());
        }
        allocatable.add(&relevant(&node.allocatable));
    }
    let is_common = |(taint, on): &(&Taint, Vec<String>)| {
        on.len() == nodes.len() && !taint.is_of_control_plane()
    };
    let (mut tolerated, mut others): (Vec<_>, Vec<_>) = taints.into_iter().partition(is_common);
    others.extend(tolerated.split_off(tolerated.len().min(MAX_TAINTS)));
    remarks.extend(others.into_iter().map(|(taint, nodes)| Note::NotTolerated {
        pool: name.clone(),
        taint: taint.clone(),
        nodes,
    }));
    NodePool {
        name,
        type_name,
        labels,
        taints: tolerated.into_iter().map(|(taint, _)| taint.clone()).collect(),
        nodes: nodes.iter().copied().cloned().collect(),
        allocatable,
    }
}

/// CPU, memory and accelerators.
fn relevant(all: &Amounts) -> Amounts {
    let base = [CPU, MEMORY].into_iter().map(|name| (name, all.get(name)));
    let amounts = base.chain(all.accelerators());
    amounts.fold(Amounts::default(), |sum, (name, count)| sum.with(name, count))
}

/// Nodes that are counted but accept no pods now.
fn unavailable(pools: &[NodePool]) -> Option<Note> {
    let nodes = pools.iter().flat_map(|pool| &pool.nodes);
    let nodes = nodes.filter(|node| node.is_cordoned || node.readiness != Readiness::Ready);
    let mut nodes: Vec<String> = nodes.map(|node| node.name.clone()).collect();
    nodes.sort_unstable();
    (!nodes.is_empty()).then_some(Note::Unavailable { nodes })
}

/// Name of a pool that no other pool has.
fn unused_name(type_name: &TypeName, layouts: &BTreeSet<Layout<'_>>, used: &[NodePool]) -> String {
    let parts = layout_words(layouts).into_iter().map(|word| format!("-{word}"));
    let name = format!("{}{}", name_part(type_name.as_str()), parts.collect::<String>());
    let is_used = |name: &str| used.iter().any(|pool| pool.name == name);
    let mut names = (2_usize..).map(|number| format!("{name}-{number}"));
    if is_used(&name) { names.find(|name| !is_used(name)).unwrap_or(name) } else { name }
}

/// Words for layouts in names; none for whole devices.
fn layout_words(layouts: &BTreeSet<Layout<'_>>) -> Vec<String> {
    let shapes: BTreeSet<&Shape> =
        layouts.iter().flat_map(|layout| layout.units.iter().map(|(_, shape)| shape)).collect();
    let sharing: BTreeSet<&str> = layouts.iter().filter_map(|layout| layout.sharing).collect();
    let mut words = Vec::new();
    let (mut is_sliced, mut is_whole) = (sharing.contains("time-slicing"), false);
    let mut profiles: BTreeSet<&str> = BTreeSet::new();
    for shape in shapes {
        match shape {
            Shape::Device | Shape::NeuronCore => is_whole = true,
            Shape::TimeSlice => is_sliced = true,
            Shape::Mig(profile) => {
                profiles.insert(profile);
            }
            Shape::MigTimeSlice(profile) => {
                is_sliced = true;
                profiles.insert(profile);
            }
            Shape::AmdPartition(part) => words.push(name_part(part)),
        }
    }
    if !profiles.is_empty() {
        let all: Vec<String> = profiles.into_iter().map(name_part).collect();
        words.insert(0, format!("mig-{}", all.join("-")));
    }
    if is_sliced {
        words.push("time-slicing".to_owned());
    }
    let other = sharing.into_iter().find(|word| !["exclusive", "time-slicing"].contains(word));
    match other {
        Some(word) if words.is_empty() => words.push(name_part(word)),
        _ if is_whole && !words.is_empty() && !is_sliced => words.insert(0, "mixed".to_owned()),
        _ => {}
    }
    words
}

/// Text as part of an object name, which has lowercase letters, digits, `-` and `.`, and no part between dots that begins
/// or ends with `-`.
pub(crate) fn name_part(text: &str) -> String {
    let text = text.to_ascii_lowercase();
    let text = text.replace(|c: char| !c.is_ascii_alphanumeric() && c != '.', "-");
    let parts = text.split('.').map(|part| part.trim_matches('-'));
    parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests;
