//! Inputs of a round: targets, journal entries and requested changes, as `octavo_engine` and the agent determine them.

use std::collections::BTreeSet;
use std::sync::Arc;

use octavo_model::holder::Holder;
use octavo_model::id::PciAddress;
use octavo_planner::layout::{TargetScope, Targets, current_target};
use octavo_planner::plan::Policy;
use octavo_planner::reconcile::{
    ApplyRecord, ApplyRecordEntry, ApplyState, ChangeOutcome, ChangeRequest, Decision, Limits,
};

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
    let applied = ApplyState::Ended(ChangeOutcome::Applied);
    let reached = agent.reconciler.states().filter(|(_, state)| **state == applied);
    let reached: BTreeSet<PciAddress> = reached.map(|(pci, _)| pci).collect();
    if let Some(record) = &mut agent.record {
        record.devices.retain(|entry| !reached.contains(&entry.pci));
    }
    agent.record.take_if(|record| record.devices.is_empty());
}

/// The changes of the devices that the decision selects. An interrupted change continues toward its own target.
pub(crate) fn jobs(
    agent: &Agent,
    decision: &Decision,
    targets: &Targets,
    holders: &[Holder],
) -> Vec<ChangeRequest> {
    let selected = targets.devices.iter().filter(|target| decision.change.contains(&target.pci));
    let inventory = &agent.inventory;
    selected
        .map(|target| {
            let mut target = target.clone();
            let record = agent.record.as_ref();
            let begun = record.and_then(|record| record.entry(inventory, target.pci));
            if let Some(entry) = begun.filter(|_| decision.finish.contains(&target.pci)) {
                target.mig = Some(entry.target.clone());
                target.scope = TargetScope::Layout;
            }
            let device = inventory.device(target.pci);
            let has = || device.and_then(|device| current_target(device.mig.state()?));
            ChangeRequest {
                inventory: Arc::clone(inventory),
                target,
                previous: begun.map_or_else(has, |entry| entry.previous.clone()),
                resumed: begun.is_some(),
                holders: holders.to_vec(),
                policy: Policy::default(),
                limits: Limits::default(),
            }
        })
        .collect()
}

/// The journal with these changes.
pub(crate) fn new_record(
    agent: &Agent,
    jobs: &[ChangeRequest],
    (decision, plan): (&Decision, &str),
    (layout, wanted): (&str, &Targets),
) -> ApplyRecord {
    let inventory = &agent.inventory;
    let earlier = agent.record.iter().flat_map(|record| &record.devices);
    let entries = jobs.iter().filter_map(|job| {
        let pci = job.target.pci;
        let record = agent.record.as_ref();
        let begun = record.and_then(|record| record.entry(inventory, pci));
        let is_wanted = wanted.devices.iter().any(|target| target.pci == pci);
        let is_finished = decision.finish.contains(&pci) || !is_wanted;
        Some(ApplyRecordEntry {
            pci,
            uuid: inventory.device(pci).and_then(|device| device.uuid.clone()),
            plan: plan.to_owned(),
            layout: begun.filter(|_| is_finished).map_or(layout, |entry| &entry.layout).to_owned(),
            previous: job.previous.clone(),
            target: job.target.mig.clone()?,
        })
    });
    let is_new = |entry: &&ApplyRecordEntry| jobs.iter().all(|job| job.target.pci != entry.pci);
    let mut devices: Vec<ApplyRecordEntry> =
        entries.chain(earlier.filter(is_new).cloned()).collect();
    devices.sort_by_key(|entry| entry.pci);
    ApplyRecord { plan: plan.to_owned(), layout: layout.to_owned(), devices }
}
