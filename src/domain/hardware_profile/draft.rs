//! A new profile, made of nodes that a person selected or of all nodes of a type.
//!
//! It selects by the label of ours that says the type, because that one stays when devices are shared; where no agent has labeled the
//! nodes, by the vendor's label that names the type. What it asks for and at most is what the nodes have. Nodes that would make it
//! mean several things are left out, and why is said.

use std::collections::{BTreeMap, BTreeSet};

use thiserror::Error;

use super::chosen::{Chosen, chosen};
use super::edit::{CountError, Counts, NO_TAINT, counted, tolerated, toleration};
use super::held::WHOLE;
use super::notes::{because, instead, names, resources, taints};
use super::reach::is_passing;
use super::{
    Count, HardwareProfile, Held, Identifier, ProfileKey, ProfileKind, Said, Scheduling, Specs,
};
use crate::domain::accelerators::Catalogue;
use crate::domain::cluster::{CPU, ClusterNode, Sights, Taint, Toleration};
use crate::domain::id::TypeName;

/// What a new profile shall be for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wish {
    /// These nodes; all where there are none.
    pub nodes: BTreeSet<String>,
    /// Nodes of this type.
    pub type_name: Option<TypeName>,
    /// The resource that it asks for, where the nodes have several.
    pub resource: Option<String>,
    /// What it is called; after its type where nobody says.
    pub key: ProfileKey,
    /// What people are shown.
    pub display_name: Option<String>,
    /// How many of each resource, where that is not what is drafted.
    pub counts: Vec<Counts>,
    /// The taints of the nodes that are tolerated, as they are shown; those that are drafted where nobody says.
    pub tolerate: Option<BTreeSet<String>>,
}

/// A new profile, and what is to be said of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    /// The profile.
    pub profile: HardwareProfile,
    /// The nodes that it was made of.
    pub nodes: Vec<String>,
    /// Lasting taints that keep work off them, tolerated or not.
    pub taints: Vec<Taint>,
    /// What a person should know before it is made.
    pub notes: Vec<Note>,
}

/// Something to know about a draft.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// A node with several types was left out.
    Mixed {
        /// Which.
        node: String,
        /// What it has.
        has: String,
    },
    /// A node whose devices nobody knows was left out.
    Unknown(String),
    /// A node without devices was left out.
    Bare(String),
    /// A node of this name is not there.
    Missing(String),
    /// A node without our label was left out: nothing would be placed there.
    Unlabelled(String),
    /// No node has our label, so the profile selects by one of another vendor.
    VendorLabel {
        /// Its key.
        key: String,
        /// Its value.
        value: String,
    },
    /// A node was left out because its label has another value than the profile selects by.
    OtherLabel {
        /// Which.
        node: String,
        /// The key that the profile selects by.
        key: String,
        /// The value.
        value: String,
    },
    /// Nodes that were not selected are reached too.
    More {
        /// How many.
        nodes: usize,
        /// Of which type.
        type_name: TypeName,
    },
    /// A taint is not tolerated, because it keeps work off for a reason of its own.
    NotTolerated(Taint),
    /// A taint is not tolerated, because somebody said so.
    LeftOff(Taint),
}

/// Why no profile can be made of this.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refusal {
    /// There is nothing to make one of.
    #[error("none of these nodes can be used{}; {}", because(.0), instead(.0))]
    NoNode(Vec<Note>),
    /// No node has devices of the type that was asked for.
    #[error("no node has devices of type {0}; `octavo availability` lists the types there are")]
    NoNodeOfType(TypeName),
    /// They have several types.
    #[error("these nodes have {} types, {}: a profile's selector cannot say \"this or that\". Make one for each; or give all these nodes a label of your own, such as class=large, and a profile that selects by it", .0.len(), names(.0))]
    SeveralTypes(Vec<TypeName>),
    /// They give out several resources, or none.
    #[error("{}", resources(.0))]
    Resource(Vec<String>),
    /// The resource that was asked for is not given out.
    #[error("none of these nodes gives out {0}")]
    NoSuchResource(String),
    /// It cannot be so many.
    #[error(transparent)]
    Counts(#[from] CountError),
    /// None of the nodes has this taint.
    #[error("none of these nodes has the taint {named:?}{}", taints(.known))]
    NoSuchTaint {
        /// Which was named.
        named: String,
        /// Those they have.
        known: Vec<String>,
    },
}

/// Taints of nodes that work with devices shall not get onto because a profile was made of them.
const KEPT: [&str; 2] = [
    "node-role.kubernetes.io/control-plane",
    "node-role.kubernetes.io/master",
];
pub(super) const MEMORY: &str = "memory";
/// What agents say of the memory of one device.
const MEMORY_LABEL: &str = "octavo.dev/memory-mib";
const GIBIBYTE: u64 = 1 << 30;
/// Of a device's share of its node, a workload asks for this much by default: what runs on every node needs some of it too.
const DEFAULT_SHARE: (u64, u64) = (3, 4);

