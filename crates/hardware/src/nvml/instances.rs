//! The MIG geometry of a device: its GPU instances and their compute instances.
//!
//! Instances are listed in every observation and their handles dropped at its end, because any change of the geometry,
//! by any process, invalidates them. The UUID of a MIG device is read through the handle in the compute instance's
//! record: searching all MIG devices for it can take seconds on a busy node.

use nvml_wrapper_sys::bindings::{
    nvmlComputeInstance_t, nvmlComputeInstanceInfo_t, nvmlGpuInstance_t, nvmlGpuInstanceInfo_t,
};
use octavo_model::catalog::{InstanceResources, Placement};
use octavo_model::id::MigUuid;
use octavo_model::inventory::{Completeness, ComputeInstance, GpuInstance, ReadProblem};
use octavo_model::quantity::Mebibytes;

use crate::error::{DriverError, Remedy};
use crate::nvml::catalog::MigProfiles;
use crate::nvml::session::{DeviceHandle, Session, optional, privileged, raw};

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
    fn list<T>(&mut self, answer: Result<Vec<T>, DriverError>) -> Result<Vec<T>, DriverError> {
        if let Err(error) = &answer {
            self.geometry = Completeness::Partial;
            // For other calls this code means that the device lacks a feature and is not a problem; here the device has
            // the profile.
            if error.remedy() == Remedy::Unavailable {
                self.problems.push(ReadProblem {
                    source: error.call.to_owned(),
                    error: error.code.to_string(),
                });
                self.problems.dedup();
            }
        }
        Ok(privileged(answer, self.problems)?.unwrap_or_default())
    }

    /// Accepts the record of an instance that was listed and must therefore exist.
    fn record<T>(&mut self, answer: Result<T, DriverError>) -> Result<Option<T>, DriverError> {
        if answer.is_err() {
            self.geometry = Completeness::Partial;
        }
        privileged(answer, self.problems)
    }
}

/// Reads every accessible GPU instance of the device, ordered by ID, and returns whether the list is complete.
pub(super) fn read(
    session: Session<'_>,
    device: DeviceHandle,
    offer: &mut MigProfiles,
    problems: &mut Vec<ReadProblem>,
) -> Result<(Vec<GpuInstance>, Completeness), DriverError> {
    let mut reading = GeometryReader {
        problems,
        geometry: Completeness::Complete,
    };
    let profiles: Vec<(u32, u32)> = offer
        .profiles()
        .iter()
        .map(|profile| (profile.id, profile.max_count))
        .collect();
    let mut instances = Vec::new();
    for (profile, max_count) in profiles {
        let listed = reading.list(gpu_instances(session, device, profile, max_count))?;
        for instance in listed {
            let Some(told) = reading.record(gpu_instance_info(session, instance))? else {
                continue;
            };
            instances.push(GpuInstance {
                id: told.id,
                profile_id: told.profileId,
                placement: Placement {
                    start: told.placement.start,
                    size: told.placement.size,
                },
                compute_instances: compute_instances(
                    session,
                    (instance, told.profileId),
                    offer,
                    &mut reading,
                )?,
            });
        }
    }
    for (profile, max_count) in offer.unknown_profiles() {
        let listed = reading.list(gpu_instances(session, device, *profile, *max_count))?;
        if !listed.is_empty() {
            reading.geometry = Completeness::Partial;
        }
    }
    instances.sort_by_key(|instance| instance.id);
    Ok((instances, reading.geometry.max(offer.completeness())))
}

fn gpu_instances(
    session: Session<'_>,
    device: DeviceHandle,
    profile: u32,
    max_count: u32,
) -> Result<Vec<nvmlGpuInstance_t>, DriverError> {
    let mut told = vec![std::ptr::null_mut(); MIN_CAPACITY.max(max_count as usize)];
    let mut count = capacity_of(&told);
    // SAFETY: the handle comes from this library; the buffer has space for more instances than the device can have and
    // is writable until the call returns.
    raw!(session, nvmlDeviceGetGpuInstances, |f| unsafe {
        f(device.0, profile, told.as_mut_ptr(), &raw mut count)
    })?;
    told.truncate(count as usize);
    Ok(told)
}

