//! Changes to one device.
//!
//! Every instance is looked up by its ID immediately before it is changed. Its handle is cached for the next call on
//! the same instance, mainly for creating the compute instances of a new GPU instance, so that no lookup is repeated.
//! The handle is dropped when its instance is destroyed, when the MIG mode changes and after any error.

use std::sync::Arc;

use nvml_wrapper::Nvml;
use nvml_wrapper_sys::bindings::{
    nvmlComputeInstance_t, nvmlGpuInstance_t, nvmlGpuInstancePlacement_t,
};
use octavo_model::call::{CallFailure, CallResult, DriverCall, FailureKind};
use octavo_model::catalog::Placement;
use octavo_model::id::PciAddress;
use octavo_model::inventory::{Device, MigMode, Process};

use crate::GpuControl;
use crate::calls::CallRecord;
use crate::error::{CallTarget, DriverError, NvmlCode};
use crate::nvml::device::{KnownDevice, look_up_device, observe_one};
use crate::nvml::instances::gpu_instance_info;
use crate::nvml::processes;
use crate::nvml::session::{DeviceHandle, Session, raw};

/// A device of a driver, borrowed for changes.
#[derive(Debug)]
pub(super) struct NvmlControl<'a> {
    nvml: &'a Arc<Nvml>,
    pci: PciAddress,
    index: u32,
    /// The driver's record of the device; `None` after an observation in which its handle was invalid.
    slot: &'a mut Option<KnownDevice>,
    cached: Option<CachedInstance>,
}

/// A GPU instance that this control found or created.
#[derive(Debug, Clone, Copy)]
struct CachedInstance {
    id: u32,
    handle: nvmlGpuInstance_t,
    /// The driver's ID of its profile, if known.
    profile: Option<u32>,
}

// SAFETY: the handle is a plain reference to an object of the library, bound to no thread, and NVML is thread-safe
// (nvml.h, "NVML is thread-safe so it is safe to make simultaneous NVML calls from multiple threads").
unsafe impl Send for CachedInstance {}

impl<'a> NvmlControl<'a> {
    /// Creates a control of the device with NVML's `index`; `None` if the device was never named.
    pub(super) fn new(
        nvml: &'a Arc<Nvml>,
        index: u32,
        slot: &'a mut Option<KnownDevice>,
    ) -> Option<Self> {
        let pci = slot.as_ref()?.pci;
        Some(Self { nvml, pci, index, slot, cached: None })
    }

    /// Returns the record of the device, looked up again if its handle was dropped.
    fn known(&mut self, session: Session<'_>) -> Result<&mut KnownDevice, CallFailure> {
        let known = match &mut *self.slot {
            Some(known) => known,
            slot @ None => {
                let named = look_up_device(session, self.index);
                slot.insert(named.map_err(|error| error.failure(CallTarget::Instance))?)
            }
        };
        if known.pci == self.pci { Ok(known) } else { Err(moved_index(self.pci, known.pci)) }
    }

    fn handle(&mut self, session: Session<'_>) -> Result<DeviceHandle, CallFailure> {
        self.known(session).map(|known| known.handle)
    }

    /// Returns the GPU instance with this ID.
    fn instance(&mut self, session: Session<'_>, id: u32) -> Result<CachedInstance, CallFailure> {
        if let Some(cached) = self.cached.filter(|cached| cached.id == id) {
            return Ok(cached);
        }
        let device = self.handle(session)?;
        let mut handle: nvmlGpuInstance_t = std::ptr::null_mut();
        // SAFETY: the device handle comes from this library, and `handle` is writable until the call returns.
        raw!(session, nvmlDeviceGetGpuInstanceById, |f| unsafe {
            f(device.0, id, &raw mut handle)
        })
        .map_err(|error| error.failure(CallTarget::Instance))?;
        let found = CachedInstance { id, handle, profile: None };
        self.cached = Some(found);
        Ok(found)
    }

