//! Tests with topologies of real machines, and with incomplete data.

use proptest::prelude::*;

use super::*;
use crate::inventory::{Amd, AmdPartition, NvLink, PciIds, ReadProblem};

fn at(bus: u8) -> PciAddress {
    PciAddress::new(0, bus, 0, 0).unwrap()
}

fn gpu(bus: u8, remotes: &[LinkRemote]) -> Device {
    let ids = PciIds {
        vendor: 0x10de,
        device: 0x2330,
        subsystem_vendor: 0,
        subsystem_device: 0,
        class: None,
    };
    let mut device = Device::new(at(bus), ids);
    device.condition = Condition::Working;
    device.links =
        (0..).zip(remotes).map(|(link, remote)| NvLink { link, remote: *remote }).collect();
    device
}

fn to(buses: &[u8]) -> Vec<LinkRemote> {
    buses.iter().map(|bus| LinkRemote::Device(at(*bus))).collect()
}

fn through(buses: &[u8]) -> Vec<LinkRemote> {
    buses.iter().map(|bus| LinkRemote::Switch(at(*bus))).collect()
}

/// Kind, size of the largest fully connected set, and the sets by bus number.
fn summary_of(devices: &[Device]) -> Option<(String, usize, Vec<Vec<u8>>)> {
    let found = of(devices)?;
    let domains = found
        .domains
        .iter()
        .map(|domain| (0..=255).filter(|bus| domain.contains(&at(*bus))).collect())
        .collect();
    Some((found.kind.to_string(), found.domain_size, domains))
}

#[track_caller]
fn check(devices: &[Device], kind: &str, size: usize, domains: &[&[u8]]) {
    let domains = domains.iter().map(|domain| domain.to_vec()).collect();
    assert_eq!(summary_of(devices), Some((kind.to_owned(), size, domains)));
}

#[test]
fn gpus_on_common_switches_are_all_linked() {
    let gpus: Vec<Device> = (1..=8).map(|bus| gpu(bus, &through(&[0xa0, 0xa1, 0xa2]))).collect();
    check(&gpus, "nvswitch", 8, &[&[1, 2, 3, 4, 5, 6, 7, 8]]);
}

#[test]
fn bridged_pairs_are_domains_of_two() {
    let gpus = [gpu(1, &to(&[2])), gpu(2, &to(&[1])), gpu(3, &to(&[4])), gpu(4, &to(&[3]))];
    check(&gpus, "nvlink", 2, &[&[1, 2], &[3, 4]]);
}

#[test]
fn cube_mesh_is_one_domain_of_eight_with_cliques_of_four() {
    // DGX-1 with V100: each half fully linked, and each GPU linked to its counterpart.
    let gpus: Vec<Device> = (0..8_u8)
        .map(|n| {
            let half = n / 4 * 4;
            let mut remotes: Vec<u8> = (half..half + 4).filter(|other| *other != n).collect();
            remotes.push((n + 4) % 8);
            gpu(n, &to(&remotes))
        })
        .collect();
    check(&gpus, "nvlink", 4, &[&[0, 1, 2, 3, 4, 5, 6, 7]]);
}

#[test]
fn link_reported_by_one_end_counts_for_both() {
    check(&[gpu(1, &to(&[2])), gpu(2, &[])], "nvlink", 2, &[&[1, 2]]);
}

#[test]
fn gpus_without_links_are_on_the_bus() {
    check(&[gpu(2, &[]), gpu(1, &[])], "pcie", 1, &[&[1], &[2]]);
}

#[test]
fn unresponsive_device_is_in_no_domain() {
    let mut gpus: Vec<Device> = (1..=4).map(|bus| gpu(bus, &through(&[0xa0]))).collect();
    gpus[2].condition = Condition::Failing { reason: "GPU is lost".to_owned() };
    check(&gpus, "nvswitch", 3, &[&[1, 2, 4]]);
}

#[test]
fn unknown_links_give_no_interconnect() {
    assert_eq!(summary_of(&[]), None);
    assert_eq!(summary_of(&[gpu(1, &through(&[0xa0]))]), None, "a single device");

    let hidden = [gpu(1, &[LinkRemote::Unknown]), gpu(2, &[LinkRemote::Unknown])];
    assert_eq!(summary_of(&hidden), None, "far ends not reported");

    let mut silent = [gpu(1, &[]), gpu(2, &[])];
    silent[0].problems.push(ReadProblem {
        source: "nvmlDeviceGetNvLinkState".to_owned(),
        error: "Unknown Error".to_owned(),
    });
    assert_eq!(summary_of(&silent), None, "links could not be read");

    let mut one_silent = [gpu(1, &[]), gpu(2, &[]), gpu(3, &[])];
    one_silent[2].condition = Condition::PciOnly { kernel_driver: None };
    assert_eq!(summary_of(&one_silent), None, "one does not respond");

    let mut others = [gpu(1, &[]), gpu(2, &[])];
    for device in &mut others {
        device.vendor = Vendor::Amd;
    }
    assert_eq!(summary_of(&others), None, "devices of another vendor");
}

