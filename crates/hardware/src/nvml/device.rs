//! Looks up and reads one device: constant values once, the others in every observation.

use nvml_wrapper::enums::device::DeviceArchitecture;
use nvml_wrapper_sys::bindings::{nvmlGpuInstance_t, nvmlMemory_t};
use octavo_model::catalog::ComputeInstanceProfile;
use octavo_model::id::{GpuUuid, PciAddress};
use octavo_model::inventory::{
    Architecture, Completeness, Condition, Device, Mig, MigMode, MigState, PciIds, ReadProblem,
};
use octavo_model::quantity::{ComputeCapability, Mebibytes};

use crate::error::{DriverError, NvmlCode, Remedy};
use crate::nvml::catalog::MigProfiles;
use crate::nvml::gpm::GpmSampler;
use crate::nvml::links::Links;
use crate::nvml::session::{DeviceHandle, DeviceSession, Session, optional, parse_uuid, raw};
use crate::nvml::{catalog, health, instances, processes};

/// A device that NVML listed, with its cached values.
#[derive(Debug)]
pub(super) struct KnownDevice {
    pub(super) handle: DeviceHandle,
    pub(super) pci: PciAddress,
    pub(super) ids: PciIds,
    facts: Option<StaticProperties>,
    links: Links,
    /// The profile catalog read in this MIG mode: some drivers report it incorrectly or not at all in the other mode.
    profiles: Option<(MigMode, MigProfiles)>,
    pub(super) gpm: GpmSampler,
}

/// Values that are constant while the driver is loaded.
#[derive(Debug, Clone, Default)]
struct StaticProperties {
    uuid: Option<GpuUuid>,
    product_name: Option<String>,
    minor: Option<u32>,
    architecture: Option<Architecture>,
    compute_capability: Option<ComputeCapability>,
    memory: Option<Mebibytes>,
    problems: Vec<ReadProblem>,
}

impl StaticProperties {
    /// Returns whether the values can be cached for the driver's life. Every device has a UUID and a name, even if a
    /// single response lacks them.
    fn is_complete(&self) -> bool {
        self.problems.is_empty() && self.uuid.is_some() && self.product_name.is_some()
    }
}

impl KnownDevice {
    pub(super) fn new(handle: DeviceHandle, pci: PciAddress, ids: PciIds) -> Self {
        let (facts, links, gpm) = (None, Links::default(), GpmSampler::default());
        Self { handle, pci, ids, facts, links, profiles: None, gpm }
    }

    /// Fills `device` with the values that the device reports. An error means that further calls are pointless.
    ///
    /// Identical devices have the same profiles, so their catalog is read from one of them. Reading a catalog takes most of the calls
    /// of a first reading, about 0.5 ms each on an H100.
    fn read(
        &mut self,
        session: Session<'_>,
        others: &[Option<Self>],
        device: &mut Device,
    ) -> Result<(), DriverError> {
        let gpu = session.for_device(self.pci).with_handle(self.handle);
        if let Some(facts) = &self.facts {
            apply_properties(facts, device);
        }
        let mode = mig_mode(gpu, device)?;
        if self.profiles.as_ref().map(|(known, _)| *known) != mode.map(|(current, _)| current) {
            // A mode change may briefly detach the device, which can then return with another minor number.
            self.facts = None;
        }
        if self.facts.is_none() {
            let facts = read_properties(gpu)?;
            apply_properties(&facts, device);
            // Incomplete values are read again next time.
            self.facts = Some(facts).filter(StaticProperties::is_complete);
        }
        if let Some(modes) = mode {
            device.mig = self.mig(gpu, modes, (others, device))?;
        }
        let problems = &mut device.problems;
        device.processes = processes::read(gpu, problems)?;
        device.health = health::read(gpu, problems)?;
        device.links = self.links.read(gpu, problems)?;
        device.fabric = health::fabric(gpu, problems)?;
        Ok(())
    }

    /// Returns the compute instance profiles of `profile`. Reads them from `instance` unless they are known from
    /// another instance.
    pub(super) fn compute_profiles(
        &mut self,
        session: Session<'_>,
        profile: u32,
        instance: nvmlGpuInstance_t,
    ) -> Result<Vec<ComputeInstanceProfile>, DriverError> {
        if let Some((_, offer)) = &mut self.profiles {
            let profiles = offer.learn_compute_profiles(session, profile, instance)?;
            return Ok(profiles.to_vec());
        }
        let profiles = catalog::compute_profiles(session, instance, &mut Vec::new());
        profiles.map(|(profiles, _)| profiles)
    }

