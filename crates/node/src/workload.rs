//! Annotations on pods that describe their accelerators, according to their actual allocations.
//!
//! Used by `aggregator::pod_types`, which receives allocations from agents, reads the pods from the API server and
//! writes the differences. A pod requests "a GPU" and does not know which one it got; chargeback and later analysis
//! read it from the annotations. [`AnnotationSchedule`] schedules the requests.

mod schedule;
mod team_usage;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use octavo_model::id::{PciAddress, TypeName, is_label_name, is_subdomain};
use octavo_model::profile::ProfileName;

pub use self::schedule::{AllocationClaim, AnnotationSchedule, Claims, NextAction, PodOnNode};
pub use self::team_usage::{IdleHolder, TeamUsage, TeamUsages, team_usage};
use crate::sharing::usage::{Tenant, UnitUsage, Usage};

/// Accelerator type of the allocated devices.
pub const TYPE_ANNOTATION: &str = "accelerator.opendatahub.io/type";
/// MIG profile of the allocated partitions; absent if there are none.
pub const MIG_PROFILE_ANNOTATION: &str = "octavo.dev/mig-profile";
/// Kind of allocation: exclusive, MIG partition, or time-slicing.
pub const SHARING_ANNOTATION: &str = "octavo.dev/sharing";
/// All our annotation keys.
pub const KEYS: [&str; 3] = [TYPE_ANNOTATION, MIG_PROFILE_ANNOTATION, SHARING_ANNOTATION];

/// Value for several different values.
const MIXED: &str = "mixed";
/// Value for an unknown type or profile.
const UNKNOWN: &str = "unknown";

/// Maximum number of pods accepted from one node: a multiple of kubelet's limit.
const MAX_PODS_PER_NODE: usize = 1024;

/// A pod's annotations, limited to our keys.
pub type Annotations = BTreeMap<String, String>;
/// Changes of these annotations; `None` removes one.
pub type Changes = BTreeMap<&'static str, Option<String>>;

/// The desired annotations of a pod, by key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PodAnnotations(BTreeMap<&'static str, String>);

/// A pod as reported by the API server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pod {
    /// Its UID.
    pub uid: String,
    /// The node it is bound to.
    pub node: Option<String>,
    /// True if it has ended and holds no allocation any more.
    pub has_ended: bool,
    /// Its annotations, limited to our keys.
    pub annotations: Annotations,
}

/// A change of a pod's annotations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patch {
    /// The pod's UID: another pod of the same name is not changed.
    pub uid: String,
    /// The changes.
    pub changes: Changes,
}

/// A device, partition or replica allocated to a pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct AllocatedPart {
    kind: Option<TypeName>,
    profile: Option<String>,
    sharing: &'static str,
}

impl PodAnnotations {
    /// The annotations of a pod with these allocations.
    fn from_parts(parts: &BTreeSet<AllocatedPart>) -> Self {
        let kinds = parts.iter().map(|part| part.kind.as_ref());
        let kind = kinds.map(|kind| kind.map_or(UNKNOWN, TypeName::as_str));
        let profiles = parts.iter().filter_map(|part| part.profile.as_deref());
        let sharing = parts.iter().map(|part| part.sharing);
        let all = [
            (TYPE_ANNOTATION, common_value(kind)),
            (MIG_PROFILE_ANNOTATION, common_value(profiles)),
            (SHARING_ANNOTATION, common_value(sharing)),
        ];
        let there = all.into_iter();
        Self(there.filter_map(|(key, value)| Some((key, value?))).collect())
    }

    /// The changes that a pod with these annotations needs; empty if it is up to date.
    pub fn changes(&self, has: &Annotations) -> Changes {
        let differing = KEYS.into_iter().filter_map(|key| {
            let desired = self.0.get(key);
            (desired != has.get(key)).then(|| (key, desired.cloned()))
        });
        differing.collect()
    }
}

/// The common value, or `mixed` if there are several.
fn common_value<'a>(values: impl Iterator<Item = &'a str>) -> Option<String> {
    let different: BTreeSet<&str> = values.collect();
    let first = different.first()?;
    let value = if different.len() > 1 { MIXED } else { first };
    Some(value.to_owned())
}

/// Returns the allocations that a node reports, given the types of its devices.
///
/// Tenants without an allocation are not charged, and tenants without a name cannot be found; both are left out.
pub fn claims(usage: &Usage, types: &BTreeMap<PciAddress, TypeName>) -> Claims {
    let mut allocated: BTreeMap<PodKey, (BTreeSet<AllocatedPart>, BTreeSet<String>)> =
        BTreeMap::new();
    for device in &usage.devices {
        for unit in &device.units {
            for tenant in unit.allocated_tenants() {
                let Some(place) = place(tenant) else { continue };
                if allocated.len() >= MAX_PODS_PER_NODE && !allocated.contains_key(&place) {
                    continue;
                }
                let (parts, uids) = allocated.entry(place).or_default();
                parts.insert(part(unit, tenant, types.get(&device.pci)));
                uids.extend(tenant.short_uid());
            }
        }
    }
    let claims = allocated.into_iter().map(|(place, (parts, uids))| {
        let marks = PodAnnotations::from_parts(&parts);
        (place, AllocationClaim { uids, annotations: marks })
    });
    claims.collect()
}

fn place(tenant: &Tenant) -> Option<PodKey> {
    PodKey::new(tenant.namespace.as_deref()?, tenant.pod.as_deref()?)
}

fn part(unit: &UnitUsage, tenant: &Tenant, kind: Option<&TypeName>) -> AllocatedPart {
    let sharing = match (unit.is_time_sliced(tenant), unit.gpu_instance) {
        (true, _) => "time-slicing",
        (false, Some(_)) => "mig",
        (false, None) => "exclusive",
    };
    // Only valid profile names are written to annotations.
    let profile = unit.profile.as_deref();
    let profile = profile.and_then(|text| text.parse::<ProfileName>().ok());
    let profile = match (unit.gpu_instance, profile) {
        (None, _) => None,
        (Some(_), Some(profile)) => Some(profile.to_string()),
        (Some(_), None) => Some(UNKNOWN.to_owned()),
    };
    AllocatedPart { kind: kind.cloned(), profile, sharing }
}

/// Allocations of one type to the pods of a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HoldingCounts {
    /// Number of pods.
    pub pods: u64,
    /// Whole devices allocated exclusively.
    pub devices: u64,
    /// MIG partitions allocated exclusively.
    pub partitions: u64,
    /// Replicas of shared devices and partitions.
    pub replicas: u64,
}

impl HoldingCounts {
    /// Adds `other`.
    pub fn add(&mut self, other: &Self) {
        self.pods = self.pods.saturating_add(other.pods);
        self.devices = self.devices.saturating_add(other.devices);
        self.partitions = self.partitions.saturating_add(other.partitions);
        self.replicas = self.replicas.saturating_add(other.replicas);
    }
}

/// A pod by namespace and name, both valid in Kubernetes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodKey {
    namespace: String,
    name: String,
}

impl PodKey {
    /// `None` if no pod can have this name.
    pub fn new(namespace: &str, name: &str) -> Option<Self> {
        (is_label_name(namespace) && is_subdomain(name))
            .then(|| Self { namespace: namespace.to_owned(), name: name.to_owned() })
    }

    /// The namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for PodKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

#[cfg(test)]
mod tests;
