//! Topology of a node: links between devices, switches and NUMA nodes, as a drawing and as a table.
//!
//! Only what agents report is drawn. PCIe switches are not reported.

mod drawing;

use std::collections::{BTreeMap, BTreeSet};

use octavo_model::id::PciAddress;
use octavo_model::interconnect::{self, Interconnect, InterconnectKind};
use octavo_model::inventory::{Device, Inventory, LinkRemote, Neuron, NeuronDevice, Topology};
use octavo_model::text::first_names;

pub(super) use self::drawing::Drawing;
use self::drawing::{Island, Item, Pair, draw_row, draw_torus};
use super::badges::{count_noun, printable};
use super::device_card::title;

/// Maximum number of devices that are drawn, as in [`interconnect::of`].
const MAX_DEVICES: usize = 64;
/// Maximum number of devices that a text names.
const MAX_NAMED: usize = 16;

/// Topology section of a node's page.
#[derive(Debug)]
pub(super) struct TopologySection {
    pub(super) summary: String,
    pub(super) drawing: Drawing,
    pub(super) rows: Vec<TopologyRow>,
}

/// Device in the table.
#[derive(Debug)]
pub(super) struct TopologyRow {
    pub(super) name: String,
    pub(super) href: String,
    pub(super) numa: String,
    pub(super) pci: String,
    pub(super) links: String,
}

const NOT_REPORTED: &str = "not reported";

impl TopologySection {
    /// Topology of a node; `None` with fewer than two devices, or if nothing is known about their links and places.
    pub(super) fn of(inventory: &Inventory) -> Option<Self> {
        let found = interconnect::of_node(inventory);
        if let (Some(InterconnectKind::NeuronLink), Some(neuron)) =
            (found.as_ref().map(|found| found.kind), &inventory.neuron)
        {
            return Self::of_neuron(neuron);
        }
        let devices = inventory.devices.iter();
        let devices = devices
            .filter(|one| !one.condition.is_passthrough() && !inventory.is_reported_by_neuron(one));
        let mut devices: Vec<&Device> = devices.collect();
        devices.sort_by_key(|device| (device.numa_node.is_none(), device.numa_node, device.pci));
        let is_placed = devices.iter().any(|device| device.numa_node.is_some());
        let is_known = found.is_some() || is_placed;
        if !is_known || !(2..=MAX_DEVICES).contains(&devices.len()) {
            return None;
        }
        let pairs = pairs(&devices);
        let islands = islands(&devices, found.as_ref(), &pairs);
        let (bars, meshes): (Vec<&Island>, Vec<&Island>) =
            islands.iter().partition(|island| island.is_complete);
        let in_mesh = |at| meshes.iter().any(|mesh| mesh.members.contains(&at));
        let arcs: Vec<Pair> = pairs.iter().filter(|pair| in_mesh(pair.from)).copied().collect();
        let items: Vec<Item> = devices.iter().map(|device| item(device, is_placed)).collect();
        let summary = summary(&items, found.as_ref(), &islands);
        Some(Self {
            drawing: draw_row(&summary, &items, &bars, &arcs),
            rows: devices
                .iter()
                .enumerate()
                .map(|(at, device)| TopologyRow {
                    name: title(device),
                    href: format!("#device-{}", device.pci),
                    numa: device
                        .numa_node
                        .map_or_else(|| NOT_REPORTED.to_owned(), |numa| numa.to_string()),
                    pci: device.pci.to_string(),
                    links: links(at, &devices, &pairs),
                })
                .collect(),
            summary,
        })
    }

    fn of_neuron(neuron: &Neuron) -> Option<Self> {
        let topology = neuron.topology()?;
        let devices = &neuron.devices;
        if !(2..=MAX_DEVICES).contains(&devices.len()) {
            return None;
        }
        let name = |device: &NeuronDevice| format!("Neuron {}", device.number);
        let items: Vec<Item> = devices
            .iter()
            .map(|device| Item { name: name(device), detail: String::new(), numa: None })
            .collect();
        let count = count_noun(devices.len(), "Neuron device", "Neuron devices");
        let (summary, drawing) = if let Topology::Torus { rows, columns } = topology {
            let summary = format!(
                "{count}, {topology}: each row and each column is a ring. A line at an edge continues at the opposite edge."
            );
            let drawing = draw_torus(&summary, &items, (rows, columns))?;
            (summary, drawing)
        } else {
            let summary = format!("{count}, {topology}.");
            let drawing = draw_row(&summary, &items, &[], &neuron_pairs(devices));
            (summary, drawing)
        };
        let row = |device: &NeuronDevice| {
            let near = device.connected.iter().flatten();
            let near: Vec<String> = near.map(|number| format!("Neuron {number}")).collect();
            TopologyRow {
                name: name(device),
                href: format!("#neuron-{}", device.number),
                numa: NOT_REPORTED.to_owned(),
                pci: NOT_REPORTED.to_owned(),
                links: if near.is_empty() {
                    "none".to_owned()
                } else {
                    first_names(&near, MAX_NAMED)
                },
            }
        };
        Some(Self { drawing, rows: devices.iter().map(row).collect(), summary })
    }
}