/// An AMD device with this device id and hive id; 0 means no hive.
fn amd(bus: u8, id: u16, hive: u64) -> Device {
    let mut device = gpu(bus, &[]);
    device.vendor = Vendor::Amd;
    device.pci_ids.device = id;
    device.amd = Some(Amd {
        hive: Some(hive).filter(|hive| *hive != 0),
        partitions: vec![AmdPartition { render_minor: 128, compute_units: None, memory: None }],
        ..Amd::default()
    });
    device
}

#[test]
fn devices_of_a_hive_are_all_linked() {
    let eight: Vec<Device> = (1..=8).map(|bus| amd(bus, 0x74a1, 7)).collect();
    check(&eight, "xgmi", 8, &[&[1, 2, 3, 4, 5, 6, 7, 8]]);
    let pairs = [
        amd(3, 0x740f, 9),
        amd(1, 0x740f, 8),
        amd(2, 0x740f, 8),
        amd(4, 0x740f, 9),
        amd(5, 0x740f, 0),
    ];
    check(&pairs, "xgmi", 2, &[&[1, 2], &[3, 4], &[5]]);
    let alone = [amd(1, 0x740f, 0), amd(2, 0x740f, 0)];
    check(&alone, "pcie", 1, &[&[1], &[2]]);
}

#[test]
fn incomplete_hives_give_no_interconnect() {
    let modules = [amd(1, 0x7408, 7), amd(2, 0x7408, 7)];
    assert_eq!(summary_of(&modules), None, "not every pair of these is linked");

    let mut silent = [amd(1, 0x740f, 0), amd(2, 0x740f, 0)];
    silent[1].amd = Some(Amd::default());
    assert_eq!(summary_of(&silent), None, "no device reported its hive");

    let beside = [amd(1, 0x740f, 0), amd(2, 0x740f, 0), {
        let mut other = gpu(3, &[]);
        other.vendor = Vendor::Other(0x8086);
        other
    }];
    assert_eq!(summary_of(&beside), None, "a device of another vendor");

    let one_nvidia = [amd(1, 0x740f, 7), amd(2, 0x740f, 7), gpu(3, &[])];
    assert_eq!(summary_of(&one_nvidia), None, "a device of NVIDIA");
    assert_eq!(summary_of(&[amd(1, 0x740f, 7)]), None, "a single device");
}

#[test]
fn more_devices_than_bits_are_not_analyzed() {
    let gpus: Vec<Device> = (0..65).map(|bus| gpu(bus, &through(&[0xa0]))).collect();
    assert_eq!(summary_of(&gpus), None);
    assert_eq!(summary_of(&gpus[..64]).unwrap().1, 64);
}

/// Reference implementation that tests every subset.
fn by_brute_force(linked: &[u64]) -> usize {
    (0_u64..1 << linked.len())
        .filter(|set| bits(*set).all(|node| set & !(1 << node) & !linked[node] == 0))
        .map(|set| set.count_ones() as usize)
        .max()
        .unwrap()
}

fn graph(nodes: usize, edges: &[bool]) -> Vec<u64> {
    let mut linked = vec![0; nodes];
    let pairs = (0..nodes).flat_map(|a| (0..a).map(move |b| (a, b)));
    for ((a, b), _) in pairs.zip(edges).filter(|(_, edge)| **edge) {
        linked[a] |= 1 << b;
        linked[b] |= 1 << a;
    }
    linked
}

#[test]
fn known_graphs_have_their_clique_numbers() {
    assert_eq!(max_clique_size(&[]), 0);
    assert_eq!(max_clique_size(&[0]), 1);
    assert_eq!(max_clique_size(&graph(64, &[true; 2016])), 64);
    // Moon–Moser graph: 64 nodes in groups of three, each linked with all nodes outside of its group. It has the
    // largest possible number of maximal cliques, so a search without pruning does not finish.
    let moon_moser: Vec<bool> = (0..64).flat_map(|a| (0..a).map(move |b| a / 3 != b / 3)).collect();
    assert_eq!(max_clique_size(&graph(64, &moon_moser)), 22);
}

proptest! {
    #[test]
    fn search_equals_brute_force(
        nodes in 1_usize..11,
        edges in proptest::collection::vec(any::<bool>(), 55),
    ) {
        let linked = graph(nodes, &edges);
        prop_assert_eq!(max_clique_size(&linked), by_brute_force(&linked));
    }
}
