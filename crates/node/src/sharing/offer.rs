//! Offers of a node: resources, the units of each, and the replicas of each unit.
//!
//! ```text
//!   Inventory, MIG strategy --> units.rs: units and their default resource names
//!   Targets ------------------> shares.rs: the share that applies to each unit
//!                               name.rs: conflicts between units of one resource name
//! ```

mod shares;
mod units;

use std::collections::{BTreeMap, BTreeSet};

use octavo_model::id::PciAddress;
use octavo_model::inventory::Inventory;
use octavo_model::profile::ProfileName;
use octavo_model::quantity::Mebibytes;
use octavo_model::resource::{ResourceName, ShareId};
use octavo_model::text::{format_memory, join};
use octavo_planner::layout::{ResourceRename, Share, TargetScope, Targets};

use self::shares::Shares;
use self::units::Candidate;
pub use self::units::find;
use crate::mig_strategy::MigStrategy;

/// All offers of a node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Offers {
    /// Ordered by name, each once.
    pub resources: Vec<Offer>,
}

/// The units offered under one resource name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// The name.
    pub name: ResourceName,
    /// True if a container that requests more than one is rejected.
    pub fail_requests_greater_than_one: bool,
    /// Ordered by device, then by the driver's ids of the instances.
    pub units: Vec<Unit>,
}

/// A whole device or a partition: what a container can be allocated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    /// UUID of the device or partition.
    pub uuid: String,
    /// The device, or the device of the partition.
    pub pci: PciAddress,
    /// The partition; `None` for a whole device.
    pub partition: Option<Partition>,
    /// Number of replicas; `None` if it is not shared.
    pub replicas: Option<u32>,
    /// Its memory, if known.
    pub memory: Option<Mebibytes>,
    /// Memory that each replica should not exceed; `None` for equal parts.
    pub memory_per_replica: Option<Mebibytes>,
    /// The NUMA node of the device's slot.
    pub numa_node: Option<u32>,
}

/// A partition, by the driver's ids.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Partition {
    /// The GPU instance.
    pub gpu_instance: u32,
    /// The compute instance within it.
    pub compute_instance: u32,
    /// Name in NVIDIA's tools: `1g.10gb`, `1c.3g.40gb`.
    pub profile: ProfileName,
}

/// Offers and their warnings.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CompiledOffers {
    /// The offers.
    pub offers: Offers,
    /// Human-readable reasons for units that are not offered.
    pub warnings: Vec<String>,
    /// Devices with MIG mode enabled that are not offered because the MIG strategy does not fit.
    pub unoffered: BTreeSet<PciAddress>,
}

impl Unit {
    /// The ids of the unit or of its replicas.
    pub fn ids(&self) -> Vec<ShareId> {
        match self.replicas {
            None => vec![ShareId::whole(&self.uuid)],
            Some(replicas) => {
                (0..replicas).map(|number| ShareId::replica(&self.uuid, number)).collect()
            }
        }
    }

    /// Memory that each replica can use so that all of them can; not enforced. `None` if the unit is not shared, or
    /// its memory is unknown.
    pub fn fair_share(&self) -> Option<Mebibytes> {
        let replicas = self.replicas?;
        let equal = || {
            let memory = self.memory?.get().checked_div(u64::from(replicas))?;
            Some(Mebibytes::new(memory))
        };
        self.memory_per_replica.or_else(equal)
    }
}

impl Offers {
    /// The offer of this name.
    pub fn by_name(&self, name: &ResourceName) -> Option<&Offer> {
        self.resources.iter().find(|offer| offer.name == *name)
    }

    /// Every unit with its offer.
    pub fn units(&self) -> impl Iterator<Item = (&Offer, &Unit)> {
        let all = self.resources.iter();
        all.flat_map(|offer| offer.units.iter().map(move |unit| (offer, unit)))
    }

    /// The unit with this UUID.
    pub fn unit(&self, uuid: &str) -> Option<(&Offer, &Unit)> {
        self.units().find(|(_, unit)| unit.uuid == uuid)
    }
}

impl Offer {
    /// Number of ids.
    pub fn count(&self) -> usize {
        self.units.iter().map(|unit| unit.ids().len()).sum()
    }
}