/// Device with its number and address, or only its address.
fn item(device: &Device, is_placed: bool) -> Item {
    let address = short_address(device.pci);
    let (name, detail) = match device.index {
        Some(_) => (title(device), address),
        None => (address, String::new()),
    };
    Item { name, detail, numa: is_placed.then(|| numa(device)) }
}

fn numa(device: &Device) -> String {
    match device.numa_node {
        Some(numa) => format!("NUMA node {numa}"),
        None => "NUMA node not reported".to_owned(),
    }
}

/// Address without the domain 0000: `1b:00.0`.
fn short_address(pci: PciAddress) -> String {
    let text = pci.to_string();
    text.strip_prefix("0000:").map_or_else(|| text.clone(), str::to_owned)
}

/// Place of each device in the drawing.
fn places(devices: &[&Device]) -> BTreeMap<PciAddress, usize> {
    devices.iter().map(|device| device.pci).zip(0..).collect()
}

/// Direct links between devices, each once.
fn pairs(devices: &[&Device]) -> Vec<Pair> {
    let place = places(devices);
    let mut counts: BTreeMap<(usize, usize), usize> = BTreeMap::new();
    for (from, device) in devices.iter().enumerate() {
        let mut of_device: BTreeMap<usize, usize> = BTreeMap::new();
        for link in &device.links {
            if let LinkRemote::Device(address) = link.remote
                && let Some(to) = place.get(&address).filter(|to| **to != from)
            {
                let count = of_device.entry(*to).or_default();
                *count = count.saturating_add(1);
            }
        }
        // Both ends report a link.
        for (to, count) in of_device {
            let known = counts.entry((from.min(to), from.max(to))).or_default();
            *known = count.max(*known);
        }
    }
    counts.into_iter().map(|((from, to), count)| Pair { from, to, count }).collect()
}

fn neuron_pairs(devices: &[NeuronDevice]) -> Vec<Pair> {
    let place: BTreeMap<u32, usize> = devices.iter().map(|one| one.number).zip(0..).collect();
    let all = devices.iter().enumerate().flat_map(|(from, device)| {
        let near = device.connected.iter().flatten();
        near.filter_map(|number| place.get(number)).map(move |to| (from.min(*to), from.max(*to)))
    });
    let all: BTreeSet<(usize, usize)> = all.filter(|(from, to)| from != to).collect();
    all.into_iter().map(|(from, to)| Pair { from, to, count: 1 }).collect()
}

/// Sets of at least two linked devices.
fn islands(devices: &[&Device], found: Option<&Interconnect>, pairs: &[Pair]) -> Vec<Island> {
    let Some(found) = found else {
        return Vec::new();
    };
    let place = places(devices);
    let domains = found.domains.iter().filter(|domain| domain.len() > 1);
    domains
        .map(|domain| {
            let members: Vec<usize> =
                domain.iter().filter_map(|pci| place.get(pci).copied()).collect();
            let of_island = members.iter().filter_map(|at| devices.get(*at).copied());
            Island {
                label: island_label(found.kind, &of_island.collect::<Vec<_>>()),
                is_complete: found.kind != InterconnectKind::NvLink || is_clique(&members, pairs),
                members,
            }
        })
        .collect()
}

/// Returns whether every pair of these devices has a direct link.
fn is_clique(members: &[usize], pairs: &[Pair]) -> bool {
    let is_inside = |pair: &&Pair| members.contains(&pair.from) && members.contains(&pair.to);
    let all = members.len().saturating_mul(members.len().saturating_sub(1)) / 2;
    pairs.iter().filter(is_inside).count() == all
}

