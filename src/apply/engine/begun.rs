//! What was begun: the journal, and the jobs that it stands for.

use std::collections::BTreeSet;
use std::sync::Arc;

use tracing::{error, info, warn};

use super::{Engine, Others, Task, Wanted, find};
use crate::apply::store::StoreError;
use crate::domain::error::chain;
use crate::domain::id::PciAddress;
use crate::domain::inventory::Inventory;
use crate::domain::layout::{Targets, standing};
use crate::domain::plan::{self, Question, plan};
use crate::domain::reconcile::{Decision, Entry, Job, Record, State};

impl Wanted<'_> {
    /// Whether something is asked of the partitions of the device at `pci`.
    pub(super) fn asks(self, pci: PciAddress) -> bool {
        let mut devices = self.targets.devices.iter();
        devices.any(|target| target.pci == pci && target.mig.is_some()) || self.is_unverified(pci)
    }

    /// Whether a rule selects the device at `pci` and its state cannot be read.
    pub(super) fn is_unverified(self, pci: PciAddress) -> bool {
        let mut unverified = self.targets.unverified.iter();
        unverified.any(|one| one.pci == pci)
    }
}

impl Engine {
    /// Devices that the journal has and that are there.
    pub(super) fn unsettled(&self, inventory: &Inventory) -> BTreeSet<PciAddress> {
        let record = self.record.as_ref();
        record.map_or_else(BTreeSet::new, |record| record.interrupted(inventory))
    }

    /// Devices that the journal has and that are not there now.
    pub(super) fn absent(&self, inventory: &Inventory) -> BTreeSet<PciAddress> {
        let record = self.record.as_ref();
        record.map_or_else(BTreeSet::new, |record| record.absent(inventory))
    }

    /// Drops devices that have exactly what they had before their change: it never touched them, or was taken back. Only the
    /// current layout counts for them.
    pub(super) fn drop_untouched(&mut self, inventory: &Inventory) {
        let Some(record) = &mut self.record else {
            return;
        };
        let before = record.devices.len();
        record.devices.retain(|entry| {
            let is_at_previous = entry.is_at_previous(inventory);
            if is_at_previous {
                let Entry {
                    plan, layout, pci, ..
                } = entry;
                info!("plan {plan} (layout {layout}) left the device at {pci} as it was: nothing of it is finished");
            }
            !is_at_previous
        });
        if record.devices.len() != before {
            self.keep();
        }
    }

    /// Forgets devices whose place another one has taken: what was begun with them is of no meaning for it.
    pub(super) fn drop_strangers(&mut self, inventory: &Inventory) {
        let Some(record) = &mut self.record else {
            return;
        };
        let before = record.devices.len();
        record.devices.retain(|entry| {
            let device = find(inventory, entry.pci);
            let stays = device.is_none_or(|device| entry.is_of(device));
            if !stays {
                warn!(
                    "what was begun with the device at {} is forgotten: another one is there now",
                    entry.pci
                );
            }
            stays
        });
        if record.devices.len() != before {
            self.keep();
        }
    }

    /// Devices that were being changed when the agent was killed are brought to an end, whatever is asked for now. One that is
    /// not there waits until it is.
    pub(super) fn with_unfinished(&self, inventory: &Inventory, targets: &Targets) -> Targets {
        let record = self.record.as_ref();
        record.map_or_else(
            || targets.clone(),
            |record| record.complete(inventory, targets),
        )
    }

    /// Devices whose interrupted change is finished, as nothing else is asked of them or can be had now.
    pub(super) fn others(
        &self,
        inventory: &Inventory,
        wanted: Wanted<'_>,
        decision: &Decision,
    ) -> Others {
        // One that the layout selects and whose state cannot be read is reported with the devices of the layout.
        let is_finished =
            |pci: PciAddress| decision.finish.contains(&pci) && !wanted.is_unverified(pci);
        let is_other = |pci: &&PciAddress| is_finished(**pci) || !wanted.asks(**pci);
        let devices = decision.change.iter().filter(is_other);
        let layout = |pci: &PciAddress| Some((*pci, self.begun(inventory, *pci)?.layout.clone()));
        devices.filter_map(layout).collect()
    }

