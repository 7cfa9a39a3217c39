//! Resets of a GPU. NVML has no call for it: `nvidia-smi` has, and the kernel has for whoever may write to sysfs.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tracing::info;

use super::program::{self, LONGEST};
use super::witness::{self, Witness};
use crate::domain::holder::Holder;
use crate::domain::id::PciAddress;
use crate::domain::inventory::{Device, Inventory, Usage};
use crate::domain::plan::{Cause, ResetScope};
use crate::domain::reconcile::Ending;
use crate::hw::Handle;

/// How often the lock of a reset that still runs is tried.
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// By which means a GPU may be reset; none of them is no mistake, and then a person is asked to.
#[derive(Debug, Clone, Default)]
pub struct Resets {
    /// NVIDIA's program, by its whole path: nothing is looked up where others may write.
    pub nvidia_smi: Option<PathBuf>,
    /// Where sysfs is mounted, if the kernel may be asked.
    pub sysfs: Option<PathBuf>,
    /// What reboots the node, by its whole path, where that is allowed.
    pub reboot: Option<PathBuf>,
    /// The file that a reset locks. The lock is held until every process and call of the reset has ended, even if this program ended
    /// before.
    pub lock: Option<PathBuf>,
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
        // A reset of an earlier attempt that outlived its time-out would be the second one at the same time.
        let done = match self.lock() {
            Ok(lock) => self.reset(scope.device, lock).await,
            Err(reason) => Err(reason),
        };
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

    /// Waits until no reset of an earlier attempt goes on, be it one of a process that was killed: it could reset a GPU that was
    /// partitioned meanwhile. It waits until `limit` at most. After waiting, returns the hardware as it is then.
    pub(super) async fn settle(
        &self,
        hardware: &Handle,
        limit: Option<Instant>,
    ) -> Result<Option<Arc<Inventory>>, String> {
        // Where no reset was ever begun there is no file.
        if !self.lock.as_ref().is_some_and(|path| path.exists()) {
            return Ok(None);
        }
        let Some(file) = self.lock_file()? else {
            return Ok(None);
        };
        let mut waited = false;
        let longest = Instant::now() + LONGEST;
        let end = limit.map_or(longest, |limit| limit.min(longest));
        loop {
            match file.try_lock() {
                Ok(()) if waited => return Ok(Some(hardware.observe().await)),
                Ok(()) => return Ok(None),
                Err(TryLockError::WouldBlock) if Instant::now() >= end => {
                    return Err(self.still_runs());
                }
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(self.no_lock(&error)),
            }
            if !waited {
                info!("a reset that was begun before still runs; waiting for it to end");
                waited = true;
            }
            // The kernel reports the release of a lock only to a thread that waits for it, and such a thread could never be ended.
            sleep(LOCK_POLL_INTERVAL).await;
        }
    }

    /// The lock, for a reset that begins now.
    fn lock(&self) -> Result<Option<File>, String> {
        let Some(file) = self.lock_file()? else {
            return Ok(None);
        };
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Err(self.still_runs()),
            Err(TryLockError::Error(error)) => Err(self.no_lock(&error)),
        }
    }

    fn lock_file(&self) -> Result<Option<File>, String> {
        let Some(path) = &self.lock else {
            return Ok(None);
        };
        let mut options = File::options();
        // Read as well: it is the standard input of the program that resets.
        let opened = options.create(true).read(true).append(true).open(path);
        opened.map(Some).map_err(|error| self.no_lock(&error))
    }

    fn no_lock(&self, error: &io::Error) -> String {
        let path = self.lock.as_deref().unwrap_or_else(|| Path::new(""));
        format!("cannot lock {}: {error}", path.display())
    }

    fn still_runs(&self) -> String {
        let path = self.lock.as_deref().unwrap_or_else(|| Path::new(""));
        let path = path.display();
        format!("a reset that was begun before still runs: it holds {path}")
    }

    /// The lock goes to whatever resets, and is released when that has ended.
    async fn reset(&self, pci: PciAddress, lock: Option<File>) -> Result<(), String> {
        match (&self.nvidia_smi, &self.sysfs) {
            (Some(tool), _) => {
                let arguments = ["--gpu-reset".to_owned(), "-i".to_owned(), pci.to_string()];
                let stdin = lock.map_or_else(Stdio::null, Stdio::from);
                program::run(tool, arguments, stdin).await
            }
            (None, Some(sysfs)) => {
                let path = sysfs
                    .join("bus/pci/devices")
                    .join(pci.to_string())
                    .join("reset");
                // It takes as long as the reset, and for ever with a board that dies of it.
                let written = tokio::task::spawn_blocking(move || {
                    let written = fs::write(&path, "1");
                    drop(lock);
                    written.map_err(|error| format!("{}: {error}", path.display()))
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
    program::run_detached(program).await
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
