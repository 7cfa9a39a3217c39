//! Makes a world out of a scenario.
//!
//! Instances and processes are put in through the operations of the model, so that a scenario can describe nothing that
//! the driver would not have allowed.

use std::collections::{BTreeMap, BTreeSet};

use serde_saphyr::Spanned;

use super::format::{
    ComputeMode, FabricEntry, GpuEntry, InstanceEntry, LatencyEntry, LatencyName, OneOrMany,
    ProcessEntry,
};
use super::{InstanceRefusal, Place, Scenario, ScenarioError, topology};
use crate::board::Board;
use crate::latency::Latency;
use crate::model::{
    Architecture, Code, Driver, EccCounters, EccMode, Fabric, Gpu, GpuInstance, MigMode, MigState,
    PciAddress, PciIds, Process, RemappedRows, Slot, World, nvml_version, seed,
};

const NVIDIA: u16 = 0x10DE;

pub(super) fn world(scenario: &Scenario) -> Result<World, ScenarioError> {
    let machine = &scenario.machine;
    let cuda_version = cuda_version(scenario)?;
    let mut world = World {
        machine: machine.machine.clone(),
        machine_type: machine.machine_type.clone().unwrap_or_default(),
        driver: Driver {
            version: machine.driver.clone(),
            cuda_version,
            nvml_version: nvml_version(&machine.driver, cuda_version),
            epoch: 1,
            loaded: machine.driver_loaded,
        },
        gpus: Vec::new(),
        tables: BTreeMap::new(),
        processes: Vec::new(),
        events: Vec::new(),
        last_event: 0,
        seed: seed(&machine.machine),
        latency: match &machine.latency {
            None => Latency::default(),
            Some(LatencyEntry::Named(LatencyName::Real)) => Latency::REAL,
            Some(LatencyEntry::Custom(latency)) => *latency,
        },
        uuids: 0,
    };
    let mut ports = Vec::new();
    for entry in &machine.gpus {
        add_gpus(scenario, &mut world, &mut ports, entry)?;
    }
    world.attach_tables();
    topology::wire(&mut world.gpus, &ports, machine.links);
    register_fabric(scenario, &mut world)?;
    unique(scenario, &world)?;
    let mut slot = 0;
    for entry in &machine.gpus {
        for _ in 0..entry.value.count {
            add_instances(scenario, &mut world, Slot(slot), &entry.value)?;
            slot = slot.saturating_add(1);
        }
    }
    for process in &machine.processes {
        add_process(scenario, &mut world, process)?;
    }
    // Last, because nothing can be put on a lost GPU; and what was done to get here is no news to anybody.
    lose(scenario, &mut world);
    world.events.clear();
    world.last_event = 0;
    Ok(world)
}

/// `13.0` is 13000, `12.8` is 12080.
fn cuda_version(scenario: &Scenario) -> Result<u32, ScenarioError> {
    let text = &scenario.machine.cuda;
    let parts = text.value.split_once('.');
    let number = parts.and_then(|(major, minor)| {
        let major: u32 = major.parse().ok()?;
        let minor: u32 = minor.parse().ok().filter(|minor| *minor < 100)?;
        major.checked_mul(1000)?.checked_add(minor.checked_mul(10)?)
    });
    number.ok_or_else(|| ScenarioError::Value {
        place: scenario.place(text.referenced),
        key: "cuda",
        reason: format!("{:?} is no version like \"13.0\"", text.value),
    })
}

fn add_gpus(
    scenario: &Scenario,
    world: &mut World,
    ports: &mut Vec<u32>,
    entry: &Spanned<GpuEntry>,
) -> Result<(), ScenarioError> {
    let written = &entry.value;
    let board = Board::find(&written.board.value).ok_or_else(|| ScenarioError::UnknownBoard {
        place: scenario.place(written.board.referenced),
        name: written.board.value.clone(),
        known: Board::names(),
    })?;
    let place = scenario.place(entry.referenced);
    check_lists(&place, written)?;
    if !board.profiles.is_empty() {
        world
            .tables
            .insert(board.sku.clone(), board.profiles.clone());
    }
    for nth in 0..written.count {
        let gpu = gpu(world, &board, written, usize::try_from(nth).unwrap_or(0));
        world
            .gpus
            .push(gpu.map_err(|(key, reason)| ScenarioError::Value {
                place: place.clone(),
                key,
                reason,
            })?);
        ports.push(board.links);
    }
    Ok(())
}

