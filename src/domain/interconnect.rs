//! How a node's devices are linked with each other: which kind of link, and how many reach each other directly.
//!
//! Work that spans devices runs at the speed of the links between them, so what matters is the largest set in which *every*
//! pair is linked: eight on an HGX board, two where bridges join pairs, four on a DGX-1, although there all eight can be
//! reached in two hops. Only devices whose driver answers are counted: a link to a device that fell off the bus is of no use.

mod clique;
mod hives;
mod neuron;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::domain::id::PciAddress;
use crate::domain::inventory::{Condition, Device, Inventory, LinkRemote, SwitchGroup, Vendor};

/// How the devices of a node are linked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interconnect {
    /// The best kind of link there is between devices.
    pub kind: InterconnectKind,
    /// How many devices the largest set has in which each has a direct link to every other; 1 when there are no links.
    pub domain_size: usize,
    /// Devices that reach each other over links, directly or through others; a device without links stands alone.
    /// Ordered by address, within a domain and among domains. Neuron devices have no address, and none of them is named.
    pub domains: Vec<Vec<PciAddress>>,
}

/// Kinds of links between devices, the better the later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum InterconnectKind {
    /// Nothing but the bus.
    Pcie,
    /// AMD's xGMI.
    Xgmi,
    /// Amazon's `NeuronLink`.
    NeuronLink,
    /// `NVLink` from device to device.
    NvLink,
    /// `NVLink` through switches.
    NvSwitch,
}

impl fmt::Display for InterconnectKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Pcie => "pcie",
            Self::Xgmi => "xgmi",
            Self::NeuronLink => "neuronlink",
            Self::NvLink => "nvlink",
            Self::NvSwitch => "nvswitch",
        })
    }
}

/// How `devices` are linked; `None` where there are no two to link, or where their links are not known.
///
/// Links are known of NVIDIA devices that answer. A link with an unknown remote makes the kind unknown, unless other links have a known
/// one. So does a device whose links cannot be read, a device of another vendor, and a hidden switch for which NVML does not report
/// which GPUs it connects. AMD devices count only where there is no NVIDIA device.
pub fn of(devices: &[Device]) -> Option<Interconnect> {
    let mut nodes: Vec<&Device> = devices.iter().filter(|device| answers(device)).collect();
    nodes.sort_by_key(|device| device.pci);
    if nodes.is_empty() {
        return hives::of(devices);
    }
    if nodes.len() < 2 {
        return None;
    }
    let kind = kind_of(&nodes, devices)?;
    let linked = adjacency(&nodes)?;
    Some(judged(kind, &nodes, &linked))
}

/// How the devices of a node are linked, the Neuron devices where there is nobody else's link to tell of.
pub fn of_node(inventory: &Inventory) -> Option<Interconnect> {
    let others =
        |device: &Device| device.vendor != Vendor::Aws && device.condition == Condition::Working;
    if inventory.devices.iter().any(others) {
        return of(&inventory.devices);
    }
    match &inventory.neuron {
        Some(neuron) => neuron::of(neuron, &inventory.devices),
        None => of(&inventory.devices),
    }
}

fn judged(kind: InterconnectKind, nodes: &[&Device], linked: &[u64]) -> Interconnect {
    let domains = components(linked)
        .into_iter()
        .map(|members| addresses(nodes, members))
        .collect();
    Interconnect {
        kind,
        domain_size: clique::largest(linked),
        domains,
    }
}

fn answers(device: &Device) -> bool {
    device.vendor == Vendor::Nvidia && device.condition == Condition::Working
}

fn kind_of(nodes: &[&Device], devices: &[Device]) -> Option<InterconnectKind> {
    let remotes = || nodes.iter().flat_map(|device| &device.links);
    let any = |wanted: fn(&LinkRemote) -> bool| remotes().any(|link| wanted(&link.remote));
    let is_ungrouped = |device: &&Device| {
        device.has_hidden_switch() && device.switch_group(LinkRemote::HiddenSwitch).is_none()
    };
    if nodes.iter().any(is_ungrouped) {
        return None;
    }
    if any(|remote| matches!(remote, LinkRemote::Switch(_) | LinkRemote::HiddenSwitch)) {
        return Some(InterconnectKind::NvSwitch);
    }
    if any(|remote| matches!(remote, LinkRemote::Device(_))) {
        return Some(InterconnectKind::NvLink);
    }
    let silent = nodes.iter().any(|device| says_nothing_of_links(device));
    let all_told = remotes().next().is_none() && !silent && nodes.len() == devices.len();
    all_told.then_some(InterconnectKind::Pcie)
}

/// NVML's functions about links all have `NvLink` in their names.
fn says_nothing_of_links(device: &Device) -> bool {
    device
        .problems
        .iter()
        .any(|problem| problem.what.contains("NvLink"))
}

/// For each node the set of nodes it has a direct link to, as bits. A common switch is a direct link: the switch gives
/// each pair its full bandwidth. `None` for more nodes than there are bits; no machine has so many.
fn adjacency(nodes: &[&Device]) -> Option<Vec<u64>> {
    if nodes.len() > 64 {
        return None;
    }
    let place: BTreeMap<PciAddress, usize> =
        nodes.iter().map(|device| device.pci).zip(0..).collect();
    let mut pairs: BTreeSet<(usize, usize)> = BTreeSet::new();
    let mut behind: BTreeMap<SwitchGroup<'_>, Vec<usize>> = BTreeMap::new();
    for (at, device) in nodes.iter().enumerate() {
        for link in &device.links {
            if let LinkRemote::Device(address) = link.remote {
                pairs.extend(place.get(&address).map(|other| (at, *other)));
            }
            if let Some(group) = device.switch_group(link.remote) {
                behind.entry(group).or_default().push(at);
            }
        }
    }
    for members in behind.values() {
        pairs.extend(
            members
                .iter()
                .flat_map(|a| members.iter().map(|b| (*a, *b))),
        );
    }
    let mut linked = vec![0_u64; nodes.len()];
    for (a, b) in pairs.into_iter().filter(|(a, b)| a != b) {
        for (from, to) in [(a, b), (b, a)] {
            if let Some(bits) = linked.get_mut(from) {
                *bits |= 1 << to;
            }
        }
    }
    Some(linked)
}

/// Sets of nodes that reach each other, each as bits, ordered by their first node.
fn components(linked: &[u64]) -> Vec<u64> {
    let mut found: Vec<u64> = Vec::new();
    for at in 0..linked.len() {
        if found.iter().any(|members| members & (1 << at) != 0) {
            continue;
        }
        let mut members = 1_u64 << at;
        loop {
            let wider = clique::bits(members)
                .filter_map(|node| linked.get(node))
                .fold(members, |all, neighbours| all | neighbours);
            if wider == members {
                break;
            }
            members = wider;
        }
        found.push(members);
    }
    found
}

fn addresses(nodes: &[&Device], members: u64) -> Vec<PciAddress> {
    clique::bits(members)
        .filter_map(|node| nodes.get(node))
        .map(|device| device.pci)
        .collect()
}

#[cfg(test)]
mod tests;
