//! Checkpoint of a node's MIG state in the format of NVIDIA's mig-parted, so that either tool can restore what the
//! other wrote.
//!
//! Source: mig-parted v0.15.0, `pkg/mig/state` and `cmd/nvidia-mig-parted/checkpoint`. Field names follow Go's default.
//! Profile IDs of GPU instances and compute instances are values of NVML's enumerations, not the driver's profile IDs.

use octavo_model::catalog::{GpuInstanceProfile, Placement};
use octavo_model::inventory::{
    Completeness, ComputeInstance, Device, GpuInstance, Inventory, MigMode, MigState,
};
use octavo_planner::layout::{DeviceTarget, InstanceTarget, MigTarget, TargetScope, Targets};
use serde::{Deserialize, Serialize};
use thiserror::Error;

const VERSION: &str = "v1";

/// Compute slices by NVML compute instance profile number. Source: `nvml.h`, `NVML_COMPUTE_INSTANCE_PROFILE_*`.
const COMPUTE_SLICES: [u32; 8] = [1, 2, 3, 4, 7, 8, 6, 1];

/// Error while writing or reading a checkpoint.
#[derive(Debug, Error)]
pub enum CheckpointError {
    /// The text is not a checkpoint.
    #[error("it is not a checkpoint")]
    Json(#[source] serde_json::Error),
    /// The version is not supported.
    #[error("it has version {0:?}, but this program supports {VERSION}")]
    Version(String),
    /// A GPU of the checkpoint is not on this node.
    #[error("this node has no GPU {0}")]
    NoSuchDevice(String),
    /// A GPU occurs twice.
    #[error("it contains GPU {0} twice")]
    DuplicateDevice(String),
    /// The GPU does not support MIG, or does not report whether it does.
    #[error("GPU {0} cannot be partitioned, or does not report whether it can")]
    NotCapable(String),
    /// The GPU does not offer a profile.
    #[error("GPU {uuid} offers no {kind} profile {number}")]
    NoSuchProfile {
        /// UUID of the GPU.
        uuid: String,
        /// `GPU instance` or `compute instance`.
        kind: &'static str,
        /// NVML's profile number.
        number: u32,
    },
    /// The partitions of a GPU are not completely known.
    #[error("not all partitions of the GPU at {0} are reported")]
    IncompleteGeometry(String),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Document {
    version: String,
    mig_state: State,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct State {
    devices: Option<Vec<DeviceState>>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct DeviceState {
    #[serde(rename = "UUID")]
    uuid: String,
    mig_mode: u32,
    gpu_instances: Option<Vec<InstanceState>>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct InstanceState {
    #[serde(rename = "ProfileID")]
    profile: u32,
    placement: PlacementState,
    compute_instances: Option<Vec<ComputeState>>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct PlacementState {
    start: u32,
    size: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct ComputeState {
    #[serde(rename = "ProfileID")]
    profile: u32,
    #[serde(rename = "EngProfileID")]
    engine: u32,
}

/// Writes the checkpoint of a node: the state of every MIG-capable GPU.
pub fn write(inventory: &Inventory) -> Result<String, CheckpointError> {
    let mut devices = Vec::new();
    for device in &inventory.devices {
        let Some(state) = device.mig.state() else {
            continue;
        };
        let incomplete = || CheckpointError::IncompleteGeometry(device.pci.to_string());
        let uuid = device.uuid.as_ref().ok_or_else(incomplete)?;
        if state.geometry == Completeness::Partial {
            return Err(incomplete());
        }
        let instances: Option<Vec<InstanceState>> =
            state.gpu_instances.iter().map(|instance| write_instance(state, instance)).collect();
        devices.push(DeviceState {
            uuid: uuid.to_string(),
            mig_mode: u32::from(state.current == MigMode::Enabled),
            gpu_instances: Some(instances.ok_or_else(incomplete)?),
        });
    }
    let document =
        Document { version: VERSION.to_owned(), mig_state: State { devices: Some(devices) } };
    let mut text = serde_json::to_string(&document).map_err(CheckpointError::Json)?;
    text.push('\n');
    Ok(text)
}

/// Reads the targets of a checkpoint, each instance with its placement.
pub fn read(text: &str, inventory: &Inventory) -> Result<Targets, CheckpointError> {
    let document: Document = serde_json::from_str(text).map_err(CheckpointError::Json)?;
    if document.version != VERSION {
        return Err(CheckpointError::Version(document.version));
    }
    let mut targets = Targets::default();
    for wanted in document.mig_state.devices.unwrap_or_default() {
        let target = read_device(wanted, inventory)?;
        if targets.devices.iter().any(|known| known.pci == target.pci) {
            return Err(CheckpointError::DuplicateDevice(target.pci.to_string()));
        }
        targets.devices.push(target);
    }
    targets.devices.sort_by_key(|target| target.pci);
    Ok(targets)
}

fn write_instance(state: &MigState, instance: &GpuInstance) -> Option<InstanceState> {
    let profile = state.catalog.by_id(instance.profile_id)?;
    let all = instance.compute_instances.iter();
    let computes: Option<Vec<ComputeState>> = all
        .map(|compute| {
            Some(ComputeState { profile: compute_profile_number(profile, compute)?, engine: 0 })
        })
        .collect();
    Some(InstanceState {
        profile: profile.index,
        placement: PlacementState {
            start: instance.placement.start,
            size: instance.placement.size,
        },
        compute_instances: Some(computes?),
    })
}

fn compute_profile_number(profile: &GpuInstanceProfile, compute: &ComputeInstance) -> Option<u32> {
    let mut listed = profile.compute_profiles.iter();
    if let Some(known) = listed.find(|known| known.id == compute.profile_id) {
        return Some(known.index);
    }
    let slices = compute.resources?.compute_slices;
    let at = COMPUTE_SLICES.iter().position(|known| *known == slices)?;
    u32::try_from(at).ok()
}

fn read_device(
    wanted: DeviceState,
    inventory: &Inventory,
) -> Result<DeviceTarget, CheckpointError> {
    let named = |device: &&Device| {
        let uuid = device.uuid.as_ref().map(ToString::to_string);
        uuid.as_deref() == Some(&wanted.uuid)
    };
    let device = inventory.devices.iter().find(named);
    let device = device.ok_or_else(|| CheckpointError::NoSuchDevice(wanted.uuid.clone()))?;
    let capable = device.mig.state();
    let state = capable.ok_or_else(|| CheckpointError::NotCapable(wanted.uuid.clone()))?;
    let mig = if wanted.mig_mode == 0 {
        MigTarget::Disabled
    } else if state.catalog.profiles().is_empty() {
        // Older drivers list no profiles until MIG mode is enabled. The checkpoint is then read again.
        MigTarget::Enabled(Vec::new())
    } else {
        let all = wanted.gpu_instances.unwrap_or_default().into_iter();
        let instances: Result<Vec<InstanceTarget>, CheckpointError> =
            all.map(|instance| read_instance(state, instance, &wanted.uuid)).collect();
        let mut instances = instances?;
        instances.sort();
        MigTarget::Enabled(instances)
    };
    Ok(DeviceTarget::generated(device.pci, mig, TargetScope::Layout))
}

fn read_instance(
    state: &MigState,
    instance: InstanceState,
    uuid: &str,
) -> Result<InstanceTarget, CheckpointError> {
    let unknown =
        |kind, number| CheckpointError::NoSuchProfile { uuid: uuid.to_owned(), kind, number };
    let mut offered = state.catalog.profiles().iter();
    let profile = offered
        .find(|profile| profile.index == instance.profile)
        .ok_or_else(|| unknown("GPU instance", instance.profile))?;
    let mut compute = Vec::new();
    for part in instance.compute_instances.unwrap_or_default() {
        let number = usize::try_from(part.profile).unwrap_or(usize::MAX);
        let slices = COMPUTE_SLICES.get(number);
        compute.push(*slices.ok_or_else(|| unknown("compute instance", part.profile))?);
    }
    compute.sort_unstable_by(|one, other| other.cmp(one));
    Ok(InstanceTarget {
        profile_id: profile.id,
        compute,
        placement: Some(Placement {
            start: instance.placement.start,
            size: instance.placement.size,
        }),
    })
}
