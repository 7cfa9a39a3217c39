//! Keys of a scenario for accelerators outside of NVML.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::one_or_many::{OneOrMany, one};
use super::{Scenario, ScenarioError};
use crate::model::{
    AmdChip, AmdDevice, ComputeMode, Function, MemoryMode, Neuron, NeuronChip, OtherDevices,
    PciAddress, seed,
};

/// The driver's own limit.
const MOST_NEURON: u32 = 64;
/// PCI buses of eight AMD devices on a board, as in real servers.
const AMD_BUSES: [u8; 8] = [0x05, 0x27, 0x47, 0x65, 0x85, 0xa7, 0xc7, 0xe5];
/// The PCI bus of additional functions.
const FUNCTIONS_BUS: u8 = 0xe0;
const MOST_FUNCTIONS: u8 = 32;

/// Neuron devices.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NeuronEntry {
    chip: NeuronChip,
    #[serde(default = "one")]
    count: u32,
    #[serde(default = "neuron_driver")]
    driver: String,
    #[serde(default)]
    links: NeuronLinks,
    #[serde(default)]
    logical_core: Option<u32>,
    /// Per core, of all devices or of each.
    #[serde(default)]
    used_mib: Option<OneOrMany<u64>>,
    /// By device.
    #[serde(default)]
    unhealthy: BTreeMap<u32, Vec<String>>,
}

/// Links of Neuron devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum NeuronLinks {
    /// None.
    #[default]
    None,
    /// Each with the next one, and the last with the first.
    Ring,
    /// Rings in rows and columns of four.
    Torus,
}

/// One or more equal AMD devices.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AmdEntry {
    chip: AmdChip,
    #[serde(default = "one")]
    count: u32,
    #[serde(default = "whole")]
    compute: ComputeMode,
    #[serde(default = "undivided")]
    memory: MemoryMode,
    #[serde(default)]
    used_mib: Option<OneOrMany<u64>>,
}

/// One or more equal functions.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FunctionEntry {
    vendor: u16,
    device: u16,
    class: u32,
    #[serde(default = "one")]
    count: u32,
    #[serde(default)]
    numa: u32,
    #[serde(default)]
    driver: Option<String>,
}

/// All devices. An error has the position of the entry.
pub(super) fn others(scenario: &Scenario) -> Result<OtherDevices, ScenarioError> {
    let machine = &scenario.machine;
    let refused = |place, (key, reason): (&'static str, String)| ScenarioError::Value {
        place: scenario.place(place),
        key,
        reason,
    };
    let neuron = machine.neuron.as_ref().map(|entry| {
        let neuron = neuron(&entry.value);
        neuron.map_err(|wrong| refused(entry.referenced, wrong))
    });
    let mut others = OtherDevices { neuron: neuron.transpose()?, ..OtherDevices::default() };
    for entry in &machine.amd {
        add_amd(&mut others.amd, &entry.value, seed(&machine.machine))
            .map_err(|wrong| refused(entry.referenced, wrong))?;
    }
    for entry in &machine.functions {
        add_functions(&mut others.functions, &entry.value)
            .map_err(|wrong| refused(entry.referenced, wrong))?;
    }
    Ok(others)
}

fn neuron(entry: &NeuronEntry) -> Result<Neuron, (&'static str, String)> {
    let count = entry.count;
    if !(1..=MOST_NEURON).contains(&count) {
        return Err(("count", format!("must be from 1 to {MOST_NEURON}, not {count}")));
    }
    let links = match entry.links {
        NeuronLinks::None => vec![Vec::new(); length(count)],
        NeuronLinks::Ring if count >= 3 => ring(count),
        NeuronLinks::Ring => {
            return Err(("links", "a ring requires at least three devices".to_owned()));
        }
        NeuronLinks::Torus if count == 16 => torus(),
        NeuronLinks::Torus => return Err(("links", "a torus requires 16 devices".to_owned())),
    };
    if let Some(size) = entry.logical_core {
        if !entry.chip.has_logical_cores() {
            return Err(("logical_core", "this chip does not support it".to_owned()));
        }
        if !(1..=2).contains(&size) {
            return Err(("logical_core", format!("must be 1 or 2, not {size}")));
        }
    }
    let each = entry.chip.memory_gib().saturating_mul(1024) / u64::from(entry.chip.cores());
    let used_mib = used(entry.used_mib.as_ref(), count, each)?;
    if let Some(beyond) = entry.unhealthy.keys().find(|number| **number >= count) {
        return Err(("unhealthy", format!("device {beyond} does not exist")));
    }
    let unhealthy = |number| entry.unhealthy.get(&number).cloned().unwrap_or_default();
    Ok(Neuron {
        chip: entry.chip,
        driver: entry.driver.clone(),
        links,
        logical_core: entry.logical_core,
        used_mib,
        unhealthy: (0..count).map(unhealthy).collect(),
    })
}

