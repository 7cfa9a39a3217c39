//! Offers: units of one kind that a pod can request.

use octavo_model::accelerators::{Facts, LinkKind, products};
use octavo_model::id::TypeName;
use octavo_model::quantity::ComputeCapability;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use strum::EnumDiscriminants;
use utoipa::ToSchema;

use super::request::Bytes;
use crate::price::Price;

/// Units of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// Unique name, shown to users and used by other programs.
    pub name: String,
    /// Accelerator type.
    pub type_name: TypeName,
    /// Form in which units are allocated.
    pub shape: Shape,
    /// Memory per unit; `None` if unknown.
    pub memory: Option<Bytes>,
    /// Maximum units on one node, free or not.
    pub max_per_node: u32,
    /// Units on all nodes.
    pub total: u64,
    /// Free units; `None` if unknown.
    pub free: Option<FreeUnits>,
    /// Units available after a change that affects no running workload.
    pub after_change: Option<AvailabilityChange>,
    /// Price per unit with the requested purchase option.
    pub price: Option<Price>,
    /// Attributes of the type from the catalog.
    pub traits: TypeAttributes,
    /// Notes about the whole offer, as text.
    pub notes: Vec<String>,
    /// Resource that a pod requests, such as `nvidia.com/gpu`; `None` if only agents report the units.
    pub resource: Option<String>,
    /// The hardware profile that leads to this offer; `None` for plain devices of nodes.
    pub profile: Option<ProfileInfo>,
    /// Further types that a unit may have instead.
    pub others: Vec<TypeName>,
    /// Reason why users who choose profiles cannot get this offer, as text; `None` if a profile reaches it or profiles
    /// are not considered.
    pub no_profile_reason: Option<String>,
}

/// A hardware profile as users choose it.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Picked)]
pub struct ProfileInfo {
    /// Namespace of the object.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// Display name.
    pub display_name: String,
    /// Minimum units per request.
    pub min: u64,
    /// Maximum units per request; absent if unlimited.
    pub max: Option<u64>,
}

/// Form in which units are allocated.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, EnumDiscriminants)]
#[strum_discriminants(name(ShapeKind), derive(Serialize, Deserialize))]
#[strum_discriminants(serde(rename_all = "lowercase"))]
#[strum_discriminants(
    doc = "Form in which units are allocated, without the name of the partition's profile."
)]
pub enum Shape {
    /// Whole devices.
    Whole,
    /// MIG devices of this profile, with memory of their own.
    Mig(String),
    /// Partitions of another vendor's devices, with memory of their own, such as a Neuron core or an AMD partition.
    Part(String),
    /// Time-sliced devices; memory is not isolated.
    Shared,
}

/// Number of free units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Free)]
pub struct FreeUnits {
    /// Free units on all nodes.
    pub total: u64,
    /// Free units on the node with the most.
    pub on_one_node: u32,
}

/// A change that would free units without affecting running workloads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Change)]
pub struct AvailabilityChange {
    /// Units free on one node after the change, including those already free.
    pub on_one_node: u32,
    /// The change and its node, as text: "by repartitioning node-7".
    pub how: String,
}

/// Attributes of a type from the catalog. Products of one type may differ.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TypeAttributes {
    /// Vendor, such as `nvidia`.
    pub vendor: Option<String>,
    /// Chip family, if all products of the type share it.
    pub architecture: Option<String>,
    /// Lowest CUDA compute capability of the products.
    pub compute_capability: Option<ComputeCapability>,
    /// Links between devices of the products, without duplicates.
    pub links: Vec<Link>,
    /// True if the links of all products are known.
    pub all_links_known: bool,
}

/// Kind of link between devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Link {
    /// Bus only.
    Bus,
    /// `NVLink`.
    NvLink,
    /// `NVLink` with an optional bridge.
    NvLinkBridge,
    /// AMD's Infinity Fabric.
    InfinityFabric,
    /// Amazon's `NeuronLink`.
    NeuronLink,
}

impl TypeAttributes {
    /// Looks up a type; all attributes are empty if the catalog does not list it.
    pub fn from_type(type_name: &TypeName) -> Self {
        let is_one = |facts: &&Facts| facts.type_name == type_name.as_str();
        let products: Vec<&Facts> = products().iter().filter(is_one).collect();
        let Some(first) = products.first() else {
            return Self::default();
        };
        let same = products.iter().all(|one| one.architecture == first.architecture);
        let capabilities = products.iter().map(|one| one.compute_capability);
        // If one product's capability is unknown, the type's is unknown.
        let lowest: Option<Vec<ComputeCapability>> = capabilities.collect();
        let kinds = products.iter().filter_map(|one| one.interconnect);
        let mut links: Vec<Link> = kinds.map(Link::of).collect();
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
            // NVLink-C2C connects a GPU to its CPU, not to other GPUs.
            LinkKind::Pcie | LinkKind::NvLinkC2c => Self::Bus,
            LinkKind::NvLink => Self::NvLink,
            LinkKind::NvLinkBridge => Self::NvLinkBridge,
            LinkKind::InfinityFabric => Self::InfinityFabric,
            LinkKind::NeuronLink => Self::NeuronLink,
        }
    }
}

impl Offer {
    /// Creates an offer without units.
    pub fn new(name: String, type_name: TypeName, shape: Shape) -> Self {
        Self {
            name,
            shape,
            memory: None,
            max_per_node: 0,
            total: 0,
            free: None,
            after_change: None,
            price: None,
            traits: TypeAttributes::from_type(&type_name),
            notes: Vec::new(),
            resource: None,
            profile: None,
            others: Vec::new(),
            no_profile_reason: None,
            type_name,
        }
    }

    /// Returns all types that a unit may have.
    pub fn types(&self) -> impl Iterator<Item = &TypeName> {
        [&self.type_name].into_iter().chain(&self.others)
    }
}

impl Shape {
    /// Returns true for parts of a device.
    pub fn is_part(&self) -> bool {
        matches!(self, Self::Mig(_) | Self::Part(_))
    }
}
