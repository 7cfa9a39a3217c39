//! Draft of a new profile from selected nodes or from all nodes of a type.
//!
//! It selects nodes by Octavo's type label, which does not change when devices are shared; if no agent has labeled
//! the nodes, by the vendor's label that names the type. Default and maximum counts come from the nodes' allocatable
//! resources. Nodes that would make the profile ambiguous are excluded, with a note.

use std::collections::{BTreeMap, BTreeSet};

use octavo_model::accelerators::Catalog;
use octavo_model::id::TypeName;
use thiserror::Error;

use super::node_selection::{SelectedNodes, select_nodes};
use super::node_types::WHOLE_DEVICE_RESOURCES;
use super::note_text::{
    format_known_taints, format_reasons, format_resources, format_types, lookup_hint,
};
use super::reach::is_temporary;
use super::user_changes::{
    CountError, CountOverride, NO_TAINT, apply_counts, split_tolerated, toleration_for,
};
use super::{
    Count, DevicesByType, HardwareProfile, Identifier, ProfileAnnotations, ProfileKey, ProfileKind,
    Scheduling, Specs,
};
use crate::cluster::{CPU, ClusterNode, Sights, Taint, Toleration};

/// Request for a draft.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DraftRequest {
    /// Nodes to cover; all if empty.
    pub nodes: BTreeSet<String>,
    /// Type to cover.
    pub type_name: Option<TypeName>,
    /// Resource to request, if the nodes have several.
    pub resource: Option<String>,
    /// Namespace and name; the name defaults to one derived from the type.
    pub key: ProfileKey,
    /// Display name.
    pub display_name: Option<String>,
    /// Counts that override the drafted ones.
    pub counts: Vec<CountOverride>,
    /// Taints to tolerate, in their text form; `None` for the default selection.
    pub tolerate: Option<BTreeSet<String>>,
}

/// Drafted profile with explanations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    /// The profile.
    pub profile: HardwareProfile,
    /// Nodes that it was derived from.
    pub nodes: Vec<String>,
    /// Permanent taints of these nodes, tolerated or not.
    pub taints: Vec<Taint>,
    /// Notes for the user.
    pub notes: Vec<DraftNote>,
}

/// Note about a draft.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DraftNote {
    /// A node with several types is excluded.
    MixedNode {
        /// Node name.
        node: String,
        /// Types of its devices.
        has: String,
    },
    /// A node with unidentified devices is excluded.
    Unknown(String),
    /// A node without devices is excluded.
    NodeWithoutDevices(String),
    /// A requested node does not exist.
    NodeNotFound(String),
    /// A node without Octavo's type label is excluded, because the selector would not match it.
    UnlabeledNode(String),
    /// No node has Octavo's label, so the profile selects by a vendor's label.
    VendorLabel {
        /// Key of the label.
        key: String,
        /// Value of the label.
        value: String,
    },
    /// A node is excluded because its label differs from the selector.
    NodeWithOtherLabel {
        /// Node name.
        node: String,
        /// Key in the selector.
        key: String,
        /// Value in the selector.
        value: String,
    },
    /// The profile also reaches nodes that were not selected.
    AdditionalNodes {
        /// Number of these nodes.
        nodes: usize,
        /// Their type.
        type_name: TypeName,
    },
    /// A taint is not tolerated by default, because it keeps workloads away on purpose.
    NotTolerated(Taint),
    /// A taint is not tolerated, as the user requested.
    NotToleratedByRequest(Taint),
}

/// Reason why no profile can be drafted.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DraftError {
    /// There is no usable node.
    #[error("none of these nodes can be used{}; {}", format_reasons(.0), lookup_hint(.0))]
    NoUsableNode(Vec<DraftNote>),
    /// No node has devices of the requested type.
    #[error("no node has devices of type {0}; `octavo availability` lists the types there are")]
    NoNodeOfType(TypeName),
    /// The nodes have several types.
    #[error("these nodes have {} types, {}: a profile's selector cannot say \"this or that\". Make one for each; or give all these nodes a label of your own, such as class=large, and a profile that selects by it", .0.len(), format_types(.0))]
    SeveralTypes(Vec<TypeName>),
    /// The nodes have several device resources, or none.
    #[error("{}", format_resources(.0))]
    AmbiguousResource(Vec<String>),
    /// No node has the requested resource.
    #[error("none of these nodes gives out {0}")]
    NoSuchResource(String),
    /// A count is invalid.
    #[error(transparent)]
    Counts(#[from] CountError),
    /// No node has the named taint.
    #[error("none of these nodes has the taint {named:?}{}", format_known_taints(.known))]
    NoSuchTaint {
        /// Taint as named by the user.
        named: String,
        /// Taints of the nodes.
        known: Vec<String>,
    },
}

