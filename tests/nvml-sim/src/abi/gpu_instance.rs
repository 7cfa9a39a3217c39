//! GPU instances: profiles, placements, capacity, creation and destruction.

use std::ffi::c_uint;

use nvml_wrapper_sys::bindings as sys;

use crate::model::{Code, GiProfile, Placement, Slot, World};

use super::call::Call;
use super::export::exports;
use super::handle::{DeviceHandle, GiHandle, Kind};
use super::pointer::{InputPtr, OutputPtr, field, version_of};

/// `nvmlGpuInstanceInfo_t`, with the device handle type of this crate.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct GiInfo {
    device: DeviceHandle,
    id: c_uint,
    profile_id: c_uint,
    placement: sys::nvmlGpuInstancePlacement_t,
}

/// `NVML_GPU_INSTANCE_PROFILE_CAPS_GFX`.
const CAN_DRAW: c_uint = 2;

/// `NVML_GPU_INSTANCE_PROFILE_3_SLICE_GFX`, and the first driver branch that can know it: an H100 with 580.159.04 does
/// not, and the header of CUDA 13.0 lacks it.
const THREE_SLICE_GFX: c_uint = 0x11;
const FIRST_BRANCH_WITH_THREE_SLICE_GFX: u32 = 590;

exports! {
    fn nvmlDeviceGetGpuInstanceProfileInfo(device: DeviceHandle, index: c_uint, info: OutputPtr<sys::nvmlGpuInstanceProfileInfo_t>) |call| {
        info.put(info_v1(profile(call, device, index)?))
    }

    fn nvmlDeviceGetGpuInstanceProfileInfoV(device: DeviceHandle, index: c_uint, info: OutputPtr<sys::nvmlGpuInstanceProfileInfo_v2_t>) |call| {
        put_versioned(profile(call, device, index)?, info)
    }

    fn nvmlDeviceGetGpuInstanceProfileInfoByIdV(device: DeviceHandle, id: c_uint, info: OutputPtr<sys::nvmlGpuInstanceProfileInfo_v2_t>) |call| {
        put_versioned(call.gpu(device)?.1.gi_profile_by_id(id)?, info)
    }

    /// The first version does not accept a null list as a query for the count.
    fn nvmlDeviceGetGpuInstancePossiblePlacements(device: DeviceHandle, id: c_uint, list: OutputPtr<sys::nvmlGpuInstancePlacement_t>, count: OutputPtr<c_uint>) |call| {
        list.check()?;
        placements(call, device, id, list, count)
    }

    fn nvmlDeviceGetGpuInstancePossiblePlacements_v2(device: DeviceHandle, id: c_uint, list: OutputPtr<sys::nvmlGpuInstancePlacement_t>, count: OutputPtr<c_uint>) |call| {
        placements(call, device, id, list, count)
    }

    fn nvmlDeviceGetGpuInstanceRemainingCapacity(device: DeviceHandle, id: c_uint, count: OutputPtr<c_uint>) |call| {
        count.put(call.gpu(device)?.1.remaining_capacity(id)?)
    }

    fn nvmlDeviceCreateGpuInstance(device: DeviceHandle, id: c_uint, gi: OutputPtr<GiHandle>) |call| {
        create(call, device, id, None, gi)
    }

    fn nvmlDeviceCreateGpuInstanceWithPlacement(device: DeviceHandle, id: c_uint, placement: InputPtr<sys::nvmlGpuInstancePlacement_t>, gi: OutputPtr<GiHandle>) |call| {
        let wanted = placement.get()?;
        let wanted = Placement { start: wanted.start, size: wanted.size };
        create(call, device, id, Some(wanted), gi)
    }

    fn nvmlGpuInstanceDestroy(gi: GiHandle) |call| {
        let (slot, _, gi) = call.gi(gi)?;
        let (id, serial) = (gi.id, gi.serial);
        call.change(|world| {
            // Another client may have destroyed it: the id may belong to a later instance.
            let there = world.gpu(slot)?.gi_by_serial(serial).is_some();
            if !there {
                return Err(Code::InvalidArgument);
            }
            world.destroy_gi(slot, id)
        })
    }

    fn nvmlDeviceGetGpuInstances(device: DeviceHandle, id: c_uint, list: OutputPtr<GiHandle>, count: OutputPtr<c_uint>) |call| {
        let (slot, gpu) = call.gpu(device)?;
        let found = gpu.gpu_instances(id)?;
        let handle = |serial| call.handle(Kind::GpuInstance, slot, serial);
        let handles: Vec<GiHandle> = found.iter().map(|gi| handle(gi.serial)).collect();
        list.check()?;
        count.put(c_uint::try_from(handles.len()).map_err(|_| Code::Unknown)?)?;
        list.put_all(&handles)
    }

    fn nvmlDeviceGetGpuInstanceById(device: DeviceHandle, id: c_uint, gi: OutputPtr<GiHandle>) |call| {
        let (slot, gpu) = call.gpu(device)?;
        gpu.mig()?;
        let found = gpu.gi(id).ok_or(Code::NotFound)?;
        gi.put(call.handle(Kind::GpuInstance, slot, found.serial))
    }

    fn nvmlGpuInstanceGetInfo(gi: GiHandle, info: OutputPtr<GiInfo>) |call| {
        let (slot, _, gi) = call.gi(gi)?;
        info.put(GiInfo {
            device: call.gpu_handle(slot),
            id: gi.id,
            profile_id: gi.profile_id,
            placement: placement(gi.placement),
        })
    }
}