    /// Drops devices of the journal that are at their target. They get into the history even if the process that changed them was
    /// killed before that.
    pub(super) fn settle_reached(&mut self, inventory: &Inventory, wanted: Wanted<'_>) {
        let reached: BTreeSet<PciAddress> = self
            .node
            .states()
            .filter(|(_, state)| **state == State::Applied)
            .map(|(pci, _)| pci)
            .collect();
        let Some(record) = &mut self.record else {
            return;
        };
        let is_reached = |entry: &Entry| reached.contains(&entry.pci);
        let (settled, open) = record.devices.drain(..).partition(is_reached);
        record.devices = open;
        let settled: Vec<Entry> = settled;
        if settled.is_empty() {
            return;
        }
        for entry in &settled {
            self.remember_reached(inventory, wanted, entry);
        }
        self.keep();
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
                    holders: task.holders.to_vec(),
                    policy: self.settings.policy,
                    limits: self.settings.limits,
                }
            })
            .collect()
    }

    /// Whether anything differs: on a node that has what it shall have nobody looks who uses it.
    pub(super) fn has_to_do(&self, inventory: &Inventory, targets: &Targets) -> bool {
        let plan = plan(&Question {
            inventory,
            targets,
            holders: &[],
            policy: &self.settings.policy,
            refused: &BTreeSet::new(),
        });
        // What cannot be read is not changed, whoever uses it.
        let has_target = |pci| targets.devices.iter().any(|target| target.pci == pci);
        let unverified = |pci| {
            let mut unverified = targets.unverified.iter();
            unverified.any(|one| one.pci == pci) && !has_target(pci)
        };
        let mut devices = plan.devices.iter();
        devices.any(|device| {
            device.verdict.outcome() != plan::Outcome::Nothing && !unverified(device.pci)
        })
    }

    /// What the journal says of this very device.
    pub(super) fn begun(&self, inventory: &Inventory, pci: PciAddress) -> Option<&Entry> {
        self.record.as_ref()?.entry(inventory, pci)
    }

    pub(super) fn record_of(&self, task: Task<'_>, jobs: &[Job]) -> Record {
        let mut devices: Vec<Entry> = jobs
            .iter()
            .filter_map(|job| {
                let pci = job.target.pci;
                let device = find(task.inventory, pci);
                // A lost GPU does not report its UUID.
                let begun = self.begun(task.inventory, pci);
                let known = || begun?.uuid.clone();
                let finished = begun.filter(|_| task.decision.finish.contains(&pci));
                Some(Entry {
                    pci,
                    uuid: device.and_then(|device| device.uuid.clone()).or_else(known),
                    plan: task.plan.to_owned(),
                    layout: task
                        .others
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
        let new = |entry: &&Entry| jobs.iter().all(|job| job.target.pci != entry.pci);
        devices.extend(earlier.filter(new).cloned());
        devices.sort_by_key(|entry| entry.pci);
        Record {
            plan: task.plan.to_owned(),
            layout: task.layout.to_owned(),
            devices,
        }
    }

    /// Discards interrupted changes of devices that are not there, and journals that could not be read: nothing else can end
    /// these.
    pub fn discard(&mut self, inventory: &Inventory) -> Result<(), StoreError> {
        let absent = self.absent(inventory);
        if let Some(record) = &mut self.record
            && !absent.is_empty()
        {
            record.devices.retain(|entry| !absent.contains(&entry.pci));
            for pci in &absent {
                warn!("the interrupted change of the device at {pci} is discarded");
            }
            self.keep();
        }
        let discarded = self.store.discard_unreadable()?;
        for path in &discarded {
            warn!("{} is discarded", path.display());
        }
        self.unreadable = self.store.unreadable();
        Ok(())
    }

    /// Brings the journal's file up to what is known.
    pub(super) fn keep(&mut self) {
        self.stale = false;
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
                // It says that something was begun which has ended; a later start must not take that up.
                let notice = chain(&error);
                error!("{notice}");
                self.notice = Some(notice);
                self.stale = true;
            }
        }
    }
}
