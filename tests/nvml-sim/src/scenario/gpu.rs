//! A GPU of a scenario: values of its entry, otherwise of its board.

use std::collections::BTreeMap;

use super::format::{ComputeMode, GpuEntry};
use super::one_or_many::OneOrMany;
use crate::board::Board;
use crate::model::{
    Architecture, EccCounters, EccMode, Fabric, Gpu, MigMode, MigState, PciAddress, PciIds,
    RemappedRows, World,
};

const NVIDIA: u16 = 0x10DE;

/// A GPU with the values of its entry, otherwise of its board. An error is a key and the reason.
pub(super) fn gpu(
    world: &mut World,
    board: &Board,
    entry: &GpuEntry,
    nth: usize,
) -> Result<Gpu, (&'static str, String)> {
    let index = u32::try_from(world.gpus.len()).unwrap_or(u32::MAX);
    let memory_mib = entry.memory_mib.unwrap_or(board.memory_mib);
    let power_w = entry.power_w.unwrap_or(board.power_w);
    let ecc = entry.ecc.unwrap_or(board.ecc);
    let has_mig = !board.profiles.is_empty();
    let mig_on = entry.mig == Some(MigMode::Enabled);
    if mig_on && !has_mig {
        return Err(("mig", format!("{} does not support MIG", board.sku)));
    }
    let uuid = world.fresh_uuid();
    Ok(Gpu {
        board: board.sku.clone(),
        name: entry.name.clone().unwrap_or_else(|| board.name.clone()),
        brand: board.brand,
        architecture: board.architecture,
        compute_capability: compute_capability(board, entry)?,
        memory_mib,
        reserved_mib: memory_mib / 160,
        multiprocessors: entry.multiprocessors.unwrap_or(board.multiprocessors),
        power_limit_mw: power_w.saturating_mul(1000),
        power_mw: power_w.saturating_mul(150),
        temperature_c: entry.temperature_c.unwrap_or(34),
        utilization: (0, 0),
        process_utilization: BTreeMap::new(),
        video_utilization: (0, 0),
        energy_mj: 0,
        pcie_replays: 0,
        uuid: chosen(entry.uuid.as_ref(), nth).unwrap_or_else(|| format!("GPU-{uuid}")),
        serial: chosen(entry.serial.as_ref(), nth).unwrap_or_else(|| {
            format!("{:013}", world.seed.wrapping_add(u64::from(index)) % 10_u64.pow(13))
        }),
        index,
        minor: chosen(entry.minor.as_ref(), nth).unwrap_or(index),
        pci: chosen(entry.pci.as_ref(), nth).unwrap_or_else(|| default_address(index)),
        pci_ids: pci_ids(board, entry),
        numa_node: chosen(entry.numa.as_ref(), nth),
        vbios: entry.vbios.clone().unwrap_or_else(|| "96.00.99.00.01".to_owned()),
        links: Vec::new(),
        fabric: Fabric::default(),
        ecc: board.ecc.then_some(EccMode { current: ecc, pending: ecc }),
        ecc_errors: EccCounters::default(),
        remapped_rows: entry
            .remapped_rows
            .or_else(|| (board.architecture >= Architecture::Ampere).then(RemappedRows::default)),
        recovery_action: entry.recovery_action,
        persistence: entry.persistence,
        compute_mode: match entry.compute_mode {
            ComputeMode::Default => 0,
            ComputeMode::Prohibited => 2,
            ComputeMode::ExclusiveProcess => 3,
        },
        lost: false,
        mig: has_mig.then(|| MigState { current: mig_on, pending: mig_on, ..MigState::default() }),
        profiles: std::sync::Arc::default(),
    })
}

/// Its PCI identity.
fn pci_ids(board: &Board, entry: &GpuEntry) -> PciIds {
    PciIds {
        device: entry.pci_device.unwrap_or(board.pci_device),
        subsystem_vendor: entry.subsystem_vendor.unwrap_or(NVIDIA),
        subsystem_device: entry.subsystem_device.unwrap_or(board.pci_device),
        class: entry.pci_class.unwrap_or(board.pci_class),
        revision: 0xA1,
    }
}

fn chosen<T: Clone>(values: Option<&OneOrMany<T>>, nth: usize) -> Option<T> {
    values.and_then(|values| values.get(nth))
}

fn compute_capability(
    board: &Board,
    entry: &GpuEntry,
) -> Result<(u32, u32), (&'static str, String)> {
    let Some(text) = &entry.compute_capability else {
        return Ok(board.compute_capability);
    };
    let parts = text.split_once('.');
    let parsed = parts.and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    parsed.ok_or_else(|| {
        let reason = format!("{text:?} is not a compute capability such as \"9.0\"");
        ("compute_capability", reason)
    })
}

/// Fourteen GPUs to a PCI domain, sixteen buses apart, above the switches.
fn default_address(index: u32) -> PciAddress {
    let in_domain = u8::try_from(index % 14).unwrap_or(0);
    PciAddress {
        domain: index / 14,
        bus: in_domain.saturating_mul(16).saturating_add(0x1B),
        device: 0,
        function: 0,
    }
}