/// `NVSwitch: 18 links each to 4 switches`.
fn island_label(kind: InterconnectKind, members: &[&Device]) -> String {
    let name = match kind {
        InterconnectKind::NvSwitch => "NVSwitch",
        InterconnectKind::NvLink => "NVLink",
        InterconnectKind::Xgmi => "xGMI",
        InterconnectKind::NeuronLink | InterconnectKind::Pcie => return kind.to_string(),
    };
    let counts: BTreeSet<usize> = members.iter().map(|device| device.links.len()).collect();
    let links = match (counts.first(), counts.last()) {
        (Some(0), Some(0)) | (None, _) | (_, None) => return name.to_owned(),
        (Some(min), Some(max)) if min == max => {
            format!("{} each", count_noun(*min, "link", "links"))
        }
        (Some(min), Some(max)) => format!("{min} to {max} links each"),
    };
    let switches = switches(members.iter().copied());
    match switches.len() {
        0 => format!("{name}: {links}"),
        count => format!("{name}: {links} to {}", count_noun(count, "switch", "switches")),
    }
}

fn switches<'a>(devices: impl Iterator<Item = &'a Device>) -> BTreeSet<PciAddress> {
    let links = devices.flat_map(|device| &device.links);
    let switches = links.filter_map(|link| match link.remote {
        LinkRemote::Switch(address) => Some(address),
        LinkRemote::Device(_) | LinkRemote::HiddenSwitch | LinkRemote::Unknown => None,
    });
    switches.collect()
}

fn summary(items: &[Item], found: Option<&Interconnect>, islands: &[Island]) -> String {
    let count = count_noun(items.len(), "device", "devices");
    let names = |island: &Island| {
        let names = island.members.iter().filter_map(|at| items.get(*at));
        let names: Vec<&str> = names.map(|item| item.name.as_str()).collect();
        first_names(&names, MAX_NAMED)
    };
    match (found, islands) {
        (None, _) => format!("{count}. It is not reported which devices are linked."),
        (Some(_), []) => format!("{count} without direct links; they communicate over PCIe."),
        (Some(_), [all]) if all.members.len() == items.len() => {
            format!("{count}, all linked. {}.", all.label)
        }
        (Some(_), islands) => {
            let parts: Vec<String> = islands
                .iter()
                .map(|island| format!("{} ({})", names(island), island.label))
                .collect();
            let islands = count_noun(islands.len(), "linked group", "linked groups");
            format!("{count}, {islands}: {}.", parts.join("; "))
        }
    }
}

/// Links of a device by their remote ends.
fn links(at: usize, devices: &[&Device], pairs: &[Pair]) -> String {
    let Some(device) = devices.get(at) else {
        return NOT_REPORTED.to_owned();
    };
    let mut parts: Vec<String> = Vec::new();
    for pair in pairs.iter().filter(|pair| pair.from == at || pair.to == at) {
        let other = if pair.from == at { pair.to } else { pair.from };
        if let Some(other) = devices.get(other) {
            parts.push(format!("{} to {}", pair.count, title(other)));
        }
    }
    let count = |wanted: fn(&LinkRemote) -> bool| {
        device.links.iter().filter(|link| wanted(&link.remote)).count()
    };
    let switched =
        count(|remote| matches!(remote, LinkRemote::Switch(_) | LinkRemote::HiddenSwitch));
    match (switched, switches([*device].into_iter()).len()) {
        (0, _) => {}
        (links, 0) => parts.push(format!("{links} to NVSwitches")),
        (links, count) => {
            parts.push(format!("{links} to {}", count_noun(count, "NVSwitch", "NVSwitches")));
        }
    }
    let unknown = count(|remote| *remote == LinkRemote::Unknown);
    if unknown > 0 {
        parts.push(format!("{unknown} to an unknown device"));
    }
    if let Some(hive) = device.amd.as_ref().and_then(|amd| amd.hive) {
        parts.push(format!("xGMI hive {hive:016x}"));
    }
    if let Some(fabric) = &device.fabric {
        parts.push(format!(
            "fabric {}, clique {}",
            printable(&fabric.cluster_uuid),
            fabric.clique_id
        ));
    }
    if parts.is_empty() { "none".to_owned() } else { first_names(&parts, MAX_NAMED) }
}

#[cfg(test)]
mod tests;
