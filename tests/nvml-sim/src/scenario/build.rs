//! Builds a world from a scenario.
//!
//! Instances and processes are added through the operations of the model, so that a scenario cannot describe what the
//! driver would not allow.

use std::collections::BTreeMap;

use serde_saphyr::Spanned;

use super::format::{FabricEntry, GpuEntry, LatencyEntry, LatencyName, ProcessEntry, Topology};
use super::gpu::gpu;
use super::instances::add_instances;
use super::one_or_many::OneOrMany;
use super::{Scenario, ScenarioError, SourcePosition, topology};
use crate::board::Board;
use crate::latency::Latency;
use crate::model::{
    Architecture, Driver, Fabric, Process, ProcessRefusal, Slot, World, is_driver_version,
    nvml_version, seed,
};

/// Maximum that the handles of the C interface can distinguish.
const MOST_GPUS: usize = 1 << 12;

pub(super) fn world(scenario: &Scenario) -> Result<World, ScenarioError> {
    let machine = &scenario.machine;
    let driver = driver_version(scenario)?;
    let cuda_version = cuda_version(scenario)?;
    let mut world = World {
        machine: machine.machine.clone(),
        machine_type: machine.machine_type.clone().unwrap_or_default(),
        driver: Driver {
            version: driver.to_owned(),
            cuda_version,
            nvml_version: nvml_version(driver, cuda_version),
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
        others: super::others::others(scenario)?,
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
    // Last, because nothing can be added to a lost GPU; and the events of the setup are dropped.
    lose(scenario, &mut world);
    world.events.clear();
    world.last_event = 0;
    Ok(world)
}

/// Rules depend on its branch, and clients split it at the dots.
fn driver_version(scenario: &Scenario) -> Result<&str, ScenarioError> {
    let text = &scenario.machine.driver;
    if is_driver_version(&text.value) {
        return Ok(&text.value);
    }
    Err(ScenarioError::Value {
        place: scenario.place(text.referenced),
        key: "driver",
        reason: format!("{:?} is not a version such as 580.95.05", text.value),
    })
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
        reason: format!("{:?} is not a version such as \"13.0\"", text.value),
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
    let room = MOST_GPUS.saturating_sub(world.gpus.len());
    if usize::try_from(written.count).unwrap_or(usize::MAX) > room {
        return Err(ScenarioError::Value {
            place,
            key: "count",
            reason: format!("a machine has at most {MOST_GPUS} GPUs"),
        });
    }
    if !board.profiles.is_empty() {
        world.tables.insert(board.sku.clone(), board.profiles.clone());
    }
    for nth in 0..written.count {
        let gpu = gpu(world, &board, written, usize::try_from(nth).unwrap_or(0));
        world.gpus.push(gpu.map_err(|(key, reason)| ScenarioError::Value {
            place: place.clone(),
            key,
            reason,
        })?);
        ports.push(board.links);
    }
    Ok(())
}

/// A list must have one value for each GPU of its entry.
fn check_lists(place: &SourcePosition, entry: &GpuEntry) -> Result<(), ScenarioError> {
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

/// Machines with switches since Hopper register with a fabric: their own, unless the scenario names a larger one.
fn register_fabric(scenario: &Scenario, world: &mut World) -> Result<(), ScenarioError> {
    let machine = &scenario.machine;
    let named = machine
        .fabric
        .as_ref()
        .map(|entry| {
            cluster_uuid(&entry.value).ok_or_else(|| ScenarioError::Value {
                place: scenario.place(entry.referenced),
                key: "cluster_uuid",
                reason: format!("{:?} is not a UUID", entry.value.cluster_uuid),
            })
        })
        .transpose()?;
    let switched = match machine.links {
        Topology::Nvswitch | Topology::HiddenNvswitch => true,
        Topology::None | Topology::NvlinkPairs | Topology::NvlinkMesh => false,
    };
    for gpu in &mut world.gpus {
        if gpu.links.is_empty() && named.is_none() {
            continue;
        }
        if named.is_some() || (switched && gpu.architecture >= Architecture::Hopper) {
            gpu.fabric = Fabric {
                state: 3,
                status: 0,
                cluster_uuid: named.unwrap_or_default(),
                clique: machine.fabric.as_ref().map_or(0, |entry| entry.value.clique),
            };
        }
    }
    Ok(())
}

fn cluster_uuid(entry: &FabricEntry) -> Option<[u8; 16]> {
    let digits: String = entry.cluster_uuid.chars().filter(|letter| *letter != '-').collect();
    let number = u128::from_str_radix(&digits, 16).ok()?;
    (digits.len() == 32).then(|| number.to_be_bytes())
}

/// All GPUs must have distinct addresses, UUIDs and minor numbers. The position is the entry of the second one.
fn unique(scenario: &Scenario, world: &World) -> Result<(), ScenarioError> {
    let entries = scenario.machine.gpus.iter();
    let places = entries.flat_map(|entry| (0..entry.value.count).map(|_| entry.referenced));
    let mut seen: BTreeMap<(&'static str, String), u32> = BTreeMap::new();
    for (gpu, place) in world.gpus.iter().zip(places) {
        let keys = [
            ("pci", gpu.pci.to_string()),
            ("uuid", gpu.uuid.clone()),
            ("minor", gpu.minor.to_string()),
        ];
        for (key, value) in keys {
            let reason = format!("{value} is used by two GPUs");
            if let Some(first) = seen.insert((key, value), gpu.index) {
                return Err(ScenarioError::Value {
                    place: scenario.place(place),
                    key,
                    reason: format!("{reason}, {first} and {}", gpu.index),
                });
            }
        }
    }
    Ok(())
}

fn add_process(
    scenario: &Scenario,
    world: &mut World,
    entry: &Spanned<ProcessEntry>,
) -> Result<(), ScenarioError> {
    let written = &entry.value;
    let refused = |reason| ScenarioError::Process {
        place: scenario.place(entry.referenced),
        pid: written.pid,
        gpu: written.gpu,
        reason,
    };
    let slot = world.slot_of_index(written.gpu);
    let gpu = slot.and_then(|slot| world.gpu(slot).ok());
    let process = Process {
        pid: written.pid,
        name: written.name.clone(),
        gpu_uuid: gpu.ok_or_else(|| refused(ProcessRefusal::NoGpu))?.uuid.clone(),
        gi: written.gi,
        ci: written.ci,
        memory_mib: written.memory_mib,
        kind: written.kind,
    };
    world.refusal_of(&process).map_err(refused)?;
    world.processes.push(process);
    Ok(())
}

fn lose(scenario: &Scenario, world: &mut World) {
    let entries = scenario.machine.gpus.iter();
    let lost: Vec<bool> =
        entries.flat_map(|entry| (0..entry.value.count).map(|_| entry.value.lost)).collect();
    for (gpu, lost) in world.gpus.iter_mut().zip(lost) {
        gpu.lost = lost;
    }
}
