//! Withholding: idle partitions and replicas of a device are not allocated while pods block its layout for too long.
//!
//! On a busy node the next pod is allocated whatever the last one released, so a blocked layout would wait for as
//! long as pods arrive. After the configured time, or immediately if pods were evicted for the device, only pods that
//! already hold a part of it keep it. Everything is offered again when the layout is applied, cannot be applied, or
//! changes for the device.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use octavo_model::id::PciAddress;
use octavo_model::reason::Reason;
use octavo_planner::layout::MigTarget;
use octavo_planner::reconcile::{DeviceLayoutStatus, NodeLayoutStatus};

/// Decides which devices are withheld. Times are relative to the start of the program.
#[derive(Debug, Clone)]
pub struct WithholdingController {
    /// Time for which a device must be blocked first; `None` withholds only devices for which pods were evicted.
    after: Option<Duration>,
    devices: BTreeMap<PciAddress, BlockedDevice>,
}

/// A device whose layout is blocked by pods.
#[derive(Debug, Clone, PartialEq, Eq)]
struct BlockedDevice {
    target: MigTarget,
    since: Duration,
    is_withheld: bool,
}

/// State of a device's layout, as far as withholding depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LayoutProgress {
    /// The layout is applied, or emptying the device would not help.
    Settled,
    /// The layout is being applied, or its state is not known yet.
    Moving,
    /// The layout is blocked by known pods or processes.
    Blocked,
}

impl WithholdingController {
    /// Withholds devices that were blocked for `after`; `None` for never.
    pub fn new(after: Option<Duration>) -> Self {
        Self { after, devices: BTreeMap::new() }
    }

    /// Records the node's status and the devices for which pods were evicted.
    pub fn update(
        &mut self,
        now: Duration,
        status: Option<&NodeLayoutStatus>,
        drained: &BTreeSet<PciAddress>,
    ) {
        let Some(status) = status else {
            self.devices.clear();
            return;
        };
        let Some(targets) = status.targets.as_deref() else {
            // A layout that is not resolved yet is no evidence about the devices.
            if status.layout.is_none() {
                self.devices.clear();
            }
            return;
        };
        let mut known = std::mem::take(&mut self.devices);
        // A plan is applied as a whole: no device is changed while the layout is infeasible on one of them.
        let is_possible = !status.devices.iter().any(|one| one.state == Reason::Infeasible);
        for target in &targets.devices {
            let Some(mig) = target.mig.as_ref().filter(|_| is_possible) else {
                continue;
            };
            let wait = known.remove(&target.pci).filter(|wait| wait.target == *mig);
            let device = status.devices.iter().find(|one| one.pci == target.pci);
            let wait = match device.map_or(LayoutProgress::Moving, progress) {
                LayoutProgress::Settled => None,
                LayoutProgress::Moving => wait,
                LayoutProgress::Blocked => {
                    let mut wait = wait.unwrap_or_else(|| BlockedDevice {
                        target: mig.clone(),
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

    /// The devices without new allocations.
    pub fn devices(&self) -> BTreeSet<PciAddress> {
        let withheld = self.devices.iter().filter(|(_, wait)| wait.is_withheld);
        withheld.map(|(pci, _)| *pci).collect()
    }

    /// The time at which the next device is due, after `now`. A device that is overdue waits for its next state
    /// instead.
    pub fn again(&self, now: Duration) -> Option<Duration> {
        let after = self.after?;
        let waiting = self.devices.values().filter(|wait| !wait.is_withheld);
        let due = waiting.map(|wait| wait.since.saturating_add(after));
        due.filter(|at| *at > now).min()
    }
}

fn progress(device: &DeviceLayoutStatus) -> LayoutProgress {
    match device.state.known() {
        Some(Reason::Blocked | Reason::NeedsReset) if device.waits_for_holders => {
            LayoutProgress::Blocked
        }
        Some(Reason::Blocked | Reason::Pending | Reason::Applying) => LayoutProgress::Moving,
        Some(_) | None => LayoutProgress::Settled,
    }
}

#[cfg(test)]
mod tests;
