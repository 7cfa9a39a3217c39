//! The pods and the load of all machines while the demo runs.

use std::time::Duration;

use tokio::sync::watch::Receiver;
use tokio::time::{Interval, interval};

use crate::cluster::Kind;
use crate::machine::{DemoMachine, DemoSite};

/// Interval between the updates of the load of two machines.
const LOAD_INTERVAL: Duration = Duration::from_millis(400);

/// What to update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MachineUpdate {
    /// The processes of pods that were created or deleted.
    Pods,
    /// The load of the next machine.
    Load,
}

/// All machines of the demo.
#[derive(Debug)]
pub struct RunningMachines<'a, 'b> {
    /// The machines.
    pub machines: &'a [DemoMachine<'b>],
    /// What they have in common.
    pub site: &'a DemoSite<'a>,
    changes: Receiver<u64>,
    /// Version of the last change of a pod that was handled.
    pods_version: u64,
    load: Interval,
    /// Index of the machine whose load is updated next.
    next: usize,
}

impl<'a, 'b> RunningMachines<'a, 'b> {
    /// Creates the state for machines whose agents were started.
    pub fn new(machines: &'a [DemoMachine<'b>], site: &'a DemoSite<'a>) -> Self {
        Self {
            machines,
            site,
            changes: site.objects.changes(),
            pods_version: 0,
            load: interval(LOAD_INTERVAL),
            next: 0,
        }
    }

    /// Waits for a change of the cluster, or for the next update of a load. Can be canceled.
    pub async fn next(&mut self) -> MachineUpdate {
        tokio::select! {
            _ = self.changes.changed() => MachineUpdate::Pods,
            _ = self.load.tick() => MachineUpdate::Load,
        }
    }

    /// Starts and ends the processes of pods, or updates the load of one machine. Must not be canceled.
    ///
    /// A failure is not reported: the next update of the machine retries, and a lost GPU or a hanging driver is a part
    /// of the demo.
    pub async fn apply(&mut self, update: MachineUpdate) {
        match update {
            MachineUpdate::Pods => {
                let version = self.site.objects.last_change(Kind::Pod);
                if version == self.pods_version {
                    return;
                }
                self.pods_version = version;
                for machine in self.machines {
                    let _ = machine.run_pods().await;
                }
            }
            MachineUpdate::Load => {
                if let Some(machine) = self.machines.get(self.next) {
                    let _ = machine.run_pods().await;
                    let _ = machine.vary_load().await;
                }
                self.next = self.next.wrapping_add(1).checked_rem(self.machines.len()).unwrap_or(0);
            }
        }
    }
}
