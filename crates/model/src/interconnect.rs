//! Interconnect of a node's devices: the kind of links, and the largest fully connected set.
//!
//! Workloads on several devices are limited by the links between them, so the relevant number is the size of the
//! largest set in which *every* pair is linked: eight on an HGX board, two where bridges join pairs, four on a DGX-1,
//! although all eight of its GPUs can be reached in two hops. Only devices whose driver answers count: a link to a
//! device that fell off the bus is unusable.

use std::collections::{BTreeMap, BTreeSet};

use strum::Display;

use crate::id::PciAddress;
use crate::inventory::{Condition, Device, Inventory, LinkRemote, Neuron, SwitchGroup, Vendor};

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
        return amd_interconnect(devices);
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
        Some(neuron) => neuron_interconnect(neuron, &inventory.devices),
        None => of(&inventory.devices),
    }
}

fn interconnect_of(kind: InterconnectKind, nodes: &[&Device], linked: &[u64]) -> Interconnect {
    let domains = components(linked).into_iter().map(|members| addresses(nodes, members)).collect();
    Interconnect { kind, domain_size: max_clique_size(linked), domains }
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
            let wider = bits(members)
                .filter_map(|node| linked.get(node))
                .fold(members, |all, neighbors| all | neighbors);
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
    bits(members).filter_map(|node| nodes.get(node)).map(|device| device.pci).collect()
}

// Maximum clique of a graph, by branch and bound on bit sets.
//
// Each step colors the candidates greedily (linked nodes get different colors). A clique has at most as many nodes
// as there are colors, so a branch that cannot exceed the best clique found so far is pruned. On the graphs of real
// machines the first descent already finds the maximum. Source: Tomita and Seki, "An Efficient Branch-and-bound
// Algorithm for Finding a Maximum Clique".

/// Size of the maximum clique of a graph with at most 64 nodes, given as the neighbors of each node.
fn max_clique_size(linked: &[u64]) -> usize {
    let all = (0..linked.len().min(64)).fold(0_u64, |all, node| all | (1 << node));
    let mut best = 0;
    expand(linked, all, 0, &mut best);
    best
}

/// Positions of the set bits.
fn bits(set: u64) -> impl Iterator<Item = usize> {
    (0..64).filter(move |node| set & (1 << node) != 0)
}

fn expand(linked: &[u64], candidates: u64, size: usize, best: &mut usize) {
    *best = size.max(*best);
    let mut left = candidates;
    for (node, colors) in colored(linked, candidates).into_iter().rev() {
        if size + colors <= *best {
            return;
        }
        left &= !(1 << node);
        expand(linked, left & neighbors(linked, node), size + 1, best);
    }
}

/// Candidates ordered by color, each with the number of colors used so far.
fn colored(linked: &[u64], candidates: u64) -> Vec<(usize, usize)> {
    let mut order = Vec::new();
    let mut left = candidates;
    let mut colors = 0;
    while left != 0 {
        colors += 1;
        let mut open = left;
        while open != 0 {
            let node = open.trailing_zeros() as usize;
            open &= !(1 << node) & !neighbors(linked, node);
            left &= !(1 << node);
            order.push((node, colors));
        }
    }
    order
}

fn neighbors(linked: &[u64], node: usize) -> u64 {
    linked.get(node).copied().unwrap_or(0)
}

// AMD interconnect, from hives: devices of one hive are linked by xGMI.
//
// In a hive of bridged cards (two or four), or of an OAM board since the MI300, every pair of devices is linked. In
// one of MI250 modules some pairs are not, and the available data does not show which, so the interconnect of these
// is unknown. Source: AMD, "CDNA 2" and "CDNA 3" white papers, node diagrams.

/// MI250 and MI250X. Source: pci.ids.
const PARTIALLY_LINKED_DEVICES: [u16; 2] = [0x7408, 0x740c];

fn amd_interconnect(devices: &[Device]) -> Option<Interconnect> {
    let is_reporting =
        |device: &&Device| device.vendor == Vendor::Amd && device.condition == Condition::Working;
    let mut nodes: Vec<&Device> = devices.iter().filter(is_reporting).collect();
    nodes.sort_by_key(|device| device.pci);
    let doubtful = |device: &&Device| {
        hive(device).is_some() && PARTIALLY_LINKED_DEVICES.contains(&device.pci_ids.device)
    };
    if !(2..=64).contains(&nodes.len()) || nodes.iter().any(doubtful) {
        return None;
    }
    let linked: Vec<u64> = (0..nodes.len()).map(|at| hive_members(&nodes, at)).collect();
    let kind = if linked.iter().any(|neighbors| *neighbors != 0) {
        InterconnectKind::Xgmi
    } else {
        let is_complete =
            nodes.len() == devices.len() && nodes.iter().all(|device| is_hive_known(device));
        is_complete.then_some(InterconnectKind::Pcie)?
    };
    Some(interconnect_of(kind, &nodes, &linked))
}

fn hive(device: &Device) -> Option<u64> {
    device.amd.as_ref()?.hive
}

/// The hive is known if KFD's topology is, which contains the partitions.
fn is_hive_known(device: &Device) -> bool {
    let amd = device.amd.as_ref();
    amd.is_some_and(|amd| !amd.partitions.is_empty())
}

/// Devices of the same hive, as a bit set.
fn hive_members(nodes: &[&Device], at: usize) -> u64 {
    let Some(own) = nodes.get(at).and_then(|device| hive(device)) else {
        return 0;
    };
    let others = nodes.iter().enumerate();
    others
        .filter(|(other, device)| *other != at && hive(device) == Some(own))
        .fold(0, |bits, (other, _)| bits | 1 << other)
}

// Interconnect of Neuron devices, from the neighbors that each device reports.
//
// In a ring or torus, devices forward data for others, so all connected devices form one domain over which
// collectives run. If only one end reports a link, the whole interconnect is unknown.

fn neuron_interconnect(neuron: &Neuron, devices: &[Device]) -> Option<Interconnect> {
    // The topology is known only if all devices report their links and agree.
    neuron.topology()?;
    if !(2..=64).contains(&neuron.devices.len()) {
        return None;
    }
    let place: BTreeMap<u32, usize> =
        neuron.devices.iter().map(|one| one.number).zip(0..).collect();
    let near = neuron.devices.iter().enumerate();
    let linked: Vec<u64> = near
        .map(|(at, device)| {
            let near = device.connected.iter().flatten();
            let near = near.filter_map(|number| place.get(number));
            near.filter(|other| **other != at).fold(0, |bits, other| bits | 1 << other)
        })
        .collect();
    let kind = if linked.iter().any(|near| *near != 0) {
        InterconnectKind::NeuronLink
    } else {
        let is_complete = devices.iter().all(|device| device.vendor == Vendor::Aws);
        is_complete.then_some(InterconnectKind::Pcie)?
    };
    let sizes = components(&linked).into_iter();
    let largest = sizes.map(|members| bits(members).count()).max();
    Some(Interconnect { kind, domain_size: largest.unwrap_or(1), domains: Vec::new() })
}

#[cfg(test)]
mod tests;
