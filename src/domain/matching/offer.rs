//! What there is to match: units of one kind that a pod can ask for.

use super::request::Bytes;
use crate::domain::accelerators::{Facts, LinkKind, catalogue};
use crate::domain::id::TypeName;
use crate::domain::price::Price;
use crate::domain::quantity::ComputeCapability;

/// Units of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// What people and other programs call it; no two offers have the same.
    pub name: String,
    /// The type of the devices.
    pub type_name: TypeName,
    /// How they are given out.
    pub shape: Shape,
    /// Memory of one unit; `None` where nobody tells.
    pub memory: Option<Bytes>,
    /// The most units that one node has, be they free or not.
    pub most_on_a_node: u32,
    /// How many there are in all.
    pub total: u64,
    /// What is free of them.
    pub free: Free,
    /// What a change that disturbs nobody would free.
    pub could_become: Option<Change>,
    /// What one unit costs, bought as was asked for.
    pub price: Option<Price>,
    /// What the catalogue knows of the type.
    pub traits: Traits,
    /// What to know of the whole offer, in words.
    pub notes: Vec<String>,
    /// The resource that a pod asks for, such as `nvidia.com/gpu`; `None` where only agents tell what there is.
    pub resource: Option<String>,
    /// The hardware profile by which it is had; `None` for what nodes have as such.
    pub profile: Option<Picked>,
    /// Further types that a unit may be of just as well.
    pub others: Vec<TypeName>,
    /// Why people who pick profiles do not get it, in words; `None` where a profile gives it, or none are looked at.
    pub lacks_profile: Option<String>,
}

/// A hardware profile, as people pick it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Picked {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// What people are shown.
    pub shown: String,
    /// The fewest units that a person can ask for.
    pub min: u64,
    /// The most; `None` for no bound.
    pub max: Option<u64>,
}

/// How units are given out.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shape {
    /// Devices as a whole.
    Whole,
    /// MIG partitions of this profile, with memory of their own.
    Mig(String),
    /// Parts of another maker's devices, with memory of their own: a Neuron core, an AMD partition.
    Part(String),
    /// Devices that several pods use by turns; memory is not kept apart.
    Shared,
}

/// What is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Free {
    /// Nobody says.
    Unknown,
    /// So much.
    Known {
        /// On all nodes.
        total: u64,
        /// On the node that has most.
        on_one_node: u32,
    },
}

/// A change that would free units and disturb nobody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Units that would be free on one node then, those that are free already among them.
    pub on_one_node: u32,
    /// What is to be done, and where, in words: "by repartitioning node-7".
    pub how: String,
}

/// What the catalogue knows of a type. Products of one type may differ.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Traits {
    /// Who makes it, such as `nvidia`.
    pub vendor: Option<String>,
    /// Chip family, where all products of the type have the same.
    pub architecture: Option<String>,
    /// The lowest CUDA compute capability of its products.
    pub compute_capability: Option<ComputeCapability>,
    /// How its products are linked with each other, each kind once.
    pub links: Vec<Link>,
    /// Whether that is known of all its products.
    pub all_links_known: bool,
}

/// A way in which devices are linked with each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Link {
    /// None but the bus.
    Bus,
    /// `NVLink`.
    NvLink,
    /// `NVLink`, where the bridge was bought.
    NvLinkBridge,
    /// AMD's Infinity Fabric.
    InfinityFabric,
    /// Amazon's `NeuronLink`.
    NeuronLink,
}

impl Traits {
    /// Of a type; nothing is known of one that the catalogue does not have.
    pub fn of(type_name: &TypeName) -> Self {
        let is_one = |facts: &&Facts| facts.type_name == type_name.as_str();
        let products: Vec<&Facts> = catalogue().iter().filter(is_one).collect();
        let Some(first) = products.first() else {
            return Self::default();
        };
        let same = products
            .iter()
            .all(|one| one.architecture == first.architecture);
        let capabilities = products.iter().map(|one| one.compute_capability);
        // One product of which it is not known leaves the type's unknown.
        let lowest: Option<Vec<ComputeCapability>> = capabilities.collect();
        let kinds = products.iter().filter_map(|one| one.interconnect);
        let mut links: Vec<Link> = kinds.map(|link| Link::of(link.kind)).collect();
        links.sort_unstable();
        links.dedup();
        Self {
            vendor: Some(first.vendor.to_string()),
            architecture: same.then(|| first.architecture.to_owned()),
            compute_capability: lowest.and_then(|all| all.into_iter().min()),
            links,
            all_links_known: products.iter().all(|one| one.interconnect.is_some()),
        }
    }
}

impl Link {
    fn of(kind: LinkKind) -> Self {
        match kind {
            // That between a GPU and its CPU links no GPUs.
            LinkKind::Pcie | LinkKind::NvLinkC2c => Self::Bus,
            LinkKind::NvLink => Self::NvLink,
            LinkKind::NvLinkBridge => Self::NvLinkBridge,
            LinkKind::InfinityFabric => Self::InfinityFabric,
            LinkKind::NeuronLink => Self::NeuronLink,
        }
    }
}

impl Offer {
    /// All types that a unit may be of.
    pub fn types(&self) -> impl Iterator<Item = &TypeName> {
        [&self.type_name].into_iter().chain(&self.others)
    }
}

impl Shape {
    /// Whether it is a part of a device.
    pub fn is_part(&self) -> bool {
        matches!(self, Self::Mig(_) | Self::Part(_))
    }

    /// The word.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::Mig(_) => "mig",
            Self::Part(_) => "part",
            Self::Shared => "shared",
        }
    }
}