    /// Returns why [`Self::compute_profiles`] may be incomplete, as the end of a sentence.
    pub(super) fn compute_profile_error(&self) -> Option<String> {
        let (_, offer) = self.profiles.as_ref()?;
        let call = "nvmlGpuInstanceGetComputeInstanceProfileInfo";
        let problem = offer.problems.iter().find(|problem| problem.source == call)?;
        Some(format!(" ({call}: {})", problem.error))
    }

    /// Returns the catalog if it is complete and `device`, in this MIG mode, is of the same type.
    fn profiles_for(&self, device: &Device, mode: MigMode) -> Option<&MigProfiles> {
        let facts = self.facts.as_ref()?;
        let is_same = self.ids == device.pci_ids
            && facts.product_name == device.product_name
            && facts.memory == device.memory;
        let (known, profiles) = self.profiles.as_ref()?;
        (is_same && *known == mode && profiles.is_complete()).then_some(profiles)
    }

    fn mig(
        &mut self,
        gpu: DeviceSession<'_>,
        (current, pending): (MigMode, MigMode),
        (others, device): (&[Option<Self>], &mut Device),
    ) -> Result<Mig, DriverError> {
        let known = self.profiles.take().filter(|(mode, _)| *mode == current);
        let mut offer = match known {
            // An incomplete or empty catalog is read again.
            Some((_, offer)) if offer.problems.is_empty() && !offer.is_empty() => offer,
            Some(_) | None => {
                let mut others = others.iter().flatten();
                let shared = others.find_map(|other| other.profiles_for(device, current));
                match shared.filter(|shared| shared.is_confirmed_by(gpu)) {
                    Some(shared) => shared.clone(),
                    None => MigProfiles::read(gpu, device.memory)?,
                }
            }
        };
        let (gpu_instances, geometry) = match current {
            MigMode::Disabled => (Vec::new(), Completeness::Complete),
            MigMode::Enabled => instances::read(gpu, &mut offer, &mut device.problems)?,
        };
        // Reading instances extends the catalog, so its problems are known only now.
        device.problems.extend_from_slice(&offer.problems);
        let catalog = offer.catalog.clone();
        self.profiles = Some((current, offer));
        Ok(Mig::Capable(MigState { current, pending, catalog, gpu_instances, geometry }))
    }
}

/// Returns the current and the pending mode; `None` for a device without MIG and if the driver does not report it.
/// `device.mig` distinguishes the two cases: a failed call must not make a partitioned device appear unpartitioned.
///
/// This is also the first call of every observation. It shows whether the handle is valid and whether the driver
/// can reach the device; if not, the other calls are pointless.
fn mig_mode(
    gpu: DeviceSession<'_>,
    device: &mut Device,
) -> Result<Option<(MigMode, MigMode)>, DriverError> {
    let result = gpu.query("nvmlDeviceGetMigMode", nvml_wrapper::Device::mig_mode);
    if let Err(error) = &result
        && (error.is(NvmlCode::INVALID_ARGUMENT) || error.remedy() == Remedy::Bug)
    {
        return Err(*error);
    }
    if matches!(&result, Err(error) if error.remedy() == Remedy::Unavailable) {
        device.mig = Mig::NotCapable;
    }
    let mode = |number| match number {
        0 => MigMode::Disabled,
        _ => MigMode::Enabled,
    };
    let answer = optional(result, &mut device.problems)?;
    Ok(answer.map(|both| (mode(both.current), mode(both.pending))))
}

/// Reads one device; `others` are devices that were read before. Errors other than those of the whole library mean that the
/// device could not be identified.
pub(super) fn observe_one(
    session: Session<'_>,
    index: u32,
    others: &[Option<KnownDevice>],
    slot: &mut Option<KnownDevice>,
) -> Result<Device, DriverError> {
    let known = match slot {
        Some(known) => known,
        None => slot.insert(look_up_device(session, index)?),
    };
    let mut device = Device::new(known.pci, known.ids);
    device.condition = Condition::Working;
    device.index = Some(index);
    match known.read(session, others, &mut device) {
        Ok(()) => {}
        Err(error) if error.remedy() == Remedy::Reinitialize => return Err(error),
        Err(error) => {
            device.condition = Condition::Failing { reason: error.to_string() };
            // The handle of a device that left the bus is invalid; look it up again next time.
            if error.is(NvmlCode::INVALID_ARGUMENT) {
                *slot = None;
            }
        }
    }
    Ok(device)
}