pub(super) fn gpu_instance_info(
    session: Session<'_>,
    instance: nvmlGpuInstance_t,
) -> Result<nvmlGpuInstanceInfo_t, DriverError> {
    // SAFETY: the structure consists of numbers and a nullable handle, for which zero is valid.
    let mut told: nvmlGpuInstanceInfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: the instance was listed, found or created by this library, and NVML checks that it still exists; `told`
    // is writable until the call returns.
    raw!(session, nvmlGpuInstanceGetInfo, |f| unsafe {
        f(instance, &raw mut told)
    })?;
    Ok(told)
}

fn compute_instances(
    session: Session<'_>,
    (instance, profile): (nvmlGpuInstance_t, u32),
    offer: &mut MigProfiles,
    reading: &mut GeometryReader<'_>,
) -> Result<Vec<ComputeInstance>, DriverError> {
    let mut instances = Vec::new();
    for kind in offer.learn_compute_profiles(session, profile, instance)? {
        let mut told = vec![std::ptr::null_mut(); MIN_CAPACITY.max(kind.max_count as usize)];
        let mut count = capacity_of(&told);
        // SAFETY: as for GPU instances: the parent was just listed, and the buffer is large enough.
        let answer = raw!(session, nvmlGpuInstanceGetComputeInstances, |f| unsafe {
            f(instance, kind.id, told.as_mut_ptr(), &raw mut count)
        });
        told.truncate(count as usize);
        for compute in reading.list(answer.map(|()| told))? {
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
    let mut told: nvmlComputeInstanceInfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: this library has just listed the instance, and NVML checks that it still exists; `told` is writable until
    // the call returns.
    let answer = raw!(session, nvmlComputeInstanceGetInfo_v2, |f| unsafe {
        f(instance, &raw mut told)
    });
    if reading.record(answer)?.is_none() {
        return Ok(None);
    }
    let problems = &mut *reading.problems;
    let device = session.device(DeviceHandle(told.device));
    let uuid = session.wrapped("nvmlDeviceGetUUID", || device.uuid());
    let attributes = session.wrapped("nvmlDeviceGetAttributes_v2", || device.attributes());
    let attributes = optional(attributes, problems)?;
    Ok(Some(ComputeInstance {
        id: told.id,
        profile_id: told.profileId,
        placement: Some(Placement {
            start: told.placement.start,
            size: told.placement.size,
        }),
        uuid: optional(uuid, problems)?.and_then(|text| mig_uuid(&text, problems)),
        memory: attributes
            .as_ref()
            .map(|told| Mebibytes::new(told.memory_size_mb)),
        resources: attributes.map(|told| InstanceResources {
            gpu_slices: told.gpu_instance_slice_count,
            compute_slices: told.compute_instance_slice_count,
            multiprocessors: told.multiprocessor_count,
            copy_engines: told.shared_copy_engine_count,
            decoders: told.shared_decoder_count,
            encoders: told.shared_encoder_count,
            jpeg_engines: told.shared_jpeg_count,
            ofa_engines: told.shared_ofa_count,
        }),
    }))
}

fn mig_uuid(text: &str, problems: &mut Vec<ReadProblem>) -> Option<MigUuid> {
    match text.parse() {
        Ok(uuid) => Some(uuid),
        Err(error) => {
            problems.push(ReadProblem {
                source: "nvmlDeviceGetUUID".to_owned(),
                error: octavo_toolkit::error::chain(&error),
            });
            None
        }
    }
}

fn capacity_of<T>(room: &[T]) -> u32 {
    u32::try_from(room.len()).unwrap_or(u32::MAX)
}
