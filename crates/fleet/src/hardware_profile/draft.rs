//! Draft of a new profile from selected nodes or from all nodes of a type.
//!
//! It selects nodes by Octavo's type label, which does not change when devices are shared; if no agent has labeled
//! the nodes, by the vendor's label that names the type. Default and maximum counts come from the nodes' allocatable
//! resources. Nodes that would make the profile ambiguous are excluded, with a note.

use std::collections::{BTreeMap, BTreeSet};

use octavo_model::accelerators::Catalog;
use octavo_model::id::TypeName;

use super::create_request::{DraftRequest, NO_TAINT};
use super::draft_error::{DraftError, DraftNote};
use super::node_selection::{SelectedNodes, select_nodes};
use super::node_types::WHOLE_DEVICE_RESOURCES;
use super::user_changes::{MAX_SHOWN_CHARS, apply_counts};
use super::{
    Count, DevicesByType, HardwareProfile, Identifier, ProfileAnnotations, Scheduling, Specs,
};
use crate::cluster::{CPU, ClusterNode, ClusterSnapshot, MEMORY, Taint, Toleration};

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

/// Node label with the memory of one device, in MiB.
const MEMORY_LABEL: &str = "octavo.dev/memory-mib";
const GIBIBYTE: u64 = 1 << 30;
/// Default request for CPU and memory, as a fraction of a device's share of its node; the rest is left to system
/// pods.
const DEFAULT_SHARE: (u64, u64) = (3, 4);

/// Drafts a profile for `request` from the nodes of the cluster.
pub fn draft(
    request: &DraftRequest,
    snapshot: &ClusterSnapshot,
    types: &BTreeMap<String, DevicesByType>,
    catalog: &Catalog,
) -> Result<Draft, DraftError> {
    let mut remarks = Vec::new();
    let SelectedNodes { type_name, nodes, label: (key_of_label, value) } =
        select_nodes(request, snapshot, types, catalog, &mut remarks)?;
    let resource = resource(request, &nodes)?;
    let nodes: Vec<&ClusterNode> =
        nodes.into_iter().filter(|node| node.allocatable.get(&resource) > 0).collect();
    let specs = Specs::for_type(&type_name, catalog);
    let identifiers = apply_counts(identifiers(&nodes, &resource), &request.counts)?;
    let taints = permanent_taints(&nodes);
    let tolerations = tolerations(&taints, request.tolerate.as_ref(), &mut remarks)?;
    let labeled = snapshot.nodes.values().filter(|node| node.label(key_of_label) == Some(value));
    let more = labeled.count().saturating_sub(nodes.len());
    if more > 0 {
        remarks.push(DraftNote::AdditionalNodes { nodes: more, type_name: type_name.clone() });
    }
    let mut key = request.key.clone();
    if key.name.is_empty() {
        key.name = default_name(&type_name, &resource);
    }
    // The memory that a driver reports is more accurate than the marketed size.
    let shown = nodes.iter().filter_map(|node| node.label(MEMORY_LABEL)?.parse().ok());
    let profile = HardwareProfile {
        key,
        display_name: Some(display_name(request, &specs, &resource)),
        identifiers,
        scheduling: Scheduling::Node {
            selector: BTreeMap::from([(key_of_label.to_owned(), value.to_owned())]),
            tolerations,
        },
        annotations: ProfileAnnotations {
            types: vec![type_name],
            memory_mib: shown.min().or(specs.memory_mib),
            architecture: specs.architecture,
            ..ProfileAnnotations::default()
        },
        ..HardwareProfile::default()
    };
    let nodes = nodes.into_iter().map(|node| node.name.clone()).collect();
    Ok(Draft { profile, nodes, taints, notes: remarks })
}

/// Display name of the profile.
fn display_name(request: &DraftRequest, specs: &Specs, resource: &str) -> String {
    request.display_name.clone().unwrap_or_else(|| {
        let part = partition_profile(resource).map(|part| format!(" ({part})"));
        format!("{}{}", specs.name, part.unwrap_or_default())
    })
}