/// The profile with the enum index. Indexes that the driver's header does not have yet are `INVALID_ARGUMENT`.
fn profile<'a>(
    call: &'a Call<'_>,
    device: DeviceHandle,
    index: c_uint,
) -> Result<&'a GiProfile, Code> {
    let (_, gpu) = call.gpu(device)?;
    if index >= THREE_SLICE_GFX && call.world().driver.branch() < FIRST_BRANCH_WITH_THREE_SLICE_GFX
    {
        gpu.mig()?;
        return Err(Code::InvalidArgument);
    }
    gpu.gi_profile(index)
}

fn placement(place: Placement) -> sys::nvmlGpuInstancePlacement_t {
    sys::nvmlGpuInstancePlacement_t { start: place.start, size: place.size }
}

/// The list has all placements of the profile, regardless of the count argument, as the header specifies.
fn placements(
    call: &Call<'_>,
    device: DeviceHandle,
    id: c_uint,
    list: OutputPtr<sys::nvmlGpuInstancePlacement_t>,
    count: OutputPtr<c_uint>,
) -> Result<(), Code> {
    let found = call.gpu(device)?.1.possible_placements(id)?;
    count.put(c_uint::try_from(found.len()).map_err(|_| Code::Unknown)?)?;
    if list.is_null() {
        return Ok(());
    }
    let found: Vec<_> = found.iter().map(|place| placement(*place)).collect();
    list.put_all(&found)
}

fn create(
    call: &Call<'_>,
    device: DeviceHandle,
    profile: c_uint,
    wanted: Option<Placement>,
    gi: OutputPtr<GiHandle>,
) -> Result<(), Code> {
    let (slot, _) = call.gpu(device)?;
    gi.check()?;
    let misplace = call.verdict().wrong_placement;
    let serial = call.change(|world| {
        let elsewhere = misplace.then(|| create_elsewhere(world, slot, profile, wanted));
        let id = match elsewhere.flatten() {
            Some(id) => id,
            None => world.create_gi(slot, profile, wanted)?,
        };
        Ok(world.gpu(slot)?.gi(id).ok_or(Code::Unknown)?.serial)
    })?;
    gi.put(call.handle(Kind::GpuInstance, slot, serial))
}

/// Creates the instance at another placement than requested; `None` if there is no other.
fn create_elsewhere(
    world: &mut World,
    slot: Slot,
    profile: c_uint,
    wanted: Option<Placement>,
) -> Option<c_uint> {
    let places = world.gpu(slot).ok()?.possible_placements(profile).ok()?.to_vec();
    let mut others = places.into_iter().filter(|place| Some(*place) != wanted);
    others.find_map(|place| world.create_gi(slot, profile, Some(place)).ok())
}

fn info_v1(profile: &GiProfile) -> sys::nvmlGpuInstanceProfileInfo_t {
    sys::nvmlGpuInstanceProfileInfo_t {
        id: profile.id,
        isP2pSupported: 0,
        sliceCount: profile.slices,
        instanceCount: profile.max_count,
        multiprocessorCount: profile.multiprocessors,
        copyEngineCount: profile.engines.copy,
        decoderCount: profile.engines.decoder,
        encoderCount: profile.engines.encoder,
        jpegCount: profile.engines.jpeg,
        ofaCount: profile.engines.ofa,
        memorySizeMB: profile.memory_mib,
    }
}

/// The second version has the name, the third also capabilities in place of the P2P flag.
fn put_versioned(
    profile: &GiProfile,
    info: OutputPtr<sys::nvmlGpuInstanceProfileInfo_v2_t>,
) -> Result<(), Code> {
    let v1 = info_v1(profile);
    let version = info.version()?;
    if version == version_of::<sys::nvmlGpuInstanceProfileInfo_v2_t>(2) {
        return info.put(sys::nvmlGpuInstanceProfileInfo_v2_t {
            version,
            id: v1.id,
            isP2pSupported: v1.isP2pSupported,
            sliceCount: v1.sliceCount,
            instanceCount: v1.instanceCount,
            multiprocessorCount: v1.multiprocessorCount,
            copyEngineCount: v1.copyEngineCount,
            decoderCount: v1.decoderCount,
            encoderCount: v1.encoderCount,
            jpegCount: v1.jpegCount,
            ofaCount: v1.ofaCount,
            memorySizeMB: v1.memorySizeMB,
            name: field(&format!("MIG {}", profile.name)),
        });
    }
    if version != version_of::<sys::nvmlGpuInstanceProfileInfo_v3_t>(3) {
        return Err(Code::ArgumentVersionMismatch);
    }
    info.cast().put(sys::nvmlGpuInstanceProfileInfo_v3_t {
        version,
        id: v1.id,
        sliceCount: v1.sliceCount,
        instanceCount: v1.instanceCount,
        multiprocessorCount: v1.multiprocessorCount,
        copyEngineCount: v1.copyEngineCount,
        decoderCount: v1.decoderCount,
        encoderCount: v1.encoderCount,
        jpegCount: v1.jpegCount,
        ofaCount: v1.ofaCount,
        memorySizeMB: v1.memorySizeMB,
        name: field(&format!("MIG {}", profile.name)),
        capabilities: if draws(profile) { CAN_DRAW } else { 0 },
    })
}

/// `+gfx` profiles: indices 0xA to 0xC and 0x11.
fn draws(profile: &GiProfile) -> bool {
    matches!(profile.index, 0xA..=0xC | 0x11)
}
