//! GPM: utilization of a GPU or a GPU instance between two samples.
//!
//! Source: `nvml.h` of CUDA 13.3, "NVML GPM": functions, structs, percent as a double, Hopper or newer. Real samples
//! contain counters. Here a sample contains the load when it was taken, and a metric is the mean of both loads.

use std::ffi::c_uint;

use nvml_wrapper_sys::bindings as sys;

use crate::model::{Architecture, Code, Gpu, Slot};

use super::call::Call;
use super::export::exports;
use super::gpm_sample::Sample;
use super::handle::{DeviceHandle, Kind, SampleHandle};
use super::library::with_gpm_samples;
use super::log::steady_ns;
use super::pointer::OutputPtr;

/// `nvmlGpmMetricsGet_t` up to its metrics, with the handle type of this crate. The length of the array depends on the
/// header that a client was compiled with: 98 metrics at first, 210 since CUDA 12.8, 333 since 13.2.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Request {
    version: c_uint,
    count: c_uint,
    first: SampleHandle,
    second: SampleHandle,
}

/// `NVML_GPM_METRICS_GET_VERSION` and `NVML_GPM_SUPPORT_VERSION`, which contain no size.
const VERSION: c_uint = 1;

/// `NVML_GPM_METRIC_MAX` of CUDA 13.3.
const MAX_METRICS: c_uint = 333;

exports! {
    fn nvmlGpmQueryDeviceSupport(device: DeviceHandle, support: OutputPtr<sys::nvmlGpmSupport_t>) |call| {
        let device = call.device(device)?;
        if support.version()? != VERSION {
            return Err(Code::ArgumentVersionMismatch);
        }
        let is_supported = c_uint::from(has_gpm(device.gpu));
        support.put(sys::nvmlGpmSupport_t { version: VERSION, isSupportedDevice: is_supported })
    }

    fn nvmlGpmSampleAlloc(sample: OutputPtr<SampleHandle>) |call| {
        sample.check()?;
        let number = with_gpm_samples(|samples| Ok(samples.add(None)))?;
        sample.put(call.handle(Kind::GpmSample, Slot(0), number))
    }

    fn nvmlGpmSampleFree(sample: SampleHandle) |call| {
        let number = call.number(Kind::GpmSample, sample)?;
        with_gpm_samples(|samples| samples.remove(number))
    }

    /// Accepts the handles of GPUs and of MIG devices, which report their GPU instance.
    fn nvmlGpmSampleGet(device: DeviceHandle, sample: SampleHandle) |call| {
        let device = call.device(device)?;
        take(call, (device.slot, device.mig.map(|mig| mig.gi.id)), sample)
    }

    fn nvmlGpmMigSampleGet(device: DeviceHandle, gpu_instance: c_uint, sample: SampleHandle) |call| {
        let (slot, _) = call.gpu(device)?;
        take(call, (slot, Some(gpu_instance)), sample)
    }

    fn nvmlGpmMetricsGet(request: OutputPtr<Request>) |call| {
        if request.version()? != VERSION {
            return Err(Code::ArgumentVersionMismatch);
        }
        let Request { count, first, second, .. } = request.get()?;
        let between = sample(call, first)?.mean_with(&sample(call, second)?)?;
        if count > MAX_METRICS {
            return Err(Code::InvalidArgument);
        }
        let metrics = request.element(1).cast::<sys::nvmlGpmMetric_t>();
        for at in 0..usize::try_from(count).unwrap_or_default() {
            let metric = metrics.element(at);
            metric.put(answered(between, metric.get()?))?;
        }
        Ok(())
    }
}

fn has_gpm(gpu: &Gpu) -> bool {
    gpu.architecture >= Architecture::Hopper
}

/// Reads a sample of a GPU, or of the GPU instance with this id.
fn take(
    call: &Call<'_>,
    (slot, instance): (Slot, Option<u32>),
    sample: SampleHandle,
) -> Result<(), Code> {
    let number = call.number(Kind::GpmSample, sample)?;
    let gpu = call.world().gpu(slot)?;
    if !has_gpm(gpu) {
        return Err(Code::NotSupported);
    }
    let found = match instance {
        None => None,
        Some(id) => Some(gpu.gi(id).ok_or(Code::InvalidArgument)?.serial),
    };
    let load = call.world().load_of(slot, instance);
    let taken = Sample { slot, instance: found, taken_ns: steady_ns(), load };
    with_gpm_samples(|samples| {
        *samples.get_mut(number)? = Some(taken);
        Ok(())
    })
}

/// The sample in a buffer; `INVALID_ARGUMENT` for an empty buffer.
fn sample(call: &Call<'_>, handle: SampleHandle) -> Result<Sample, Code> {
    let number = call.number(Kind::GpmSample, handle)?;
    with_gpm_samples(|samples| samples.get_mut(number)?.ok_or(Code::InvalidArgument))
}

/// Metrics that the simulator does not know return `NOT_SUPPORTED` individually.
fn answered(
    (compute, memory): (f64, f64),
    requested: sys::nvmlGpmMetric_t,
) -> sys::nvmlGpmMetric_t {
    let value = match requested.metricId {
        sys::nvmlGpmMetricId_t_NVML_GPM_METRIC_GRAPHICS_UTIL
        | sys::nvmlGpmMetricId_t_NVML_GPM_METRIC_SM_UTIL => Some(compute),
        sys::nvmlGpmMetricId_t_NVML_GPM_METRIC_DRAM_BW_UTIL => Some(memory),
        _ => None,
    };
    let code = if value.is_some() { Code::Success } else { Code::NotSupported };
    sys::nvmlGpmMetric_t { nvmlReturn: code.code(), value: value.unwrap_or_default(), ..requested }
}
