//! A GPU behind its driver: instances, users and faults.

use std::time::Duration;

use octavo_model::call::{CallFailure, CallResult, DriverCall, FailureKind};
use octavo_model::catalog::{InstanceResources, Placement};
use octavo_model::examples::{gpu, h100, process};
use octavo_model::inventory::{
    Completeness, ComputeInstance, Device, GpuInstance, Mig, MigState, Process,
};

use super::layouts::gpu_address;

/// A GPU with everything that is true about it. The agent knows only what [`Gpu::read`] returned.
#[derive(Debug)]
pub(crate) struct Gpu {
    device: Device,
    /// The driver reuses ids, so they are not unique over time.
    last_id: u32,
    /// Number of readings that lack instances.
    pub(crate) partial_readings: u32,
    /// Faults of the next calls, the first one last.
    pub(crate) faults: Vec<CallFault>,
}

/// A fault of one driver call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallFault {
    /// The call fails without effect.
    Fails(FailureKind),
    /// The call fails, but takes effect.
    FailsLate(FailureKind),
    /// The call reports success, but has no effect.
    FalseSuccess,
}

/// A process or pod that uses a compute instance.
#[derive(Debug, Clone)]
pub(crate) struct GpuUser {
    pub(crate) gpu: usize,
    pub(crate) gpu_instance: u32,
    pub(crate) compute_instance: u32,
    /// Time from which it is visible: the kubelet's allocation, or the start of the process.
    pub(crate) since: Duration,
    /// Its process, if it has one.
    pub(crate) pid: Option<u32>,
}

impl Gpu {
    /// A GPU with MIG mode on and these instances: profile and first slice.
    pub(crate) fn new(number: usize, node: usize, instances: &[(u32, u32)]) -> Self {
        let uuid = format!("GPU-00000000-0000-0000-{node:04x}-{number:012x}");
        let mut device = Device {
            pci: gpu_address(number),
            index: u32::try_from(number).ok(),
            uuid: uuid.parse().ok(),
            mig: Mig::Capable(h100()),
            ..gpu()
        };
        device.product_name = Some("NVIDIA H100 80GB HBM3".to_owned());
        let mut gpu = Self { device, last_id: 0, partial_readings: 0, faults: Vec::new() };
        for (profile_id, start) in instances {
            gpu.add(*profile_id, *start);
        }
        gpu
    }

    fn add(&mut self, profile_id: u32, start: u32) {
        let profile = self.state().catalog.by_id(profile_id).unwrap();
        let slices = profile.resources.gpu_slices;
        let placement = profile.placements.iter().find(|one| one.start == start).copied().unwrap();
        if let Ok(CallResult::Created { id, .. }) = self.create(profile_id, placement) {
            self.create_compute(id, slices).unwrap();
        }
    }

    /// The device without its processes.
    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// Its MIG state.
    pub(crate) fn state(&self) -> &MigState {
        self.device.mig.state().unwrap()
    }

    fn state_mut(&mut self) -> &mut MigState {
        match &mut self.device.mig {
            Mig::Capable(state) => state,
            Mig::Unknown | Mig::NotCapable => unreachable!("every GPU can be partitioned"),
        }
    }

