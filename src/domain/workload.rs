//! What stands on a workload about its accelerators: which annotations its pod shall have, by what it was really given.
//!
//! Called by `aggregator::pod_types`, which is told by agents who was given what, asks the API server for the pods and writes what
//! differs. A pod asks for "a GPU" and says nothing about which one it got; who charges for it or looks back at it reads that here.
//! [`Ledger`] decides who is looked at when.

mod held;
mod ledger;
mod place;
mod rate;

use std::collections::{BTreeMap, BTreeSet};

pub use self::held::{Held, Holdings, holdings};
pub use self::ledger::{Claim, Claims, Key, Ledger, Next};
pub use self::place::Place;
pub use self::rate::Rate;
use crate::domain::id::{PciAddress, TypeName};
use crate::domain::profile::ProfileName;
use crate::domain::sharing::usage::{Tenant, UnitUsage, Usage};

/// The type of what the pod was given.
pub const TYPE: &str = "accelerator.opendatahub.io/type";
/// The MIG profile of the partitions that it was given; absent where it was given none.
pub const MIG_PROFILE: &str = "octavo.dev/mig-profile";
/// How it has that: alone, in partitions, or by turns with others.
pub const SHARING: &str = "octavo.dev/sharing";
/// All that is ours.
pub const KEYS: [&str; 3] = [TYPE, MIG_PROFILE, SHARING];

/// What it says where there are several.
const MIXED: &str = "mixed";
/// What it says where nobody knows.
const UNKNOWN: &str = "unknown";

/// Pods of one node whose word is taken: some times what a kubelet takes.
const MOST_PODS: usize = 1024;

/// Annotations that a pod has, of those that are ours.
pub type Annotations = BTreeMap<String, String>;
/// What is to be changed of them; `None` takes one away.
pub type Changes = BTreeMap<&'static str, Option<String>>;

/// What a pod shall have; by key, and nothing else of ours.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Marks(BTreeMap<&'static str, String>);

/// A pod as the API server has it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pod {
    /// Its UID.
    pub uid: String,
    /// The node it is bound to.
    pub node: Option<String>,
    /// Whether it has ended, so that it has nothing any more.
    pub has_ended: bool,
    /// Those of its annotations that are ours.
    pub annotations: Annotations,
}

/// What is to be written on a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patch {
    /// The pod's UID: another one of its name is left alone.
    pub uid: String,
    /// What is to be changed.
    pub changes: Changes,
}

/// One device or partition that a pod was given, or a replica of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Part {
    kind: Option<TypeName>,
    profile: Option<String>,
    sharing: &'static str,
}

impl Marks {
    /// Those of a pod that was given this.
    fn of(parts: &BTreeSet<Part>) -> Self {
        let kinds = parts.iter().map(|part| part.kind.as_ref());
        let kind = kinds.map(|kind| kind.map_or(UNKNOWN, TypeName::as_str));
        let profiles = parts.iter().filter_map(|part| part.profile.as_deref());
        let sharing = parts.iter().map(|part| part.sharing);
        let all = [
            (TYPE, one(kind)),
            (MIG_PROFILE, one(profiles)),
            (SHARING, one(sharing)),
        ];
        let there = all.into_iter();
        Self(
            there
                .filter_map(|(key, value)| Some((key, value?)))
                .collect(),
        )
    }

    /// What a pod with these annotations lacks; nothing where it is as it shall be.
    pub fn changes(&self, has: &Annotations) -> Changes {
        let differing = KEYS.into_iter().filter_map(|key| {
            let shall = self.0.get(key);
            (shall != has.get(key)).then(|| (key, shall.cloned()))
        });
        differing.collect()
    }

    /// By key.
    pub fn as_map(&self) -> &BTreeMap<&'static str, String> {
        &self.0
    }
}

/// What all say; `mixed` where they do not agree.
fn one<'a>(values: impl Iterator<Item = &'a str>) -> Option<String> {
    let different: BTreeSet<&str> = values.collect();
    let first = different.first()?;
    let said = if different.len() > 1 { MIXED } else { first };
    Some(said.to_owned())
}

/// Whom a node says it has given what, where these are the types of its devices.
///
/// Who has something without having been given it is nobody's to charge, and who is not named cannot be found.
pub fn claims(usage: &Usage, types: &BTreeMap<PciAddress, TypeName>) -> Claims {
    let mut given: BTreeMap<Place, (BTreeSet<Part>, BTreeSet<String>)> = BTreeMap::new();
    for device in &usage.devices {
        for unit in &device.units {
            for tenant in unit.tenants.iter().filter(|tenant| !tenant.ids.is_empty()) {
                let Some(place) = place(tenant) else { continue };
                if given.len() >= MOST_PODS && !given.contains_key(&place) {
                    continue;
                }
                let (parts, uids) = given.entry(place).or_default();
                parts.insert(part(unit, tenant, types.get(&device.pci)));
                uids.extend(tenant.short_uid());
            }
        }
    }
    let claims = given.into_iter().map(|(place, (parts, uids))| {
        let marks = Marks::of(&parts);
        (place, Claim { uids, marks })
    });
    claims.collect()
}

fn place(tenant: &Tenant) -> Option<Place> {
    Place::new(tenant.namespace.as_deref()?, tenant.pod.as_deref()?)
}

/// Whether it is one of several that have the unit: also where only the id says so, as those of NVIDIA's plugin do.
fn by_turns(unit: &UnitUsage, tenant: &Tenant) -> bool {
    unit.replicas.is_some() || tenant.ids.iter().any(|id| id.number().is_some())
}

fn part(unit: &UnitUsage, tenant: &Tenant, kind: Option<&TypeName>) -> Part {
    let sharing = match (by_turns(unit, tenant), unit.partition) {
        (true, _) => "time-slicing",
        (false, Some(_)) => "mig",
        (false, None) => "exclusive",
    };
    // What is no profile is no text of ours to write.
    let profile = unit.profile.as_deref();
    let profile = profile.and_then(|text| text.parse::<ProfileName>().ok());
    let profile = match (unit.partition, profile) {
        (None, _) => None,
        (Some(_), Some(profile)) => Some(profile.to_string()),
        (Some(_), None) => Some(UNKNOWN.to_owned()),
    };
    Part {
        kind: kind.cloned(),
        profile,
        sharing,
    }
}

#[cfg(test)]
mod tests;
