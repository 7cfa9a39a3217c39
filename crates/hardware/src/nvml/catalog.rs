//! MIG profiles and placements that a device supports, read from that device.

use nvml_wrapper_sys::bindings::{
    nvmlComputeInstanceProfileInfo_t, nvmlComputeInstanceProfileInfo_v2_t, nvmlGpuInstance_t,
    nvmlGpuInstancePlacement_t, nvmlGpuInstanceProfileInfo_t, nvmlGpuInstanceProfileInfo_v2_t,
};
use octavo_model::catalog::{
    ComputeInstanceProfile, GpuInstanceProfile, InstanceResources, Placement, ProfileCatalog,
};
use octavo_model::inventory::{Completeness, ReadProblem};
use octavo_model::profile::{InstanceShape, ProfileName};
use octavo_model::quantity::Mebibytes;

use crate::error::{Code, DriverError, Remedy};
use crate::nvml::session::{
    DeviceHandle, Session, failed, optional, privileged, raw, struct_version,
};

/// Upper bound of profile indices, in case the driver reports no end.
const MAX_PROFILE_INDEX: u32 = 64;

/// The profile catalog of a device, and the problems in reading it.
#[derive(Debug, Default)]
pub(super) struct MigProfiles {
    profiles: Vec<GpuInstanceProfile>,
    /// ID and maximum count of profiles with unknown names, whose instances cannot be reported.
    unknown_profiles: Vec<(u32, u32)>,
    /// Partial if a profile or its compute instance profiles may be missing.
    completeness: Completeness,
    problems: Vec<ReadProblem>,
}

impl MigProfiles {
    /// Reads every profile and its possible placements. Compute instance profiles can only be read from an instance, so
    /// they are empty until [`Self::learn_compute_profiles`].
    pub(super) fn read(
        session: Session<'_>,
        device: DeviceHandle,
        memory: Option<Mebibytes>,
    ) -> Result<Self, DriverError> {
        let mut offer = Self::default();
        for index in 0..MAX_PROFILE_INDEX {
            let answer = confirm_absence(
                || profile_info(session, device, index),
                || driver_name(session, device, index),
            );
            if matches!(&answer, Err(error) if error.is(Code::INVALID_ARGUMENT)) {
                break;
            }
            if failed(&answer) {
                offer.completeness = Completeness::Partial;
            }
            let Some(told) = privileged(answer, &mut offer.problems)? else {
                continue;
            };
            let Some(name) = offer.name(session, device, (index, &told), memory)? else {
                offer.unknown_profiles.push((told.id, told.instanceCount));
                continue;
            };
            let placements = privileged(placements(session, device, told.id), &mut offer.problems)?;
            offer.profiles.push(GpuInstanceProfile {
                id: told.id,
                index,
                name,
                max_count: told.instanceCount,
                memory: Mebibytes::new(told.memorySizeMB),
                resources: resources(&told),
                placements: placements.unwrap_or_default(),
                compute_profiles: Vec::new(),
            });
        }
        Ok(offer)
    }

    pub(super) fn catalog(&self) -> ProfileCatalog {
        ProfileCatalog::new(self.profiles.clone())
    }

    pub(super) fn profiles(&self) -> &[GpuInstanceProfile] {
        &self.profiles
    }

    pub(super) fn unknown_profiles(&self) -> &[(u32, u32)] {
        &self.unknown_profiles
    }

    pub(super) fn completeness(&self) -> Completeness {
        if self.is_empty() {
            return Completeness::Partial;
        }
        self.completeness
    }

    /// Returns whether the driver reported no profile at all, which is invalid for a device with a MIG mode.
    pub(super) fn is_empty(&self) -> bool {
        self.profiles.is_empty() && self.unknown_profiles.is_empty()
    }

    pub(super) fn problems(&self) -> &[ReadProblem] {
        &self.problems
    }

    /// Returns the compute instance profiles of `profile`. Reads them from `instance` unless they are known from
    /// another instance.
    pub(super) fn learn_compute_profiles(
        &mut self,
        session: Session<'_>,
        profile: u32,
        instance: nvmlGpuInstance_t,
    ) -> Result<Vec<ComputeInstanceProfile>, DriverError> {
        let Some(known) = self.profiles.iter_mut().find(|known| known.id == profile) else {
            return Ok(Vec::new());
        };
        if known.compute_profiles.is_empty() {
            let (told, completeness) = compute_profiles(session, instance, &mut self.problems)?;
            known.compute_profiles = told;
            self.completeness = self.completeness.max(completeness);
        }
        Ok(known.compute_profiles.clone())
    }