    fn destroy_compute_instance(
        &mut self,
        session: Session<'_>,
        gpu_instance: u32,
        id: u32,
    ) -> Result<CallResult, CallFailure> {
        let parent = self.instance(session, gpu_instance)?;
        let mut found: nvmlComputeInstance_t = std::ptr::null_mut();
        // SAFETY: the parent comes from this library, which checks that it still exists; `found` is writable until the
        // call returns.
        raw!(session, nvmlGpuInstanceGetComputeInstanceById, |f| unsafe {
            f(parent.handle, id, &raw mut found)
        })
        // SAFETY: this library has just returned the compute instance, and its handle is not used again.
        .and_then(|()| raw!(session, nvmlComputeInstanceDestroy, |f| unsafe { f(found) }))
        .map_err(|error| error.failure(CallTarget::Instance))?;
        Ok(CallResult::Completed)
    }

    fn destroy_gpu_instance(
        &mut self,
        session: Session<'_>,
        id: u32,
    ) -> Result<CallResult, CallFailure> {
        let found = self.instance(session, id)?;
        self.cached = None;
        // SAFETY: the instance comes from this library, which checks that it still exists, and its handle is not used
        // again.
        raw!(session, nvmlGpuInstanceDestroy, |f| unsafe { f(found.handle) })
            .map_err(|error| error.failure(CallTarget::Instance))?;
        Ok(CallResult::Completed)
    }

    /// Creates a GPU instance, always at an explicit placement, which determines the space left for other instances.
    fn create_gpu_instance(
        &mut self,
        session: Session<'_>,
        profile: u32,
        place: Placement,
    ) -> Result<CallResult, CallFailure> {
        let device = self.handle(session)?;
        let place = nvmlGpuInstancePlacement_t { start: place.start, size: place.size };
        let mut handle: nvmlGpuInstance_t = std::ptr::null_mut();
        raw!(
            session,
            nvmlDeviceCreateGpuInstanceWithPlacement,
            // SAFETY: the device handle comes from this library; `place` is readable and `handle` writable until the
            // call returns.
            |f| unsafe { f(device.0, profile, &raw const place, &raw mut handle) }
        )
        .map_err(placement_failure)?;
        let info = gpu_instance_info(session, handle)
            .map_err(|error| error.failure(CallTarget::Instance))?;
        self.cached = Some(CachedInstance { id: info.id, handle, profile: Some(info.profileId) });
        Ok(CallResult::Created {
            id: info.id,
            placement: Placement { start: info.placement.start, size: info.placement.size },
        })
    }

    fn create_compute_instance(
        &mut self,
        session: Session<'_>,
        gpu_instance: u32,
        slices: u32,
    ) -> Result<CallResult, CallFailure> {
        let parent = self.instance(session, gpu_instance)?;
        let profile = self.compute_profile(session, parent, slices)?;
        let mut made: nvmlComputeInstance_t = std::ptr::null_mut();
        // SAFETY: the parent comes from this library, which checks that it still exists; `made` is writable until the
        // call returns.
        raw!(session, nvmlGpuInstanceCreateComputeInstance, |f| unsafe {
            f(parent.handle, profile, &raw mut made)
        })
        .map_err(|error| error.failure(CallTarget::Other))?;
        Ok(CallResult::Completed)
    }

    /// Returns the driver's ID of the first compute instance profile with this number of slices.
    fn compute_profile(
        &mut self,
        session: Session<'_>,
        parent: CachedInstance,
        slices: u32,
    ) -> Result<u32, CallFailure> {
        let looked_up = |error: DriverError| error.failure(CallTarget::Instance);
        let parent_profile = match parent.profile {
            Some(profile) => profile,
            None => gpu_instance_info(session, parent.handle).map_err(looked_up)?.profileId,
        };
        self.cached = Some(CachedInstance { profile: Some(parent_profile), ..parent });
        let known = self.known(session)?;
        let offered =
            known.compute_profiles(session, parent_profile, parent.handle).map_err(looked_up)?;
        let fitting = offered.iter().find(|profile| profile.slices == slices);
        fitting.map(|profile| profile.id).ok_or_else(|| {
            let why = known.compute_profile_error().unwrap_or_default();
            CallFailure {
                kind: FailureKind::Rejected,
                what: format!(
                    "GPU instance {} offers no compute instance of {slices} slices{why}",
                    parent.id
                ),
            }
        })
    }