/// One number for each device, at most the available memory.
fn used(
    written: Option<&OneOrMany<u64>>,
    count: u32,
    most: u64,
) -> Result<Vec<u64>, (&'static str, String)> {
    let Some(written) = written else {
        return Ok(vec![0; length(count)]);
    };
    if let Some(values) = written.count().filter(|values| *values != length(count)) {
        return Err(("used_mib", format!("{values} values for {count} devices")));
    }
    let used: Vec<u64> = (0..length(count)).filter_map(|nth| written.get(nth)).collect();
    match used.iter().find(|used| **used > most) {
        Some(more) => Err(("used_mib", format!("{more} MiB exceed the {most} MiB of the device"))),
        None => Ok(used),
    }
}

fn ring(count: u32) -> Vec<Vec<u32>> {
    let before = count.saturating_sub(1);
    let near = |at: u32| vec![(at + 1) % count, (at + before) % count];
    (0..count).map(near).collect()
}

/// In the driver's order of neighbors: `12, 3, 4, 1` for the first.
fn torus() -> Vec<Vec<u32>> {
    let at = |row: u32, column: u32| row % 4 * 4 + column % 4;
    let near = |number: u32| {
        let (row, column) = (number / 4, number % 4);
        let along = (at(row, column + 3), at(row, column + 1));
        let across = (at(row + 3, column), at(row + 1, column));
        vec![across.0, along.0, across.1, along.1]
    };
    (0..16).map(near).collect()
}

fn add_amd(
    devices: &mut Vec<AmdDevice>,
    entry: &AmdEntry,
    seed: u64,
) -> Result<(), (&'static str, String)> {
    let first = devices.len();
    let buses = AMD_BUSES.get(first..).unwrap_or_default();
    let buses = buses.get(..length(entry.count)).ok_or_else(|| {
        let most = AMD_BUSES.len();
        ("count", format!("a machine has at most {most} AMD devices"))
    })?;
    let is_whole = (entry.compute, entry.memory) == (ComputeMode::Spx, MemoryMode::Nps1);
    if !entry.chip.has_partitions() && !is_whole {
        return Err(("compute", "this chip cannot be partitioned".to_owned()));
    }
    if !entry.memory.is_compatible_with(entry.compute) {
        let (memory, compute) = (entry.memory.name(), entry.compute.name());
        return Err(("memory", format!("{memory} is incompatible with {compute}")));
    }
    let used_mib = used(entry.used_mib.as_ref(), entry.count, entry.chip.memory_mib())?;
    let name = seed.wrapping_add(u64::try_from(first).unwrap_or(0)) | 1;
    for (nth, (bus, used_mib)) in (0_u64..).zip(buses.iter().zip(used_mib)) {
        devices.push(AmdDevice {
            chip: entry.chip,
            pci: PciAddress { domain: 0, bus: *bus, device: 0, function: 0 },
            numa_node: u32::from(*bus >= 0x80),
            unique_id: name.wrapping_add(nth),
            hive: if entry.count > 1 { name } else { 0 },
            compute: entry.compute,
            memory: entry.memory,
            used_mib,
        });
    }
    Ok(())
}

