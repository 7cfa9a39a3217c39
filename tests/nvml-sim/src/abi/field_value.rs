//! `nvmlDeviceGetFieldValues`: values by field number, each with its own return code.

use std::ffi::{c_int, c_uint};

use nvml_wrapper_sys::bindings as sys;

use crate::model::{Code, Gpu};

use super::export::exports;
use super::handle::DeviceHandle;
use super::health::{ecc_errors, remapped};
use super::log;
use super::pointer::OutputPtr;

/// A value of a field.
#[derive(Debug, Clone, Copy)]
enum Value {
    Unsigned(c_uint),
    Wide(u64),
}

/// `nvmlValueType_t`.
const TYPE_UNSIGNED_INT: c_uint = 1;
const TYPE_UNSIGNED_LONG_LONG: c_uint = 3;

exports! {
    fn nvmlDeviceGetFieldValues(device: DeviceHandle, count: c_int, values: OutputPtr<sys::nvmlFieldValue_t>) |call| {
        let (_, gpu) = call.gpu(device)?;
        values.check()?;
        let count = usize::try_from(count).map_err(|_| Code::InvalidArgument)?;
        for at in 0..count {
            let place = values.element(at);
            place.put(answered(gpu, place.get()?))?;
        }
        Ok(())
    }
}

fn answered(gpu: &Gpu, requested: sys::nvmlFieldValue_t) -> sys::nvmlFieldValue_t {
    let found = read(gpu, requested.fieldId, requested.scopeId);
    let (value_type, value) = match found {
        Ok(Value::Unsigned(number)) => (TYPE_UNSIGNED_INT, u64::from(number)),
        Ok(Value::Wide(number)) => (TYPE_UNSIGNED_LONG_LONG, number),
        Err(_) => (TYPE_UNSIGNED_INT, 0),
    };
    sys::nvmlFieldValue_t {
        timestamp: i64::try_from(log::wall_us()).unwrap_or(0),
        latencyUsec: 0,
        valueType: value_type,
        nvmlReturn: found.err().unwrap_or(Code::Success).code(),
        value: sys::nvmlValue_t { ullVal: value },
        ..requested
    }
}

/// Simulated fields, by the numbers of `NVML_FI_DEV_*`.
fn read(gpu: &Gpu, field: c_uint, scope: c_uint) -> Result<Value, Code> {
    let ecc = |pending: bool| {
        let mode = gpu.ecc.ok_or(Code::NotSupported)?;
        let on = if pending { mode.pending } else { mode.current };
        Ok(Value::Unsigned(on.into()))
    };
    let errors = |error, counter| ecc_errors(gpu, error, counter).map(Value::Wide);
    match field {
        1 => ecc(false),
        2 => ecc(true),
        3 => errors(0, 0),
        4 => errors(1, 0),
        5 => errors(0, 1),
        6 => errors(1, 1),
        // An idle H200 reported 35 °C, and 38 °C of its memory.
        82 if has_hbm(gpu) => Ok(Value::Unsigned(gpu.temperature_c.saturating_add(3))),
        90 => link_speed(gpu, None),
        91 => Ok(Value::Unsigned(count(gpu.links.len()))),
        142 => Ok(Value::Unsigned(remapped(gpu)?.correctable)),
        143 => Ok(Value::Unsigned(remapped(gpu)?.uncorrectable)),
        144 => Ok(Value::Unsigned(remapped(gpu)?.pending.into())),
        145 => Ok(Value::Unsigned(remapped(gpu)?.failed.into())),
        147 => Ok(Value::Unsigned(switched_links(gpu))),
        164 => link_speed(gpu, Some(scope)),
        165 => Ok(Value::Unsigned(link(gpu, scope)?.active.into())),
        166 => Ok(Value::Unsigned(link(gpu, scope)?.version)),
        184 => {
            Ok(Value::Unsigned((gpu.mig.is_some() && !gpu.architecture.keeps_mig_mode()).into()))
        }
        185 | 186 => Ok(Value::Unsigned(gpu.power_mw)),
        188 | 189 | 190 | 192 => Ok(Value::Unsigned(gpu.power_limit_mw)),
        199 => Ok(Value::Unsigned(gpu.mig.is_some().into())),
        230 => Ok(Value::Unsigned(gpu.recovery_action)),
        _ => Err(Code::NotSupported),
    }
}

/// GPUs with HBM, by their compute capability: P100, V100, A100 and A30, H100 and H200, B200 and B300.
fn has_hbm(gpu: &Gpu) -> bool {
    matches!(gpu.compute_capability, (6..=9, 0) | (10, _))
}

fn link(gpu: &Gpu, number: c_uint) -> Result<&crate::model::NvLink, Code> {
    let at = usize::try_from(number).map_err(|_| Code::InvalidArgument)?;
    gpu.links.get(at).ok_or(Code::InvalidArgument)
}

/// Speed of a link, or of the first active one, in MB/s; by generation: 25.781, 26.562 (A100 and H100), 53.125 GB/s.
fn link_speed(gpu: &Gpu, number: Option<c_uint>) -> Result<Value, Code> {
    let link = match number {
        Some(number) => link(gpu, number)?,
        None => gpu.links.first().ok_or(Code::NotSupported)?,
    };
    Ok(Value::Unsigned(match link.version {
        0..=2 => 25_781,
        3 | 4 => 26_562,
        _ => 53_125,
    }))
}

fn switched_links(gpu: &Gpu) -> c_uint {
    let switched = gpu.links.iter().filter(|link| link.active && link.remote.is_switch());
    count(switched.count())
}

fn count(number: usize) -> c_uint {
    c_uint::try_from(number).unwrap_or(c_uint::MAX)
}
