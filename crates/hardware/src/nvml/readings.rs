//! Readings: values that change constantly. They have their own interval, so that they do not delay observations.

use nvml_wrapper::enum_wrappers::device::{Clock, EccCounter, MemoryError, TemperatureSensor};
use nvml_wrapper_sys::bindings::{
    field_id, nvmlDevice_t, nvmlMemory_t, nvmlMemory_v2_t, nvmlProcessUtilizationSample_t,
};
use octavo_model::inventory::{Device, MigMode, ReadProblem};
use octavo_model::quantity::Mebibytes;
use octavo_model::reading::{
    DeviceMetrics, MemoryUse, PartitionReading, Percent, ProcessUtilization, Reading,
};
use tokio::time::Instant;

use super::device::KnownDevice;
use super::gpm::GpmSampler;
use super::processes;
use super::session::{DeviceHandle, DeviceSession, Session, raw, struct_version, unsigned_field};
use crate::error::{DriverError, NvmlCode, Remedy};

/// Maximum number of processes per device.
const MAX_SAMPLES: u32 = 1024;

/// Reads the current values of one device. `device` is its last observation. An error means that the whole library
/// fails.
pub(super) fn read(
    session: Session<'_>,
    known: &mut KnownDevice,
    device: &Device,
) -> Result<Reading, DriverError> {
    let gpu = session.for_device(known.pci).with_handle(known.handle);
    let state = device.mig.state();
    let is_partitioned = state.is_some_and(|state| state.current == MigMode::Enabled);
    let mut problems: Vec<ReadProblem> = Vec::new();
    let listed = processes::read(gpu, &mut problems);
    let listed = available(listed)?.filter(|_| problems.is_empty());
    let mut reading = Reading {
        pci: known.pci,
        uuid: device.uuid.clone(),
        index: device.index,
        minor: device.minor,
        product_name: device.product_name.clone(),
        memory: available(memory(gpu))?,
        is_partitioned,
        partitions: Vec::new(),
        processes: listed,
        process_utilization: Vec::new(),
        metrics: vitals(gpu)?,
    };
    if is_partitioned {
        reading.partitions = partitions(gpu, device, &mut known.gpm)?;
    } else {
        known.gpm = GpmSampler::default();
        reading.metrics = utilization(gpu, reading.metrics)?;
        reading.process_utilization = available(busy(gpu))?.unwrap_or_default();
    }
    Ok(reading)
}

/// Converts errors to `None`, except for those of the whole library.
fn available<T>(result: Result<T, DriverError>) -> Result<Option<T>, DriverError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.remedy() == Remedy::Reinitialize => Err(error),
        Err(_) => Ok(None),
    }
}

/// Prefers the second form of the call, which separates the driver's reserved memory. The first form, which every
/// driver has, counts it as used.
fn memory(gpu: DeviceSession<'_>) -> Result<MemoryUse, DriverError> {
    let mut now = nvmlMemory_v2_t {
        version: struct_version::<nvmlMemory_v2_t>(2),
        total: 0,
        reserved: 0,
        free: 0,
        used: 0,
    };
    // SAFETY: the handle comes from this library; the version tells NVML the size of the structure that it may write.
    let result =
        raw!(gpu, nvmlDeviceGetMemoryInfo_v2, |f| unsafe { f(gpu.handle.0, &raw mut now) });
    let info = match result {
        Ok(()) => MemoryUse {
            total: Mebibytes::from_bytes(now.total),
            used: Mebibytes::from_bytes(now.used),
            reserved: Mebibytes::from_bytes(now.reserved),
        },
        Err(error) if error.remedy() == Remedy::Unavailable => {
            // nvml-wrapper only has the second form.
            let mut old = nvmlMemory_t { total: 0, free: 0, used: 0 };
            // SAFETY: the handle comes from this library, and `old` is writable until the call returns.
            raw!(gpu, nvmlDeviceGetMemoryInfo, |f| unsafe { f(gpu.handle.0, &raw mut old) })?;
            MemoryUse {
                total: Mebibytes::from_bytes(old.total),
                used: Mebibytes::from_bytes(old.used),
                reserved: Mebibytes::default(),
            }
        }
        Err(error) => return Err(error),
    };
    // Boards that share the host's memory report zero.
    if info.total.get() == 0 {
        return Err(DriverError {
            call: "nvmlDeviceGetMemoryInfo_v2",
            code: NvmlCode::NOT_SUPPORTED,
        });
    }
    Ok(info)
}

