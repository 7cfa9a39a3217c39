//! Compute instances of a GPU instance: profiles, placements, capacity, creation and destruction.

use std::ffi::c_uint;

use nvml_wrapper_sys::bindings as sys;

use crate::model::{CiProfile, Code, Engines, Placement};

use super::call::Call;
use super::export::exports;
use super::handle::{CiHandle, DeviceHandle, GiHandle, Kind};
use super::pointer::{InputPtr, OutputPtr, field, version_of};

/// `nvmlComputeInstanceInfo_t` of the first version, with the handle types of this crate.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct CiInfoV1 {
    device: DeviceHandle,
    gpu_instance: GiHandle,
    id: c_uint,
    profile_id: c_uint,
}

/// The second version adds the placement. Its device is the MIG device.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct CiInfo {
    first: CiInfoV1,
    placement: sys::nvmlComputeInstancePlacement_t,
}

/// The only engine profile (`NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED`).
const SHARED_ENGINES: c_uint = 0;

exports! {
    fn nvmlGpuInstanceGetComputeInstanceProfileInfo(gi: GiHandle, index: c_uint, engines: c_uint, info: OutputPtr<sys::nvmlComputeInstanceProfileInfo_t>) |call| {
        let (profile, engines) = profile(call, gi, index, engines)?;
        info.put(info_v1(profile, engines))
    }

    fn nvmlGpuInstanceGetComputeInstanceProfileInfoV(gi: GiHandle, index: c_uint, engines: c_uint, info: OutputPtr<sys::nvmlComputeInstanceProfileInfo_v2_t>) |call| {
        let (profile, engines) = profile(call, gi, index, engines)?;
        put_versioned(profile, engines, info)
    }

    fn nvmlGpuInstanceGetComputeInstancePossiblePlacements(gi: GiHandle, id: c_uint, list: OutputPtr<sys::nvmlComputeInstancePlacement_t>, count: OutputPtr<c_uint>) |call| {
        placements(call, gi, id, list, count)
    }

    fn nvmlGpuInstanceGetComputeInstanceRemainingCapacity(gi: GiHandle, id: c_uint, count: OutputPtr<c_uint>) |call| {
        let (_, gpu, gi) = call.gi(gi)?;
        count.put(gpu.ci_remaining_capacity(gi, id)?)
    }

    fn nvmlGpuInstanceCreateComputeInstance(gi: GiHandle, id: c_uint, ci: OutputPtr<CiHandle>) |call| {
        create(call, gi, id, None, ci)
    }

    fn nvmlGpuInstanceCreateComputeInstanceWithPlacement(gi: GiHandle, id: c_uint, placement: InputPtr<sys::nvmlComputeInstancePlacement_t>, ci: OutputPtr<CiHandle>) |call| {
        let wanted = placement.get()?;
        create(call, gi, id, Some(Placement { start: wanted.start, size: wanted.size }), ci)
    }

    fn nvmlComputeInstanceDestroy(ci: CiHandle) |call| {
        let (slot, gi, ci) = call.ci(ci)?;
        let (gi, id, serial) = (gi.id, ci.id, ci.serial);
        call.change(|world| {
            // Another client may have destroyed it: the id may belong to a later instance.
            let there = world.gpu(slot)?.ci_by_serial(serial).is_some();
            if !there {
                return Err(Code::InvalidArgument);
            }
            world.destroy_ci(slot, gi, id)
        })
    }

    fn nvmlGpuInstanceGetComputeInstances(gi: GiHandle, id: c_uint, list: OutputPtr<CiHandle>, count: OutputPtr<c_uint>) |call| {
        let (slot, gpu, gi) = call.gi(gi)?;
        gpu.ci_placements(gi, id)?;
        let found = gi.compute.iter().filter(|ci| ci.profile_id == id);
        let handle = |serial| call.handle(Kind::ComputeInstance, slot, serial);
        let handles: Vec<CiHandle> = found.map(|ci| handle(ci.serial)).collect();
        list.check()?;
        count.put(c_uint::try_from(handles.len()).map_err(|_| Code::Unknown)?)?;
        list.put_all(&handles)
    }

    fn nvmlGpuInstanceGetComputeInstanceById(gi: GiHandle, id: c_uint, ci: OutputPtr<CiHandle>) |call| {
        let (slot, _, gi) = call.gi(gi)?;
        let found = gi.compute.iter().find(|ci| ci.id == id).ok_or(Code::NotFound)?;
        ci.put(call.handle(Kind::ComputeInstance, slot, found.serial))
    }

    fn nvmlComputeInstanceGetInfo(ci: CiHandle, info: OutputPtr<CiInfoV1>) |call| {
        info.put(info_of(call, ci)?.first)
    }

    fn nvmlComputeInstanceGetInfo_v2(ci: CiHandle, info: OutputPtr<CiInfo>) |call| {
        info.put(info_of(call, ci)?)
    }
}

