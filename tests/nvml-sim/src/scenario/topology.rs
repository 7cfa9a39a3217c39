//! Connects GPUs by a topology name.

use super::format::Topology;
use crate::model::{Architecture, Gpu, NvLink, PciAddress, RemoteKind};

/// Bus of the first `NVSwitch`; GPUs start above.
const FIRST_SWITCH_BUS: u8 = 0x05;

/// Connects the GPUs. `ports` has the number of `NVLink`s of each board; unconnected links are not listed.
pub(super) fn wire(gpus: &mut [Gpu], ports: &[u32], topology: Topology) {
    let addresses: Vec<PciAddress> = gpus.iter().map(|gpu| gpu.pci).collect();
    for (place, (gpu, &ports)) in gpus.iter_mut().zip(ports).enumerate() {
        let peers: Vec<(RemoteKind, PciAddress)> = match topology {
            Topology::None => Vec::new(),
            Topology::Nvswitch => switches(gpu.architecture, ports, RemoteKind::Switch),
            Topology::HiddenNvswitch => switches(gpu.architecture, ports, RemoteKind::HiddenSwitch),
            Topology::NvlinkPairs => {
                let peer = addresses.get(place ^ 1);
                let link =
                    |peer: &PciAddress| (0..ports).map(|_| (RemoteKind::Gpu, *peer)).collect();
                peer.map(link).unwrap_or_default()
            }
            Topology::NvlinkMesh => mesh(&addresses, place, ports),
        };
        let version = version(gpu.architecture);
        gpu.links = peers
            .into_iter()
            .map(|(remote, remote_pci)| NvLink { active: true, remote, remote_pci, version })
            .collect();
    }
}

/// Links are distributed over the switches: six on the A100 machines, four since.
fn switches(
    architecture: Architecture,
    ports: u32,
    kind: RemoteKind,
) -> Vec<(RemoteKind, PciAddress)> {
    let count: u8 = if architecture <= Architecture::Ampere { 6 } else { 4 };
    (0..count)
        .cycle()
        .zip(0..ports)
        .map(|(nth, _)| {
            let address = PciAddress {
                domain: 0,
                bus: FIRST_SWITCH_BUS.saturating_add(nth),
                device: 0,
                function: 0,
            };
            (kind, address)
        })
        .collect()
}

/// The links are distributed evenly, so that both ends agree; a remainder stays unused. A board with fewer links than
/// peers (eight V100s) has one to each of its nearest, counted by the bits in which two numbers differ: also symmetric.
fn mesh(addresses: &[PciAddress], place: usize, ports: u32) -> Vec<(RemoteKind, PciAddress)> {
    let others = u32::try_from(addresses.len().saturating_sub(1)).unwrap_or(u32::MAX);
    let each = ports.checked_div(others).unwrap_or(0);
    let ports = usize::try_from(ports).unwrap_or(0);
    if each == 0 {
        let near = (1..=ports).filter_map(|distance| addresses.get(place ^ distance));
        return near.map(|address| (RemoteKind::Gpu, *address)).collect();
    }
    addresses
        .iter()
        .enumerate()
        .filter(|(other, _)| *other != place)
        .flat_map(|(_, address)| (0..each).map(|_| (RemoteKind::Gpu, *address)))
        .collect()
}

fn version(architecture: Architecture) -> u32 {
    match architecture {
        Architecture::Volta | Architecture::Turing => 2,
        Architecture::Ampere | Architecture::Ada => 3,
        Architecture::Hopper => 4,
        Architecture::Blackwell => 5,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use crate::model::{PciAddress, World};
    use crate::scenario::Scenario;

    fn machine(board: &str, count: u32, links: &str) -> World {
        let text =
            format!("machine: m\nlinks: {links}\ngpus:\n- {{board: {board}, count: {count}}}\n");
        Scenario::parse(Path::new("m"), &text).unwrap().world().unwrap()
    }

    /// Number of links from each GPU to each other address.
    fn wires(world: &World) -> BTreeMap<(PciAddress, PciAddress), usize> {
        let mut wires = BTreeMap::new();
        for gpu in &world.gpus {
            for link in &gpu.links {
                *wires.entry((gpu.pci, link.remote_pci)).or_default() += 1;
            }
        }
        wires
    }

    #[test]
    fn both_ends_of_every_gpu_link_agree() {
        for (board, count, links, each) in [
            ("V100", 8, "nvlink-mesh", 6),
            ("V100", 4, "nvlink-mesh", 6),
            ("A100_80GB", 4, "nvlink-mesh", 12),
            ("H100_NVL_94GB", 4, "nvlink-pairs", 12),
            ("H100_NVL_94GB", 3, "nvlink-pairs", 8),
            ("L40S", 4, "nvlink-mesh", 0),
            ("A100_80GB", 4, "none", 0),
        ] {
            let world = machine(board, count, links);
            let wires = wires(&world);
            for ((from, to), number) in &wires {
                assert_ne!(from, to);
                assert_eq!(wires.get(&(*to, *from)), Some(number), "{board} {links}");
            }
            let total: usize = wires.values().sum();
            assert_eq!(total, each * usize::try_from(count).unwrap(), "{board} {links}");
        }
    }

    #[test]
    fn links_to_switches_are_spread_over_all_switches() {
        let world = machine("A100_80GB", 8, "nvswitch");
        let counts: Vec<usize> = wires(&world).into_values().collect();
        assert_eq!(counts, [2; 48]);
        assert_eq!(world.gpus.first().unwrap().fabric.state, 0);
        assert_eq!(wires(&machine("H200_141GB", 8, "nvswitch")).len(), 32);
    }
}
