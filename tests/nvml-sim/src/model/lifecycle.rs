//! Administration of a machine: reset, reload, reboot, and hardware faults.
//!
//! ```text
//!              instances   MIG mode, Ampere   MIG mode, later   lost GPU   processes
//!  reset       gone        pending applies    pending applies   back       must be gone
//!  reload      gone        pending applies    off               stays      must be gone
//!  reboot      gone        pending applies    off               back       end
//! ```
//!
//! Source: MIG User Guide, "GPU Reset on Hopper+ GPUs": instances never survive, the mode is stored on Ampere boards
//! only.

use super::code::Code;
use super::event::EventKind;
use super::gpu::{EccCounters, Gpu};
use super::process::{Process, ProcessLoad, ProcessRefusal};
use super::world::{Slot, World};

/// The Xid of a lost GPU.
const XID_FALLEN_OFF_THE_BUS: u64 = 79;

impl World {
    /// Resets a GPU, like `nvidia-smi -r`. `IN_USE` while a process holds it.
    pub fn reset_gpu(&mut self, slot: Slot) -> Result<(), Code> {
        if self.gpu_in_use(slot) {
            return Err(Code::InUse);
        }
        let gpu = self.gpu_mut(slot)?;
        gpu.lost = false;
        gpu.settle();
        self.record(slot, EventKind::MigConfigChange, 0, None);
        Ok(())
    }

    /// Unloads the driver and loads it again, in another version if given. `IN_USE` while a process holds a GPU.
    pub fn reload_driver(&mut self, version: Option<&str>) -> Result<(), Code> {
        self.unload_driver()?;
        if let Some(version) = version {
            version.clone_into(&mut self.driver.version);
            self.driver.nvml_version = nvml_version(version, self.driver.cuda_version);
        }
        self.load_driver();
        Ok(())
    }

    /// Unloads the driver; `IN_USE` while a process holds a GPU.
    pub fn unload_driver(&mut self) -> Result<(), Code> {
        if !self.processes.is_empty() {
            return Err(Code::InUse);
        }
        for gpu in &mut self.gpus {
            gpu.settle();
            gpu.forget_mode();
            gpu.persistence = false;
        }
        self.driver.loaded = false;
        Ok(())
    }

    /// Loads the driver; all earlier sessions are invalid.
    pub fn load_driver(&mut self) {
        self.driver.loaded = true;
        self.driver.epoch = self.driver.epoch.saturating_add(1);
    }

    /// Replaces another machine with open clients: for them the driver was reloaded, so their handles are invalid here,
    /// and event numbers continue.
    pub fn follow(&mut self, before: &Self) {
        self.driver.epoch = before.driver.epoch.saturating_add(1);
        self.last_event = before.last_event.saturating_add(self.last_event);
    }

    /// Restarts the machine: processes end, events are dropped, lost GPUs return.
    pub fn reboot(&mut self) {
        self.processes.clear();
        self.events.clear();
        for gpu in &mut self.gpus {
            gpu.lost = false;
            gpu.settle();
            gpu.forget_mode();
            gpu.persistence = false;
        }
        self.load_driver();
    }

    /// Loses the GPU: Xid 79, and `GPU_IS_LOST` from every call until a reset or reboot.
    pub fn lose_gpu(&mut self, slot: Slot) -> Result<(), Code> {
        let gpu = self.gpu_mut(slot)?;
        gpu.lost = true;
        gpu.recovery_action = 1;
        self.record(slot, EventKind::Xid, XID_FALLEN_OFF_THE_BUS, None);
        self.record(slot, EventKind::GpuUnavailable, 0, None);
        Ok(())
    }

    /// Returns the GPU without a reset, as after a loose cable; its instances are unchanged.
    pub fn return_gpu(&mut self, slot: Slot) -> Result<(), Code> {
        let gpu = self.gpu_mut(slot)?;
        gpu.lost = false;
        gpu.recovery_action = 0;
        Ok(())
    }

    /// Reports an Xid on a GPU, or on one instance of it.
    pub fn xid(
        &mut self,
        slot: Slot,
        number: u64,
        instance: Option<(u32, Option<u32>)>,
    ) -> Result<(), Code> {
        self.gpu(slot)?;
        self.record(slot, EventKind::Xid, number, instance);
        Ok(())
    }

    /// Changes the recovery action (field 230) and reports the event.
    pub fn set_recovery_action(&mut self, slot: Slot, action: u32) -> Result<(), Code> {
        self.gpu_mut(slot)?.recovery_action = action;
        self.record(slot, EventKind::RecoveryAction, u64::from(action), None);
        Ok(())
    }

    /// Adds a process on a GPU or an instance. `NOT_FOUND` if that does not exist; `IN_USE` for a pid that is already
    /// on the same GPU in the same list.
    pub fn add_process(&mut self, process: Process) -> Result<(), Code> {
        self.refusal_of(&process).map_err(|refusal| refusal.code())?;
        self.processes.push(process);
        Ok(())
    }

