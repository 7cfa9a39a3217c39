//! KFD's topology: a node for each processor, and one for each device or partition that programs see.
//!
//! A node reports the PCI location of its device. Partitions of a device share its chip ID. Some kernels number them
//! like PCI functions of the slot, which do not exist on the bus; others report the device's own address for all of
//! them. Source: Linux, `kfd_topology.c`; test data of AMD's device plugin.

use std::collections::BTreeMap;

use octavo_model::id::PciAddress;
use octavo_model::inventory::{Amd, AmdPartition, ReadProblem};
use octavo_model::quantity::Mebibytes;

use crate::amd::excerpt;
use crate::pci_function::AmdReading;
use crate::sysfs::{MAX_DEVICE_MEMORY, Sysfs};

const NODES: &str = "class/kfd/kfd/topology/nodes";
const AMD: u64 = 0x1002;
/// Node limit, far above eight devices with eight partitions each and as many processors.
const MAX_NODES: usize = 512;
/// First render minor. Source: Linux, DRM.
const FIRST_RENDER_MINOR: u32 = 128;

/// The accelerators of this machine as programs see them.
pub(super) struct Topology {
    nodes: Vec<Node>,
    /// The number of unreadable nodes, and the first error.
    unreadable_nodes: usize,
    first_error: Option<String>,
}

/// A device or partition.
struct Node {
    address: Option<PciAddress>,
    /// Function 0 of the slot.
    slot: Option<PciAddress>,
    chip: Option<u64>,
    hive: Option<u64>,
    gfx_target: Option<String>,
    partition: Option<AmdPartition>,
}

impl Topology {
    /// Reads the topology. An unreadable node may be a processor or a device.
    pub(super) fn read(sys: &Sysfs) -> Self {
        let mut topology = Self { nodes: Vec::new(), unreadable_nodes: 0, first_error: None };
        let names = sys.names(NODES).unwrap_or_else(|error| {
            topology.unreadable_nodes = 1;
            topology.first_error = Some(format!("the directory of the nodes: {error}"));
            Vec::new()
        });
        let mut numbers: Vec<u32> = names.iter().filter_map(|name| name.parse().ok()).collect();
        numbers.sort_unstable();
        if let Some(unread) = numbers.len().checked_sub(MAX_NODES).filter(|n| *n > 0) {
            topology.unreadable_nodes = unread;
            topology.first_error = Some(format!("more than {MAX_NODES} nodes"));
        }
        for number in numbers.into_iter().take(MAX_NODES) {
            let dir = format!("{NODES}/{number}");
            match properties(sys, &format!("{dir}/properties"), "vendor_id") {
                Ok(properties) => topology.nodes.extend(node(sys, &dir, &properties)),
                Err(error) => {
                    topology.unreadable_nodes = topology.unreadable_nodes.saturating_add(1);
                    let wrong = || format!("node {number}: {error}");
                    topology.first_error.get_or_insert_with(wrong);
                }
            }
        }
        topology
    }

    /// Adds the values of its nodes to each device.
    pub(super) fn add_to_devices(&self, devices: &mut [(PciAddress, AmdReading)]) {
        let known: Vec<(PciAddress, Option<u64>)> =
            devices.iter().map(|(address, reading)| (*address, chip(&reading.amd))).collect();
        for (address, reading) in devices {
            let is_its = |node: &&Node| owner(node, &known) == Some(*address);
            let nodes: Vec<&Node> = self.nodes.iter().filter(is_its).collect();
            add_nodes(&mut reading.amd, &nodes);
            reading.problems.extend(self.problem(&reading.amd));
        }
    }

    /// Returns a problem if the nodes of the device are incomplete.
    fn problem(&self, amd: &Amd) -> Option<ReadProblem> {
        let found = amd.partitions.len();
        let mode = amd.compute.as_ref().map(|mode| mode.current.as_str());
        let expected = expected_partitions(mode);
        let what_is_wrong = if found == 0 {
            "no node belongs to this device; its partitions are unknown".to_owned()
        } else if let Some(expected) = expected.filter(|expected| *expected != found) {
            format!("this device has {found} nodes instead of {expected}")
        } else if self.unreadable_nodes > 0 && expected.is_none() {
            "the nodes of this device might be incomplete".to_owned()
        } else {
            return None;
        };
        let unread = self.first_error.as_ref().map(|wrong| {
            let count = self.unreadable_nodes;
            format!("; unreadable nodes: {count} ({wrong})")
        });
        Some(ReadProblem {
            source: "KFD's topology".to_owned(),
            error: format!("{what_is_wrong}{}", unread.unwrap_or_default()),
        })
    }
}

/// Number of partitions in a compute mode; `None` if it depends on the chip.
fn expected_partitions(mode: Option<&str>) -> Option<usize> {
    match mode {
        None | Some("SPX") => Some(1),
        Some("DPX") => Some(2),
        Some("TPX") => Some(3),
        Some("QPX") => Some(4),
        Some(_) => None,
    }
}

