//! Reads one device: what never changes once, the rest every time.

use nvml_wrapper::enums::device::DeviceArchitecture;
use nvml_wrapper_sys::bindings::{nvmlGpuInstance_t, nvmlMemory_t};

use crate::domain::catalog::ComputeInstanceProfile;
use crate::domain::id::{GpuUuid, PciAddress};
use crate::domain::inventory::{
    Architecture, Completeness, Device, Mig, MigMode, MigState, PciIds, Problem,
};
use crate::domain::quantity::{ComputeCapability, Mebibytes};
use crate::hw::error::{Code, DriverError, Remedy};
use crate::hw::nvml::catalog::Offer;
use crate::hw::nvml::links::Links;
use crate::hw::nvml::session::{DeviceHandle, Session, optional, raw};
use crate::hw::nvml::{catalog, health, instances, processes};

/// A device that NVML named, with what was learnt of it so far.
#[derive(Debug)]
pub(super) struct KnownDevice {
    pub(super) handle: DeviceHandle,
    pub(super) pci: PciAddress,
    pub(super) ids: PciIds,
    facts: Option<Facts>,
    links: Links,
    /// The offer as it was read in this MIG mode: some drivers tell it wrongly or not at all in the other one.
    offer: Option<(MigMode, Offer)>,
}

/// What a device is, for as long as its driver lives.
#[derive(Debug, Clone, Default)]
struct Facts {
    uuid: Option<GpuUuid>,
    product_name: Option<String>,
    minor: Option<u32>,
    architecture: Option<Architecture>,
    compute_capability: Option<ComputeCapability>,
    memory: Option<Mebibytes>,
    problems: Vec<Problem>,
}

impl Facts {
    /// Whether they can be kept for the driver's life: every device has a UUID and a name, whatever a single answer says.
    fn are_whole(&self) -> bool {
        self.problems.is_empty() && self.uuid.is_some() && self.product_name.is_some()
    }
}

impl KnownDevice {
    pub(super) fn new(handle: DeviceHandle, pci: PciAddress, ids: PciIds) -> Self {
        Self {
            handle,
            pci,
            ids,
            facts: None,
            links: Links::default(),
            offer: None,
        }
    }

    /// Fills `device` as far as the device answers. An error is one that makes further questions pointless.
    pub(super) fn read(
        &mut self,
        session: Session<'_>,
        device: &mut Device,
    ) -> Result<(), DriverError> {
        if let Some(facts) = &self.facts {
            tell(facts, device);
        }
        let mode = self.mig_mode(session, device)?;
        if self.offer.as_ref().map(|(known, _)| *known) != mode.map(|(current, _)| current) {
            // A change of mode may detach the device for a moment, and then it comes back under another minor number.
            self.facts = None;
        }
        if self.facts.is_none() {
            let facts = read_facts(session, self.handle)?;
            tell(&facts, device);
            // Facts with a gap are asked for again the next time.
            self.facts = Some(facts).filter(Facts::are_whole);
        }
        if let Some(modes) = mode {
            device.mig = self.mig(session, modes, device)?;
        }
        let problems = &mut device.problems;
        device.processes = processes::read(session, self.handle, problems)?;
        device.health = health::read(session, self.handle, problems)?;
        device.links = self.links.read(session, self.handle, problems)?;
        device.fabric = health::fabric(session, self.handle, problems)?;
        Ok(())
    }

    /// What an instance of `profile` can be split into, asked of `instance` unless another one has told it already.
    pub(super) fn compute_profiles(
        &mut self,
        session: Session<'_>,
        profile: u32,
        instance: nvmlGpuInstance_t,
    ) -> Result<Vec<ComputeInstanceProfile>, DriverError> {
        if let Some((_, offer)) = &mut self.offer {
            return offer.learn_compute_profiles(session, profile, instance);
        }
        let told = catalog::compute_profiles(session, instance, &mut Vec::new());
        told.map(|(profiles, _)| profiles)
    }

    /// Why there may be more of them than [`Self::compute_profiles`] could tell, as the end of a sentence.
    pub(super) fn untold_compute_profiles(&self) -> Option<String> {
        let (_, offer) = self.offer.as_ref()?;
        let call = "nvmlGpuInstanceGetComputeInstanceProfileInfo";
        let problem = offer.problems().iter().find(|told| told.what == call)?;
        Some(format!(" ({call}: {})", problem.error))
    }

