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

use crate::error::{DriverError, NvmlCode, Remedy};
use crate::nvml::session::{
    DeviceSession, Session, failed, optional, privileged, raw, struct_version,
};

/// Upper bound of profile indices, in case the driver reports no end.
const MAX_PROFILE_INDEX: u32 = 64;

/// The profile catalog of a device, and the problems in reading it.
#[derive(Debug, Clone, Default)]
pub(super) struct MigProfiles {
    /// The profiles with known names.
    pub(super) catalog: ProfileCatalog,
    /// ID and maximum count of profiles with unknown names, whose instances cannot be reported.
    pub(super) unknown_profiles: Vec<(u32, u32)>,
    /// Partial if a profile or its compute instance profiles may be missing.
    completeness: Completeness,
    pub(super) problems: Vec<ReadProblem>,
}

impl MigProfiles {
    /// Reads every profile and its possible placements. Compute instance profiles can only be read from an instance, so
    /// they are empty until [`Self::learn_compute_profiles`].
    pub(super) fn read(
        gpu: DeviceSession<'_>,
        memory: Option<Mebibytes>,
    ) -> Result<Self, DriverError> {
        let mut offer = Self::default();
        let mut profiles = Vec::new();
        for index in 0..MAX_PROFILE_INDEX {
            let result = confirm_absence(|| profile_info(gpu, index), || driver_name(gpu, index));
            if matches!(&result, Err(error) if error.is(NvmlCode::INVALID_ARGUMENT)) {
                break;
            }
            if failed(&result) {
                offer.completeness = Completeness::Partial;
            }
            let Some(info) = privileged(result, &mut offer.problems)? else {
                continue;
            };
            let Some(name) = offer.name(gpu, (index, &info), memory)? else {
                offer.unknown_profiles.push((info.id, info.instanceCount));
                continue;
            };
            let placements = privileged(placements(gpu, info.id), &mut offer.problems)?;
            profiles.push(GpuInstanceProfile {
                id: info.id,
                index,
                name,
                max_count: info.instanceCount,
                memory: Mebibytes::new(info.memorySizeMB),
                resources: resources(&info),
                placements: placements.unwrap_or_default(),
                compute_profiles: Vec::new(),
            });
        }
        offer.catalog = ProfileCatalog::new(profiles);
        Ok(offer)
    }

    /// Returns whether every profile was read.
    pub(super) fn is_complete(&self) -> bool {
        self.problems.is_empty() && self.completeness() == Completeness::Complete
    }

    /// Returns whether `gpu` describes the first and the last profile as this catalog does.
    pub(super) fn is_confirmed_by(&self, gpu: DeviceSession<'_>) -> bool {
        let is_same = |known: &GpuInstanceProfile| {
            profile_info(gpu, known.index).is_ok_and(|info| {
                info.id == known.id
                    && info.instanceCount == known.max_count
                    && Mebibytes::new(info.memorySizeMB) == known.memory
                    && resources(&info) == known.resources
            })
        };
        let profiles = self.catalog.profiles();
        let ends = profiles.first().zip(profiles.last());
        ends.is_some_and(|(first, last)| is_same(first) && is_same(last))
    }

    pub(super) fn completeness(&self) -> Completeness {
        if self.is_empty() {
            return Completeness::Partial;
        }
        self.completeness
    }

    /// Returns whether the driver reported no profile at all, which is invalid for a device with a MIG mode.
    pub(super) fn is_empty(&self) -> bool {
        self.catalog.profiles().is_empty() && self.unknown_profiles.is_empty()
    }

    /// Returns the compute instance profiles of `profile`. Reads them from `instance` unless they are known from
    /// another instance.
    pub(super) fn learn_compute_profiles(
        &mut self,
        session: Session<'_>,
        profile: u32,
        instance: nvmlGpuInstance_t,
    ) -> Result<&[ComputeInstanceProfile], DriverError> {
        let known = self.catalog.by_id(profile);
        if known.is_some_and(|known| known.compute_profiles.is_empty()) {
            let (read, completeness) = compute_profiles(session, instance, &mut self.problems)?;
            self.catalog.set_compute_profiles(profile, read);
            self.completeness = self.completeness.max(completeness);
        }
        let known = self.catalog.by_id(profile);
        Ok(known.map_or(&[], |known| &known.compute_profiles))
    }

