//! The machine: driver, GPUs, holders and events. Stored in the state directory.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::code::Code;
use super::event::{self, Event, EventKind};
use super::gpu::Gpu;
use super::ids;
use super::others::OtherDevices;
use super::process::{Process, ProcessKind};
use super::profile::GiProfile;
use crate::latency::Latency;

/// A GPU by its position in the world, which never changes: not with the index order, and not over a reboot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Slot(pub usize);

/// The loaded driver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Driver {
    /// `nvmlSystemGetDriverVersion`, such as `580.95.05`.
    pub version: String,
    /// `nvmlSystemGetCudaDriverVersion`: 13000 for 13.0.
    pub cuda_version: u32,
    /// `nvmlSystemGetNVMLVersion`, such as `13.580.95.05`.
    pub nvml_version: String,
    /// Increases with each load of the kernel module.
    pub epoch: u64,
    /// True if the kernel module is loaded.
    pub loaded: bool,
}

/// The driver that a library was initialized with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriverStamp {
    /// Version when the library was opened, which never changes for that library.
    pub version: String,
    /// Epoch when the session was initialized.
    pub epoch: u64,
}

/// The machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct World {
    /// Name of the machine in the scenario.
    pub machine: String,
    /// `/sys/class/dmi/id/product_name`.
    pub machine_type: String,
    /// The driver.
    pub driver: Driver,
    /// The GPUs; a [`Slot`] is an index into this list.
    pub gpus: Vec<Gpu>,
    /// Profiles of each board, by its name.
    pub tables: BTreeMap<String, Vec<GiProfile>>,
    /// Processes that hold GPUs or instances.
    pub processes: Vec<Process>,
    /// The newest events, oldest first.
    pub events: Vec<Event>,
    /// Number of the newest event; 0 before the first.
    pub last_event: u64,
    /// Hash of the machine's name, from which UUIDs are derived.
    pub seed: u64,
    /// Latency of calls.
    pub latency: Latency,
    /// Number of UUIDs created so far.
    pub uuids: u64,
    /// Devices outside of NVML.
    #[serde(default)]
    pub others: OtherDevices,
}

impl Driver {
    /// The branch: 580 of `580.95.05`; 0 if the version does not start with a number.
    pub fn branch(&self) -> u32 {
        let first = self.version.split('.').next();
        first.and_then(|text| text.parse().ok()).unwrap_or(0)
    }
}

impl World {
    /// True if a library with this stamp may still use the driver.
    ///
    /// `DRIVER_NOT_LOADED` without a driver, `LIB_RM_VERSION_MISMATCH` if the version changed, and `UNINITIALIZED` if
    /// the same version was loaded again: the session has ended and must be reopened.
    pub fn link_status(&self, stamp: &DriverStamp) -> Result<(), Code> {
        if !self.driver.loaded {
            return Err(Code::DriverNotLoaded);
        }
        if self.driver.version != stamp.version {
            return Err(Code::LibRmVersionMismatch);
        }
        if self.driver.epoch != stamp.epoch {
            return Err(Code::Uninitialized);
        }
        Ok(())
    }

    /// The stamp for a library that is initialized now.
    pub fn stamp(&self) -> DriverStamp {
        DriverStamp { version: self.driver.version.clone(), epoch: self.driver.epoch }
    }

    /// The GPU in a slot; `INVALID_ARGUMENT` for an invalid slot.
    pub fn gpu(&self, slot: Slot) -> Result<&Gpu, Code> {
        self.gpus.get(slot.0).ok_or(Code::InvalidArgument)
    }

    /// The same, mutable. MIG instances are changed by the operations of the world.
    pub fn gpu_mut(&mut self, slot: Slot) -> Result<&mut Gpu, Code> {
        self.gpus.get_mut(slot.0).ok_or(Code::InvalidArgument)
    }

    /// The GPU at an index of NVML's enumeration.
    pub fn slot_of_index(&self, index: u32) -> Option<Slot> {
        self.slot_where(|gpu| gpu.index == index)
    }

    /// The GPU with a UUID (`GPU-...`).
    pub fn slot_of_uuid(&self, uuid: &str) -> Option<Slot> {
        self.slot_where(|gpu| gpu.uuid == uuid)
    }

    /// The GPU at a PCI address, in any format.
    pub fn slot_of_pci(&self, address: &str) -> Option<Slot> {
        let address = address.parse().ok()?;
        self.slot_where(|gpu| gpu.pci == address)
    }

    /// The GPU on a board with a serial number.
    pub fn slot_of_serial(&self, serial: &str) -> Option<Slot> {
        self.slot_where(|gpu| !serial.is_empty() && gpu.serial == serial)
    }

    /// The GPU and the serial of the compute instance of a MIG device, by its UUID.
    pub fn mig_device_of_uuid(&self, uuid: &str) -> Option<(Slot, u64)> {
        self.gpus.iter().enumerate().find_map(|(place, gpu)| {
            let device = gpu.mig_devices().find(|device| device.ci.uuid == uuid)?;
            Some((Slot(place), device.ci.serial))
        })
    }