/// Resource to request.
fn resource(request: &DraftRequest, nodes: &[&ClusterNode]) -> Result<String, DraftError> {
    let given = |name: &str| nodes.iter().any(|node| node.allocatable.get(name) > 0);
    if let Some(requested) = &request.resource {
        let known = given(requested).then(|| requested.clone());
        return known.ok_or_else(|| DraftError::NoSuchResource(requested.clone()));
    }
    if let Some(whole) = WHOLE_DEVICE_RESOURCES.into_iter().find(|name| given(name)) {
        return Ok(whole.to_owned());
    }
    let devices = nodes.iter().flat_map(|node| node.allocatable.devices());
    let offered = devices.filter(|(_, count)| *count > 0);
    let all: BTreeSet<&str> = offered.map(|(name, _)| name).collect();
    let all: Vec<String> = all.into_iter().map(str::to_owned).collect();
    match all.as_slice() {
        [one] => Ok(one.clone()),
        _ => Err(DraftError::AmbiguousResource(all)),
    }
}

/// Display name of a resource.
fn resource_display_name(resource: &str) -> String {
    if let Some(part) = partition_profile(resource) {
        return format!("GPU slice {part}");
    }
    let name = match resource {
        "aws.amazon.com/neuron" => "Neuron device",
        "aws.amazon.com/neuroncore" => "Neuron core",
        "google.com/tpu" => "TPU",
        other if other.ends_with(".shared") => "GPU, shared",
        _ => "GPU",
    };
    name.to_owned()
}

/// Profile of the partition that a resource stands for, if any.
fn partition_profile(resource: &str) -> Option<&str> {
    resource.strip_prefix("nvidia.com/mig-")
}

fn identifiers(nodes: &[&ClusterNode], resource: &str) -> Vec<Identifier> {
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
    let identifier = |display: &str, resource: &str, kind: &str, default: u64| Identifier {
        display_name: display.to_owned(),
        resource: resource.to_owned(),
        min: count(resource, 1),
        default: count(resource, default),
        max: Some(count(resource, most(resource))),
        resource_type: Some(kind.to_owned()),
    };
    let mut all = vec![
        identifier("CPU", CPU, "CPU", share(CPU)),
        identifier("Memory", MEMORY, "Memory", share(MEMORY)),
    ];
    all.retain(|one| most(&one.resource) > 0);
    all.push(identifier(&resource_display_name(resource), resource, "Accelerator", 1));
    all
}

/// Count of a resource in whole processors, gibibytes or devices, at least 1.
fn count(resource: &str, amount: u64) -> Count {
    match resource {
        CPU => Count::whole((amount / 1000).max(1)),
        MEMORY => Count::from(format!("{}Gi", (amount / GIBIBYTE).max(1))),
        _ => Count::whole(amount),
    }
}

/// Permanent taints of these nodes, deduplicated.
fn permanent_taints(nodes: &[&ClusterNode]) -> Vec<Taint> {
    let all: BTreeSet<&Taint> = nodes
        .iter()
        .flat_map(|node| &node.taints)
        .filter(|taint| taint.forbids_permanently())
        .collect();
    all.into_iter().cloned().collect()
}

/// Tolerations for these taints: for the named ones, otherwise for all except those of control-plane nodes.
fn tolerations(
    taints: &[Taint],
    named: Option<&BTreeSet<String>>,
    remarks: &mut Vec<DraftNote>,
) -> Result<Vec<Toleration>, DraftError> {
    let known: Vec<String> = taints.iter().map(ToString::to_string).collect();
    let mut named_taints = named.into_iter().flatten().filter(|one| *one != NO_TAINT);
    if let Some(odd) = named_taints.find(|one| !known.contains(one)) {
        let named = odd.chars().take(MAX_SHOWN_CHARS).collect();
        return Err(DraftError::NoSuchTaint { named, known });
    }
    let (tolerated, left): (Vec<&Taint>, Vec<&Taint>) =
        taints.iter().partition(|taint| match named {
            Some(named) => named.contains(&taint.to_string()),
            None => !taint.is_of_control_plane(),
        });
    let note = match named {
        Some(_) => DraftNote::NotToleratedByRequest,
        None => DraftNote::NotTolerated,
    };
    remarks.extend(left.into_iter().cloned().map(note));
    Ok(tolerated.into_iter().map(Toleration::for_taint).collect())
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
