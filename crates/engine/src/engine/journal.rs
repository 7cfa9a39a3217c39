//! The engine's journal entries.

use std::collections::BTreeSet;

use octavo_model::id::PciAddress;
use octavo_model::inventory::Inventory;
use octavo_planner::layout::Targets;
use octavo_planner::plan::{self, PlanInput, plan};
use octavo_planner::reconcile::{
    ApplyRecord, ApplyRecordEntry, ApplyState, ChangeOutcome, ChangeRequest, Decision,
};
use octavo_toolkit::error::chain;
use tracing::{error, info, warn};

use super::{DesiredLayout, Engine, InterruptedLayouts, RoundInput};
use crate::store::StoreError;

impl DesiredLayout<'_> {
    /// Returns whether the layout has a partition target for the device at `pci`.
    pub(super) fn targets_partitions(self, pci: PciAddress) -> bool {
        let mut devices = self.targets.devices.iter();
        devices.any(|target| target.pci == pci && target.mig.is_some()) || self.is_unverified(pci)
    }

    /// Returns whether a rule selects the device at `pci` but its state cannot be read.
    pub(super) fn is_unverified(self, pci: PciAddress) -> bool {
        let mut unverified = self.targets.unverified.iter();
        unverified.any(|one| one.pci == pci)
    }
}

impl Engine {
    /// Returns the devices in the journal that are present.
    pub(super) fn interrupted_devices(&self, inventory: &Inventory) -> BTreeSet<PciAddress> {
        self.record.as_ref().map(|record| record.interrupted(inventory)).unwrap_or_default()
    }

    /// Returns the devices in the journal that are currently absent.
    pub(super) fn absent_devices(&self, inventory: &Inventory) -> BTreeSet<PciAddress> {
        self.record.as_ref().map(|record| record.absent(inventory)).unwrap_or_default()
    }

    /// Drops journal entries of devices that have exactly their previous partitions: the change never touched them or
    /// was rolled back. Only the current layout applies to them.
    pub(super) fn drop_untouched(&mut self, inventory: &Inventory) {
        self.retain_entries(|entry| {
            let is_at_previous = entry.is_at_previous(inventory);
            if is_at_previous {
                let ApplyRecordEntry {
                    plan, layout, pci, ..
                } = entry;
                info!(%plan, %layout, device = %pci, "the interrupted plan did not change the device; the plan is discarded");
            }
            !is_at_previous
        });
    }

    /// Drops journal entries of devices that have been replaced by another device at the same address: the recorded
    /// change does not apply to it.
    pub(super) fn drop_replaced_devices(&mut self, inventory: &Inventory) {
        self.retain_entries(|entry| {
            let device = inventory.device(entry.pci);
            let stays = device.is_none_or(|device| entry.matches(device));
            if !stays {
                warn!(device = %entry.pci, "the device was replaced; its interrupted change is discarded");
            }
            stays
        });
    }

    /// Drops the journal entries for which `stays` returns false, and writes the journal if there are any.
    fn retain_entries(&mut self, stays: impl FnMut(&ApplyRecordEntry) -> bool) {
        let Some(record) = &mut self.record else {
            return;
        };
        let before = record.devices.len();
        record.devices.retain(stays);
        if record.devices.len() != before {
            self.write_journal();
        }
    }

    /// Adds the targets of interrupted changes, which are completed whatever the current layout asks for. The change of
    /// an absent device waits until the device returns.
    pub(super) fn with_unfinished(&self, inventory: &Inventory, targets: &Targets) -> Targets {
        let record = self.record.as_ref();
        record.map_or_else(|| targets.clone(), |record| record.with_interrupted(inventory, targets))
    }

    /// Returns the devices whose interrupted change is completed because the current layout does not select them or
    /// cannot be applied to them now.
    pub(super) fn interrupted_layouts(
        &self,
        inventory: &Inventory,
        wanted: DesiredLayout<'_>,
        decision: &Decision,
    ) -> InterruptedLayouts {
        // A device that the layout selects but whose state cannot be read is reported with the devices of the layout.
        let is_finished =
            |pci: PciAddress| decision.finish.contains(&pci) && !wanted.is_unverified(pci);
        let is_other = |pci: &&PciAddress| is_finished(**pci) || !wanted.targets_partitions(**pci);
        let devices = decision.change.iter().filter(is_other);
        let layout =
            |pci: &PciAddress| Some((*pci, self.journal_entry(inventory, *pci)?.layout.clone()));
        devices.filter_map(layout).collect()
    }