/// A profile for what `wish` asks for, of what the cluster has.
pub fn draft(
    wish: &Wish,
    sights: &Sights,
    types: &BTreeMap<String, Held>,
    catalogue: &Catalogue,
) -> Result<Draft, Refusal> {
    let mut remarks = Vec::new();
    let Chosen {
        type_name,
        nodes,
        label: (key_of_label, value),
    } = chosen(wish, sights, types, catalogue, &mut remarks)?;
    let (resource, display) = resource(wish, &nodes)?;
    let nodes: Vec<&ClusterNode> = nodes
        .into_iter()
        .filter(|node| node.allocatable.get(&resource) > 0)
        .collect();
    let specs = Specs::of(&type_name, catalogue);
    let identifiers = counted(identifiers(&nodes, &resource, &display), &wish.counts)?;
    let taints = lasting(&nodes);
    let tolerations = tolerations(&taints, wish.tolerate.as_ref(), &mut remarks)?;
    let labelled = sights
        .nodes
        .values()
        .filter(|node| node.label(key_of_label) == Some(value));
    let more = labelled.count().saturating_sub(nodes.len());
    if more > 0 {
        remarks.push(Note::More {
            nodes: more,
            type_name: type_name.clone(),
        });
    }
    let mut key = wish.key.clone();
    if key.name.is_empty() {
        key.name = name(&type_name, &resource);
    }
    // What a driver shows is truer than what is sold.
    let shown = nodes
        .iter()
        .filter_map(|node| node.label(MEMORY_LABEL)?.parse().ok());
    let profile = HardwareProfile {
        key,
        kind: ProfileKind::Hardware,
        display_name: Some(called(wish, &specs, &resource)),
        description: None,
        is_disabled: false,
        identifiers,
        scheduling: Scheduling::Node {
            selector: BTreeMap::from([(key_of_label.to_owned(), value.to_owned())]),
            tolerations,
        },
        said: Said {
            types: vec![type_name],
            memory_mib: shown.min().or(specs.memory_mib),
            architecture: specs.architecture,
            ..Said::default()
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

/// What people are shown.
fn called(wish: &Wish, specs: &Specs, resource: &str) -> String {
    wish.display_name.clone().unwrap_or_else(|| {
        let part = part(resource).map(|part| format!(" ({part})"));
        format!("{}{}", specs.name, part.unwrap_or_default())
    })
}

/// The resource to ask for, and what people are shown for it.
fn resource(wish: &Wish, nodes: &[&ClusterNode]) -> Result<(String, String), Refusal> {
    let given = |name: &str| nodes.iter().any(|node| node.allocatable.get(name) > 0);
    if let Some(asked) = &wish.resource {
        if !given(asked) {
            return Err(Refusal::NoSuchResource(asked.clone()));
        }
        return Ok((asked.clone(), shown(asked)));
    }
    if let Some(whole) = WHOLE.into_iter().find(|name| given(name)) {
        return Ok((whole.to_owned(), shown(whole)));
    }
    let all: BTreeSet<String> = nodes
        .iter()
        .flat_map(|node| node.allocatable.devices())
        .filter(|(_, count)| *count > 0)
        .map(|(name, _)| name.to_owned())
        .collect();
    let all: Vec<String> = all.into_iter().collect();
    match all.as_slice() {
        [one] => Ok((one.clone(), shown(one))),
        _ => Err(Refusal::Resource(all)),
    }
}

/// What people are shown for a resource.
fn shown(resource: &str) -> String {
    if let Some(part) = part(resource) {
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

/// Which part of a device a resource is, where it is one.
fn part(resource: &str) -> Option<&str> {
    resource.strip_prefix("nvidia.com/mig-")
}

fn identifiers(nodes: &[&ClusterNode], resource: &str, display: &str) -> Vec<Identifier> {
    let most = |name: &str| {
        let all = nodes.iter().map(|node| node.allocatable.get(name));
        all.max().unwrap_or(0)
    };
    // What each node can give to each of its devices at once: the least of that.
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
            MEMORY,
            "Memory",
            [gibibytes(1), memory(share(MEMORY)), memory(most(MEMORY))],
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

/// Lasting taints of these nodes, each once.
fn lasting(nodes: &[&ClusterNode]) -> Vec<Taint> {
    let all: BTreeSet<&Taint> = nodes
        .iter()
        .flat_map(|node| &node.taints)
        .filter(|taint| taint.forbids() && !is_passing(taint))
        .collect();
    all.into_iter().cloned().collect()
}

/// What these taints need: those that were said, or else all but those that keep work off on purpose.
fn tolerations(
    taints: &[Taint],
    said: Option<&BTreeSet<String>>,
    remarks: &mut Vec<Note>,
) -> Result<Vec<Toleration>, Refusal> {
    if let Some(said) = said {
        let mut named = said.clone();
        named.remove(NO_TAINT);
        let (tolerated, left) = tolerated(taints, &named)?;
        remarks.extend(left.into_iter().cloned().map(Note::LeftOff));
        return Ok(tolerated);
    }
    let (kept, tolerated): (Vec<&Taint>, Vec<&Taint>) = taints
        .iter()
        .partition(|taint| KEPT.contains(&taint.key.as_str()));
    remarks.extend(kept.into_iter().cloned().map(Note::NotTolerated));
    Ok(tolerated.into_iter().map(toleration).collect())
}

/// The type, and the part of a device where it is for parts.
fn name(type_name: &TypeName, resource: &str) -> String {
    match part(resource) {
        Some(part) => {
            let part = part.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
            format!("{type_name}-mig-{}", part.to_lowercase())
        }
        None => type_name.to_string(),
    }
}
