//! GPU resets. NVML has no call for a reset; `nvidia-smi` and, with write access to sysfs, the kernel provide one.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use octavo_hardware::DriverHandle;
use octavo_model::holder::Holder;
use octavo_model::id::PciAddress;
use octavo_model::inventory::{Device, DeviceProcesses, Inventory};
use octavo_planner::plan::{Cause, ResetScope};
use octavo_planner::reconcile::ChangeOutcome;
use tokio::time::{Instant, sleep, timeout};
use tracing::info;

use super::program::{self, TIMEOUT};
use super::usage::{self, UsageProbe};

/// How often the lock of a running reset is tried.
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Available reset methods. Without any, an administrator is asked to reset the GPU.
#[derive(Debug, Clone, Default)]
pub struct ResetMethods {
    /// Absolute path of `nvidia-smi`. There is no lookup in directories that others may write to.
    pub nvidia_smi: Option<PathBuf>,
    /// Mount point of sysfs, if resets through the kernel are allowed.
    pub sysfs: Option<PathBuf>,
    /// Absolute path of the program that reboots the node, if reboots are allowed.
    pub reboot: Option<PathBuf>,
    /// The file that a reset locks. The lock is held until every process and call of the reset has ended, even if this
    /// program ends earlier.
    pub lock: Option<PathBuf>,
}

/// The result of a reset.
#[derive(Debug)]
pub(super) struct ResetOutcome {
    /// Whether the GPU was reset.
    pub(super) reset: bool,
    /// The resulting state of the change.
    pub(super) result: ChangeOutcome,
}

impl ResetMethods {
    /// Resets the device of `scope`, unless it or a device that is reset with it is in use. The driver library is
    /// closed meanwhile, because it would itself be a client of the GPU.
    pub(super) async fn perform(
        &self,
        hardware: &DriverHandle,
        inventory: &Inventory,
        scope: &ResetScope,
        usage_probe: &Arc<dyn UsageProbe>,
    ) -> ResetOutcome {
        let needs = |causes| ResetOutcome {
            reset: false,
            result: ChangeOutcome::NeedsReset { scope: scope.clone(), causes },
        };
        if self.nvidia_smi.is_none() && self.sysfs.is_none() {
            return needs(Vec::new());
        }
        let devices: Vec<PciAddress> =
            [scope.device].into_iter().chain(scope.coupled.iter().copied()).collect();
        let _closed = usage_probe.block_allocation(&devices);
        if let Some(causes) = blockers(inventory, scope, usage_probe).await {
            return needs(causes);
        }
        let released = match hardware.release().await {
            Ok(released) => released,
            Err(error) => return failed(error.to_string()),
        };
        // Seconds have passed. The driver reports no processes while its library is closed; procfs and the kubelet
        // still do.
        if let Some(causes) = blockers(&without_processes(inventory), scope, usage_probe).await {
            drop(released);
            return needs(causes);
        }
        // A reset of an earlier attempt that outlived its timeout would run concurrently with this one.
        let done = match self.lock() {
            Ok(lock) => self.reset(scope.device, lock).await,
            Err(reason) => Err(reason),
        };
        drop(released);
        // Work runs only after the library is open again. Until then, readers see the state from before the reset.
        let _is_back = hardware.work(|_, _| ()).await;
        match done {
            Ok(()) => {
                info!(device = %scope.device, "device reset");
                // The change is not complete, but it can continue immediately.
                ResetOutcome { reset: true, ..needs(Vec::new()) }
            }
            Err(reason) => failed(format!("cannot reset {}: {reason}", scope.device)),
        }
    }

    /// Returns the reboot program if a reboot is the only method left.
    pub(super) fn last_resort_reboot(&self) -> Option<&PathBuf> {
        let others = self.nvidia_smi.is_some() || self.sysfs.is_some();
        self.reboot.as_ref().filter(|_| !others)
    }