    /// The processes on a GPU in one of NVML's lists; with a GPU instance, only those on it.
    pub fn processes_on(
        &self,
        slot: Slot,
        kind: ProcessKind,
        instance: Option<(u32, Option<u32>)>,
    ) -> Vec<&Process> {
        let Ok(gpu) = self.gpu(slot) else {
            return Vec::new();
        };
        let inside = |process: &&Process| match instance {
            None => true,
            Some((gi, None)) => process.gi == Some(gi),
            Some((gi, ci)) => process.gi == Some(gi) && process.ci == ci,
        };
        self.processes
            .iter()
            .filter(|process| process.gpu_uuid == gpu.uuid && process.kind == kind)
            .filter(inside)
            .collect()
    }

    /// Memory in use on a GPU by its processes, MiB.
    pub fn used_mib(&self, slot: Slot, instance: Option<u32>) -> u64 {
        let Ok(gpu) = self.gpu(slot) else { return 0 };
        self.processes
            .iter()
            .filter(|process| process.gpu_uuid == gpu.uuid)
            .filter(|process| instance.is_none() || process.gi == instance)
            .map(|process| process.memory_mib)
            .fold(0, u64::saturating_add)
    }

    /// Compute and memory load of a GPU, or of one of its GPU instances: the sum of its processes, percent.
    pub fn load_of(&self, slot: Slot, instance: Option<u32>) -> (u32, u32) {
        let Ok(gpu) = self.gpu(slot) else { return (0, 0) };
        if instance.is_none() {
            return gpu.utilization;
        }
        let inside = self
            .processes
            .iter()
            .filter(|process| process.gpu_uuid == gpu.uuid && process.gi == instance);
        let loads = inside.filter_map(|process| gpu.process_utilization.get(&process.pid));
        let sum = loads.fold((0_u32, 0_u32), |sum, one| {
            (sum.0.saturating_add(one.0), sum.1.saturating_add(one.1))
        });
        (sum.0.min(100), sum.1.min(100))
    }

    /// `nvmlDeviceGetTopologyCommonAncestor`: 0 the same GPU, 30 one host bridge, 40 one NUMA node, 50 the system.
    pub fn common_ancestor(&self, one: Slot, other: Slot) -> Result<u32, Code> {
        let (a, b) = (self.gpu(one)?, self.gpu(other)?);
        Ok(if one == other {
            0
        } else if a.numa_node != b.numa_node {
            50
        } else if a.pci.domain == b.pci.domain && a.pci.bus >> 4 == b.pci.bus >> 4 {
            30
        } else {
            40
        })
    }

    /// The events after one, oldest first.
    pub fn events_after(&self, sequence: u64) -> &[Event] {
        let from = self.events.partition_point(|event| event.sequence <= sequence);
        self.events.get(from..).unwrap_or_default()
    }

    /// Attaches its profile table to each GPU; required after a world was read from a file.
    pub fn attach_tables(&mut self) {
        let shared: BTreeMap<&String, Arc<Vec<GiProfile>>> =
            self.tables.iter().map(|(board, table)| (board, Arc::new(table.clone()))).collect();
        for gpu in &mut self.gpus {
            gpu.profiles = shared.get(&gpu.board).map(Arc::clone).unwrap_or_default();
        }
    }

    pub(crate) fn record(
        &mut self,
        slot: Slot,
        kind: EventKind,
        data: u64,
        instance: Option<(u32, Option<u32>)>,
    ) {
        let Ok(gpu) = self.gpu(slot) else { return };
        let gpu_uuid = gpu.uuid.clone();
        self.last_event = self.last_event.saturating_add(1);
        self.events.push(Event {
            sequence: self.last_event,
            kind,
            data,
            gpu_uuid,
            gi: instance.map(|(gi, _)| gi),
            ci: instance.and_then(|(_, ci)| ci),
        });
        let surplus = self.events.len().saturating_sub(event::MAX_EVENTS);
        self.events.drain(..surplus);
    }

    pub(crate) fn fresh_uuid(&mut self) -> String {
        self.uuids = self.uuids.saturating_add(1);
        ids::uuid(self.seed, self.uuids)
    }

    pub(crate) fn gpu_in_use(&self, slot: Slot) -> bool {
        self.held(slot, |_| true)
    }

    pub(crate) fn gi_in_use(&self, slot: Slot, gi: u32) -> bool {
        self.held(slot, |process| process.gi == Some(gi))
    }

    pub(crate) fn ci_in_use(&self, slot: Slot, gi: u32, ci: u32) -> bool {
        self.held(slot, |process| {
            process.gi == Some(gi) && process.ci.is_none_or(|held| held == ci)
        })
    }

    fn held(&self, slot: Slot, by: impl Fn(&Process) -> bool) -> bool {
        let uuid = self.gpu(slot).map(|gpu| gpu.uuid.as_str()).ok();
        self.processes.iter().any(|process| Some(process.gpu_uuid.as_str()) == uuid && by(process))
    }

    fn slot_where(&self, is: impl Fn(&Gpu) -> bool) -> Option<Slot> {
        self.gpus.iter().position(is).map(Slot)
    }
}