    /// Whether a process could be added, and why not.
    pub fn refusal_of(&self, process: &Process) -> Result<(), ProcessRefusal> {
        let slot = self.slot_of_uuid(&process.gpu_uuid);
        let gpu = slot.and_then(|slot| self.gpu(slot).ok());
        let gpu = gpu.ok_or(ProcessRefusal::NoGpu)?;
        gpu.present().map_err(|_| ProcessRefusal::GpuLost)?;
        match (process.gi, process.ci) {
            (None, None) => {}
            (None, Some(ci)) => return Err(ProcessRefusal::ComputeInstanceAlone(ci)),
            (Some(gi), ci) => {
                let instance = gpu.gi(gi).ok_or_else(|| {
                    let mig = gpu.mig.iter();
                    let instances = mig.flat_map(|mig| &mig.instances);
                    let there = instances.map(|gi| gi.id).collect();
                    ProcessRefusal::NoGpuInstance { gi, there }
                })?;
                let there: Vec<u32> = instance.compute.iter().map(|ci| ci.id).collect();
                if let Some(ci) = ci.filter(|ci| !there.contains(ci)) {
                    return Err(ProcessRefusal::NoComputeInstance { gi, ci, there });
                }
            }
        }
        let same = |other: &Process| {
            (other.pid, &other.gpu_uuid, other.kind)
                == (process.pid, &process.gpu_uuid, process.kind)
        };
        if self.processes.iter().any(same) {
            return Err(ProcessRefusal::AlreadyThere);
        }
        Ok(())
    }

    /// Removes a process from every GPU. `NOT_FOUND` if it holds none.
    pub fn remove_process(&mut self, pid: u32) -> Result<(), Code> {
        let before = self.processes.len();
        self.processes.retain(|process| process.pid != pid);
        if self.processes.len() == before {
            return Err(Code::NotFound);
        }
        self.refresh_utilization();
        Ok(())
    }

    /// Sets the load of processes; utilization, power and temperature of their GPUs follow.
    pub fn set_loads(&mut self, loads: &[ProcessLoad]) -> Result<(), Code> {
        for load in loads {
            let process = self.processes.iter_mut().find(|process| process.pid == load.pid);
            let process = process.ok_or(Code::NotFound)?;
            process.memory_mib = load.memory_mib;
            let gpu = self.gpus.iter_mut().find(|gpu| gpu.uuid == process.gpu_uuid);
            let gpu = gpu.ok_or(Code::NotFound)?;
            gpu.process_utilization.insert(load.pid, (load.percent, load.percent / 2));
        }
        self.refresh_utilization();
        Ok(())
    }

    /// Drops the load of processes that have ended.
    fn refresh_utilization(&mut self) {
        let processes = &self.processes;
        let alive = |pid: &u32| processes.iter().any(|process| process.pid == *pid);
        for gpu in self.gpus.iter_mut().filter(|gpu| !gpu.process_utilization.is_empty()) {
            gpu.process_utilization.retain(|pid, _| alive(pid));
            gpu.set_utilization(processes);
        }
    }
}

impl Gpu {
    /// Sums the utilization of the processes, of which those in a GPU instance count by its slices. Power and temperature
    /// follow linearly, from an idle board to its limit.
    fn set_utilization(&mut self, processes: &[Process]) {
        let all = self.process_utilization.iter();
        let sum = all.fold((0_u32, 0_u32), |sum, (pid, one)| {
            let (slices, all) = self.slices_of(*pid, processes);
            let part = |percent: u32| percent.saturating_mul(slices) / all;
            (sum.0.saturating_add(part(one.0)), sum.1.saturating_add(part(one.1)))
        });
        let percent = sum.0.min(100);
        self.utilization = (percent, sum.1.min(100));
        let idle = self.power_limit_mw / 100 * 15;
        self.power_mw = idle.saturating_add(self.power_limit_mw / 100 * percent * 8 / 10);
        self.temperature_c = 34_u32.saturating_add(percent * 4 / 10);
    }

    /// Number of slices that a process can use, of all slices of the GPU.
    fn slices_of(&self, pid: u32, processes: &[Process]) -> (u32, u32) {
        let mut own = processes.iter().filter(|one| one.pid == pid && one.gpu_uuid == self.uuid);
        let instance = own.find_map(|process| self.gi(process.gi?));
        let profile = instance.and_then(|instance| self.profile_of(instance).ok());
        profile.map_or((1, 1), |profile| (profile.slices, self.total_slices().max(1)))
    }

    /// Common part of each reset: instances are removed, pending modes apply, volatile counts restart.
    fn settle(&mut self) {
        if let Some(mig) = &mut self.mig {
            mig.instances.clear();
            mig.destroyed.clear();
            mig.current = mig.pending;
        }
        if let Some(ecc) = &mut self.ecc {
            ecc.current = ecc.pending;
        }
        if let Some(rows) = &mut self.remapped_rows {
            rows.pending = false;
        }
        self.ecc_errors =
            EccCounters { volatile_corrected: 0, volatile_uncorrected: 0, ..self.ecc_errors };
        self.recovery_action = 0;
    }

    /// Additional effect of a driver unload: from Hopper on the MIG mode is not stored.
    fn forget_mode(&mut self) {
        if self.architecture.keeps_mig_mode() {
            return;
        }
        if let Some(mig) = &mut self.mig {
            mig.current = false;
            mig.pending = false;
        }
    }
}

/// True if a text is a driver version: at least two numbers separated by dots.
pub fn is_driver_version(text: &str) -> bool {
    let number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    text.contains('.') && text.split('.').all(number)
}

/// `nvmlSystemGetNVMLVersion`: the CUDA major version in front of the driver's.
pub(crate) fn nvml_version(driver: &str, cuda_version: u32) -> String {
    format!("{}.{driver}", cuda_version / 1000)
}
