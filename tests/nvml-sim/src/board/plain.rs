//! Boards without MIG.
//!
//! Names, PCI ids, capabilities and power are vendor figures; memory is the value reported by drivers if known,
//! otherwise the marketed size less two percent.

use super::Board;
use crate::model::{Architecture, Brand};

/// The names in scenarios.
pub(super) const NAMES: &[&str] = &[
    "T4",
    "T4G",
    "L4",
    "L40",
    "L40S",
    "A2",
    "A10",
    "A10G",
    "A16",
    "A40",
    "V100_SXM2_16GB",
    "V100_SXM2_32GB",
    "V100_PCIE_16GB",
    "V100_PCIE_32GB",
    "V100S_PCIE_32GB",
];

struct Row {
    name: &'static str,
    architecture: Architecture,
    capability: (u32, u32),
    memory_mib: u64,
    multiprocessors: u32,
    pci_device: u16,
    power_w: u32,
    links: u32,
}

pub(super) fn board(sku: &str) -> Option<Board> {
    let row = row(sku)?;
    Some(Board {
        sku: sku.to_owned(),
        name: row.name.to_owned(),
        brand: if row.name.starts_with("Tesla") { Brand::Tesla } else { Brand::Nvidia },
        architecture: row.architecture,
        compute_capability: row.capability,
        memory_mib: row.memory_mib,
        multiprocessors: row.multiprocessors,
        pci_device: row.pci_device,
        pci_class: 0x0003_0200,
        power_w: row.power_w,
        links: row.links,
        ecc: true,
        profiles: Vec::new(),
    })
}

fn row(sku: &str) -> Option<Row> {
    use Architecture::{Ada, Ampere, Turing, Volta};
    let row = |name, architecture, capability, memory_mib, rest: (u32, u16, u32, u32)| Row {
        name,
        architecture,
        capability,
        memory_mib,
        multiprocessors: rest.0,
        pci_device: rest.1,
        power_w: rest.2,
        links: rest.3,
    };
    Some(match sku {
        "T4" => row("Tesla T4", Turing, (7, 5), 15360, (40, 0x1EB8, 70, 0)),
        "T4G" => row("NVIDIA T4G", Turing, (7, 5), 15360, (40, 0x1EB4, 70, 0)),
        "L4" => row("NVIDIA L4", Ada, (8, 9), 23034, (58, 0x27B8, 72, 0)),
        "L40" => row("NVIDIA L40", Ada, (8, 9), 46068, (142, 0x26B5, 300, 0)),
        "L40S" => row("NVIDIA L40S", Ada, (8, 9), 46068, (142, 0x26B9, 350, 0)),
        "A2" => row("NVIDIA A2", Ampere, (8, 6), 15356, (10, 0x25B6, 60, 0)),
        "A10" => row("NVIDIA A10", Ampere, (8, 6), 23028, (72, 0x2236, 150, 0)),
        "A10G" => row("NVIDIA A10G", Ampere, (8, 6), 23028, (80, 0x2237, 300, 0)),
        "A16" => row("NVIDIA A16", Ampere, (8, 6), 15356, (10, 0x25B6, 62, 0)),
        "A40" => row("NVIDIA A40", Ampere, (8, 6), 46068, (84, 0x2235, 300, 4)),
        "V100_SXM2_16GB" | "V100" => {
            row("Tesla V100-SXM2-16GB", Volta, (7, 0), 16384, (80, 0x1DB1, 300, 6))
        }
        "V100_SXM2_32GB" => row("Tesla V100-SXM2-32GB", Volta, (7, 0), 32768, (80, 0x1DB5, 300, 6)),
        "V100_PCIE_16GB" => row("Tesla V100-PCIE-16GB", Volta, (7, 0), 16384, (80, 0x1DB4, 250, 0)),
        "V100_PCIE_32GB" => row("Tesla V100-PCIE-32GB", Volta, (7, 0), 32768, (80, 0x1DB6, 250, 0)),
        "V100S_PCIE_32GB" => {
            row("Tesla V100S-PCIE-32GB", Volta, (7, 0), 32768, (80, 0x1DF6, 250, 0))
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_name_is_a_board_without_mig() {
        for name in NAMES {
            let found = board(name).unwrap();
            assert_eq!((found.sku.as_str(), found.profiles.len()), (*name, 0));
        }
    }
}