fn chip(amd: &Amd) -> Option<u64> {
    let id = amd.unique_id.as_deref()?;
    u64::from_str_radix(id, 16).ok()
}

/// Returns the device of a node: the one at its address, else the only one with its chip ID, else the one in its slot.
/// Never a device with a different chip ID.
fn owner(node: &Node, devices: &[(PciAddress, Option<u64>)]) -> Option<PciAddress> {
    let at = |place: Option<PciAddress>| {
        let known = devices.iter().find(|(address, _)| Some(*address) == place);
        let differs = |chip: u64| node.chip.is_some_and(|other| other != chip);
        known.filter(|(_, chip)| !chip.is_some_and(differs))
    };
    let by_chip = || {
        let chip = node.chip?;
        let mut with_it = devices.iter().filter(|(_, other)| *other == Some(chip));
        let first = with_it.next();
        first.filter(|_| with_it.next().is_none())
    };
    let found = at(node.address).or_else(by_chip).or_else(|| at(node.slot));
    found.map(|(address, _)| *address)
}

fn add_nodes(amd: &mut Amd, nodes: &[&Node]) {
    amd.gfx_target = nodes.iter().find_map(|node| node.gfx_target.clone());
    amd.hive = nodes.iter().find_map(|node| node.hive);
    amd.partitions = nodes.iter().filter_map(|node| node.partition.clone()).collect();
    amd.partitions.sort_by_key(|partition| partition.render_minor);
    amd.partitions.dedup_by_key(|partition| partition.render_minor);
    let each = amd.partitions.iter().map(|partition| partition.compute_units);
    let sum = each.reduce(|all, one| all?.checked_add(one?));
    amd.compute_units = sum.flatten();
}

/// Parses a node that is a device or partition; `None` for a processor.
fn node(sys: &Sysfs, dir: &str, properties: &BTreeMap<String, u64>) -> Option<Node> {
    let value = |key: &str| properties.get(key).copied();
    let nonzero = |key: &str| value(key).filter(|value| *value != 0);
    if value("vendor_id") != Some(AMD) {
        return None;
    }
    let place = |function: u64| {
        let location = value("location_id")?;
        PciAddress::new(
            u32::try_from(value("domain").unwrap_or(0)).ok()?,
            u8::try_from((location >> 8) & 0xff).ok()?,
            u8::try_from((location >> 3) & 0x1f).ok()?,
            u8::try_from(location & function).ok()?,
        )
    };
    let units = || {
        let simds = nonzero("simd_count")?;
        u32::try_from(simds.checked_div(nonzero("simd_per_cu")?)?).ok()
    };
    let minor = nonzero("drm_render_minor").and_then(|minor| u32::try_from(minor).ok());
    Some(Node {
        address: place(7),
        slot: place(0),
        chip: nonzero("unique_id"),
        hive: nonzero("hive_id"),
        gfx_target: nonzero("gfx_target_version").and_then(gfx_target),
        partition: minor.filter(|minor| *minor >= FIRST_RENDER_MINOR).map(|render_minor| {
            AmdPartition { render_minor, compute_units: units(), memory: memory(sys, dir) }
        }),
    })
}

/// Returns the memory that the node sees.
fn memory(sys: &Sysfs, dir: &str) -> Option<Mebibytes> {
    const SIZE: &str = "size_in_bytes";
    let bank = properties(sys, &format!("{dir}/mem_banks/0/properties"), SIZE).ok()?;
    let bytes = bank.get(SIZE).filter(|bytes| **bytes > 0)?;
    Some(Mebibytes::from_bytes(*bytes)).filter(|memory| *memory <= MAX_DEVICE_MEMORY)
}

/// Formats the target version: `gfx942` from 90402. Minor and stepping have two decimal digits each, and one
/// hexadecimal digit in the name.
fn gfx_target(version: u64) -> Option<String> {
    let (major, minor, stepping) = (version / 10_000, version / 100 % 100, version % 100);
    let fits = (1..100).contains(&major) && minor < 16 && stepping < 16;
    fits.then(|| format!("gfx{major}{minor:x}{stepping:x}"))
}

/// Parses lines of the form `key value` in a file that must contain `needed`. Ignores other lines, which newer kernels
/// may add. KFD shows an empty file for a device that the container must not use.
fn properties(sys: &Sysfs, path: &str, needed: &str) -> Result<BTreeMap<String, u64>, String> {
    let text = sys.attribute(path).map_err(|error| error.to_string())?;
    let text = text.ok_or_else(|| "it has no properties".to_owned())?;
    let pair = |line: &str| {
        let (key, value) = line.split_once(' ')?;
        Some((key.to_owned(), value.trim().parse().ok()?))
    };
    let found: BTreeMap<String, u64> = text.lines().filter_map(pair).collect();
    if found.contains_key(needed) {
        Ok(found)
    } else {
        Err(format!("{} does not contain {needed}", excerpt(&text)))
    }
}
