//! Wires GPUs by a shorthand.

use super::format::Topology;
use crate::model::{Architecture, Gpu, NvLink, PciAddress, RemoteKind};

/// Bus of the first `NVSwitch`; GPUs start above.
const FIRST_SWITCH_BUS: u8 = 0x05;

/// Wires the GPUs. `ports` has the number of `NVLink`s of each board; a link that leads nowhere is not listed.
pub(super) fn wire(gpus: &mut [Gpu], ports: &[u32], topology: Topology) {
    let addresses: Vec<PciAddress> = gpus.iter().map(|gpu| gpu.pci).collect();
    for (place, (gpu, &ports)) in gpus.iter_mut().zip(ports).enumerate() {
        let peers: Vec<(RemoteKind, PciAddress)> = match topology {
            Topology::None => Vec::new(),
            Topology::Nvswitch => switches(gpu.architecture, ports),
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
            .map(|(remote, remote_pci)| NvLink {
                active: true,
                remote,
                remote_pci,
                version,
            })
            .collect();
    }
}

/// Links go round the switches: six on the A100 machines, four since.
fn switches(architecture: Architecture, ports: u32) -> Vec<(RemoteKind, PciAddress)> {
    let count: u8 = if architecture <= Architecture::Ampere {
        6
    } else {
        4
    };
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
            (RemoteKind::Switch, address)
        })
        .collect()
}

/// The links are dealt out evenly, so that both ends agree; what does not divide stays unused.
fn mesh(addresses: &[PciAddress], place: usize, ports: u32) -> Vec<(RemoteKind, PciAddress)> {
    let others = u32::try_from(addresses.len().saturating_sub(1)).unwrap_or(u32::MAX);
    let each = ports.checked_div(others).unwrap_or(0);
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
