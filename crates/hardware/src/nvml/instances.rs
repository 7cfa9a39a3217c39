//! The MIG geometry of a device: its GPU instances and their compute instances.
//!
//! Instances are listed in every observation and their handles dropped at its end, because any change of the geometry,
//! by any process, invalidates them. The UUID of a MIG device is read through the handle in the compute instance's
//! record: searching all MIG devices for it can take seconds on a busy node.

use nvml_wrapper_sys::bindings::{
    nvmlComputeInstance_t, nvmlComputeInstanceInfo_t, nvmlGpuInstance_t, nvmlGpuInstanceInfo_t,
};
use octavo_model::catalog::{InstanceResources, Placement};
use octavo_model::inventory::{Completeness, ComputeInstance, GpuInstance, ReadProblem};
use octavo_model::quantity::Mebibytes;

use crate::error::{DriverError, Remedy};
use crate::nvml::catalog::MigProfiles;
use crate::nvml::session::{
    DeviceHandle, DeviceSession, Session, optional, parse_uuid, privileged, raw,
};

/// Minimum buffer size, above the number of instances of any device. NVML assumes that the buffer is large enough and
/// does not receive its size.
const MIN_CAPACITY: usize = 64;

/// Collects responses and records whether any was missing, in which case the geometry is incomplete.
#[derive(Debug)]
struct GeometryReader<'a> {
    problems: &'a mut Vec<ReadProblem>,
    geometry: Completeness,
}

impl GeometryReader<'_> {
    /// Accepts a list of instances of a profile that the device has. An empty list is valid; a failed call is not.
    fn list<T>(&mut self, result: Result<Vec<T>, DriverError>) -> Result<Vec<T>, DriverError> {
        if let Err(error) = &result {
            self.geometry = Completeness::Partial;
            // For other calls this code means that the device lacks a feature and is not a problem; here the device has
            // the profile.
            if error.remedy() == Remedy::Unavailable {
                self.problems.push((*error).into());
                self.problems.dedup();
            }
        }
        Ok(privileged(result, self.problems)?.unwrap_or_default())
    }

    /// Accepts the record of an instance that was listed and must therefore exist.
    fn record<T>(&mut self, result: Result<T, DriverError>) -> Result<Option<T>, DriverError> {
        if result.is_err() {
            self.geometry = Completeness::Partial;
        }
        privileged(result, self.problems)
    }
}

/// Reads every accessible GPU instance of the device, ordered by ID, and returns whether the list is complete.
pub(super) fn read(
    gpu: DeviceSession<'_>,
    offer: &mut MigProfiles,
    problems: &mut Vec<ReadProblem>,
) -> Result<(Vec<GpuInstance>, Completeness), DriverError> {
    let mut reading = GeometryReader { problems, geometry: Completeness::Complete };
    let catalog = offer.catalog.clone();
    let mut instances = Vec::new();
    for profile in catalog.profiles() {
        let listed = reading.list(gpu_instances(gpu, profile.id, profile.max_count))?;
        for instance in listed {
            let Some(info) = reading.record(gpu_instance_info(*gpu, instance))? else {
                continue;
            };
            instances.push(GpuInstance {
                id: info.id,
                profile_id: info.profileId,
                placement: Placement { start: info.placement.start, size: info.placement.size },
                compute_instances: compute_instances(
                    *gpu,
                    (instance, info.profileId),
                    offer,
                    &mut reading,
                )?,
            });
        }
    }
    for (profile, max_count) in &offer.unknown_profiles {
        let listed = reading.list(gpu_instances(gpu, *profile, *max_count))?;
        if !listed.is_empty() {
            reading.geometry = Completeness::Partial;
        }
    }
    instances.sort_by_key(|instance| instance.id);
    Ok((instances, reading.geometry.max(offer.completeness())))
}