/// A list must have one value for each GPU of its entry.
fn check_lists(place: &Place, entry: &GpuEntry) -> Result<(), ScenarioError> {
    let lists = [
        ("pci", entry.pci.as_ref().and_then(OneOrMany::count)),
        ("uuid", entry.uuid.as_ref().and_then(OneOrMany::count)),
        ("serial", entry.serial.as_ref().and_then(OneOrMany::count)),
        ("minor", entry.minor.as_ref().and_then(OneOrMany::count)),
        ("numa", entry.numa.as_ref().and_then(OneOrMany::count)),
    ];
    for (key, count) in lists {
        let wrong = count.filter(|count| u32::try_from(*count) != Ok(entry.count));
        if let Some(count) = wrong {
            return Err(ScenarioError::Value {
                place: place.clone(),
                key,
                reason: format!("{count} values for {} GPUs", entry.count),
            });
        }
    }
    Ok(())
}

/// One GPU: what the entry says, else what the board has. An error is a key and what is wrong with its value.
fn gpu(
    world: &mut World,
    board: &Board,
    entry: &GpuEntry,
    nth: usize,
) -> Result<Gpu, (&'static str, String)> {
    let index = u32::try_from(world.gpus.len()).unwrap_or(u32::MAX);
    let memory_mib = entry.memory_mib.unwrap_or(board.memory_mib);
    let power_w = entry.power_w.unwrap_or(board.power_w);
    let ecc = entry.ecc.unwrap_or(board.ecc);
    let has_mig = !board.profiles.is_empty();
    let mig_on = entry.mig == Some(MigMode::Enabled);
    if mig_on && !has_mig {
        return Err(("mig", format!("{} has no MIG", board.sku)));
    }
    let uuid = world.fresh_uuid();
    Ok(Gpu {
        board: board.sku.clone(),
        name: entry.name.clone().unwrap_or_else(|| board.name.clone()),
        brand: board.brand,
        architecture: board.architecture,
        compute_capability: compute_capability(board, entry)?,
        memory_mib,
        reserved_mib: memory_mib / 160,
        multiprocessors: entry.multiprocessors.unwrap_or(board.multiprocessors),
        power_limit_mw: power_w.saturating_mul(1000),
        power_mw: power_w.saturating_mul(150),
        temperature_c: entry.temperature_c.unwrap_or(34),
        utilization: (0, 0),
        uuid: chosen(entry.uuid.as_ref(), nth).unwrap_or_else(|| format!("GPU-{uuid}")),
        serial: chosen(entry.serial.as_ref(), nth).unwrap_or_else(|| {
            format!(
                "{:013}",
                world.seed.wrapping_add(u64::from(index)) % 10_u64.pow(13)
            )
        }),
        index,
        minor: chosen(entry.minor.as_ref(), nth).unwrap_or(index),
        pci: chosen(entry.pci.as_ref(), nth).unwrap_or_else(|| default_address(index)),
        pci_ids: PciIds {
            device: entry.pci_device.unwrap_or(board.pci_device),
            subsystem_vendor: entry.subsystem_vendor.unwrap_or(NVIDIA),
            subsystem_device: entry.subsystem_device.unwrap_or(board.pci_device),
            class: entry.pci_class.unwrap_or(board.pci_class),
            revision: 0xA1,
        },
        numa_node: chosen(entry.numa.as_ref(), nth),
        vbios: entry
            .vbios
            .clone()
            .unwrap_or_else(|| "96.00.99.00.01".to_owned()),
        links: Vec::new(),
        fabric: Fabric::default(),
        ecc: board.ecc.then_some(EccMode {
            current: ecc,
            pending: ecc,
        }),
        ecc_errors: EccCounters::default(),
        remapped_rows: entry
            .remapped_rows
            .or_else(|| (board.architecture >= Architecture::Ampere).then(RemappedRows::default)),
        recovery_action: entry.recovery_action,
        persistence: entry.persistence,
        compute_mode: match entry.compute_mode {
            ComputeMode::Default => 0,
            ComputeMode::Prohibited => 2,
            ComputeMode::ExclusiveProcess => 3,
        },
        lost: false,
        mig: has_mig.then(|| MigState {
            current: mig_on,
            pending: mig_on,
            ..MigState::default()
        }),
        profiles: std::sync::Arc::default(),
    })
}