    fn set_mode(&mut self, session: Session<'_>, to: MigMode) -> Result<CallResult, CallFailure> {
        self.cached = None;
        let device = self.handle(session)?;
        let number = match to {
            MigMode::Disabled => 0,
            MigMode::Enabled => 1,
        };
        let mut activation = 0;
        // SAFETY: the device handle comes from this library, and `activation` is writable until the call returns.
        raw!(session, nvmlDeviceSetMigMode, |f| unsafe {
            f(device.0, number, &raw mut activation)
        })
        .map_err(|error| error.failure(CallTarget::Other))?;
        Ok(match activation {
            0 => CallResult::Completed,
            status => CallResult::Pending(NvmlCode::Nvml(status).to_string()),
        })
    }

    fn dispatch(
        &mut self,
        call: DriverCall,
        session: Session<'_>,
    ) -> Result<CallResult, CallFailure> {
        match call {
            DriverCall::DestroyComputeInstance { gpu_instance, compute_instance } => {
                self.destroy_compute_instance(session, gpu_instance, compute_instance)
            }
            DriverCall::DestroyGpuInstance { gpu_instance } => {
                self.destroy_gpu_instance(session, gpu_instance)
            }
            DriverCall::CreateGpuInstance { profile_id, placement } => {
                self.create_gpu_instance(session, profile_id, placement)
            }
            DriverCall::CreateComputeInstance { gpu_instance, slices } => {
                let is_cached = self.cached.is_some_and(|cached| cached.id == gpu_instance);
                let done = self.create_compute_instance(session, gpu_instance, slices);
                if is_cached && done.as_ref().is_err_and(may_be_stale) {
                    // Another process may have destroyed the instance since its handle was cached; the lookup then
                    // reports that.
                    self.cached = None;
                    self.instance(session, gpu_instance)?;
                }
                done
            }
            DriverCall::SetMigMode { to } => self.set_mode(session, to),
        }
    }
}

impl GpuControl for NvmlControl<'_> {
    fn pci(&self) -> PciAddress {
        self.pci
    }

    fn processes(&mut self, calls: &CallRecord) -> Result<Vec<Process>, CallFailure> {
        let session = Session::new(self.nvml, calls).for_device(self.pci);
        let device = self.handle(session)?;
        processes::read_all(session.with_handle(device))
            .map_err(|error| error.failure(CallTarget::Other))
    }

    fn call(&mut self, call: DriverCall, calls: &CallRecord) -> Result<CallResult, CallFailure> {
        let session = Session::new(self.nvml, calls).for_device(self.pci);
        let done = self.dispatch(call, session);
        if done.is_err() {
            self.cached = None;
        }
        done
    }

    fn read(&mut self, calls: &CallRecord) -> Result<Device, CallFailure> {
        let session = Session::new(self.nvml, calls).for_device(self.pci);
        let device = observe_one(session, self.index, &[], self.slot)
            .map_err(|error| error.failure(CallTarget::Other))?;
        if device.pci == self.pci { Ok(device) } else { Err(moved_index(self.pci, device.pci)) }
    }
}

/// Returns the failure for a moved index: NVML's indices change when a device is removed. The device that has the index
/// now must not be changed.
fn moved_index(wanted: PciAddress, found: PciAddress) -> CallFailure {
    CallFailure {
        kind: FailureKind::NotFound,
        what: format!("the driver lists {found} at the index of {wanted}"),
    }
}

fn may_be_stale(failure: &CallFailure) -> bool {
    failure.kind == FailureKind::Rejected
}

fn placement_failure(error: DriverError) -> CallFailure {
    let failure = error.failure(CallTarget::Other);
    if !error.is(NvmlCode::NoSuchFunction) {
        return failure;
    }
    CallFailure {
        what: format!("cannot create a GPU instance at a given placement: {failure}"),
        ..failure
    }
}
