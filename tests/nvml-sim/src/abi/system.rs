//! Queries about the machine, and device lookups.

use std::ffi::{c_int, c_uint};

use nvml_wrapper_sys::bindings as sys;

use crate::model::{Code, Gpu, Slot};

use super::call::Call;
use super::export::exports;
use super::handle::DeviceHandle;
use super::pointer::{InputPtr, InputText, OutputPtr, OutputText, field, version_of};

/// `nvmlUUID_t.type`: the value is text, or sixteen bytes.
const UUID_TYPE_ASCII: c_uint = 1;
const UUID_TYPE_BINARY: c_uint = 2;

exports! {
    fn nvmlSystemGetDriverVersion(version: OutputText, length: c_uint) |call| {
        version.put(length, &call.world().driver.version)
    }

    fn nvmlSystemGetNVMLVersion(version: OutputText, length: c_uint) |call| {
        version.put(length, &call.world().driver.nvml_version)
    }

    fn nvmlSystemGetCudaDriverVersion(version: OutputPtr<c_int>) |call| {
        cuda_version(call, version)
    }

    fn nvmlSystemGetCudaDriverVersion_v2(version: OutputPtr<c_int>) |call| {
        cuda_version(call, version)
    }

    fn nvmlSystemGetDriverBranch(branch: OutputPtr<sys::nvmlSystemDriverBranchInfo_t>, length: c_uint) |call| {
        driver_branch(call, branch, length)
    }

    fn nvmlSystemGetProcessName(pid: c_uint, name: OutputText, length: c_uint) |call| {
        name.check()?;
        let process = call.world().processes.iter().find(|process| process.pid == pid);
        name.put(length, &process.ok_or(Code::NotFound)?.name)
    }

    fn nvmlDeviceGetCount(count: OutputPtr<c_uint>) |call| {
        device_count(call, count)
    }

    fn nvmlDeviceGetCount_v2(count: OutputPtr<c_uint>) |call| {
        device_count(call, count)
    }

    fn nvmlDeviceGetHandleByIndex(index: c_uint, device: OutputPtr<DeviceHandle>) |call| {
        by_index(call, index, device)
    }

    fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: OutputPtr<DeviceHandle>) |call| {
        by_index(call, index, device)
    }

    fn nvmlDeviceGetHandleByUUID(uuid: InputText, device: OutputPtr<DeviceHandle>) |call| {
        by_uuid(call, uuid.get()?, device)
    }

    fn nvmlDeviceGetHandleByUUIDV(uuid: InputPtr<sys::nvmlUUID_t>, device: OutputPtr<DeviceHandle>) |call| {
        by_tagged_uuid(call, uuid, device)
    }

    fn nvmlDeviceGetHandleByPciBusId(address: InputText, device: OutputPtr<DeviceHandle>) |call| {
        by_pci(call, address, device)
    }

    fn nvmlDeviceGetHandleByPciBusId_v2(address: InputText, device: OutputPtr<DeviceHandle>) |call| {
        by_pci(call, address, device)
    }

    fn nvmlDeviceGetHandleBySerial(serial: InputText, device: OutputPtr<DeviceHandle>) |call| {
        let slot = call.world().slot_of_serial(serial.get()?);
        give(call, slot.ok_or(Code::NotFound)?, device)
    }

    fn nvmlGetExcludedDeviceCount(count: OutputPtr<c_uint>) |_call| {
        count.put(0)
    }
}

fn cuda_version(call: &Call<'_>, version: OutputPtr<c_int>) -> Result<(), Code> {
    let number = call.world().driver.cuda_version;
    version.put(c_int::try_from(number).map_err(|_| Code::Unknown)?)
}

fn driver_branch(
    call: &Call<'_>,
    branch: OutputPtr<sys::nvmlSystemDriverBranchInfo_t>,
    length: c_uint,
) -> Result<(), Code> {
    let version = version_of::<sys::nvmlSystemDriverBranchInfo_t>(1);
    if branch.version()? != version {
        return Err(Code::ArgumentVersionMismatch);
    }
    let text = format!("r{}_00", call.world().driver.branch());
    if usize::try_from(length).unwrap_or(usize::MAX) <= text.len() {
        return Err(Code::InsufficientSize);
    }
    branch.put(sys::nvmlSystemDriverBranchInfo_t { version, branch: field(&text) })
}

