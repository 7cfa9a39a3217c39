//! Interconnect of a node's devices: the kind of links, and the largest fully connected set.
//!
//! Workloads on several devices are limited by the links between them, so the relevant number is the size of the
//! largest set in which *every* pair is linked: eight on an HGX board, two where bridges join pairs, four on a DGX-1,
//! although all eight of its GPUs can be reached in two hops. Only devices whose driver answers count: a link to a
//! device that fell off the bus is unusable.

mod clique;
mod hives;
mod neuron;

use std::collections::{BTreeMap, BTreeSet};

use strum::Display;

use crate::id::PciAddress;
use crate::inventory::{Condition, Device, Inventory, LinkRemote, SwitchGroup, Vendor};

/// Interconnect of a node's devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interconnect {
    /// Best kind of link between devices.
    pub kind: InterconnectKind,
    /// Size of the largest set in which every pair has a direct link; 1 without links.
    pub domain_size: usize,
    /// Sets of devices that reach each other over links, directly or indirectly; a device without links is a set of
    /// its own. Ordered by address, within and among sets. Neuron devices have no address and are omitted.
    pub domains: Vec<Vec<PciAddress>>,
}

/// Kind of links between devices, from worst to best.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Display)]
#[strum(serialize_all = "lowercase")]
pub enum InterconnectKind {
    /// PCIe only.
    Pcie,
    /// AMD xGMI.
    Xgmi,
    /// AWS `NeuronLink`.
    NeuronLink,
    /// NVLink between devices.
    NvLink,
    /// NVLink through switches.
    NvSwitch,
}

/// Interconnect of `devices`; `None` with fewer than two devices, or if their links are unknown.
///
/// Links are known for NVIDIA devices that answer. The result is unknown if there is a hidden switch for which NVML
/// does not report which GPUs it connects. If no link has a known remote end, it is unknown too, unless there are
/// only NVIDIA devices whose links were read and none of them has a link. AMD devices count only if no NVIDIA device
/// answers.
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
    Some(interconnect_of(kind, &nodes, &linked))
}

/// Interconnect of a node's devices. Neuron devices count only if no other accelerator answers.
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

fn interconnect_of(kind: InterconnectKind, nodes: &[&Device], linked: &[u64]) -> Interconnect {
    let domains = components(linked).into_iter().map(|members| addresses(nodes, members)).collect();
    Interconnect { kind, domain_size: clique::max_clique_size(linked), domains }
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
    let silent = nodes.iter().any(|device| has_unread_links(device));
    let is_complete = remotes().next().is_none() && !silent && nodes.len() == devices.len();
    is_complete.then_some(InterconnectKind::Pcie)
}

/// All of NVML's link functions have `NvLink` in their names.
fn has_unread_links(device: &Device) -> bool {
    device.problems.iter().any(|problem| problem.source.contains("NvLink"))
}

/// For each node, the bit set of nodes it has a direct link to. A common switch counts as a direct link: it provides
/// each pair with its full bandwidth. `None` for more nodes than bits; no real machine has that many.
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
        pairs.extend(members.iter().flat_map(|a| members.iter().map(|b| (*a, *b))));
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

/// Connected components as bit sets, ordered by their first node.
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
    clique::bits(members).filter_map(|node| nodes.get(node)).map(|device| device.pci).collect()
}

#[cfg(test)]
mod tests;