/// Returns the offers of a node with this inventory and these targets. Units without a share are offered whole. Devices
/// of resource claims are not offered. The order of the devices does not matter.
pub fn compile(inventory: &Inventory, targets: &Targets, strategy: MigStrategy) -> CompiledOffers {
    let mut warnings = Warnings::default();
    let mut candidates = units::candidates(inventory, strategy, &mut warnings);
    let of_claims = targets.devices.iter().filter(|target| target.scope != TargetScope::Layout);
    let of_claims: BTreeSet<PciAddress> = of_claims.map(|target| target.pci).collect();
    candidates.retain(|one| !of_claims.contains(&one.unit.pci));
    let shares = Shares::new(targets, &candidates);
    shares.warn_unused(&mut warnings);
    let mut named: BTreeMap<ResourceName, Vec<NamedUnit<'_>>> = BTreeMap::new();
    for candidate in &candidates {
        let share = shares.share_for(candidate);
        let name = share.map_or_else(
            || candidate.name.clone(),
            |share| renamed(&candidate.name, &share.rename),
        );
        let all = named.entry(name).or_default();
        all.push(NamedUnit { candidate, share });
    }
    let resources = named.into_iter().map(|(name, all)| {
        warn_conflicts(&name, &all, &mut warnings);
        let fails = |one: &NamedUnit<'_>| {
            one.share.is_some_and(|share| share.fail_requests_greater_than_one)
        };
        Offer {
            fail_requests_greater_than_one: all.iter().any(fails),
            units: all.iter().map(|one| offered_unit(one)).collect(),
            name,
        }
    });
    let resources = resources.collect();
    CompiledOffers {
        offers: Offers { resources },
        unoffered: std::mem::take(&mut warnings.unoffered),
        warnings: warnings.into_messages(),
    }
}

fn offered_unit(named: &NamedUnit<'_>) -> Unit {
    let Candidate { unit, .. } = named.candidate;
    Unit {
        replicas: named.share.map(|share| share.replicas),
        memory_per_replica: named.share.and_then(|share| share.memory_per_replica),
        ..unit.clone()
    }
}

/// A unit, and the share that applies to it.
#[derive(Debug)]
struct NamedUnit<'a> {
    candidate: &'a Candidate,
    share: Option<&'a Share>,
}

/// The resource name of shared units.
fn renamed(name: &ResourceName, rename: &ResourceRename) -> ResourceName {
    match rename {
        ResourceRename::No => name.clone(),
        ResourceRename::Shared => name.shared(),
        ResourceRename::To(other) => other.clone(),
    }
}

/// Warns about conflicts between the units.
fn warn_conflicts(name: &ResourceName, all: &[NamedUnit<'_>], warnings: &mut Warnings) {
    let kinds: BTreeSet<String> = all.iter().map(kind).collect();
    if kinds.len() > 1 {
        warnings.add(format!(
            "{name} consists of {}, and a pod cannot choose among them; use a separate name for each",
            join(kinds, " and ")
        ));
    }
    let shared = all.iter().filter_map(|one| one.share);
    let strict = shared.clone().filter(|share| share.fail_requests_greater_than_one);
    let (shared, strict) = (shared.count(), strict.count());
    if shared > 0 && shared < all.len() {
        warnings.add(format!(
            "{name} is shared in {shared} of {} units, and a pod cannot choose among them; rename the shared units",
            all.len()
        ));
    }
    if strict > 0 && strict < shared {
        warnings.add(format!(
            "{name}: failRequestsGreaterThanOne is set for {strict} of {shared} shared units; it applies to all of \
             them"
        ));
    }
    for one in all {
        warn_memory_exceeded(one, warnings);
    }
}

fn kind(named: &NamedUnit<'_>) -> String {
    match &named.candidate.unit.partition {
        None => "whole GPUs".to_owned(),
        Some(partition) => format!("partitions {}", partition.profile),
    }
}

/// Warns if the memory of all replicas exceeds that of the unit.
fn warn_memory_exceeded(named: &NamedUnit<'_>, warnings: &mut Warnings) {
    let Candidate { unit, display_name: called, .. } = named.candidate;
    let Some((share, has)) = named.share.zip(unit.memory) else {
        return;
    };
    let Some(each) = share.memory_per_replica else {
        return;
    };
    let all = Mebibytes::new(u64::from(share.replicas).saturating_mul(each.get()));
    if all > has {
        let [each, all, has] = [each, all, has].map(format_memory);
        let what = format!("{} replicas of {each} need {all}, but it has {has}", share.replicas);
        warnings.add_for(called, &what);
    }
}

/// Warnings in the order in which they were added.
#[derive(Debug, Default)]
struct Warnings {
    /// Devices that are not offered because the MIG strategy does not fit.
    unoffered: BTreeSet<PciAddress>,
    /// Subjects and message of each warning.
    all: Vec<(Vec<String>, String)>,
}

impl Warnings {
    /// Adds a warning about one of several subjects that may have the same problem.
    fn add_for(&mut self, who: &str, what: &str) {
        let mut all = self.all.iter_mut();
        let same = all.find(|(known, text)| text == what && !known.is_empty());
        match same {
            Some((known, _)) if known.iter().any(|one| one == who) => {}
            Some((known, _)) => known.push(who.to_owned()),
            None => self.all.push((vec![who.to_owned()], what.to_owned())),
        }
    }

    /// Adds a warning without a subject.
    fn add(&mut self, what: String) {
        if !self.all.iter().any(|(who, text)| who.is_empty() && *text == what) {
            self.all.push((Vec::new(), what));
        }
    }

    /// Formats the warnings as sentences.
    fn into_messages(self) -> Vec<String> {
        let sentences = self.all.into_iter().map(|(who, what)| {
            if who.is_empty() { what } else { format!("{}: {what}", who.join(", ")) }
        });
        sentences.collect()
    }
}
