//! The engine's journal entries.

use std::collections::BTreeSet;

use octavo_model::id::PciAddress;
use octavo_model::inventory::Inventory;
use octavo_planner::layout::Targets;
use octavo_planner::plan::{self, PlanInput, plan};
use octavo_planner::reconcile::{ApplyRecordEntry, targets_with_interrupted};
use octavo_toolkit::error::chain;
use tracing::{error, info, warn};

use super::{DesiredLayout, Engine};
use crate::store::StoreError;

impl DesiredLayout<'_> {
    /// Returns whether the layout has a partition target for the device at `pci`.
    pub(super) fn targets_partitions(self, pci: PciAddress) -> bool {
        self.targets.has_mig(pci) || self.targets.is_unverified(pci)
    }
}

impl Engine {
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

    /// Drops journal entries of devices that have reached their target. Records them in the history, even if the
    /// process that changed them was killed before it could.
    pub(super) fn drop_reached(&mut self, inventory: &Inventory, wanted: DesiredLayout<'_>) {
        let reached = self.node.applied();
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

    /// Returns whether any device differs from its target, or its change was interrupted. On a node that is in its desired layout,
    /// the holders are not queried.
    pub(super) fn has_changes(&self, inventory: &Inventory, targets: &Targets) -> bool {
        let targets = targets_with_interrupted(self.record.as_ref(), inventory, targets);
        let plan = plan(&PlanInput {
            inventory,
            targets: &targets,
            holders: &[],
            policy: &self.settings.policy,
            refused: &BTreeSet::new(),
        });
        // A device whose state cannot be read is not changed, regardless of its holders.
        let has_target = |pci| targets.devices.iter().any(|target| target.pci == pci);
        let unverified = |pci| targets.is_unverified(pci) && !has_target(pci);
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
