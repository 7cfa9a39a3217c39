//! One round of changes: the changes of its devices, and the journal that is written before they begin.

use std::collections::BTreeMap;
use std::sync::Arc;

use octavo_model::holder::Holder;
use octavo_model::id::PciAddress;
use octavo_model::inventory::Inventory;

use super::node::Decision;
use super::record::{ApplyRecord, ApplyRecordEntry, targets_with_interrupted};
use super::request::{ChangeRequest, Limits};
use crate::layout::{TargetScope, Targets, current_target};
use crate::plan::Policy;

/// One round of changes of a node.
#[derive(Debug, Clone, Copy)]
pub struct ChangeRound<'a> {
    /// The node's inventory, read just before the round.
    pub inventory: &'a Arc<Inventory>,
    /// Name of the desired layout.
    pub layout: &'a str,
    /// The desired state.
    pub targets: &'a Targets,
    /// The plan's id.
    pub plan: &'a str,
    /// The journal before the round.
    pub record: Option<&'a ApplyRecord>,
    /// The devices to change.
    pub decision: &'a Decision,
    /// Holders of the devices, in addition to the processes in the inventory.
    pub holders: &'a [Holder],
    /// The permitted operations.
    pub policy: Policy,
    /// The time limits of each change.
    pub limits: Limits,
}

impl ChangeRound<'_> {
    /// Returns the changes of the devices that the decision selects. An interrupted change continues toward its own target.
    pub fn requests(&self) -> Vec<ChangeRequest> {
        let targets = targets_with_interrupted(self.record, self.inventory, self.targets);
        let selected = targets.devices.iter().filter(|one| self.decision.change.contains(&one.pci));
        selected
            .cloned()
            .map(|mut target| {
                let begun = self.entry(target.pci);
                if let Some(entry) = begun.filter(|_| self.decision.finish.contains(&target.pci)) {
                    target.mig = Some(entry.target.clone());
                    target.scope = TargetScope::Layout;
                }
                let device = self.inventory.device(target.pci);
                let current = || device.and_then(|device| current_target(device.mig.state()?));
                ChangeRequest {
                    inventory: Arc::clone(self.inventory),
                    target,
                    previous: begun.map_or_else(current, |entry| entry.previous.clone()),
                    resumed: begun.is_some(),
                    holders: self.holders.to_vec(),
                    policy: self.policy,
                    limits: self.limits,
                }
            })
            .collect()
    }

    /// Returns the journal with these changes and the interrupted ones.
    pub fn journal(&self, requests: &[ChangeRequest]) -> ApplyRecord {
        let entries = requests.iter().filter_map(|request| {
            let pci = request.target.pci;
            let begun = self.entry(pci);
            let uuid = self.inventory.device(pci).and_then(|device| device.uuid.clone());
            let is_of_layout = !self.decision.finish.contains(&pci) && self.targets.has_mig(pci);
            let layout = begun.filter(|_| !is_of_layout).map(|entry| entry.layout.as_str());
            Some(ApplyRecordEntry {
                pci,
                // A lost GPU does not report its UUID.
                uuid: uuid.or_else(|| begun?.uuid.clone()),
                plan: self.plan.to_owned(),
                layout: layout.unwrap_or(self.layout).to_owned(),
                previous: request.previous.clone(),
                target: request.target.mig.clone()?,
            })
        });
        let earlier = self.record.iter().flat_map(|record| &record.devices);
        let is_other =
            |entry: &&ApplyRecordEntry| requests.iter().all(|one| one.target.pci != entry.pci);
        let mut devices: Vec<ApplyRecordEntry> =
            entries.chain(earlier.filter(is_other).cloned()).collect();
        devices.sort_by_key(|entry| entry.pci);
        ApplyRecord { plan: self.plan.to_owned(), layout: self.layout.to_owned(), devices }
    }

    /// Returns the layout of each interrupted change that is completed because the desired layout does not select its device
    /// or cannot be applied to it now.
    pub fn interrupted_layouts(&self) -> BTreeMap<PciAddress, String> {
        // A device that the layout selects but whose state cannot be read is reported with the devices of the layout.
        let is_of_layout = |pci: PciAddress| {
            let is_finished = self.decision.finish.contains(&pci);
            self.targets.is_unverified(pci) || (!is_finished && self.targets.has_mig(pci))
        };
        let devices = self.decision.change.iter().filter(|pci| !is_of_layout(**pci));
        devices.filter_map(|pci| Some((*pci, self.entry(*pci)?.layout.clone()))).collect()
    }

    fn entry(&self, pci: PciAddress) -> Option<&ApplyRecordEntry> {
        self.record?.entry(self.inventory, pci)
    }
}