fn chosen<T: Clone>(values: Option<&OneOrMany<T>>, nth: usize) -> Option<T> {
    values.and_then(|values| values.get(nth))
}

fn compute_capability(
    board: &Board,
    entry: &GpuEntry,
) -> Result<(u32, u32), (&'static str, String)> {
    let Some(text) = &entry.compute_capability else {
        return Ok(board.compute_capability);
    };
    let parts = text.split_once('.');
    let parsed = parts.and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    parsed.ok_or_else(|| {
        let reason = format!("{text:?} is no capability like \"9.0\"");
        ("compute_capability", reason)
    })
}

/// Fourteen GPUs to a PCI domain, sixteen buses apart, above the switches.
fn default_address(index: u32) -> PciAddress {
    let in_domain = u8::try_from(index % 14).unwrap_or(0);
    PciAddress {
        domain: index / 14,
        bus: in_domain.saturating_mul(16).saturating_add(0x1B),
        device: 0,
        function: 0,
    }
}

/// Machines with switches since Hopper register with a fabric, which is their own unless the scenario names a larger one.
fn register_fabric(scenario: &Scenario, world: &mut World) -> Result<(), ScenarioError> {
    let machine = &scenario.machine;
    let named = machine
        .fabric
        .as_ref()
        .map(|entry| {
            cluster_uuid(&entry.value).ok_or_else(|| ScenarioError::Value {
                place: scenario.place(entry.referenced),
                key: "cluster_uuid",
                reason: format!("{:?} is no UUID", entry.value.cluster_uuid),
            })
        })
        .transpose()?;
    let switched = machine.links == super::format::Topology::Nvswitch;
    for gpu in &mut world.gpus {
        if gpu.links.is_empty() && named.is_none() {
            continue;
        }
        if named.is_some() || (switched && gpu.architecture >= Architecture::Hopper) {
            gpu.fabric = Fabric {
                state: 3,
                status: 0,
                cluster_uuid: named.unwrap_or_default(),
                clique: machine
                    .fabric
                    .as_ref()
                    .map_or(0, |entry| entry.value.clique),
            };
        }
    }
    Ok(())
}

fn cluster_uuid(entry: &FabricEntry) -> Option<[u8; 16]> {
    let digits: String = entry
        .cluster_uuid
        .chars()
        .filter(|letter| *letter != '-')
        .collect();
    let number = u128::from_str_radix(&digits, 16).ok()?;
    (digits.len() == 32).then(|| number.to_be_bytes())
}