    /// Waits until no reset of an earlier attempt is running, including one of a killed process, which could reset a
    /// GPU after it was repartitioned. Waits at most until `limit`. Returns the inventory read after waiting.
    pub(super) async fn wait_for_running_reset(
        &self,
        hardware: &DriverHandle,
        limit: Option<Instant>,
    ) -> Result<Option<Arc<Inventory>>, String> {
        // The file exists only if a reset was ever started.
        if !self.lock.as_ref().is_some_and(|path| path.exists()) {
            return Ok(None);
        }
        let Some(file) = self.lock_file()? else {
            return Ok(None);
        };
        let mut waited = false;
        let longest = Instant::now() + TIMEOUT;
        let end = limit.map_or(longest, |limit| limit.min(longest));
        loop {
            match file.try_lock() {
                Ok(()) if waited => return Ok(Some(hardware.observe().await)),
                Ok(()) => return Ok(None),
                Err(TryLockError::WouldBlock) if Instant::now() >= end => {
                    return Err(self.running_error());
                }
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(self.lock_error(&error)),
            }
            if !waited {
                info!("an earlier reset is still running; waiting for it to finish");
                waited = true;
            }
            // The kernel reports the release of a lock only to a thread that waits for it, and such a thread could
            // never be stopped.
            sleep(LOCK_POLL_INTERVAL).await;
        }
    }

    /// Takes the lock for a reset that starts now.
    fn lock(&self) -> Result<Option<File>, String> {
        let Some(file) = self.lock_file()? else {
            return Ok(None);
        };
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Err(self.running_error()),
            Err(TryLockError::Error(error)) => Err(self.lock_error(&error)),
        }
    }

    fn lock_file(&self) -> Result<Option<File>, String> {
        let Some(path) = &self.lock else {
            return Ok(None);
        };
        let mut options = File::options();
        // Also open for reading: the file becomes the standard input of the reset program.
        let opened = options.create(true).read(true).append(true).open(path);
        opened.map(Some).map_err(|error| self.lock_error(&error))
    }

    fn lock_error(&self, error: &io::Error) -> String {
        let path = self.lock.as_deref().unwrap_or_else(|| Path::new(""));
        format!("cannot lock {}: {error}", path.display())
    }

    fn running_error(&self) -> String {
        let path = self.lock.as_deref().unwrap_or_else(|| Path::new(""));
        let path = path.display();
        format!("an earlier reset is still running and holds {path}")
    }

    /// Resets the device. The lock passes to the process or call that resets and is released when that ends.
    async fn reset(&self, pci: PciAddress, lock: Option<File>) -> Result<(), String> {
        match (&self.nvidia_smi, &self.sysfs) {
            (Some(tool), _) => {
                let arguments = ["--gpu-reset".to_owned(), "-i".to_owned(), pci.to_string()];
                let stdin = lock.map_or_else(Stdio::null, Stdio::from);
                program::run(tool, arguments, stdin).await
            }
            (None, Some(sysfs)) => {
                let path = sysfs.join("bus/pci/devices").join(pci.to_string()).join("reset");
                // The write takes as long as the reset, and never returns if the board fails in it.
                let written = tokio::task::spawn_blocking(move || {
                    let written = fs::write(&path, "1");
                    drop(lock);
                    written.map_err(|error| format!("{}: {error}", path.display()))
                });
                timeout(TIMEOUT, written)
                    .await
                    .map_err(|_| "the kernel does not complete the reset".to_owned())?
                    .map_err(|error| error.to_string())?
            }
            (None, None) => Err("no reset method is available".to_owned()),
        }
    }
}

/// Returns the blockers of a reset of the scope. Unknown usage counts as in use.
async fn blockers(
    inventory: &Inventory,
    scope: &ResetScope,
    usage_probe: &Arc<dyn UsageProbe>,
) -> Option<Vec<Cause>> {
    let concerned =
        |device: &&Device| device.pci == scope.device || scope.coupled.contains(&device.pci);
    let (holders, unknown_reason) = usage::all_holders(usage_probe, inventory).await;
    if let Some(reason) = unknown_reason {
        return Some(vec![Cause::StateUnknown { reason }]);
    }
    let mut devices = inventory.devices.iter().filter(concerned);
    if devices.any(|device| device.usage() == DeviceProcesses::Unknown) {
        return Some(vec![Cause::DeviceInUse { holders: Vec::new() }]);
    }
    let of_these =
        |holder: &Holder| holder.device == scope.device || scope.coupled.contains(&holder.device);
    let holders: Vec<Holder> = holders.into_iter().filter(of_these).collect();
    (!holders.is_empty()).then(|| vec![Cause::DeviceInUse { holders }])
}

/// Returns the inventory without the processes that the driver listed earlier.
fn without_processes(inventory: &Inventory) -> Inventory {
    let mut inventory = inventory.clone();
    for device in &mut inventory.devices {
        device.processes.clear();
    }
    inventory
}

fn failed(reason: String) -> ResetOutcome {
    ResetOutcome { reset: false, result: ChangeOutcome::Failed { reason, rollback: None } }
}