/// Taints that a draft does not tolerate by default, because they keep workloads off control-plane nodes.
const CONTROL_PLANE_TAINTS: [&str; 2] = [
    "node-role.kubernetes.io/control-plane",
    "node-role.kubernetes.io/master",
];
pub(super) const MEMORY_RESOURCE: &str = "memory";
/// Node label with the memory of one device, in MiB.
const MEMORY_LABEL: &str = "octavo.dev/memory-mib";
const GIBIBYTE: u64 = 1 << 30;
/// Default request for CPU and memory, as a fraction of a device's share of its node; the rest is left to system
/// pods.
const DEFAULT_SHARE: (u64, u64) = (3, 4);

/// Drafts a profile for `wish` from the nodes of the cluster.
pub fn draft(
    wish: &DraftRequest,
    sights: &Sights,
    types: &BTreeMap<String, DevicesByType>,
    catalogue: &Catalog,
) -> Result<Draft, DraftError> {
    let mut remarks = Vec::new();
    let SelectedNodes {
        type_name,
        nodes,
        label: (key_of_label, value),
    } = select_nodes(wish, sights, types, catalogue, &mut remarks)?;
    let (resource, display) = resource(wish, &nodes)?;
    let nodes: Vec<&ClusterNode> = nodes
        .into_iter()
        .filter(|node| node.allocatable.get(&resource) > 0)
        .collect();
    let specs = Specs::for_type(&type_name, catalogue);
    let identifiers = apply_counts(identifiers(&nodes, &resource, &display), &wish.counts)?;
    let taints = permanent_taints(&nodes);
    let tolerations = tolerations(&taints, wish.tolerate.as_ref(), &mut remarks)?;
    let labelled = sights
        .nodes
        .values()
        .filter(|node| node.label(key_of_label) == Some(value));
    let more = labelled.count().saturating_sub(nodes.len());
    if more > 0 {
        remarks.push(DraftNote::AdditionalNodes {
            nodes: more,
            type_name: type_name.clone(),
        });
    }
    let mut key = wish.key.clone();
    if key.name.is_empty() {
        key.name = default_name(&type_name, &resource);
    }
    // The memory that a driver reports is more accurate than the marketed size.
    let shown = nodes
        .iter()
        .filter_map(|node| node.label(MEMORY_LABEL)?.parse().ok());
    let profile = HardwareProfile {
        key,
        kind: ProfileKind::Hardware,
        display_name: Some(display_name(wish, &specs, &resource)),
        description: None,
        is_disabled: false,
        identifiers,
        scheduling: Scheduling::Node {
            selector: BTreeMap::from([(key_of_label.to_owned(), value.to_owned())]),
            tolerations,
        },
        said: ProfileAnnotations {
            types: vec![type_name],
            memory_mib: shown.min().or(specs.memory_mib),
            architecture: specs.architecture,
            ..ProfileAnnotations::default()
        },
        unreadable: Vec::new(),
    };
    let nodes = nodes.into_iter().map(|node| node.name.clone()).collect();
    Ok(Draft {
        profile,
        nodes,
        taints,
        notes: remarks,
    })
}

/// Display name of the profile.
fn display_name(wish: &DraftRequest, specs: &Specs, resource: &str) -> String {
    wish.display_name.clone().unwrap_or_else(|| {
        let part = partition_profile(resource).map(|part| format!(" ({part})"));
        format!("{}{}", specs.name, part.unwrap_or_default())
    })
}

/// Resource to request, and its display name.
fn resource(wish: &DraftRequest, nodes: &[&ClusterNode]) -> Result<(String, String), DraftError> {
    let given = |name: &str| nodes.iter().any(|node| node.allocatable.get(name) > 0);
    if let Some(asked) = &wish.resource {
        if !given(asked) {
            return Err(DraftError::NoSuchResource(asked.clone()));
        }
        return Ok((asked.clone(), resource_display_name(asked)));
    }
    if let Some(whole) = WHOLE_DEVICE_RESOURCES.into_iter().find(|name| given(name)) {
        return Ok((whole.to_owned(), resource_display_name(whole)));
    }
    let all: BTreeSet<String> = nodes
        .iter()
        .flat_map(|node| node.allocatable.devices())
        .filter(|(_, count)| *count > 0)
        .map(|(name, _)| name.to_owned())
        .collect();
    let all: Vec<String> = all.into_iter().collect();
    match all.as_slice() {
        [one] => Ok((one.clone(), resource_display_name(one))),
        _ => Err(DraftError::AmbiguousResource(all)),
    }
}