    /// The mode in force and the pending one; `None` for a device that has none, and where the driver would not say. Only
    /// the first of these is an answer: a question that failed must not make a partitioned device a whole one.
    ///
    /// Also the first question of every reading: whether NVML still knows the handle and whether the driver talks to the
    /// device at all shows here, and if not, there is no point in the other questions.
    fn mig_mode(
        &self,
        session: Session<'_>,
        device: &mut Device,
    ) -> Result<Option<(MigMode, MigMode)>, DriverError> {
        let wrapped = session.device(self.handle);
        let answer = session.wrapped("nvmlDeviceGetMigMode", || wrapped.mig_mode());
        if let Err(error) = &answer
            && (error.is(Code::INVALID_ARGUMENT) || error.remedy() == Remedy::Bug)
        {
            return Err(*error);
        }
        if matches!(&answer, Err(error) if error.remedy() == Remedy::Unavailable) {
            device.mig = Mig::NotCapable;
        }
        let mode = |number| match number {
            0 => MigMode::Disabled,
            _ => MigMode::Enabled,
        };
        let answer = optional(answer, &mut device.problems)?;
        Ok(answer.map(|both| (mode(both.current), mode(both.pending))))
    }

    fn mig(
        &mut self,
        session: Session<'_>,
        (current, pending): (MigMode, MigMode),
        device: &mut Device,
    ) -> Result<Mig, DriverError> {
        let known = self.offer.take().filter(|(mode, _)| *mode == current);
        let mut offer = match known {
            // One with a gap, or with nothing in it, is read again.
            Some((_, offer)) if offer.problems().is_empty() && !offer.is_empty() => offer,
            Some(_) | None => Offer::read(session, self.handle, device.memory)?,
        };
        let (gpu_instances, geometry) = match current {
            MigMode::Disabled => (Vec::new(), Completeness::Complete),
            MigMode::Enabled => {
                instances::read(session, self.handle, &mut offer, &mut device.problems)?
            }
        };
        // Instances tell more of the offer, so only now is it known what could not be read of it.
        device.problems.extend_from_slice(offer.problems());
        let catalog = offer.catalog();
        self.offer = Some((current, offer));
        Ok(Mig::Capable(MigState {
            current,
            pending,
            catalog,
            gpu_instances,
            geometry,
        }))
    }
}

fn tell(facts: &Facts, device: &mut Device) {
    let facts = facts.clone();
    device.uuid = facts.uuid;
    device.product_name = facts.product_name;
    device.minor = facts.minor;
    device.architecture = facts.architecture;
    device.compute_capability = facts.compute_capability;
    device.memory = facts.memory;
    device.problems.extend(facts.problems);
}

fn read_facts(session: Session<'_>, handle: DeviceHandle) -> Result<Facts, DriverError> {
    let device = session.device(handle);
    let mut facts = Facts::default();
    let problems = &mut facts.problems;
    let uuid = session.wrapped("nvmlDeviceGetUUID", || device.uuid());
    facts.uuid = optional(uuid, problems)?.and_then(|text| match text.parse() {
        Ok(uuid) => Some(uuid),
        Err(error) => {
            problems.push(problem("nvmlDeviceGetUUID", &error));
            None
        }
    });
    let name = session.wrapped("nvmlDeviceGetName", || device.name());
    facts.product_name = optional(name, problems)?;
    let minor = session.wrapped("nvmlDeviceGetMinorNumber", || device.minor_number());
    facts.minor = optional(minor, problems)?;
    let architecture = session.wrapped("nvmlDeviceGetArchitecture", || device.architecture());
    facts.architecture = match architecture {
        Ok(architecture) => architecture_name(&architecture),
        // An architecture newer than the wrapper is no problem: the catalogue may know it.
        Err(error) if error.remedy() == Remedy::Bug => None,
        Err(error) => optional(Err(error), problems)?,
    };
    let capability = session.wrapped("nvmlDeviceGetCudaComputeCapability", || {
        device.cuda_compute_capability()
    });
    facts.compute_capability = optional(capability, problems)?.and_then(|told| {
        Some(ComputeCapability {
            major: u32::try_from(told.major).ok()?,
            minor: u32::try_from(told.minor).ok()?,
        })
    });
    facts.memory = memory(session, handle, problems)?;
    Ok(facts)
}

/// The first form of the call: its total is the same, and every driver has it. Boards that share the host's memory
/// answer zero or nothing.
fn memory(
    session: Session<'_>,
    handle: DeviceHandle,
    problems: &mut Vec<Problem>,
) -> Result<Option<Mebibytes>, DriverError> {
    let mut told = nvmlMemory_t {
        total: 0,
        free: 0,
        used: 0,
    };
    // SAFETY: the handle is this library's, and `told` may be written until the call returns.
    let answer = raw!(session, nvmlDeviceGetMemoryInfo, |f| unsafe {
        f(handle.0, &raw mut told)
    });
    let answered = optional(answer, problems)?;
    Ok(answered
        .filter(|()| told.total > 0)
        .map(|()| Mebibytes::from_bytes(told.total)))
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

fn problem(what: &str, error: &dyn std::error::Error) -> Problem {
    Problem {
        what: what.to_owned(),
        error: error.to_string(),
    }
}
