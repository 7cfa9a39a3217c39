//! The keys of a scenario. Types of the file, not of the domain: `build` converts them to a world.

use serde::Deserialize;
use serde_saphyr::Spanned;

use super::one_or_many::{OneOrMany, one};
use super::others::{AmdEntry, FunctionEntry, NeuronEntry};
use crate::fault::Rule;
use crate::latency::Latency;
use crate::model::{MigMode, PciAddress, ProcessKind, RemappedRows};

/// A complete scenario.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_field_names, reason = "they are the keys of the file")]
pub(super) struct Machine {
    /// Name of the machine, from which UUIDs and serial numbers are derived.
    pub(super) machine: String,
    #[serde(default)]
    pub(super) machine_type: Option<String>,
    #[serde(default = "driver")]
    pub(super) driver: Spanned<String>,
    #[serde(default = "cuda")]
    pub(super) cuda: Spanned<String>,
    #[serde(default = "yes")]
    pub(super) driver_loaded: bool,
    #[serde(default)]
    pub(super) gpus: Vec<Spanned<GpuEntry>>,
    #[serde(default)]
    pub(super) links: Topology,
    #[serde(default)]
    pub(super) fabric: Option<Spanned<FabricEntry>>,
    #[serde(default)]
    pub(super) processes: Vec<Spanned<ProcessEntry>>,
    #[serde(default)]
    pub(super) latency: Option<LatencyEntry>,
    #[serde(default)]
    pub(super) faults: Vec<Spanned<Rule>>,
    #[serde(default)]
    pub(super) neuron: Option<Spanned<NeuronEntry>>,
    #[serde(default)]
    pub(super) amd: Vec<Spanned<AmdEntry>>,
    #[serde(default)]
    pub(super) functions: Vec<Spanned<FunctionEntry>>,
}

/// One or more equal GPUs.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GpuEntry {
    pub(super) board: Spanned<String>,
    #[serde(default = "one")]
    pub(super) count: u32,
    #[serde(default)]
    pub(super) name: Option<String>,
    #[serde(default)]
    pub(super) memory_mib: Option<u64>,
    #[serde(default)]
    pub(super) multiprocessors: Option<u32>,
    #[serde(default)]
    pub(super) compute_capability: Option<String>,
    #[serde(default)]
    pub(super) pci: Option<OneOrMany<PciAddress>>,
    #[serde(default)]
    pub(super) pci_device: Option<u16>,
    #[serde(default)]
    pub(super) pci_class: Option<u32>,
    #[serde(default)]
    pub(super) subsystem_vendor: Option<u16>,
    #[serde(default)]
    pub(super) subsystem_device: Option<u16>,
    #[serde(default)]
    pub(super) uuid: Option<OneOrMany<String>>,
    #[serde(default)]
    pub(super) serial: Option<OneOrMany<String>>,
    #[serde(default)]
    pub(super) minor: Option<OneOrMany<u32>>,
    #[serde(default)]
    pub(super) numa: Option<OneOrMany<u32>>,
    #[serde(default)]
    pub(super) vbios: Option<String>,
    #[serde(default)]
    pub(super) power_w: Option<u32>,
    #[serde(default)]
    pub(super) temperature_c: Option<u32>,
    #[serde(default)]
    pub(super) ecc: Option<bool>,
    #[serde(default)]
    pub(super) persistence: bool,
    #[serde(default)]
    pub(super) compute_mode: ComputeMode,
    #[serde(default)]
    pub(super) recovery_action: u32,
    #[serde(default)]
    pub(super) remapped_rows: Option<RemappedRows>,
    #[serde(default)]
    pub(super) lost: bool,
    #[serde(default)]
    pub(super) mig: Option<MigMode>,
    #[serde(default)]
    pub(super) instances: Vec<Spanned<InstanceEntry>>,
}

/// A GPU instance with its compute instances.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct InstanceEntry {
    /// Name of the profile.
    pub(super) profile: String,
    #[serde(default)]
    pub(super) start: Option<u32>,
    #[serde(default = "one")]
    pub(super) count: u32,
    /// Names of compute profiles; the default is one that takes the whole GPU instance.
    #[serde(default)]
    pub(super) compute: Option<Vec<String>>,
}

/// A process on a GPU.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProcessEntry {
    pub(super) pid: u32,
    pub(super) gpu: u32,
    #[serde(default = "process_name")]
    pub(super) name: String,
    #[serde(default)]
    pub(super) gi: Option<u32>,
    #[serde(default)]
    pub(super) ci: Option<u32>,
    #[serde(default)]
    pub(super) memory_mib: u64,
    #[serde(default = "compute")]
    pub(super) kind: ProcessKind,
}

/// The NVLink domain of a machine that is part of a larger one.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FabricEntry {
    /// A UUID.
    pub(super) cluster_uuid: String,
    #[serde(default)]
    pub(super) clique: u32,
}

/// Connections of the GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Topology {
    /// PCIe only.
    #[default]
    None,
    /// Every link to a switch.
    Nvswitch,
    /// The same, with switches that are not on the PCI bus: NVML reports the address `FFFFFFFF:FF:FF.0` for each.
    HiddenNvswitch,
    /// GPUs 0 and 1, 2 and 3, and so on, by a bridge.
    NvlinkPairs,
    /// All GPUs with each other.
    NvlinkMesh,
}

/// `real`, or microseconds per class.
#[derive(Debug, Clone, Deserialize)]
#[serde(
    untagged,
    expecting = "expected null, real, or a map of microseconds with the keys init_us, query_us, mig_query_us, set_mig_mode_us, create_gpu_instance_us, destroy_gpu_instance_us, create_compute_instance_us, destroy_compute_instance_us"
)]
pub(super) enum LatencyEntry {
    Named(LatencyName),
    Custom(Latency),
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum LatencyName {
    Real,
}

/// `nvmlComputeMode_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ComputeMode {
    #[default]
    Default,
    Prohibited,
    ExclusiveProcess,
}

fn driver() -> Spanned<String> {
    default_text("580.95.05")
}

fn cuda() -> Spanned<String> {
    default_text("13.0")
}

fn default_text(text: &str) -> Spanned<String> {
    let nowhere = serde_saphyr::Location::UNKNOWN;
    Spanned::new(text.to_owned(), nowhere, nowhere)
}

fn process_name() -> String {
    "python3".to_owned()
}

fn compute() -> ProcessKind {
    ProcessKind::Compute
}

fn yes() -> bool {
    true
}