    /// Returns the name as NVIDIA's Kubernetes tools compute it, or the driver's own for a profile that those tools do
    /// not know.
    fn name(
        &mut self,
        gpu: DeviceSession<'_>,
        (index, info): (u32, &nvmlGpuInstanceProfileInfo_t),
        memory: Option<Mebibytes>,
    ) -> Result<Option<ProfileName>, DriverError> {
        let shape = InstanceShape {
            profile_index: index,
            compute_slices: None,
            memory: Mebibytes::new(info.memorySizeMB),
        };
        let computed = memory.and_then(|memory| ProfileName::computed(&shape, memory));
        if computed.is_some() {
            return Ok(computed);
        }
        let name = driver_name(gpu, index);
        let named = optional(name, &mut self.problems)?.and_then(|name| name.parse().ok());
        if named.is_none() {
            self.problems.push(ReadProblem {
                source: "nvmlDeviceGetGpuInstanceProfileInfo".to_owned(),
                error: format!("profile {} (index {index}) has an unknown name", info.id),
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
    let result = ask();
    let Err(error) = &result else {
        return result;
    };
    if !error.is(NvmlCode::INVALID_ARGUMENT) && error.remedy() != Remedy::Unavailable {
        return result;
    }
    match confirm() {
        // Old libraries have only the first form.
        Err(other) if other.code == error.code || other.is(NvmlCode::NoSuchFunction) => result,
        Ok(_) | Err(_) => ask(),
    }
}

/// Uses the first form of the call: the later ones add only the name, and old drivers lack them.
fn profile_info(
    gpu: DeviceSession<'_>,
    index: u32,
) -> Result<nvmlGpuInstanceProfileInfo_t, DriverError> {
    // SAFETY: the structure consists of numbers, for which zero is valid.
    let mut info: nvmlGpuInstanceProfileInfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: the handle comes from this library, and `info` is writable until the call returns.
    raw!(gpu, nvmlDeviceGetGpuInstanceProfileInfo, |f| unsafe {
        f(gpu.handle.0, index, &raw mut info)
    })?;
    Ok(info)
}

/// Returns the driver's name of a profile, such as `MIG 1g.10gb+me`, without `MIG `.
fn driver_name(gpu: DeviceSession<'_>, index: u32) -> Result<String, DriverError> {
    // SAFETY: the structure consists of numbers and characters, for which zero is valid.
    let mut info: nvmlGpuInstanceProfileInfo_v2_t = unsafe { std::mem::zeroed() };
    info.version = struct_version::<nvmlGpuInstanceProfileInfo_v2_t>(2);
    // SAFETY: the handle comes from this library; the version tells NVML the size of the structure that it may write.
    raw!(gpu, nvmlDeviceGetGpuInstanceProfileInfoV, |f| unsafe {
        f(gpu.handle.0, index, &raw mut info)
    })?;
    // The characters are signed on x86-64 and unsigned on Arm.
    let bytes = info.name.iter().flat_map(|character| character.to_ne_bytes());
    let text: Vec<u8> = bytes.take_while(|byte| *byte != 0).collect();
    let text = String::from_utf8_lossy(&text);
    Ok(text.strip_prefix("MIG ").unwrap_or(&text).to_owned())
}

fn resources(info: &nvmlGpuInstanceProfileInfo_t) -> InstanceResources {
    InstanceResources {
        gpu_slices: info.sliceCount,
        compute_slices: info.sliceCount,
        multiprocessors: info.multiprocessorCount,
        copy_engines: info.copyEngineCount,
        decoders: info.decoderCount,
        encoders: info.encoderCount,
        jpeg_engines: info.jpegCount,
        ofa_engines: info.ofaCount,
    }
}

/// Returns the possible placements of a profile on an empty device.
fn placements(gpu: DeviceSession<'_>, profile: u32) -> Result<Vec<Placement>, DriverError> {
    const SOME: nvmlGpuInstancePlacement_t = nvmlGpuInstancePlacement_t { start: 0, size: 0 };
    let ask = |buffer: *mut nvmlGpuInstancePlacement_t, count: *mut u32| {
        raw!(
            gpu,
            nvmlDeviceGetGpuInstancePossiblePlacements_v2,
            // SAFETY: the handle comes from this library; `room` is null or has space for `count` entries, and both are
            // writable until the call returns.
            |f| unsafe { f(gpu.handle.0, profile, buffer, count) }
        )
    };
    let mut count = 0;
    // Without a buffer, the call returns the count; drivers differ in whether they report that as an error.
    match ask(std::ptr::null_mut(), &raw mut count) {
        Err(error) if !error.is(NvmlCode::INSUFFICIENT_SIZE) => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut placements = vec![SOME; count as usize];
    if count > 0 {
        ask(placements.as_mut_ptr(), &raw mut count)?;
    }
    placements.truncate(count as usize);
    Ok(placements.iter().map(|place| Placement { start: place.start, size: place.size }).collect())
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
        let result = confirm_absence(
            || compute_profile_info(session, instance, index),
            || compute_profile_info_v2(session, instance, index),
        );
        if matches!(&result, Err(error) if error.is(NvmlCode::INVALID_ARGUMENT)) {
            break;
        }
        if failed(&result) {
            completeness = Completeness::Partial;
        }
        if let Some(info) = privileged(result, problems)? {
            profiles.push(ComputeInstanceProfile {
                id: info.id,
                index,
                slices: info.sliceCount,
                max_count: info.instanceCount,
                multiprocessors: info.multiprocessorCount,
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
    let mut info: nvmlComputeInstanceProfileInfo_t = unsafe { std::mem::zeroed() };
    raw!(
        session,
        nvmlGpuInstanceGetComputeInstanceProfileInfo,
        // SAFETY: the instance was listed by this library in this observation, and NVML checks that it still exists;
        // `info` is writable until the call returns.
        |f| unsafe { f(instance, index, SHARED_ENGINES, &raw mut info) }
    )?;
    Ok(info)
}

/// The second form of the call. Only success or failure is used.
fn compute_profile_info_v2(
    session: Session<'_>,
    instance: nvmlGpuInstance_t,
    index: u32,
) -> Result<(), DriverError> {
    // SAFETY: the structure consists of numbers and characters, for which zero is valid.
    let mut info: nvmlComputeInstanceProfileInfo_v2_t = unsafe { std::mem::zeroed() };
    info.version = struct_version::<nvmlComputeInstanceProfileInfo_v2_t>(2);
    raw!(
        session,
        nvmlGpuInstanceGetComputeInstanceProfileInfoV,
        // SAFETY: the instance is as above; the version tells NVML the size of the structure that it may write.
        |f| unsafe { f(instance, index, SHARED_ENGINES, &raw mut info) }
    )
}