/// Display name of a resource.
fn resource_display_name(resource: &str) -> String {
    if let Some(part) = partition_profile(resource) {
        return format!("GPU slice {part}");
    }
    match resource {
        "aws.amazon.com/neuron" => "Neuron device".to_owned(),
        "aws.amazon.com/neuroncore" => "Neuron core".to_owned(),
        "google.com/tpu" => "TPU".to_owned(),
        other if other.ends_with(".shared") => "GPU, shared".to_owned(),
        _ => "GPU".to_owned(),
    }
}

/// Profile of the partition that a resource stands for, if any.
fn partition_profile(resource: &str) -> Option<&str> {
    resource.strip_prefix("nvidia.com/mig-")
}

fn identifiers(nodes: &[&ClusterNode], resource: &str, display: &str) -> Vec<Identifier> {
    let most = |name: &str| {
        let all = nodes.iter().map(|node| node.allocatable.get(name));
        all.max().unwrap_or(0)
    };
    // Each node's share per device if all devices are used at the same time; the minimum over all nodes.
    let share = |name: &str| {
        let (part, whole) = DEFAULT_SHARE;
        let all = nodes.iter().filter_map(|node| {
            let devices = node.allocatable.get(resource);
            let all = node.allocatable.get(name).checked_div(devices)?;
            all.checked_mul(part)?.checked_div(whole)
        });
        all.min().unwrap_or(0)
    };
    let identifier = |display: &str, resource: &str, kind: &str, counts: [Count; 3]| {
        let [min, default, max] = counts;
        Identifier {
            display_name: display.to_owned(),
            resource: resource.to_owned(),
            min,
            default,
            max: Some(max),
            resource_type: Some(kind.to_owned()),
        }
    };
    let processors = |thousandths: u64| Count::whole((thousandths / 1000).max(1));
    let memory = |bytes: u64| gibibytes((bytes / GIBIBYTE).max(1));
    let mut all = vec![
        identifier(
            "CPU",
            CPU,
            "CPU",
            [
                Count::whole(1),
                processors(share(CPU)),
                processors(most(CPU)),
            ],
        ),
        identifier(
            "Memory",
            MEMORY_RESOURCE,
            "Memory",
            [
                gibibytes(1),
                memory(share(MEMORY_RESOURCE)),
                memory(most(MEMORY_RESOURCE)),
            ],
        ),
    ];
    all.retain(|one| most(&one.resource) > 0);
    let counts = [
        Count::whole(1),
        Count::whole(1),
        Count::whole(most(resource)),
    ];
    all.push(identifier(display, resource, "Accelerator", counts));
    all
}

fn gibibytes(count: u64) -> Count {
    let text = format!("{count}Gi");
    let quantity = text.parse().unwrap_or_default();
    Count { text, quantity }
}

/// Permanent taints of these nodes, deduplicated.
fn permanent_taints(nodes: &[&ClusterNode]) -> Vec<Taint> {
    let all: BTreeSet<&Taint> = nodes
        .iter()
        .flat_map(|node| &node.taints)
        .filter(|taint| taint.forbids() && !is_temporary(taint))
        .collect();
    all.into_iter().cloned().collect()
}

/// Tolerations for these taints: for the named ones, otherwise for all except those of control-plane nodes.
fn tolerations(
    taints: &[Taint],
    said: Option<&BTreeSet<String>>,
    remarks: &mut Vec<DraftNote>,
) -> Result<Vec<Toleration>, DraftError> {
    if let Some(said) = said {
        let mut named = said.clone();
        named.remove(NO_TAINT);
        let (tolerated, left) = split_tolerated(taints, &named)?;
        remarks.extend(
            left.into_iter()
                .cloned()
                .map(DraftNote::NotToleratedByRequest),
        );
        return Ok(tolerated);
    }
    let (kept, tolerated): (Vec<&Taint>, Vec<&Taint>) = taints
        .iter()
        .partition(|taint| CONTROL_PLANE_TAINTS.contains(&taint.key.as_str()));
    remarks.extend(kept.into_iter().cloned().map(DraftNote::NotTolerated));
    Ok(tolerated.into_iter().map(toleration_for).collect())
}

/// Default object name: the type, followed by the partition profile if any.
fn default_name(type_name: &TypeName, resource: &str) -> String {
    match partition_profile(resource) {
        Some(part) => {
            let part = part.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
            format!("{type_name}-mig-{}", part.to_lowercase())
        }
        None => type_name.to_string(),
    }
}
