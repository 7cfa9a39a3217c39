//! Utilization of GPU instances, through GPM (GPU performance monitoring).
//!
//! NVML has no utilization rates for partitions and partitioned GPUs (`nvml.h`, `nvmlDeviceGetUtilizationRates`). From
//! Hopper on, GPM has counters per GPU instance: the driver calculates the utilization from two samples of them. The
//! functions exist since R525 (`nvml.h` of CUDA 12.0). A vGPU has GPM only if it is a whole GPU instance (`nvml.h`, "NVML
//! GPM").
//!
//! Each reading takes one sample per GPU instance and compares it with that of the previous reading. The first reading
//! of an instance reports nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use nvml_wrapper::Nvml;
use nvml_wrapper_sys::bindings::{
    NVML_GPM_METRICS_GET_VERSION, NVML_GPM_SUPPORT_VERSION,
    nvmlGpmMetricId_t_NVML_GPM_METRIC_GRAPHICS_UTIL, nvmlGpmMetricId_t_NVML_GPM_METRIC_SM_UTIL,
    nvmlGpmMetricsGet_t, nvmlGpmSample_t, nvmlGpmSupport_t,
};
use octavo_model::id::PciAddress;
use octavo_model::inventory::GpuInstance;
use octavo_model::reading::Percent;
use tokio::time::Instant;

use super::session::{DeviceSession, Session, raw};
use crate::calls::CallRecord;
use crate::error::{DriverError, NvmlCode, Remedy};

/// Metrics whose larger value is the utilization: the share of time in which a program ran, and the mean share of busy
/// multiprocessors, in percent of the GPU instance (`nvml.h`, `nvmlGpmMetricId_t`). The first alone can be too low: DCGM
/// reports at most 50 % for a busy `2g` and 33 % for a `3g` instance of an A100 with one compute instance (NVIDIA/DCGM issue
/// 138). While a multiprocessor is busy, a program runs, so the second is a lower limit of the first.
const METRICS: [u32; METRIC_COUNT as usize] =
    [nvmlGpmMetricId_t_NVML_GPM_METRIC_GRAPHICS_UTIL, nvmlGpmMetricId_t_NVML_GPM_METRIC_SM_UTIL];
const METRIC_COUNT: u32 = 2;

/// Minimum time between two samples: the driver refreshes its counters every 100 ms (`nvml.h`, `nvmlGpmMigSampleGet`).
const MIN_WINDOW: Duration = Duration::from_millis(200);

/// Samples of the GPU instances of one device.
#[derive(Debug, Default)]
pub(super) struct GpmSampler {
    /// True if the device has GPM; `None` until the driver has reported it.
    is_supported: Option<bool>,
    /// The last sample of each GPU instance, by its ID.
    last: BTreeMap<u32, LastSample>,
    /// A buffer for the next sample.
    spare: Option<SampleBuffer>,
}

#[derive(Debug)]
struct LastSample {
    /// The instance at that time. The driver reuses IDs, and counters of different instances are not comparable.
    instance: GpuInstance,
    buffer: SampleBuffer,
    taken: Instant,
    /// Utilization until then.
    utilization: Option<Percent>,
}

impl GpmSampler {
    /// Returns the utilization of each of `instances` since its previous sample, by ID. Omits those without a previous
    /// sample, and all of a device without GPM. An error means that the whole library fails.
    ///
    /// An instance that was replaced by one of the same profile, placement and UUID since the last observation is not
    /// distinguished from it, because UUIDs can recur.
    pub(super) fn read(
        &mut self,
        gpu: DeviceSession<'_>,
        instances: &[GpuInstance],
        now: Instant,
    ) -> Result<BTreeMap<u32, Percent>, DriverError> {
        self.last.retain(|_, last| instances.contains(&last.instance));
        let mut found = BTreeMap::new();
        if instances.is_empty() || !self.is_supported(gpu)? {
            return Ok(found);
        }
        // Without a compute instance, nothing can run.
        for instance in instances.iter().filter(|one| !one.compute_instances.is_empty()) {
            if let Some(utilization) = self.read_one(gpu, instance, now)? {
                found.insert(instance.id, utilization);
            }
        }
        Ok(found)
    }