/// Reads all partitions that the driver lists. Their handles are found by index and matched with the last observation
/// by UUID. If that has no partitions because NVML lists instances to privileged processes only, as in the container of
/// a pod, every partition with a handle is returned.
fn partitions(
    gpu: DeviceSession<'_>,
    device: &Device,
    sampler: &mut GpmSampler,
) -> Result<Vec<PartitionReading>, DriverError> {
    let mut found = Vec::new();
    let instances = device.mig.state().map_or(&[][..], |state| &state.gpu_instances);
    let is_unlisted = instances.is_empty() && !device.mig.is_fully_known();
    for instance in instances {
        for compute in &instance.compute_instances {
            let Some(uuid) = &compute.uuid else { continue };
            found.push(PartitionReading {
                gpu_instance: instance.id,
                compute_instance: compute.id,
                uuid: uuid.as_str().to_owned(),
                profile: device.profile_of(instance, compute).map(|profile| profile.to_string()),
                memory: None,
                compute: None,
            });
        }
    }
    let most = gpu.query("nvmlDeviceGetMaxMigDeviceCount", nvml_wrapper::Device::mig_device_count);
    let mut left = found.len();
    for index in 0..available(most)?.unwrap_or_default() {
        if left == 0 && !is_unlisted {
            break;
        }
        // Not every index has a partition.
        let Some(partition) = available(partition(gpu, index))? else {
            continue;
        };
        let uuid = available(partition.query("nvmlDeviceGetUUID", nvml_wrapper::Device::uuid))?;
        let mut all = found.iter_mut();
        if let Some(one) = all.find(|one| Some(&one.uuid) == uuid.as_ref()) {
            one.memory = available(memory(partition))?;
            left = left.saturating_sub(1);
        } else if let (Some(uuid), true) = (uuid, is_unlisted) {
            found.extend(available(unlisted_partition(partition, uuid))?);
        }
    }
    found.sort_by_key(|one| (one.gpu_instance, one.compute_instance));
    let utilization = sampler.read(gpu, instances, Instant::now())?;
    for one in &mut found {
        one.compute = utilization.get(&one.gpu_instance).copied();
    }
    Ok(found)
}

/// Reads a partition that the last observation does not have.
fn unlisted_partition(
    partition: DeviceSession<'_>,
    uuid: String,
) -> Result<PartitionReading, DriverError> {
    let (mut gpu_instance, mut compute_instance) = (0, 0);
    // SAFETY: the handle comes from this library, and `gpu_instance` is writable until the call returns.
    raw!(partition, nvmlDeviceGetGpuInstanceId, |f| unsafe {
        f(partition.handle.0, &raw mut gpu_instance)
    })?;
    // SAFETY: as above, for `compute_instance`.
    raw!(partition, nvmlDeviceGetComputeInstanceId, |f| unsafe {
        f(partition.handle.0, &raw mut compute_instance)
    })?;
    let memory = available(memory(partition))?;
    let name = available(partition.query("nvmlDeviceGetName", nvml_wrapper::Device::name))?;
    Ok(PartitionReading {
        gpu_instance,
        compute_instance,
        uuid,
        profile: name.as_deref().and_then(profile_in_name).map(str::to_owned),
        memory,
        compute: None,
    })
}

/// Returns the profile in the name of a partition, such as `NVIDIA A100-SXM4-40GB MIG 1g.5gb`. Unlike the properties of instances, every
/// process can read it.
fn profile_in_name(name: &str) -> Option<&str> {
    name.rsplit_once(" MIG ").map(|(_, profile)| profile.trim()).filter(|one| !one.is_empty())
}

