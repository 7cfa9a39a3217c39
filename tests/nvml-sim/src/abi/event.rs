//! Events: sets, registration, and a blocking wait.
//!
//! A set stores the number of its last event. A wait checks, whenever the world changes, whether there is a later one
//! that the client registered for; so events of all processes are received.

use std::ffi::{c_uint, c_ulonglong};
use std::time::Duration;

use crate::model::{Code, Gpu, Slot};

use super::call::Call;
use super::event_set::{EventSet, Registration};
use super::export::exports;
use super::handle::{DeviceHandle, Kind, SetHandle};
use super::library::with_event_sets;
use super::log::steady_ns;
use super::memory::NO_INSTANCE;
use super::pointer::OutputPtr;
use super::watch::Watch;

/// Bits of `nvmlEventType*`.
const ECC: c_ulonglong = 0x1 | 0x2;
const XID: c_ulonglong = 0x8;
const MIG_CONFIG: c_ulonglong = 0x100;
/// The other types that an H200 with 580.159.04 supports (0xFF9F without ECC, Xid and MIG).
const OTHER_TYPES: c_ulonglong = 0xFE94;

/// The first driver branch known to have `OTHER_TYPES`.
const FIRST_NEW_BRANCH: u32 = 580;

/// `nvmlEventData_t` of the first version, with the handle type of this crate.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct DataV1 {
    device: DeviceHandle,
    event_type: c_ulonglong,
    event_data: c_ulonglong,
}

/// The second version adds the instance.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Data {
    first: DataV1,
    gi: c_uint,
    ci: c_uint,
}

exports! {
    fn nvmlDeviceGetSupportedEventTypes(device: DeviceHandle, types: OutputPtr<c_ulonglong>) |call| {
        types.put(supported(call, call.gpu(device)?.1))
    }

    fn nvmlEventSetCreate(set: OutputPtr<SetHandle>) |call| {
        set.check()?;
        let number = with_event_sets(|sets| Ok(sets.add(EventSet::default())))?;
        set.put(call.handle(Kind::EventSet, Slot(0), number))
    }

    fn nvmlDeviceRegisterEvents(device: DeviceHandle, types: c_ulonglong, set: SetHandle) |call| {
        let (slot, gpu) = call.gpu(device)?;
        let number = call.number(Kind::EventSet, set)?;
        if types & !supported(call, gpu) != 0 {
            return Err(Code::NotSupported);
        }
        let since = call.world().last_event;
        with_event_sets(|sets| {
            sets.get_mut(number)?.registered.push(Registration { slot, types, since });
            Ok(())
        })
    }

    fn nvmlEventSetWait(set: SetHandle, data: OutputPtr<DataV1>, timeout_ms: c_uint) |call| {
        data.check()?;
        data.put(wait(call, set, timeout_ms)?.first)
    }

    fn nvmlEventSetWait_v2(set: SetHandle, data: OutputPtr<Data>, timeout_ms: c_uint) |call| {
        data.check()?;
        data.put(wait(call, set, timeout_ms)?)
    }

    fn nvmlEventSetFree(set: SetHandle) |call| {
        let number = call.number(Kind::EventSet, set)?;
        with_event_sets(|sets| sets.remove(number))
    }
}

fn supported(call: &Call<'_>, gpu: &Gpu) -> c_ulonglong {
    let when = |has: bool, bits: c_ulonglong| if has { bits } else { 0 };
    let is_new = call.world().driver.branch() >= FIRST_NEW_BRANCH;
    XID | when(gpu.ecc.is_some(), ECC)
        | when(gpu.mig.is_some(), MIG_CONFIG)
        | when(is_new, OTHER_TYPES)
}

fn wait(call: &Call<'_>, set: SetHandle, timeout_ms: c_uint) -> Result<Data, Code> {
    let number = call.number(Kind::EventSet, set)?;
    let timeout = u64::from(timeout_ms).saturating_mul(1_000_000);
    let until = steady_ns().saturating_add(timeout);
    // Before the first check, so that later changes end the sleep.
    let watch = Watch::on(call.state_directory());
    loop {
        let world = call.look_again()?;
        let found = with_event_sets(|sets| Ok(sets.get_mut(number)?.next(&world)))?;
        if let Some((slot, event)) = found {
            return Ok(Data {
                first: DataV1 {
                    device: call.gpu_handle(slot),
                    event_type: event.kind.bit(),
                    event_data: event.data,
                },
                gi: event.gi.unwrap_or(NO_INSTANCE),
                ci: event.ci.unwrap_or(NO_INSTANCE),
            });
        }
        let left = until.saturating_sub(steady_ns());
        if left == 0 {
            return Err(Code::Timeout);
        }
        watch.sleep(Duration::from_nanos(left));
    }
}