    fn is_supported(&mut self, gpu: DeviceSession<'_>) -> Result<bool, DriverError> {
        if let Some(known) = self.is_supported {
            return Ok(known);
        }
        let mut support =
            nvmlGpmSupport_t { version: NVML_GPM_SUPPORT_VERSION, isSupportedDevice: 0 };
        // SAFETY: the handle comes from this library, and `support` is writable until the call returns.
        let result =
            raw!(gpu, nvmlGpmQueryDeviceSupport, |f| unsafe { f(gpu.handle.0, &raw mut support) });
        match result {
            Ok(()) => self.is_supported = Some(support.isSupportedDevice != 0),
            Err(error) if error.remedy() == Remedy::Unavailable => self.is_supported = Some(false),
            // The next reading asks again.
            Err(error) => return ignore_unless_fatal(error).map(|()| false),
        }
        Ok(self.is_supported.unwrap_or_default())
    }

    fn read_one(
        &mut self,
        gpu: DeviceSession<'_>,
        instance: &GpuInstance,
        now: Instant,
    ) -> Result<Option<Percent>, DriverError> {
        let previous = self.last.get(&instance.id);
        if let Some(last) = previous.filter(|last| !is_window(last.taken, now)) {
            return Ok(last.utilization);
        }
        let sampled = self.spare.take().map_or_else(|| SampleBuffer::new(gpu), Ok);
        let sampled = sampled.and_then(|buffer| buffer.fill(gpu, instance.id).map(|()| buffer));
        let buffer = match sampled {
            Ok(buffer) => buffer,
            // The instance may have been destroyed, or the sample may be the first after an error.
            Err(error) => {
                self.last.remove(&instance.id);
                return ignore_unless_fatal(error).map(|()| None);
            }
        };
        let previous = self.last.remove(&instance.id);
        let utilization = match &previous {
            None => None,
            Some(previous) => match difference(*gpu, &previous.buffer, &buffer) {
                Ok(utilization) => utilization,
                Err(error) => ignore_unless_fatal(error).map(|()| None)?,
            },
        };
        self.spare = previous.map(|previous| previous.buffer);
        let last = LastSample { instance: instance.clone(), buffer, taken: now, utilization };
        self.last.insert(instance.id, last);
        Ok(utilization)
    }
}

/// Ignores an error, unless it concerns the whole library.
fn ignore_unless_fatal(error: DriverError) -> Result<(), DriverError> {
    if error.remedy() == Remedy::Reinitialize { Err(error) } else { Ok(()) }
}

/// Returns whether counters can have changed between two samples.
fn is_window(first: Instant, second: Instant) -> bool {
    second.saturating_duration_since(first) >= MIN_WINDOW
}

/// Returns the utilization between two samples; `None` if the driver reports none of the metrics.
fn difference(
    session: Session<'_>,
    first: &SampleBuffer,
    second: &SampleBuffer,
) -> Result<Option<Percent>, DriverError> {
    // SAFETY: the structure consists of numbers and nullable pointers, for which zero is valid.
    let mut request: nvmlGpmMetricsGet_t = unsafe { std::mem::zeroed() };
    request.version = NVML_GPM_METRICS_GET_VERSION;
    request.numMetrics = METRIC_COUNT;
    request.sample1 = first.handle;
    request.sample2 = second.handle;
    for (metric, id) in request.metrics.iter_mut().zip(METRICS) {
        metric.metricId = id;
    }
    // SAFETY: this library allocated and filled both samples, which are not freed before the call returns; `request` is
    // writable until then. The length of its array differs between headers of the same version, so the library accesses
    // the requested number of metrics only.
    raw!(session, nvmlGpmMetricsGet, |f| unsafe { f(&raw mut request) })?;
    let answered = request.metrics.iter().take(METRICS.len());
    let values = answered.filter(|metric| metric.nvmlReturn == 0).map(|metric| metric.value);
    Ok(utilization(values))
}