/// The profile by enum index, and the engines that all compute instances of the GPU instance share.
fn profile<'a>(
    call: &'a Call<'_>,
    gi: GiHandle,
    index: c_uint,
    engines: c_uint,
) -> Result<(&'a CiProfile, Engines), Code> {
    let (_, gpu, gi) = call.gi(gi)?;
    if engines != SHARED_ENGINES {
        return Err(Code::InvalidArgument);
    }
    Ok((gpu.ci_profile(gi, index)?, gpu.profile_of(gi)?.engines))
}

/// The list has all placements of the profile, regardless of the count argument, as the header specifies.
fn placements(
    call: &Call<'_>,
    gi: GiHandle,
    id: c_uint,
    list: OutputPtr<sys::nvmlComputeInstancePlacement_t>,
    count: OutputPtr<c_uint>,
) -> Result<(), Code> {
    let (_, gpu, gi) = call.gi(gi)?;
    let found = gpu.ci_placements(gi, id)?;
    count.put(c_uint::try_from(found.len()).map_err(|_| Code::Unknown)?)?;
    if list.is_null() {
        return Ok(());
    }
    let found: Vec<_> = found.into_iter().map(placement).collect();
    list.put_all(&found)
}

fn placement(place: Placement) -> sys::nvmlComputeInstancePlacement_t {
    sys::nvmlComputeInstancePlacement_t { start: place.start, size: place.size }
}

fn create(
    call: &Call<'_>,
    gi: GiHandle,
    profile: c_uint,
    wanted: Option<Placement>,
    ci: OutputPtr<CiHandle>,
) -> Result<(), Code> {
    let (slot, _, gi) = call.gi(gi)?;
    ci.check()?;
    let (gi, parent) = (gi.id, gi.serial);
    let serial = call.change(|world| {
        let there = world.gpu(slot)?.gi_by_serial(parent).is_some();
        if !there {
            return Err(Code::InvalidArgument);
        }
        let id = world.create_ci(slot, gi, profile, wanted)?;
        let instance = world.gpu(slot)?.gi(gi).ok_or(Code::Unknown)?;
        let made = instance.compute.iter().find(|ci| ci.id == id);
        Ok(made.ok_or(Code::Unknown)?.serial)
    })?;
    ci.put(call.handle(Kind::ComputeInstance, slot, serial))
}

fn info_of(call: &Call<'_>, ci: CiHandle) -> Result<CiInfo, Code> {
    let (slot, gi, ci) = call.ci(ci)?;
    Ok(CiInfo {
        first: CiInfoV1 {
            device: call.mig_handle(slot, ci.serial),
            gpu_instance: call.handle(Kind::GpuInstance, slot, gi.serial),
            id: ci.id,
            profile_id: ci.profile_id,
        },
        placement: placement(ci.placement),
    })
}

fn info_v1(profile: &CiProfile, engines: Engines) -> sys::nvmlComputeInstanceProfileInfo_t {
    sys::nvmlComputeInstanceProfileInfo_t {
        id: profile.id,
        sliceCount: profile.slices,
        instanceCount: profile.max_count,
        multiprocessorCount: profile.multiprocessors,
        sharedCopyEngineCount: engines.copy,
        sharedDecoderCount: engines.decoder,
        sharedEncoderCount: engines.encoder,
        sharedJpegCount: engines.jpeg,
        sharedOfaCount: engines.ofa,
    }
}

/// The second version has the name, the third also capabilities, which are empty.
fn put_versioned(
    profile: &CiProfile,
    engines: Engines,
    info: OutputPtr<sys::nvmlComputeInstanceProfileInfo_v2_t>,
) -> Result<(), Code> {
    let v1 = info_v1(profile, engines);
    let version = info.version()?;
    if version == version_of::<sys::nvmlComputeInstanceProfileInfo_v2_t>(2) {
        return info.put(sys::nvmlComputeInstanceProfileInfo_v2_t {
            version,
            id: v1.id,
            sliceCount: v1.sliceCount,
            instanceCount: v1.instanceCount,
            multiprocessorCount: v1.multiprocessorCount,
            sharedCopyEngineCount: v1.sharedCopyEngineCount,
            sharedDecoderCount: v1.sharedDecoderCount,
            sharedEncoderCount: v1.sharedEncoderCount,
            sharedJpegCount: v1.sharedJpegCount,
            sharedOfaCount: v1.sharedOfaCount,
            name: field(&profile.name),
        });
    }
    if version != version_of::<sys::nvmlComputeInstanceProfileInfo_v3_t>(3) {
        return Err(Code::ArgumentVersionMismatch);
    }
    info.cast().put(sys::nvmlComputeInstanceProfileInfo_v3_t {
        version,
        id: v1.id,
        sliceCount: v1.sliceCount,
        instanceCount: v1.instanceCount,
        multiprocessorCount: v1.multiprocessorCount,
        sharedCopyEngineCount: v1.sharedCopyEngineCount,
        sharedDecoderCount: v1.sharedDecoderCount,
        sharedEncoderCount: v1.sharedEncoderCount,
        sharedJpegCount: v1.sharedJpegCount,
        sharedOfaCount: v1.sharedOfaCount,
        name: field(&profile.name),
        capabilities: 0,
    })
}
