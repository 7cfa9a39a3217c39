//! What was begun: the journal, and the jobs that it stands for.

use std::collections::BTreeSet;
use std::sync::Arc;

use tracing::error;

use super::{Engine, Task, find};
use crate::domain::error::chain;
use crate::domain::id::PciAddress;
use crate::domain::inventory::Inventory;
use crate::domain::layout::{DeviceTarget, Place, Targets, standing};
use crate::domain::reconcile::{Entry, Job, Record, State};

impl Engine {
    /// Devices that the journal has and that are neither at their target nor as they were.
    pub(super) fn unsettled(&self, inventory: &Inventory) -> BTreeSet<PciAddress> {
        let entries = self.record.iter().flat_map(|record| &record.devices);
        entries
            .map(|entry| entry.pci)
            .filter(|pci| self.begun(inventory, *pci).is_some())
            .collect()
    }

    /// Devices that were being changed when the agent was killed are brought to an end, whatever is asked for now.
    pub(super) fn with_unfinished(&self, targets: &Targets) -> Targets {
        let mut targets = targets.clone();
        let unfinished = self.record.iter().flat_map(|record| &record.devices);
        for entry in unfinished {
            let asked = targets.devices.iter_mut();
            let target = asked.into_iter().find(|target| target.pci == entry.pci);
            match target {
                Some(target) if target.mig.is_some() => {}
                Some(target) => target.mig = Some(entry.target.clone()),
                None => targets.devices.push(DeviceTarget {
                    pci: entry.pci,
                    rule: Place::default(),
                    mig: Some(entry.target.clone()),
                    time_slicing: None,
                }),
            }
        }
        targets.devices.sort_by_key(|target| target.pci);
        targets
    }

    /// A device of the journal that has what it shall have needs it no more.
    pub(super) fn settle_reached(&mut self, targets: &Targets) {
        let reached: Vec<PciAddress> = self
            .node
            .states()
            .filter(|(_, state)| **state == State::Applied)
            .map(|(pci, _)| pci)
            .collect();
        let known = |pci: &PciAddress| targets.devices.iter().any(|target| target.pci == *pci);
        let Some(record) = &mut self.record else {
            return;
        };
        let before = record.devices.len();
        record
            .devices
            .retain(|entry| known(&entry.pci) && !reached.contains(&entry.pci));
        if record.devices.len() != before {
            self.keep();
        }
    }

    pub(super) fn jobs(&self, task: Task<'_>) -> Vec<Job> {
        let asked = task.targets.devices.iter();
        asked
            .filter(|target| task.decision.change.contains(&target.pci))
            .map(|target| {
                let mut target = target.clone();
                let begun = self.begun(task.inventory, target.pci);
                if let Some(entry) = begun
                    && task.decision.finish.contains(&target.pci)
                {
                    target.mig = Some(entry.target.clone());
                }
                let device = find(task.inventory, target.pci);
                let has = || device.and_then(|device| standing(device.mig.state()?));
                Job {
                    inventory: Arc::clone(task.inventory),
                    target,
                    previous: begun.map_or_else(has, |entry| entry.previous.clone()),
                    resumed: begun.is_some(),
                    holders: Vec::new(),
                    policy: self.settings.policy,
                    limits: self.settings.limits,
                }
            })
            .collect()
    }

    /// What the journal says of this very device.
    pub(super) fn begun(&self, inventory: &Inventory, pci: PciAddress) -> Option<&Entry> {
        let mut entries = self.record.iter().flat_map(|record| &record.devices);
        let uuid = find(inventory, pci).and_then(|device| device.uuid.as_ref());
        entries.find(|entry| entry.pci == pci && entry.uuid.as_ref() == uuid)
    }

    pub(super) fn record_of(&self, task: Task<'_>, jobs: &[Job]) -> Record {
        let mut devices: Vec<Entry> = jobs
            .iter()
            .filter_map(|job| {
                let pci = job.target.pci;
                Some(Entry {
                    pci,
                    uuid: find(task.inventory, pci).and_then(|device| device.uuid.clone()),
                    previous: job.previous.clone(),
                    target: job.target.mig.clone()?,
                })
            })
            .collect();
        let earlier = self.record.iter().flat_map(|record| &record.devices);
        let new = |entry: &&Entry| jobs.iter().all(|job| job.target.pci != entry.pci);
        devices.extend(earlier.filter(new).cloned());
        devices.sort_by_key(|entry| entry.pci);
        Record {
            plan: task.plan.to_owned(),
            layout: task.layout.to_owned(),
            devices,
        }
    }

    /// Brings the journal's file up to what is known.
    pub(super) fn keep(&mut self) {
        let kept = match &self.record {
            Some(record) if !record.devices.is_empty() => self.store.begin(record),
            Some(_) | None => {
                self.record = None;
                self.store.clear()
            }
        };
        match kept {
            Ok(()) => self.notice = None,
            Err(error) => {
                // What it says then is that something was begun which has ended, which a next start finds to be so.
                let notice = chain(&error);
                error!("{notice}");
                self.notice = Some(notice);
            }
        }
    }
}
