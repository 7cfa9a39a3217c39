//! The keys of NVIDIA's gpu-feature-discovery: `nvidia.com/*`, byte for byte as it writes them on a node of one model.
//!
//! Source of every rule here and below: NVIDIA/k8s-device-plugin v0.20.0, `internal/lm`. As there, only GPUs that NVML speaks for
//! count, and without any there are no keys at all. Where we differ on purpose:
//!
//! - a value that Kubernetes would refuse is cut with a hash, where the original is dropped by whoever applies it;
//! - several models on a node: the original describes whichever comes last in a random order, we one that is chosen by rule;
//! - what the driver does not tell leaves out its own keys only, where the original ends with an error and writes none.

mod mig;
mod models;
mod sharing;

use std::collections::BTreeSet;

use crate::domain::inventory::{Condition, Device, Inventory, Machine, Mig, NvmlState, Vendor};
use crate::domain::labels::draft::Draft;
use crate::domain::labels::{MigStrategy, Note, Omission, Options, Publication};
use crate::domain::sharing::Offers;

/// A GPU that NVML speaks for.
#[derive(Debug, Clone, Copy)]
struct Gpu<'a> {
    device: &'a Device,
    /// NVML's name for it, made fit for a value.
    model: &'a str,
}

/// Adds NVIDIA's keys. `devices` are in the order of their addresses, which is NVML's order too.
pub(super) fn add(
    draft: &mut Draft,
    inventory: &Inventory,
    devices: &[&Device],
    (options, offers): (&Options, Option<&Offers>),
) {
    let nvidia = devices
        .iter()
        .filter(|device| device.vendor == Vendor::Nvidia);
    let named: Vec<(&Device, Option<String>)> =
        nvidia.map(|device| (*device, model_of(device))).collect();
    for (device, _) in named.iter().filter(|(_, model)| model.is_none()) {
        draft.note(Note::NotCounted { device: device.pci });
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
        Publication::Publish => add_machine(draft, &inventory.machine),
        Publication::Withhold => {}
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

/// The model of a GPU that its driver speaks for.
fn model_of(device: &Device) -> Option<String> {
    let name = device.product_name.as_deref()?;
    (device.condition == Condition::Working).then(|| sanitised(name))
}

/// Characters that may not stand in a value are dropped and words are joined by hyphens. Length and ends are not looked at here.
fn sanitised(text: &str) -> String {
    let allowed: String = text
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ' '))
        .collect();
    let words: Vec<&str> = allowed.split_whitespace().collect();
    words.join("-")
}

fn add_machine(draft: &mut Draft, machine: &Machine) {
    let name = machine.product_name.as_deref().unwrap_or("unknown");
    draft.put("nvidia.com/gpu.machine", &sanitised(name.trim()));
}

/// Versions of driver and CUDA, each under today's key and under the one it had before, which is still written.
fn add_versions(draft: &mut Draft, nvml: &NvmlState) {
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
        draft.omit("nvidia.com/cuda.runtime-version.*", Omission::CudaUnknown);
        return;
    };
    draft.put("nvidia.com/cuda.runtime-version.full", &cuda);
    for (part, value) in [("major", cuda.major), ("minor", cuda.minor)] {
        draft.put(&format!("nvidia.com/cuda.runtime-version.{part}"), &value);
        draft.put(&format!("nvidia.com/cuda.runtime.{part}"), &value);
    }
}

/// What is said of all GPUs together.
fn add_node(draft: &mut Draft, gpus: &[Gpu]) {
    match Mig::any_capable(gpus.iter().map(|gpu| &gpu.device.mig)) {
        Some(capable) => draft.put("nvidia.com/mig.capable", &capable),
        None => draft.omit("nvidia.com/mig.capable", Omission::PartitionsUnknown),
    }
    // True only where MPS is configured, which is not a property of the hardware.
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

fn add_vgpu(draft: &mut Draft, machine: &Machine) {
    draft.put("nvidia.com/vgpu.present", &machine.vgpu.is_some());
    if let Some(host) = &machine.vgpu {
        draft.put("nvidia.com/vgpu.host-driver-version", &host.driver_version);
        draft.put("nvidia.com/vgpu.host-driver-branch", &host.driver_branch);
    }
}