/// Looks up the device with this index.
pub(super) fn look_up_device(session: Session<'_>, index: u32) -> Result<KnownDevice, DriverError> {
    let nvml = session.nvml();
    let wrapped =
        session.wrapped("nvmlDeviceGetHandleByIndex_v2", || nvml.device_by_index(index))?;
    let info = session.wrapped("nvmlDeviceGetPciInfo_v3", || wrapped.pci_info())?;
    let halves = |pair: u32| ((pair & 0xffff) as u16, (pair >> 16) as u16);
    let (vendor, device) = halves(info.pci_device_id);
    let (subsystem_vendor, subsystem_device) = halves(info.pci_sub_system_id.unwrap_or(0));
    // SAFETY: the handle is only used as an argument of further calls to the library that returned it.
    let handle = DeviceHandle(unsafe { wrapped.handle() });
    Ok(KnownDevice::new(
        handle,
        info.bus_id.parse().map_err(|_| DriverError {
            call: "nvmlDeviceGetPciInfo_v3",
            code: NvmlCode::MissingPciAddress,
        })?,
        PciIds { vendor, device, subsystem_vendor, subsystem_device, class: None },
    ))
}

fn apply_properties(facts: &StaticProperties, device: &mut Device) {
    let facts = facts.clone();
    device.uuid = facts.uuid;
    device.product_name = facts.product_name;
    device.minor = facts.minor;
    device.architecture = facts.architecture;
    device.compute_capability = facts.compute_capability;
    device.memory = facts.memory;
    device.problems.extend(facts.problems);
}

fn read_properties(gpu: DeviceSession<'_>) -> Result<StaticProperties, DriverError> {
    let mut facts = StaticProperties::default();
    let problems = &mut facts.problems;
    let uuid = gpu.query("nvmlDeviceGetUUID", nvml_wrapper::Device::uuid);
    facts.uuid = optional(uuid, problems)?.and_then(|text| parse_uuid(&text, problems));
    let name = gpu.query("nvmlDeviceGetName", nvml_wrapper::Device::name);
    facts.product_name = optional(name, problems)?;
    let minor = gpu.query("nvmlDeviceGetMinorNumber", nvml_wrapper::Device::minor_number);
    facts.minor = optional(minor, problems)?;
    let architecture = gpu.query("nvmlDeviceGetArchitecture", nvml_wrapper::Device::architecture);
    facts.architecture = match architecture {
        Ok(architecture) => architecture_name(&architecture),
        // An architecture newer than the wrapper is not a problem: the catalog may know it.
        Err(error) if error.remedy() == Remedy::Bug => None,
        Err(error) => optional(Err(error), problems)?,
    };
    let capability = gpu
        .query("nvmlDeviceGetCudaComputeCapability", nvml_wrapper::Device::cuda_compute_capability);
    facts.compute_capability = optional(capability, problems)?.and_then(|capability| {
        Some(ComputeCapability {
            major: u32::try_from(capability.major).ok()?,
            minor: u32::try_from(capability.minor).ok()?,
        })
    });
    facts.memory = memory(gpu, problems)?;
    Ok(facts)
}

/// Uses the first form of the call: its total is the same, and every driver has it. Boards that share the host's memory
/// report zero or nothing.
fn memory(
    gpu: DeviceSession<'_>,
    problems: &mut Vec<ReadProblem>,
) -> Result<Option<Mebibytes>, DriverError> {
    let mut memory = nvmlMemory_t { total: 0, free: 0, used: 0 };
    // SAFETY: the handle comes from this library, and `memory` is writable until the call returns.
    let result =
        raw!(gpu, nvmlDeviceGetMemoryInfo, |f| unsafe { f(gpu.handle.0, &raw mut memory) });
    let answered = optional(result, problems)?;
    Ok(answered.filter(|()| memory.total > 0).map(|()| Mebibytes::from_bytes(memory.total)))
}

fn architecture_name(architecture: &DeviceArchitecture) -> Option<Architecture> {
    let name = match architecture {
        DeviceArchitecture::Kepler => "kepler",
        DeviceArchitecture::Maxwell => "maxwell",
        DeviceArchitecture::Pascal => "pascal",
        DeviceArchitecture::Volta => "volta",
        DeviceArchitecture::Turing => "turing",
        DeviceArchitecture::Ampere => "ampere",
        DeviceArchitecture::Ada => "ada-lovelace",
        DeviceArchitecture::Hopper => "hopper",
        DeviceArchitecture::Blackwell => "blackwell",
        DeviceArchitecture::Unknown => return None,
    };
    Some(Architecture::new(name))
}