fn add_functions(
    functions: &mut Vec<Function>,
    entry: &FunctionEntry,
) -> Result<(), (&'static str, String)> {
    for _ in 0..entry.count {
        let next = u8::try_from(functions.len()).ok();
        let device = next.filter(|device| *device < MOST_FUNCTIONS);
        let device = device.ok_or_else(|| {
            let reason = format!("a machine has at most {MOST_FUNCTIONS} of these functions");
            ("count", reason)
        })?;
        functions.push(Function {
            pci: PciAddress { domain: 0, bus: FUNCTIONS_BUS, device, function: 0 },
            vendor: entry.vendor,
            device: entry.device,
            class: entry.class,
            numa_node: entry.numa,
            driver: entry.driver.clone(),
        });
    }
    Ok(())
}

fn length(count: u32) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

fn neuron_driver() -> String {
    "2.26.5.0".to_owned()
}

fn whole() -> ComputeMode {
    ComputeMode::Spx
}

fn undivided() -> MemoryMode {
    MemoryMode::Nps1
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn parse(text: &str) -> Result<OtherDevices, String> {
        let text = format!("machine: m\n{text}");
        let scenario = Scenario::parse(Path::new("m.yaml"), &text);
        let world = scenario.and_then(|scenario| scenario.world());
        world.map(|world| world.others).map_err(|error| error.to_string())
    }

    #[test]
    fn torus_has_four_neighbors_each_and_ring_two() {
        let others = parse("neuron: {chip: trainium2, count: 16, links: torus}").unwrap();
        let links = others.neuron.unwrap().links;
        assert_eq!((&links[0], &links[5]), (&vec![12, 3, 4, 1], &vec![1, 4, 9, 6]));
        let others = parse("neuron: {chip: inferentia2, count: 12, links: ring}").unwrap();
        assert_eq!(others.neuron.unwrap().links[0], [1, 11]);
    }

    #[test]
    fn equal_amd_devices_form_one_hive_and_single_device_none() {
        let amd = parse("amd: [{chip: mi210, count: 2}, {chip: mi300x}]").unwrap();
        let amd = amd.amd;
        assert_eq!(amd[0].hive, amd[1].hive);
        assert!(amd[0].hive != 0 && amd[2].hive == 0);
        assert_eq!(amd[2].pci.to_string(), "00000000:47:00.0");
    }

    #[test]
    fn impossible_hardware_is_rejected_with_location() {
        for (text, reason) in [
            ("neuron: {chip: trainium9}", "m.yaml:2:16"),
            ("neuron: {chip: trainium1, colour: red}", "m.yaml:2:"),
            (
                "neuron: {chip: trainium1, count: 65}",
                "m.yaml:2:9: count: must be from 1 to 64, not 65",
            ),
            (
                "neuron: {chip: trainium1, count: 0}",
                "m.yaml:2:9: count: must be from 1 to 64, not 0",
            ),
            (
                "neuron: {chip: trainium1, links: torus}",
                "m.yaml:2:9: links: a torus requires 16 devices",
            ),
            (
                "neuron: {chip: trainium1, logical_core: 2}",
                "m.yaml:2:9: logical_core: this chip does not support it",
            ),
            (
                "neuron: {chip: trainium2, used_mib: 12289}",
                "m.yaml:2:9: used_mib: 12289 MiB exceed the 12288 MiB",
            ),
            (
                "neuron: {chip: trainium2, used_mib: [1, 2]}",
                "m.yaml:2:9: used_mib: 2 values for 1 devices",
            ),
            (
                "neuron: {chip: trainium2, unhealthy: {1: [hbm]}}",
                "m.yaml:2:9: unhealthy: device 1 does not exist",
            ),
            (
                "amd: [{chip: mi210, compute: CPX}]",
                "m.yaml:2:7: compute: this chip cannot be partitioned",
            ),
            (
                "amd: [{chip: mi300x, memory: NPS4}]",
                "m.yaml:2:7: memory: NPS4 is incompatible with SPX",
            ),
            (
                "amd: [{chip: mi300x, count: 9}]",
                "m.yaml:2:7: count: a machine has at most 8 AMD devices",
            ),
            (
                "functions: [{vendor: 1, device: 2, class: 3, count: 33}]",
                "m.yaml:2:13: count: a machine has at most 32 of these functions",
            ),
        ] {
            let given = parse(text).unwrap_err();
            assert!(given.starts_with(reason), "{text}: {given}");
        }
    }
}
