//! Resets of a GPU. NVML has no call for it: `nvidia-smi` has, and the kernel has for whoever may write to sysfs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use tokio::process::Command;
use tokio::time::timeout;
use tracing::info;

use super::program::{self, LONGEST};
use super::witness::{self, Witness};
use crate::domain::holder::Holder;
use crate::domain::id::PciAddress;
use crate::domain::inventory::{Device, Inventory, Usage};
use crate::domain::plan::{Cause, ResetScope};
use crate::domain::reconcile::Ending;
use crate::hw::Handle;

/// By which means a GPU may be reset; none of them is no mistake, and then a person is asked to.
#[derive(Debug, Clone, Default)]
pub struct Resets {
    /// NVIDIA's program, by its whole path: nothing is looked up where others may write.
    pub nvidia_smi: Option<PathBuf>,
    /// Where sysfs is mounted, if the kernel may be asked.
    pub sysfs: Option<PathBuf>,
    /// What reboots the node, by its whole path, where that is allowed.
    pub reboot: Option<PathBuf>,
}

/// What came of a reset.
#[derive(Debug)]
pub(super) struct Done {
    /// Whether the GPU was reset.
    pub(super) reset: bool,
    /// How the change stands then.
    pub(super) ending: Ending,
}

impl Resets {
    /// Resets what `scope` is about, unless somebody uses it or what is reset with it. The driver's library is closed meanwhile,
    /// as it would be a client of the GPU itself.
    pub(super) async fn perform(
        &self,
        hardware: &Handle,
        inventory: &Inventory,
        scope: &ResetScope,
        witness: &Arc<dyn Witness>,
    ) -> Done {
        let needs = |causes| Done {
            reset: false,
            ending: Ending::NeedsReset {
                scope: scope.clone(),
                causes,
            },
        };
        if self.nvidia_smi.is_none() && self.sysfs.is_none() {
            return needs(Vec::new());
        }
        let devices: Vec<PciAddress> = [scope.device]
            .into_iter()
            .chain(scope.coupled.iter().copied())
            .collect();
        let _closed = witness.close(&devices);
        if let Some(causes) = in_the_way(inventory, scope, witness).await {
            return needs(causes);
        }
        let released = match hardware.release().await {
            Ok(released) => released,
            Err(error) => return failed(error.to_string()),
        };
        // Seconds have passed since. The driver tells nothing while its library is closed; the others do.
        if let Some(causes) = in_the_way(&nobody(inventory), scope, witness).await {
            drop(released);
            return needs(causes);
        }
        let done = self.reset(scope.device).await;
        drop(released);
        // Work waits until the library is open again: before that, whoever looks sees what was before the reset.
        let _is_back = hardware.work(|_, _| ()).await;
        match done {
            Ok(()) => {
                info!("{} was reset", scope.device);
                // Not at its end yet, and nothing stands in the way of going on at once.
                Done {
                    reset: true,
                    ..needs(Vec::new())
                }
            }
            Err(reason) => failed(format!("cannot reset {}: {reason}", scope.device)),
        }
    }

    /// Whether a reboot is what is left to try for `scope`.
    pub(super) fn leave_a_reboot(&self) -> Option<&PathBuf> {
        let others = self.nvidia_smi.is_some() || self.sysfs.is_some();
        self.reboot.as_ref().filter(|_| !others)
    }

    async fn reset(&self, pci: PciAddress) -> Result<(), String> {
        match (&self.nvidia_smi, &self.sysfs) {
            (Some(tool), _) => {
                let mut command = Command::new(tool);
                command.arg("--gpu-reset").arg("-i").arg(pci.to_string());
                program::run(&mut command).await
            }
            (None, Some(sysfs)) => {
                let path = sysfs
                    .join("bus/pci/devices")
                    .join(pci.to_string())
                    .join("reset");
                // It takes as long as the reset, and for ever with a board that dies of it.
                let written = tokio::task::spawn_blocking(move || {
                    fs::write(&path, "1").map_err(|error| format!("{}: {error}", path.display()))
                });
                timeout(LONGEST, written)
                    .await
                    .map_err(|_| "the kernel does not end it".to_owned())?
                    .map_err(|error| error.to_string())?
            }
            (None, None) => Err("there are no means to".to_owned()),
        }
    }
}

/// Who uses a device of the scope. What is not told counts as in use.
async fn in_the_way(
    inventory: &Inventory,
    scope: &ResetScope,
    witness: &Arc<dyn Witness>,
) -> Option<Vec<Cause>> {
    let concerned =
        |device: &&Device| device.pci == scope.device || scope.coupled.contains(&device.pci);
    let (holders, untold) = witness::everybody(witness, inventory).await;
    if let Some(reason) = untold {
        return Some(vec![Cause::Untold { reason }]);
    }
    let mut devices = inventory.devices.iter().filter(concerned);
    if devices.any(|device| device.usage() == Usage::Unknown) {
        return Some(vec![Cause::DeviceInUse {
            holders: Vec::new(),
        }]);
    }
    let of_these =
        |holder: &Holder| holder.device == scope.device || scope.coupled.contains(&holder.device);
    let holders: Vec<Holder> = holders.into_iter().filter(of_these).collect();
    (!holders.is_empty()).then(|| vec![Cause::DeviceInUse { holders }])
}

/// Reboots the node; it takes some time until that is felt.
pub(super) async fn reboot(program: &Path) -> Result<(), String> {
    let mut command = Command::new(program);
    command.env_clear().stdin(Stdio::null());
    let done = timeout(LONGEST, command.status())
        .await
        .map_err(|_| format!("{} does not end", program.display()))?
        .map_err(|error| format!("{}: {error}", program.display()))?;
    if done.success() {
        return Ok(());
    }
    Err(format!("{} failed", program.display()))
}

/// The node without the processes that its driver named a while ago.
fn nobody(inventory: &Inventory) -> Inventory {
    let mut inventory = inventory.clone();
    for device in &mut inventory.devices {
        device.processes.clear();
    }
    inventory
}

fn failed(reason: String) -> Done {
    Done {
        reset: false,
        ending: Ending::Failed {
            reason,
            rollback: None,
        },
    }
}
