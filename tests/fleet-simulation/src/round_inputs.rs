//! Inputs of a round: targets and journal entries, as `octavo_engine` and the agent determine them.

use std::collections::BTreeSet;
use std::sync::Arc;

use octavo_model::id::PciAddress;
use octavo_planner::layout::Targets;

use crate::state::agent::Agent;

/// The layout that the Node selects and its targets. An unusable layout leaves the previous one in effect.
pub(crate) fn targets(agent: &mut Agent) -> (Option<String>, Targets) {
    agent.is_refused = false;
    agent.notice = None;
    let name = agent.choice().map(|selected| selected.layout.clone());
    agent.handled.clone_from(&name);
    let Some(name) = name else {
        agent.last_targets = None;
        return (None, Targets::default());
    };
    match agent.layouts.resolve(&name, &agent.inventory) {
        Ok(resolved) => {
            let selected = (name.clone(), resolved.targets.clone());
            if agent.last_targets.as_ref() != Some(&selected) {
                let all = selected.1.devices.iter().map(|target| target.pci);
                let known = |pci: &PciAddress| {
                    let before = agent.last_targets.as_ref().filter(|(before, _)| *before == name);
                    let mut before = before.into_iter().flat_map(|(_, targets)| &targets.devices);
                    let now = selected.1.devices.iter().find(|target| target.pci == *pci);
                    before.find(|target| target.pci == *pci).map(|one| &one.mig)
                        == now.map(|one| &one.mig)
                };
                let changed: BTreeSet<PciAddress> = all.filter(|pci| !known(pci)).collect();
                agent.reconciler.select(&changed);
                agent.last_targets = Some(selected);
            }
            (Some(name), resolved.targets)
        }
        Err(error) => {
            agent.is_refused = true;
            agent.notice = Some(format!("{error}; the previous layout stays in effect"));
            let previous = agent.last_targets.clone();
            previous.map_or_else(
                || (Some(name), Targets::default()),
                |(name, targets)| (Some(name), targets),
            )
        }
    }
}

/// Drops the journal entries of devices that have exactly their previous partitions.
pub(crate) fn drop_untouched(agent: &mut Agent) {
    let inventory = Arc::clone(&agent.inventory);
    if let Some(record) = &mut agent.record {
        record.devices.retain(|entry| !entry.is_at_previous(&inventory));
    }
    agent.record.take_if(|record| record.devices.is_empty());
}

/// Drops the journal entries of devices that have reached their target.
pub(crate) fn drop_reached(agent: &mut Agent) {
    let reached = agent.reconciler.applied();
    if let Some(record) = &mut agent.record {
        record.devices.retain(|entry| !reached.contains(&entry.pci));
    }
    agent.record.take_if(|record| record.devices.is_empty());
}