fn device_count(call: &Call<'_>, count: OutputPtr<c_uint>) -> Result<(), Code> {
    count.put(c_uint::try_from(call.world().gpus.len()).map_err(|_| Code::Unknown)?)
}

fn by_index(call: &Call<'_>, index: c_uint, device: OutputPtr<DeviceHandle>) -> Result<(), Code> {
    let order = call.verdict().index_order.as_ref();
    let place = usize::try_from(index).unwrap_or(usize::MAX);
    let real = order.and_then(|order| order.get(place)).unwrap_or(&index);
    let slot = call.world().slot_of_index(*real);
    give(call, slot.ok_or(Code::InvalidArgument)?, device)
}

fn by_pci(
    call: &Call<'_>,
    address: InputText,
    device: OutputPtr<DeviceHandle>,
) -> Result<(), Code> {
    let slot = call.world().slot_of_pci(address.get()?);
    give(call, slot.ok_or(Code::NotFound)?, device)
}

/// A UUID of a GPU or of a MIG device.
fn by_uuid(call: &Call<'_>, uuid: &str, device: OutputPtr<DeviceHandle>) -> Result<(), Code> {
    if let Some((slot, serial)) = call.world().mig_device_of_uuid(uuid) {
        return device.put(call.mig_handle(slot, serial));
    }
    let slot = call.world().slot_of_uuid(uuid);
    give(call, slot.ok_or(Code::NotFound)?, device)
}

fn by_tagged_uuid(
    call: &Call<'_>,
    uuid: InputPtr<sys::nvmlUUID_t>,
    device: OutputPtr<DeviceHandle>,
) -> Result<(), Code> {
    let uuid = uuid.get()?;
    if uuid.version != version_of::<sys::nvmlUUID_t>(1) {
        return Err(Code::ArgumentVersionMismatch);
    }
    match uuid.type_ {
        UUID_TYPE_ASCII => {
            // SAFETY: both members are plain bytes, so every content is valid for either.
            let letters = unsafe { uuid.value.str_ };
            let letters = letters.into_iter().flat_map(std::ffi::c_char::to_ne_bytes);
            let text: Vec<u8> = letters.take_while(|byte| *byte != 0).collect();
            let text = std::str::from_utf8(&text).map_err(|_| Code::InvalidArgument)?;
            by_uuid(call, text, device)
        }
        UUID_TYPE_BINARY => {
            // SAFETY: both members are plain bytes, so every content is valid for either.
            let bytes = unsafe { uuid.value.bytes };
            by_hexadecimal(call, &format!("{:032x}", u128::from_be_bytes(bytes)), device)
        }
        _ => Err(Code::InvalidArgument),
    }
}

/// Finds the device with these 32 digits in its UUID, with any prefix.
fn by_hexadecimal(call: &Call<'_>, hex: &str, device: OutputPtr<DeviceHandle>) -> Result<(), Code> {
    let same = |uuid: &str| uuid.replace('-', "").ends_with(hex);
    let gpus = &call.world().gpus;
    let gpu = gpus.iter().find(|gpu| same(&gpu.uuid));
    let mig = || {
        let devices = gpus.iter().flat_map(Gpu::mig_devices);
        devices.map(|mig| &mig.ci.uuid).find(|uuid| same(uuid))
    };
    let uuid = gpu.map(|gpu| &gpu.uuid).or_else(mig);
    by_uuid(call, uuid.ok_or(Code::NotFound)?, device)
}

/// Returns a handle only for a GPU that is still on the bus.
fn give(call: &Call<'_>, slot: Slot, device: OutputPtr<DeviceHandle>) -> Result<(), Code> {
    call.world().gpu(slot)?.present()?;
    device.put(call.gpu_handle(slot))
}