fn partition(gpu: DeviceSession<'_>, index: u32) -> Result<DeviceSession<'_>, DriverError> {
    let mut partition: nvmlDevice_t = std::ptr::null_mut();
    // SAFETY: the handle comes from this library, and `partition` is writable until the call returns.
    raw!(gpu, nvmlDeviceGetMigDeviceHandleByIndex, |f| unsafe {
        f(gpu.handle.0, index, &raw mut partition)
    })?;
    Ok(gpu.with_handle(DeviceHandle(partition)))
}

fn utilization(
    gpu: DeviceSession<'_>,
    vitals: DeviceMetrics,
) -> Result<DeviceMetrics, DriverError> {
    let rates = gpu.query("nvmlDeviceGetUtilizationRates", nvml_wrapper::Device::utilization_rates);
    let rates = available(rates)?;
    let encoder =
        gpu.query("nvmlDeviceGetEncoderUtilization", nvml_wrapper::Device::encoder_utilization);
    let decoder =
        gpu.query("nvmlDeviceGetDecoderUtilization", nvml_wrapper::Device::decoder_utilization);
    Ok(DeviceMetrics {
        compute: rates.as_ref().map(|rates| Percent::saturating_from(rates.gpu)),
        memory: rates.as_ref().map(|rates| Percent::saturating_from(rates.memory)),
        encoder: available(encoder)?
            .map(|utilization| Percent::saturating_from(utilization.utilization)),
        decoder: available(decoder)?
            .map(|utilization| Percent::saturating_from(utilization.utilization)),
        ..vitals
    })
}

fn vitals(gpu: DeviceSession<'_>) -> Result<DeviceMetrics, DriverError> {
    let errors = |kind| {
        gpu.query("nvmlDeviceGetTotalEccErrors", |device| {
            device.total_ecc_errors(kind, EccCounter::Volatile)
        })
    };
    let clock = |clock| gpu.query("nvmlDeviceGetClockInfo", |device| device.clock_info(clock));
    Ok(DeviceMetrics {
        power_mw: available(
            gpu.query("nvmlDeviceGetPowerUsage", nvml_wrapper::Device::power_usage),
        )?,
        energy_mj: available(gpu.query("nvmlDeviceGetTotalEnergyConsumption", |device| {
            device.total_energy_consumption()
        }))?,
        temperature: available(gpu.query("nvmlDeviceGetTemperature", |device| {
            device.temperature(TemperatureSensor::Gpu)
        }))?,
        memory_temperature: available(memory_temperature(gpu))?,
        compute_clock: available(clock(Clock::SM))?,
        memory_clock: available(clock(Clock::Memory))?,
        pcie_replays: available(
            gpu.query("nvmlDeviceGetPcieReplayCounter", nvml_wrapper::Device::pcie_replay_counter),
        )?,
        corrected_errors: available(errors(MemoryError::Corrected))?,
        uncorrected_errors: available(errors(MemoryError::Uncorrected))?,
        remapped_rows: available(super::health::remapped_rows(gpu))?,
        ..DeviceMetrics::default()
    })
}

/// Reads the memory temperature. Boards without a sensor report zero or an error.
fn memory_temperature(gpu: DeviceSession<'_>) -> Result<u32, DriverError> {
    match unsigned_field(gpu, field_id::NVML_FI_DEV_MEMORY_TEMP)? {
        (0, degrees @ 1..) => Ok(degrees),
        _ => Err(DriverError { call: "nvmlDeviceGetFieldValues", code: NvmlCode::NOT_SUPPORTED }),
    }
}

/// Returns the latest utilization sample of each process. The driver retains samples of the last few seconds.
fn busy(gpu: DeviceSession<'_>) -> Result<Vec<ProcessUtilization>, DriverError> {
    const BLANK: nvmlProcessUtilizationSample_t = nvmlProcessUtilizationSample_t {
        pid: 0,
        timeStamp: 0,
        smUtil: 0,
        memUtil: 0,
        encUtil: 0,
        decUtil: 0,
    };
    let mut count = MAX_SAMPLES;
    let mut samples = vec![BLANK; count as usize];
    // SAFETY: the handle comes from this library; `samples` has space for `count` entries, and both outlive the call.
    raw!(gpu, nvmlDeviceGetProcessUtilization, |f| unsafe {
        f(gpu.handle.0, samples.as_mut_ptr(), &raw mut count, 0)
    })?;
    samples.truncate(count as usize);
    samples.sort_unstable_by_key(|sample| (sample.pid, std::cmp::Reverse(sample.timeStamp)));
    samples.dedup_by_key(|sample| sample.pid);
    let known = samples.iter().filter(|sample| sample.pid != 0);
    Ok(known
        .map(|sample| ProcessUtilization {
            pid: sample.pid,
            compute: Percent::saturating_from(sample.smUtil),
        })
        .collect())
}