/// No two GPUs at one address or with one UUID or minor number.
fn unique(scenario: &Scenario, world: &World) -> Result<(), ScenarioError> {
    let mut seen: BTreeSet<(&'static str, String)> = BTreeSet::new();
    for gpu in &world.gpus {
        let keys = [
            ("pci", gpu.pci.to_string()),
            ("uuid", gpu.uuid.clone()),
            ("minor", gpu.minor.to_string()),
        ];
        for (key, value) in keys {
            if !seen.insert((key, value.clone())) {
                return Err(ScenarioError::Value {
                    place: scenario.place(serde_saphyr::Location::UNKNOWN),
                    key,
                    reason: format!("two GPUs have {value}"),
                });
            }
        }
    }
    Ok(())
}

fn add_instances(
    scenario: &Scenario,
    world: &mut World,
    slot: Slot,
    entry: &GpuEntry,
) -> Result<(), ScenarioError> {
    for instance in &entry.instances {
        for _ in 0..instance.value.count {
            let index = world.gpu(slot).map_or(0, |gpu| gpu.index);
            add_instance(world, slot, &instance.value).map_err(|(name, reason)| {
                ScenarioError::Instance {
                    place: scenario.place(instance.referenced),
                    instance: name,
                    gpu: index,
                    reason,
                }
            })?;
        }
    }
    Ok(())
}

/// Puts one GPU instance and its compute instances in. An error is the name of what was refused, and why.
fn add_instance(
    world: &mut World,
    slot: Slot,
    entry: &InstanceEntry,
) -> Result<(), (String, InstanceRefusal)> {
    let refused = |reason| (entry.profile.clone(), reason);
    let gpu = world
        .gpu(slot)
        .map_err(|_| refused(InstanceRefusal::NoMig))?;
    let mig = gpu.mig().map_err(|_| refused(InstanceRefusal::NoMig))?;
    if !mig.current {
        return Err(refused(InstanceRefusal::ModeOff));
    }
    let named = |name: &String| gpu.profiles.iter().find(|profile| profile.name == *name);
    let profile = named(&entry.profile).ok_or_else(|| {
        let names = gpu.profiles.iter().map(|profile| profile.name.clone());
        refused(InstanceRefusal::UnknownProfile(names.collect()))
    })?;
    let (id, compute) = (profile.id, profile.compute.clone());
    let wanted = match entry.start {
        None => None,
        Some(start) => {
            let places = profile.placements.iter();
            let listed = places.clone().map(|place| place.start).collect();
            let found = places.copied().find(|place| place.start == start);
            Some(found.ok_or_else(|| refused(InstanceRefusal::NotThere { start, listed }))?)
        }
    };
    let full = profile.full_compute_profile().map(|full| full.name.clone());
    let names_of = |gi: &GpuInstance| {
        let name = gpu.profile_of(gi).map(|profile| profile.name.clone());
        format!("{} at {}", name.unwrap_or_default(), gi.placement.start)
    };
    let beside: Vec<String> = mig.instances.iter().map(names_of).collect();
    let over = wanted.and_then(|wanted| {
        let other = mig
            .instances
            .iter()
            .find(|gi| gi.placement.overlaps(wanted))?;
        Some(names_of(other))
    });
    let gi = world.create_gi(slot, id, wanted).map_err(|_| {
        refused(over.map_or(InstanceRefusal::Full(beside), InstanceRefusal::Overlaps))
    })?;
    let names = entry
        .compute
        .clone()
        .unwrap_or_else(|| full.into_iter().collect());
    for name in names {
        let refused = |reason| (format!("{name} in {}", entry.profile), reason);
        let found = compute.iter().find(|profile| profile.name == name);
        let profile = found.ok_or_else(|| {
            let names = compute.iter().map(|profile| profile.name.clone());
            refused(InstanceRefusal::UnknownProfile(names.collect()))
        })?;
        world
            .create_ci(slot, gi, profile.id, None)
            .map_err(|_| refused(InstanceRefusal::Full(Vec::new())))?;
    }
    Ok(())
}

fn add_process(
    scenario: &Scenario,
    world: &mut World,
    entry: &Spanned<ProcessEntry>,
) -> Result<(), ScenarioError> {
    let written = &entry.value;
    let refused = |code: Code| ScenarioError::Process {
        place: scenario.place(entry.referenced),
        pid: written.pid,
        gpu: written.gpu,
        code,
    };
    let slot = world
        .slot_of_index(written.gpu)
        .ok_or_else(|| refused(Code::NotFound))?;
    let gpu_uuid = world.gpu(slot).map_err(refused)?.uuid.clone();
    world
        .add_process(Process {
            pid: written.pid,
            name: written.name.clone(),
            gpu_uuid,
            gi: written.gi,
            ci: written.ci,
            memory_mib: written.memory_mib,
            kind: written.kind,
        })
        .map_err(refused)
}

fn lose(scenario: &Scenario, world: &mut World) {
    let entries = scenario.machine.gpus.iter();
    let lost: Vec<bool> = entries
        .flat_map(|entry| (0..entry.value.count).map(|_| entry.value.lost))
        .collect();
    for (gpu, lost) in world.gpus.iter_mut().zip(lost) {
        gpu.lost = lost;
    }
}