fn gpu_instances(
    gpu: DeviceSession<'_>,
    profile: u32,
    max_count: u32,
) -> Result<Vec<nvmlGpuInstance_t>, DriverError> {
    let mut handles = vec![std::ptr::null_mut(); MIN_CAPACITY.max(max_count as usize)];
    let mut count = capacity_of(&handles);
    // SAFETY: the handle comes from this library; the buffer has space for more instances than the device can have and
    // is writable until the call returns.
    raw!(gpu, nvmlDeviceGetGpuInstances, |f| unsafe {
        f(gpu.handle.0, profile, handles.as_mut_ptr(), &raw mut count)
    })?;
    handles.truncate(count as usize);
    Ok(handles)
}

pub(super) fn gpu_instance_info(
    session: Session<'_>,
    instance: nvmlGpuInstance_t,
) -> Result<nvmlGpuInstanceInfo_t, DriverError> {
    // SAFETY: the structure consists of numbers and a nullable handle, for which zero is valid.
    let mut info: nvmlGpuInstanceInfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: the instance was listed, found or created by this library, and NVML checks that it still exists; `info`
    // is writable until the call returns.
    raw!(session, nvmlGpuInstanceGetInfo, |f| unsafe { f(instance, &raw mut info) })?;
    Ok(info)
}

fn compute_instances(
    session: Session<'_>,
    (instance, profile): (nvmlGpuInstance_t, u32),
    offer: &mut MigProfiles,
    reading: &mut GeometryReader<'_>,
) -> Result<Vec<ComputeInstance>, DriverError> {
    let mut instances = Vec::new();
    for kind in offer.learn_compute_profiles(session, profile, instance)? {
        let mut handles = vec![std::ptr::null_mut(); MIN_CAPACITY.max(kind.max_count as usize)];
        let mut count = capacity_of(&handles);
        // SAFETY: as for GPU instances: the parent was just listed, and the buffer is large enough.
        let result = raw!(session, nvmlGpuInstanceGetComputeInstances, |f| unsafe {
            f(instance, kind.id, handles.as_mut_ptr(), &raw mut count)
        });
        handles.truncate(count as usize);
        for compute in reading.list(result.map(|()| handles))? {
            instances.extend(compute_instance(session, compute, reading)?);
        }
    }
    instances.sort_by_key(|compute| compute.id);
    Ok(instances)
}

fn compute_instance(
    session: Session<'_>,
    instance: nvmlComputeInstance_t,
    reading: &mut GeometryReader<'_>,
) -> Result<Option<ComputeInstance>, DriverError> {
    // SAFETY: the structure consists of numbers and nullable handles, for which zero is valid.
    let mut info: nvmlComputeInstanceInfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: this library has just listed the instance, and NVML checks that it still exists; `info` is writable until
    // the call returns.
    let result =
        raw!(session, nvmlComputeInstanceGetInfo_v2, |f| unsafe { f(instance, &raw mut info) });
    if reading.record(result)?.is_none() {
        return Ok(None);
    }
    let problems = &mut *reading.problems;
    let partition = session.with_handle(DeviceHandle(info.device));
    let uuid = partition.query("nvmlDeviceGetUUID", nvml_wrapper::Device::uuid);
    let attributes =
        partition.query("nvmlDeviceGetAttributes_v2", nvml_wrapper::Device::attributes);
    let attributes = optional(attributes, problems)?;
    Ok(Some(ComputeInstance {
        id: info.id,
        profile_id: info.profileId,
        placement: Some(Placement { start: info.placement.start, size: info.placement.size }),
        uuid: optional(uuid, problems)?.and_then(|text| parse_uuid(&text, problems)),
        memory: attributes.as_ref().map(|attributes| Mebibytes::new(attributes.memory_size_mb)),
        resources: attributes.map(|attributes| InstanceResources {
            gpu_slices: attributes.gpu_instance_slice_count,
            compute_slices: attributes.compute_instance_slice_count,
            multiprocessors: attributes.multiprocessor_count,
            copy_engines: attributes.shared_copy_engine_count,
            decoders: attributes.shared_decoder_count,
            encoders: attributes.shared_encoder_count,
            jpeg_engines: attributes.shared_jpeg_count,
            ofa_engines: attributes.shared_ofa_count,
        }),
    }))
}

fn capacity_of<T>(buffer: &[T]) -> u32 {
    u32::try_from(buffer.len()).unwrap_or(u32::MAX)
}