    /// The device as the driver reports it. Instances are missing while the fault lasts.
    pub(crate) fn read<'a>(&mut self, users: impl Iterator<Item = &'a GpuUser>) -> Device {
        let mut device = self.device.clone();
        device.set_processes(processes(users));
        if let (Mig::Capable(state), 1..) = (&mut device.mig, self.partial_readings) {
            self.partial_readings -= 1;
            state.gpu_instances.truncate(1);
            state.geometry = Completeness::Partial;
        }
        device
    }

    /// All instances disappear, as after a reset or a reboot.
    pub(crate) fn reset(&mut self) {
        self.state_mut().gpu_instances.clear();
        self.faults.clear();
        self.partial_readings = 0;
    }

    /// Another program destroys an instance. Returns whether there was one.
    pub(crate) fn remove(&mut self, gpu_instance: u32) -> bool {
        let state = self.state_mut();
        let before = state.gpu_instances.len();
        state.gpu_instances.retain(|one| one.id != gpu_instance);
        state.gpu_instances.len() < before
    }

    /// Makes a call. The driver refuses to destroy an instance that a process uses, and nothing else.
    pub(crate) fn call<'a>(
        &mut self,
        call: DriverCall,
        mut users: impl Iterator<Item = &'a GpuUser>,
    ) -> Result<CallResult, CallFailure> {
        let failure = |kind| CallFailure { kind, what: format!("{call:?}: {kind:?}") };
        let is_used = users.any(|user| user.pid.is_some() && destroys(call, user));
        match self.faults.pop() {
            Some(CallFault::Fails(kind)) => return Err(failure(kind)),
            Some(CallFault::FailsLate(kind)) => {
                if !is_used {
                    let _done = self.execute(call);
                }
                return Err(failure(kind));
            }
            Some(CallFault::FalseSuccess) => {
                return Ok(match call {
                    DriverCall::CreateGpuInstance { placement, .. } => {
                        CallResult::Created { id: 77, placement }
                    }
                    DriverCall::DestroyComputeInstance { .. }
                    | DriverCall::DestroyGpuInstance { .. }
                    | DriverCall::CreateComputeInstance { .. }
                    | DriverCall::SetMigMode { .. } => CallResult::Completed,
                });
            }
            None => {}
        }
        if is_used {
            return Err(failure(FailureKind::InUse));
        }
        self.execute(call).map_err(failure)
    }

    fn execute(&mut self, call: DriverCall) -> Result<CallResult, FailureKind> {
        match call {
            DriverCall::DestroyComputeInstance { gpu_instance, compute_instance } => {
                let parts = &mut self.find(gpu_instance)?.compute_instances;
                let before = parts.len();
                parts.retain(|part| part.id != compute_instance);
                if parts.len() == before {
                    Err(FailureKind::NotFound)
                } else {
                    Ok(CallResult::Completed)
                }
            }
            DriverCall::DestroyGpuInstance { gpu_instance } => {
                if !self.find(gpu_instance)?.compute_instances.is_empty() {
                    return Err(FailureKind::InUse);
                }
                self.remove(gpu_instance);
                Ok(CallResult::Completed)
            }
            DriverCall::CreateGpuInstance { profile_id, placement } => {
                self.create(profile_id, placement)
            }
            DriverCall::CreateComputeInstance { gpu_instance, slices } => {
                self.create_compute(gpu_instance, slices)
            }
            // The mode is never another one.
            DriverCall::SetMigMode { .. } => Err(FailureKind::Rejected),
        }
    }

    fn find(&mut self, id: u32) -> Result<&mut GpuInstance, FailureKind> {
        let mut all = self.state_mut().gpu_instances.iter_mut();
        all.find(|one| one.id == id).ok_or(FailureKind::NotFound)
    }

    fn create(&mut self, profile_id: u32, placement: Placement) -> Result<CallResult, FailureKind> {
        let state = self.state();
        let is_known = state
            .catalog
            .by_id(profile_id)
            .is_some_and(|profile| profile.placements.contains(&placement));
        if !is_known {
            return Err(FailureKind::Rejected);
        }
        let is_free = |one: &GpuInstance| {
            one.placement.end() <= placement.start || placement.end() <= one.placement.start
        };
        if !state.gpu_instances.iter().all(is_free) {
            return Err(FailureKind::InsufficientResources);
        }
        let is_unused = |id: &u32| state.gpu_instances.iter().all(|one| one.id != *id);
        let id = (1..100).find(is_unused).unwrap();
        self.last_id = id;
        let compute_instances = Vec::new();
        let instance = GpuInstance { id, profile_id, placement, compute_instances };
        self.state_mut().gpu_instances.push(instance);
        Ok(CallResult::Created { id, placement })
    }

    fn create_compute(&mut self, id: u32, slices: u32) -> Result<CallResult, FailureKind> {
        let parts = &mut self.find(id)?.compute_instances;
        if !parts.is_empty() {
            return Err(FailureKind::InsufficientResources);
        }
        let resources =
            InstanceResources { compute_slices: slices, ..InstanceResources::default() };
        parts.push(ComputeInstance {
            id: 0,
            profile_id: slices.saturating_sub(1),
            placement: None,
            uuid: None,
            memory: None,
            resources: Some(resources),
        });
        Ok(CallResult::Completed)
    }
}

/// Returns whether the call destroys the instance that this user holds.
pub(crate) fn destroys(call: DriverCall, user: &GpuUser) -> bool {
    match call {
        DriverCall::DestroyComputeInstance { gpu_instance, compute_instance } => {
            (user.gpu_instance, user.compute_instance) == (gpu_instance, compute_instance)
        }
        DriverCall::DestroyGpuInstance { gpu_instance } => user.gpu_instance == gpu_instance,
        DriverCall::CreateGpuInstance { .. }
        | DriverCall::CreateComputeInstance { .. }
        | DriverCall::SetMigMode { .. } => false,
    }
}

/// The processes of these users, as the driver reports them.
pub(crate) fn processes<'a>(users: impl Iterator<Item = &'a GpuUser>) -> Vec<Process> {
    let processes = users.filter_map(|user| {
        Some(process(user.pid?, Some(user.gpu_instance), Some(user.compute_instance)))
    });
    processes.collect()
}