/// Returns the largest of these percentages, rounded and limited to 100: drivers have reported more for partitions
/// (NVIDIA/DCGM issue 152).
fn utilization(values: impl Iterator<Item = f64>) -> Option<Percent> {
    let largest = values.filter(|value| value.is_finite()).reduce(f64::max)?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is a whole number from 0 to 100"
    )]
    let percent = largest.clamp(0.0, 100.0).round() as u8;
    Some(Percent(percent))
}

/// A sample buffer of the library, freed exactly once. It holds the library, which therefore outlives it.
#[derive(Debug)]
struct SampleBuffer {
    handle: nvmlGpmSample_t,
    nvml: Arc<Nvml>,
    calls: CallRecord,
    device: Option<PciAddress>,
}

// SAFETY: the buffer is an object of the library, bound to no thread; one thread uses it at a time, because only the owner
// of the sampler accesses it.
unsafe impl Send for SampleBuffer {}

impl SampleBuffer {
    fn new(gpu: DeviceSession<'_>) -> Result<Self, DriverError> {
        if gpu.lib().nvmlGpmSampleFree.is_err() {
            let code = NvmlCode::NoSuchFunction;
            return Err(DriverError { call: "nvmlGpmSampleFree", code });
        }
        let mut handle: nvmlGpmSample_t = std::ptr::null_mut();
        // SAFETY: `handle` is writable until the call returns.
        raw!(gpu, nvmlGpmSampleAlloc, |f| unsafe { f(&raw mut handle) })?;
        let (nvml, calls, device) = gpu.owned();
        Ok(Self { handle, nvml, calls, device })
    }

    /// Reads a sample of the GPU instance with this ID.
    fn fill(&self, gpu: DeviceSession<'_>, instance: u32) -> Result<(), DriverError> {
        // SAFETY: device and buffer come from this library, which checks that the instance exists.
        raw!(gpu, nvmlGpmMigSampleGet, |f| unsafe { f(gpu.handle.0, instance, self.handle) })
    }
}

impl Drop for SampleBuffer {
    fn drop(&mut self) {
        if let Ok(free) = &self.nvml.lib().nvmlGpmSampleFree {
            // SAFETY: the buffer was allocated by this library and is freed only here; the library is still loaded.
            let free = || unsafe { free(self.handle) };
            let _ignored = self.calls.record("nvmlGpmSampleFree", self.device, free);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn utilization_is_the_largest_value_in_whole_percent() {
        let of = |values: &[f64]| utilization(values.iter().copied()).map(|percent| percent.0);
        assert_eq!(of(&[33.3, 99.5]), Some(100));
        assert_eq!(of(&[12.4, 0.0]), Some(12));
        assert_eq!(of(&[0.0, f64::NAN]), Some(0));
        assert_eq!(of(&[f64::NAN, f64::INFINITY]), None);
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn counters_change_only_after_the_refresh_of_the_driver() {
        let first = Instant::now();
        assert!(!is_window(first, first));
        assert!(!is_window(first, first + Duration::from_millis(100)));
        assert!(is_window(first, first + Duration::from_secs(1)));
        assert!(!is_window(first + Duration::from_secs(1), first));
    }

    proptest! {
        #[test]
        fn utilization_is_never_above_100_percent(values in prop::collection::vec(any::<f64>(), 0..4)) {
            let found = utilization(values.iter().copied());
            prop_assert!(found.is_none_or(|percent| percent.0 <= 100));
            prop_assert_eq!(found.is_some(), values.iter().any(|value| value.is_finite()));
        }
    }
}