    /// Returns the name as NVIDIA's Kubernetes tools compute it, or the driver's own for a profile that those tools do
    /// not know.
    fn name(
        &mut self,
        session: Session<'_>,
        device: DeviceHandle,
        (index, told): (u32, &nvmlGpuInstanceProfileInfo_t),
        memory: Option<Mebibytes>,
    ) -> Result<Option<ProfileName>, DriverError> {
        let shape = InstanceShape {
            profile_index: index,
            compute_slices: None,
            memory: Mebibytes::new(told.memorySizeMB),
        };
        let computed = memory.and_then(|memory| ProfileName::computed(&shape, memory));
        if computed.is_some() {
            return Ok(computed);
        }
        let answer = driver_name(session, device, index);
        let named = optional(answer, &mut self.problems)?.and_then(|name| name.parse().ok());
        if named.is_none() {
            self.problems.push(ReadProblem {
                source: "nvmlDeviceGetGpuInstanceProfileInfo".to_owned(),
                error: format!(
                    "profile {} (index {index}) has a name unknown to us",
                    told.id
                ),
            });
        }
        Ok(named)
    }
}

/// Returns the result of `ask`. The absence of a profile is cached for the driver's life, so it is accepted only if
/// another form of the call, `confirm`, returns the same. Otherwise `ask` runs once more and its result counts.
fn confirm_absence<T, U>(
    ask: impl Fn() -> Result<T, DriverError>,
    confirm: impl FnOnce() -> Result<U, DriverError>,
) -> Result<T, DriverError> {
    let answer = ask();
    let Err(error) = &answer else {
        return answer;
    };
    if !error.is(Code::INVALID_ARGUMENT) && error.remedy() != Remedy::Unavailable {
        return answer;
    }
    match confirm() {
        // Old libraries have only the first form.
        Err(other) if other.code == error.code || other.is(Code::NoSuchFunction) => answer,
        Ok(_) | Err(_) => ask(),
    }
}

/// Uses the first form of the call: the later ones add only the name, and old drivers lack them.
fn profile_info(
    session: Session<'_>,
    device: DeviceHandle,
    index: u32,
) -> Result<nvmlGpuInstanceProfileInfo_t, DriverError> {
    // SAFETY: the structure consists of numbers, for which zero is valid.
    let mut told: nvmlGpuInstanceProfileInfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: the handle comes from this library, and `told` is writable until the call returns.
    raw!(session, nvmlDeviceGetGpuInstanceProfileInfo, |f| unsafe {
        f(device.0, index, &raw mut told)
    })?;
    Ok(told)
}

/// Returns the driver's name of a profile, such as `MIG 1g.10gb+me`, without `MIG `.
fn driver_name(
    session: Session<'_>,
    device: DeviceHandle,
    index: u32,
) -> Result<String, DriverError> {
    // SAFETY: the structure consists of numbers and characters, for which zero is valid.
    let mut told: nvmlGpuInstanceProfileInfo_v2_t = unsafe { std::mem::zeroed() };
    told.version = struct_version::<nvmlGpuInstanceProfileInfo_v2_t>(2);
    // SAFETY: the handle comes from this library; the version tells NVML the size of the structure that it may write.
    raw!(session, nvmlDeviceGetGpuInstanceProfileInfoV, |f| unsafe {
        f(device.0, index, &raw mut told)
    })?;
    let bytes = told.name.iter().map(|c| c.cast_unsigned());
    let text: Vec<u8> = bytes.take_while(|byte| *byte != 0).collect();
    let text = String::from_utf8_lossy(&text);
    Ok(text.strip_prefix("MIG ").unwrap_or(&text).to_owned())
}

fn resources(told: &nvmlGpuInstanceProfileInfo_t) -> InstanceResources {
    InstanceResources {
        gpu_slices: told.sliceCount,
        compute_slices: told.sliceCount,
        multiprocessors: told.multiprocessorCount,
        copy_engines: told.copyEngineCount,
        decoders: told.decoderCount,
        encoders: told.encoderCount,
        jpeg_engines: told.jpegCount,
        ofa_engines: told.ofaCount,
    }
}

