//! Withholding: idle partitions and replicas of a device are not allocated while pods block its layout for too long.
//!
//! On a busy node the next pod gets what the last one has released, so that a blocked layout would wait for as long as pods come.
//! After the configured time, or immediately where pods were evicted for it, only pods that have something of the device keep it.
//! Everything is offered again when the layout is applied, cannot be applied, or something else is asked of the device.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::domain::id::PciAddress;
use crate::domain::layout::MigTarget;
use crate::domain::reason::Reason;
use crate::domain::reconcile::{DeviceStatus, Status};

/// Decides which devices are withheld. Times are since the program began.
#[derive(Debug, Clone)]
pub struct Withholding {
    /// How long a device may be blocked first; `None` withholds none but those that pods were evicted for.
    after: Option<Duration>,
    devices: BTreeMap<PciAddress, Wait>,
}

/// A device whose layout waits for pods.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Wait {
    asked: MigTarget,
    since: Duration,
    is_withheld: bool,
}

/// What withholding needs to know of a device's layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// It is applied, or emptying the device would not help.
    Settled,
    /// It goes on by itself, or that is not known yet.
    Moving,
    /// It is blocked by pods or processes that are known.
    Blocked,
}

impl Withholding {
    /// Withholds devices that were blocked for `after`; `None` for never.
    pub fn new(after: Option<Duration>) -> Self {
        Self {
            after,
            devices: BTreeMap::new(),
        }
    }

    /// Takes in where the node stands, and for which devices pods were evicted.
    pub fn look(&mut self, now: Duration, status: Option<&Status>, drained: &BTreeSet<PciAddress>) {
        let Some(status) = status else {
            self.devices.clear();
            return;
        };
        let Some(asked) = status.asked.as_deref() else {
            // A layout that is not looked up yet says nothing about the devices.
            if status.layout.is_none() {
                self.devices.clear();
            }
            return;
        };
        let mut known = std::mem::take(&mut self.devices);
        // A plan is applied as a whole: nothing is changed while one device can never have its part.
        let is_possible = !status
            .devices
            .iter()
            .any(|one| Reason::Infeasible.is(one.state));
        for target in &asked.devices {
            let Some(mig) = target.mig.as_ref().filter(|_| is_possible) else {
                continue;
            };
            let wait = known.remove(&target.pci).filter(|wait| wait.asked == *mig);
            let device = status.devices.iter().find(|one| one.pci == target.pci);
            let wait = match device.map_or(Progress::Moving, progress) {
                Progress::Settled => None,
                Progress::Moving => wait,
                Progress::Blocked => {
                    let mut wait = wait.unwrap_or_else(|| Wait {
                        asked: mig.clone(),
                        since: now,
                        is_withheld: false,
                    });
                    let waited = now.saturating_sub(wait.since);
                    let is_due = self.after.is_some_and(|after| waited >= after);
                    wait.is_withheld |= is_due || drained.contains(&target.pci);
                    Some(wait)
                }
            };
            self.devices.extend(wait.map(|wait| (target.pci, wait)));
        }
    }

    /// The devices of which nothing new is allocated.
    pub fn devices(&self) -> BTreeSet<PciAddress> {
        let withheld = self.devices.iter().filter(|(_, wait)| wait.is_withheld);
        withheld.map(|(pci, _)| *pci).collect()
    }

    /// When the next device is due, after `now`. A device that is overdue waits for its next state instead.
    pub fn again(&self, now: Duration) -> Option<Duration> {
        let after = self.after?;
        let waiting = self.devices.values().filter(|wait| !wait.is_withheld);
        let due = waiting.map(|wait| wait.since.saturating_add(after));
        due.filter(|at| *at > now).min()
    }
}

fn progress(device: &DeviceStatus) -> Progress {
    match Reason::of(device.state) {
        Some(Reason::Blocked | Reason::NeedsReset) if device.waits_for_holders => Progress::Blocked,
        Some(Reason::Blocked | Reason::Pending | Reason::Applying) => Progress::Moving,
        Some(_) | None => Progress::Settled,
    }
}

#[cfg(test)]
mod tests;
