//! The JSON and YAML format of an inventory, `octavo.dev/v1` `Inventory`.
//!
//! It is written by `octavo inspect -o json`, read by `--from FILE`, and used to record machines as fixtures. Field
//! names include the unit (`memoryMiB`), IDs from the PCI configuration space are hexadecimal as printed by `lspci`,
//! and unknown values are omitted instead of `null`. Parsing is strict: an unknown key is an error, because it is most
//! likely a typo whose value would be lost.

mod amd;
mod error;
mod neuron;
mod read;
mod write;

use octavo_model::inventory::Inventory;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use utoipa::ToSchema;

use self::amd::AmdJson;
pub use self::error::{FieldError, FieldProblem};
use self::neuron::NeuronJson;

/// An inventory as a document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = Inventory)]
pub struct Document {
    api_version: ApiVersion,
    kind: Kind,
    #[serde(default, skip_serializing_if = "MachineJson::is_empty")]
    machine: MachineJson,
    nvml: NvmlJson,
    /// Left out where its driver is not loaded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    neuron: Option<NeuronJson>,
    #[serde(default)]
    devices: Vec<DeviceJson>,
}

/// Error while parsing an inventory.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The text is not valid JSON for this format.
    #[error("not an inventory in JSON")]
    Json(#[source] serde_json::Error),
    /// The text is not valid YAML for this format.
    #[error("not an inventory in YAML")]
    Yaml(#[source] Box<serde_saphyr::Error>),
    /// A value is invalid.
    #[error("the inventory holds a value that cannot be")]
    Field(#[source] FieldError),
}

/// Parses an inventory in either format. A text that starts with `{` is JSON.
pub fn parse(text: &str) -> Result<Inventory, ReadError> {
    let document: Document = if text.trim_start().starts_with('{') {
        serde_json::from_str(text).map_err(ReadError::Json)?
    } else {
        serde_saphyr::from_str(text).map_err(|error| ReadError::Yaml(Box::new(error)))?
    };
    Inventory::try_from(document).map_err(ReadError::Field)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
enum ApiVersion {
    #[serde(rename = "octavo.dev/v1")]
    V1,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
enum Kind {
    Inventory,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct MachineJson {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    product_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    vgpu: Option<VgpuHostJson>,
    /// Why the PCI bus cannot be read; what is shown of it was read before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bus_error: Option<String>,
}

impl MachineJson {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct VgpuHostJson {
    driver_version: String,
    driver_branch: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "state", rename_all = "camelCase", deny_unknown_fields)]
enum NvmlJson {
    Absent {
        reason: String,
    },
    Loading {},
    #[serde(rename_all = "camelCase")]
    Ready {
        driver_version: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cuda_version: Option<String>,
    },
    Lost {
        reason: String,
    },
    #[serde(rename_all = "camelCase")]
    Stalled {
        call: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        driver_version: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cuda_version: Option<String>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct DeviceJson {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    index: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    minor: Option<u32>,
    pci: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    uuid: Option<String>,
    vendor: String,
    /// Left out when the type is unknown.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    type_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sku: Option<String>,
    /// There only where the type is not the hardware's word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    type_source: Option<TypeSourceJson>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    product_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    architecture: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    compute_capability: Option<String>,
    #[serde(default, rename = "memoryMiB", skip_serializing_if = "Option::is_none")]
    memory_mib: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    numa_node: Option<u32>,
    condition: ConditionJson,
    pci_ids: PciIdsJson,
    mig: MigJson,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    processes: Vec<ProcessJson>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    links: Vec<LinkJson>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fabric: Option<FabricJson>,
    /// Number of the group of GPUs that reach each other by NVLink peer-to-peer, where NVML hides the switches and reports no fabric.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    p2p_group: Option<u32>,
    #[serde(default, skip_serializing_if = "HealthJson::is_empty")]
    health: HealthJson,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    amd: Option<AmdJson>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    problems: Vec<ProblemJson>,
}

/// Who says what type a device is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
enum TypeSourceJson {
    /// A person, by the label `octavo.dev/type-override`.
    Manual,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "state", rename_all = "camelCase", deny_unknown_fields)]
enum ConditionJson {
    Working {},
    Failing {
        reason: String,
    },
    #[serde(rename_all = "camelCase")]
    PciOnly {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kernel_driver: Option<String>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PciIdsJson {
    vendor: String,
    device: String,
    subsystem_vendor: String,
    subsystem_device: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    class: Option<String>,
}

/// Told apart by the mode in force, which is what most readers want to know first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "mode", rename_all = "camelCase", deny_unknown_fields)]
enum MigJson {
    Unknown {},
    NotCapable {},
    Disabled(MigStateJson),
    Enabled(MigStateJson),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct MigStateJson {
    pending_mode: MigModeJson,
    #[serde(default)]
    gpu_instances: Vec<GpuInstanceJson>,
    /// Absent where all GPU instances are told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    geometry: Option<GeometryJson>,
    #[serde(default)]
    profiles: Vec<ProfileJson>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
enum GeometryJson {
    Partial,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
enum MigModeJson {
    Disabled,
    Enabled,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ProfileJson {
    id: u32,
    index: u32,
    name: String,
    max_count: u32,
    #[serde(rename = "memoryMiB")]
    memory_mib: u64,
    resources: ResourcesJson,
    #[serde(default)]
    placements: Vec<PlacementJson>,
    #[serde(default)]
    compute_profiles: Vec<ComputeProfileJson>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ComputeProfileJson {
    id: u32,
    index: u32,
    slices: u32,
    max_count: u32,
    multiprocessors: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ResourcesJson {
    gpu_slices: u32,
    compute_slices: u32,
    multiprocessors: u32,
    copy_engines: u32,
    decoders: u32,
    encoders: u32,
    jpeg_engines: u32,
    ofa_engines: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct PlacementJson {
    start: u32,
    size: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct GpuInstanceJson {
    id: u32,
    profile_id: u32,
    placement: PlacementJson,
    #[serde(default)]
    compute_instances: Vec<ComputeInstanceJson>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ComputeInstanceJson {
    id: u32,
    profile_id: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    uuid: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    placement: Option<PlacementJson>,
    #[serde(default, rename = "memoryMiB", skip_serializing_if = "Option::is_none")]
    memory_mib: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    resources: Option<ResourcesJson>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ProcessJson {
    pid: u32,
    kind: ProcessKindJson,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gpu_instance: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    compute_instance: Option<u32>,
    #[serde(default, rename = "memoryMiB", skip_serializing_if = "Option::is_none")]
    memory_mib: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
enum ProcessKindJson {
    Compute,
    Graphics,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct LinkJson {
    link: u32,
    remote: RemoteJson,
    /// There for a device and a switch, and only there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    remote_pci: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
enum RemoteJson {
    Device,
    Switch,
    /// An NVSwitch that is not on the PCI bus: NVML reports no address for it.
    HiddenSwitch,
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct FabricJson {
    cluster_uuid: String,
    clique_id: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct HealthJson {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ecc_enabled: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    uncorrected_errors: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    remapped_rows: Option<RemappedRowsJson>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    recovery_action: Option<String>,
}

impl HealthJson {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct RemappedRowsJson {
    correctable: u32,
    uncorrectable: u32,
    pending: bool,
    failed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ProblemJson {
    what: String,
    error: String,
}

#[cfg(test)]
pub(crate) mod tests;