/// Returns the possible placements of a profile on an empty device.
fn placements(
    session: Session<'_>,
    device: DeviceHandle,
    profile: u32,
) -> Result<Vec<Placement>, DriverError> {
    const SOME: nvmlGpuInstancePlacement_t = nvmlGpuInstancePlacement_t { start: 0, size: 0 };
    let ask = |room: *mut nvmlGpuInstancePlacement_t, count: *mut u32| {
        raw!(
            session,
            nvmlDeviceGetGpuInstancePossiblePlacements_v2,
            // SAFETY: the handle comes from this library; `room` is null or has space for `count` entries, and both are
            // writable until the call returns.
            |f| unsafe { f(device.0, profile, room, count) }
        )
    };
    let mut count = 0;
    // Without a buffer, the call returns the count; drivers differ in whether they report that as an error.
    match ask(std::ptr::null_mut(), &raw mut count) {
        Err(error) if !error.is(Code::INSUFFICIENT_SIZE) => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut told = vec![SOME; count as usize];
    if count > 0 {
        ask(told.as_mut_ptr(), &raw mut count)?;
    }
    told.truncate(count as usize);
    Ok(told
        .iter()
        .map(|place| Placement {
            start: place.start,
            size: place.size,
        })
        .collect())
}

/// Returns the compute instance profiles of `instance`, with engines shared by all compute instances.
pub(super) fn compute_profiles(
    session: Session<'_>,
    instance: nvmlGpuInstance_t,
    problems: &mut Vec<ReadProblem>,
) -> Result<(Vec<ComputeInstanceProfile>, Completeness), DriverError> {
    let mut profiles = Vec::new();
    let mut completeness = Completeness::Complete;
    for index in 0..MAX_PROFILE_INDEX {
        let answer = confirm_absence(
            || compute_profile_info(session, instance, index),
            || compute_profile_info_v2(session, instance, index),
        );
        if matches!(&answer, Err(error) if error.is(Code::INVALID_ARGUMENT)) {
            break;
        }
        if failed(&answer) {
            completeness = Completeness::Partial;
        }
        if let Some(told) = privileged(answer, problems)? {
            profiles.push(ComputeInstanceProfile {
                id: told.id,
                index,
                slices: told.sliceCount,
                max_count: told.instanceCount,
                multiprocessors: told.multiprocessorCount,
            });
        }
    }
    Ok((profiles, completeness))
}

/// Engine profile in which all compute instances of a GPU instance share its engines.
const SHARED_ENGINES: u32 = 0;

fn compute_profile_info(
    session: Session<'_>,
    instance: nvmlGpuInstance_t,
    index: u32,
) -> Result<nvmlComputeInstanceProfileInfo_t, DriverError> {
    // SAFETY: the structure consists of numbers, for which zero is valid.
    let mut told: nvmlComputeInstanceProfileInfo_t = unsafe { std::mem::zeroed() };
    raw!(
        session,
        nvmlGpuInstanceGetComputeInstanceProfileInfo,
        // SAFETY: the instance was listed by this library in this observation, and NVML checks that it still exists;
        // `told` is writable until the call returns.
        |f| unsafe { f(instance, index, SHARED_ENGINES, &raw mut told) }
    )?;
    Ok(told)
}

/// The second form of the call. Only success or failure is used.
fn compute_profile_info_v2(
    session: Session<'_>,
    instance: nvmlGpuInstance_t,
    index: u32,
) -> Result<(), DriverError> {
    // SAFETY: the structure consists of numbers and characters, for which zero is valid.
    let mut told: nvmlComputeInstanceProfileInfo_v2_t = unsafe { std::mem::zeroed() };
    told.version = struct_version::<nvmlComputeInstanceProfileInfo_v2_t>(2);
    raw!(
        session,
        nvmlGpuInstanceGetComputeInstanceProfileInfoV,
        // SAFETY: the instance is as above; the version tells NVML the size of the structure that it may write.
        |f| unsafe { f(instance, index, SHARED_ENGINES, &raw mut told) }
    )
}
