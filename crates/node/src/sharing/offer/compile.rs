//! Compilation of an inventory and its targets to offers.

use std::collections::BTreeMap;

use octavo_model::inventory::Inventory;
use octavo_model::resource::ResourceName;
use octavo_planner::layout::Targets;

use super::shares::Shares;
use super::units::Candidate;
use super::warnings::Warnings;
use super::{CompiledOffers, Offer, Offers, name, units};
use crate::mig_strategy::MigStrategy;

/// Returns the offers of a node with this inventory and these targets. Units without a share are offered whole. The
/// order of the devices does not matter.
pub fn compile(inventory: &Inventory, targets: &Targets, strategy: MigStrategy) -> CompiledOffers {
    let mut warnings = Warnings::default();
    let candidates = units::candidates(inventory, strategy, &mut warnings);
    let shares = Shares::new(targets, &candidates);
    shares.warn_unused(&mut warnings);
    let mut named: BTreeMap<ResourceName, Vec<name::NamedUnit<'_>>> = BTreeMap::new();
    for candidate in &candidates {
        let share = shares.share_for(candidate);
        let name = share.map_or_else(
            || candidate.name.clone(),
            |share| name::renamed(&candidate.name, &share.rename),
        );
        let all = named.entry(name).or_default();
        all.push(name::NamedUnit { candidate, share });
    }
    let resources = named.into_iter().map(|(name, all)| {
        name::warn_conflicts(&name, &all, &mut warnings);
        let fails = |one: &name::NamedUnit<'_>| {
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

fn offered_unit(named: &name::NamedUnit<'_>) -> super::Unit {
    let Candidate { unit, .. } = named.candidate;
    super::Unit {
        replicas: named.share.map(|share| share.replicas),
        memory_per_replica: named.share.and_then(|share| share.memory_per_replica),
        ..unit.clone()
    }
}