    /// Drops journal entries of devices that have reached their target. Records them in the history, even if the
    /// process that changed them was killed before it could.
    pub(super) fn drop_reached(&mut self, inventory: &Inventory, wanted: DesiredLayout<'_>) {
        let reached: BTreeSet<PciAddress> = self
            .node
            .states()
            .filter(|(_, state)| **state == ApplyState::Ended(ChangeOutcome::Applied))
            .map(|(pci, _)| pci)
            .collect();
        let Some(record) = &mut self.record else {
            return;
        };
        let is_reached = |entry: &ApplyRecordEntry| reached.contains(&entry.pci);
        let (settled, open) = record.devices.drain(..).partition(is_reached);
        record.devices = open;
        let settled: Vec<ApplyRecordEntry> = settled;
        if settled.is_empty() {
            return;
        }
        for entry in &settled {
            self.write_reached_to_history(inventory, wanted, entry);
        }
        self.write_journal();
    }

    /// Returns whether any device differs from its target. On a node that is in its desired layout, the holders are not
    /// queried.
    pub(super) fn has_changes(&self, inventory: &Inventory, targets: &Targets) -> bool {
        let plan = plan(&PlanInput {
            inventory,
            targets,
            holders: &[],
            policy: &self.settings.policy,
            refused: &BTreeSet::new(),
        });
        // A device whose state cannot be read is not changed, regardless of its holders.
        let has_target = |pci| targets.devices.iter().any(|target| target.pci == pci);
        let unverified = |pci| {
            let mut unverified = targets.unverified.iter();
            unverified.any(|one| one.pci == pci) && !has_target(pci)
        };
        let mut devices = plan.devices.iter();
        devices.any(|device| {
            device.verdict.outcome() != plan::PlanOutcome::Unchanged && !unverified(device.pci)
        })
    }

    /// Returns the journal entry of this device, matched by address and UUID.
    pub(super) fn journal_entry(
        &self,
        inventory: &Inventory,
        pci: PciAddress,
    ) -> Option<&ApplyRecordEntry> {
        self.record.as_ref()?.entry(inventory, pci)
    }

    pub(super) fn new_record(&self, task: RoundInput<'_>, jobs: &[ChangeRequest]) -> ApplyRecord {
        let mut devices: Vec<ApplyRecordEntry> = jobs
            .iter()
            .filter_map(|job| {
                let pci = job.target.pci;
                let device = task.inventory.device(pci);
                // A lost GPU does not report its UUID.
                let begun = self.journal_entry(task.inventory, pci);
                let known = || begun?.uuid.clone();
                let finished = begun.filter(|_| task.decision.finish.contains(&pci));
                Some(ApplyRecordEntry {
                    pci,
                    uuid: device.and_then(|device| device.uuid.clone()).or_else(known),
                    plan: task.plan.to_owned(),
                    layout: task
                        .interrupted_layouts
                        .get(&pci)
                        .or_else(|| finished.map(|entry| &entry.layout))
                        .map_or(task.layout, String::as_str)
                        .to_owned(),
                    previous: job.previous.clone(),
                    target: job.target.mig.clone()?,
                })
            })
            .collect();
        let earlier = self.record.iter().flat_map(|record| &record.devices);
        let new = |entry: &&ApplyRecordEntry| jobs.iter().all(|job| job.target.pci != entry.pci);
        devices.extend(earlier.filter(new).cloned());
        devices.sort_by_key(|entry| entry.pci);
        ApplyRecord { plan: task.plan.to_owned(), layout: task.layout.to_owned(), devices }
    }

    /// Discards interrupted changes of absent devices and unreadable journals, which nothing else can complete.
    pub fn discard(&mut self, inventory: &Inventory) -> Result<(), StoreError> {
        let absent = self.absent_devices(inventory);
        if let Some(record) = &mut self.record
            && !absent.is_empty()
        {
            record.devices.retain(|entry| !absent.contains(&entry.pci));
            for pci in &absent {
                warn!(device = %pci, "interrupted change discarded");
            }
            self.write_journal();
        }
        let discarded = self.store.discard_unreadable()?;
        for path in &discarded {
            warn!(path = %path.display(), "unreadable journal discarded");
        }
        self.unreadable = self.store.unreadable();
        Ok(())
    }

    /// Writes the current record to the journal file.
    pub(super) fn write_journal(&mut self) {
        self.is_journal_stale = false;
        let stored = match &self.record {
            Some(record) if !record.devices.is_empty() => self.store.write_journal(record),
            Some(_) | None => {
                self.record = None;
                self.store.clear()
            }
        };
        match stored {
            Ok(()) => self.notice = None,
            Err(error) => {
                // The journal still lists a change that has ended; a later start must not resume it.
                let notice = chain(&error);
                error!("{notice}");
                self.notice = Some(notice);
                self.is_journal_stale = true;
            }
        }
    }
}
