//! The `nvidia.com/*` keys of NVIDIA's gpu-feature-discovery, byte for byte as it writes them on a node with one GPU
//! model.
//!
//! Source of every rule here and below: NVIDIA/k8s-device-plugin v0.20.0, `internal/lm`. As in the original, only GPUs
//! that NVML reports count, and without any there are no keys. Deliberate differences:
//!
//! - A value that Kubernetes would reject is truncated and hashed; with the original, the program that applies the
//!   labels drops it.
//! - With several models on a node, the original describes the last one in random order; Octavo chooses one by rule.
//! - An attribute that the driver does not report omits only its own keys; the original fails and writes none.

mod mig;
mod models;
mod sharing;

use std::collections::BTreeSet;

use octavo_model::inventory::{Condition, Device, Inventory, Machine, Mig, NvmlState, Vendor};
use octavo_model::text::join;

use crate::labels::note::LabelsBuilder;
use crate::labels::{KeyPolicy, Note, Omission, Options};
use crate::mig_strategy::MigStrategy;
use crate::sharing::Offers;

/// A GPU that NVML reports.
#[derive(Debug, Clone, Copy)]
struct Gpu<'a> {
    device: &'a Device,
    /// NVML's product name, sanitized for label values.
    model: &'a str,
}

/// Adds NVIDIA's keys. `devices` are ordered by PCI address, which is also NVML's order.
pub(super) fn add(
    draft: &mut LabelsBuilder,
    inventory: &Inventory,
    devices: &[&Device],
    (options, offers): (&Options, Option<&Offers>),
) {
    let nvidia = devices.iter().filter(|device| device.vendor == Vendor::Nvidia);
    let named: Vec<(&Device, Option<String>)> =
        nvidia.map(|device| (*device, product_model(device))).collect();
    for (device, _) in named.iter().filter(|(_, model)| model.is_none()) {
        draft.note(Note::NotReportedByDriver { device: device.pci });
    }
    let gpus: Vec<Gpu> = named
        .iter()
        .filter_map(|(device, model)| {
            let model = model.as_deref()?;
            Some(Gpu { device, model })
        })
        .collect();
    if gpus.is_empty() {
        return;
    }
    if let Some(seconds) = options.timestamp {
        draft.put("nvidia.com/gfd.timestamp", &seconds);
    }
    match options.machine_type {
        KeyPolicy::Publish => add_machine(draft, &inventory.machine),
        KeyPolicy::Withhold => {}
    }
    add_versions(draft, &inventory.nvml);
    add_node(draft, &gpus);
    add_vgpu(draft, &inventory.machine);
    models::add(draft, &gpus, offers);
    match options.mig_strategy {
        MigStrategy::None => {}
        MigStrategy::Single => mig::add_single(draft, &gpus, offers),
        MigStrategy::Mixed => mig::add_mixed(draft, &gpus, offers),
    }
}

/// Returns the sanitized product name of a GPU whose driver responds.
fn product_model(device: &Device) -> Option<String> {
    let name = device.product_name.as_deref()?;
    (device.condition == Condition::Working).then(|| sanitized(name))
}

/// Drops characters that are invalid in label values and joins words with hyphens. Does not check length and first or
/// last character.
fn sanitized(text: &str) -> String {
    let allowed: String = text
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ' '))
        .collect();
    join(allowed.split_whitespace(), "-")
}

fn add_machine(draft: &mut LabelsBuilder, machine: &Machine) {
    let name = machine.product_name.as_deref().unwrap_or("unknown");
    draft.put("nvidia.com/gpu.machine", &sanitized(name.trim()));
}

/// Adds the driver and CUDA versions, each under its current key and under its deprecated key, which the original still
/// writes.
fn add_versions(draft: &mut LabelsBuilder, nvml: &NvmlState) {
    let Some(driver) = nvml.driver() else {
        draft.omit("nvidia.com/cuda.*", Omission::DriverNotReady);
        return;
    };
    let version = &driver.version;
    draft.put("nvidia.com/cuda.driver-version.full", version);
    for (part, old, value) in [
        ("major", "major", version.major()),
        ("minor", "minor", version.minor()),
        ("revision", "rev", version.revision()),
    ] {
        draft.put(&format!("nvidia.com/cuda.driver-version.{part}"), value);
        draft.put(&format!("nvidia.com/cuda.driver.{old}"), value);
    }
    let Some(cuda) = driver.cuda else {
        draft.omit("nvidia.com/cuda.runtime-version.*", Omission::CudaVersionUnknown);
        return;
    };
    draft.put("nvidia.com/cuda.runtime-version.full", &cuda);
    for (part, value) in [("major", cuda.major), ("minor", cuda.minor)] {
        draft.put(&format!("nvidia.com/cuda.runtime-version.{part}"), &value);
        draft.put(&format!("nvidia.com/cuda.runtime.{part}"), &value);
    }
}

/// Adds keys that describe all GPUs together.
fn add_node(draft: &mut LabelsBuilder, gpus: &[Gpu]) {
    match Mig::any_capable(gpus.iter().map(|gpu| &gpu.device.mig)) {
        Some(capable) => draft.put("nvidia.com/mig.capable", &capable),
        None => draft.omit("nvidia.com/mig.capable", Omission::PartitionsUnknown),
    }
    // True only where MPS is configured, which is not a hardware property.
    draft.put("nvidia.com/mps.capable", "false");
    draft.put("nvidia.com/gpu.mode", mode(gpus));
    let cliques: BTreeSet<String> = gpus
        .iter()
        .filter_map(|gpu| gpu.device.fabric.as_ref())
        .map(|fabric| format!("{}.{}", fabric.cluster_uuid, fabric.clique_id))
        .collect();
    match cliques.first() {
        Some(only) if cliques.len() == 1 => draft.put("nvidia.com/gpu.clique", only),
        Some(_) => draft.omit("nvidia.com/gpu.clique", Omission::DevicesDisagree),
        None => {}
    }
}

fn mode(gpus: &[Gpu]) -> &'static str {
    let classes: BTreeSet<Option<u32>> = gpus.iter().map(|gpu| gpu.device.pci_ids.class).collect();
    match classes.first() {
        Some(Some(0x03_0200)) if classes.len() == 1 => "compute",
        Some(Some(0x03_0000)) if classes.len() == 1 => "graphics",
        Some(_) | None => "unknown",
    }
}

fn add_vgpu(draft: &mut LabelsBuilder, machine: &Machine) {
    draft.put("nvidia.com/vgpu.present", &machine.vgpu.is_some());
    if let Some(host) = &machine.vgpu {
        draft.put("nvidia.com/vgpu.host-driver-version", &host.driver_version);
        draft.put("nvidia.com/vgpu.host-driver-branch", &host.driver_branch);
    }
}
