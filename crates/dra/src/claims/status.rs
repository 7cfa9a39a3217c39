//! Status of the devices of prepared claims, which users read in the claims.

use std::collections::BTreeMap;

use octavo_model::catalog::Placement;
use octavo_model::claim::ClaimKey;
use octavo_model::inventory::{Device, DeviceState, Inventory};
use serde::Serialize;
use serde_with::skip_serializing_none;

use super::{ClaimState, PreparedClaims, is_instance};
use crate::device::{DeviceName, DraDevice, DraDeviceKind};
use crate::occupancy::unhealthy_state;

/// Status of the devices of each prepared claim.
pub type ClaimStatuses = BTreeMap<ClaimKey, Vec<DeviceStatus>>;

/// Status of a device of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceStatus {
    /// Its pool.
    pub pool: String,
    /// Its name.
    pub device: DeviceName,
    /// ID of the share, of a device that several claims can share.
    pub share: Option<String>,
    /// Reason why the device is not ready; `None` if it is.
    pub problem: Option<DeviceProblem>,
    /// Identity of the device on the node; `None` if it does not exist.
    pub data: Option<DeviceData>,
}

/// Reason why the device of a claim is not ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceProblem {
    /// The GPU or partition does not exist.
    Missing,
    /// The GPU is unhealthy: its state, or the error that it reported.
    Unhealthy(String),
}

/// Identity of a device on the node, as the driver reports it.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceData {
    /// UUID of the GPU or of the MIG device.
    pub uuid: Option<String>,
    /// UUID of the GPU of a MIG device.
    #[serde(rename = "parentUUID")]
    pub parent_uuid: Option<String>,
    /// GPU instance of a MIG device, by the driver's id.
    #[serde(rename = "gpuInstanceID")]
    pub gpu_instance: Option<u32>,
    /// Compute instance of a MIG device, by the driver's id.
    #[serde(rename = "computeInstanceID")]
    pub compute_instance: Option<u32>,
    /// MIG profile.
    pub profile: Option<String>,
    /// Memory slices of a MIG device.
    pub placement: Option<Placement>,
}

impl PreparedClaims {
    /// Returns the status of the prepared claims of `pool`. `faults` are errors that devices reported, and that their state
    /// in the inventory does not show.
    pub fn statuses(
        &self,
        inventory: &Inventory,
        pool: &str,
        faults: &BTreeMap<DeviceName, String>,
    ) -> ClaimStatuses {
        let prepared = self.claims.iter().filter(|(_, one)| one.state == ClaimState::Prepared);
        let statuses = prepared.map(|(uid, claim)| {
            let devices = claim.devices.iter().map(|one| {
                let device = one.device.name();
                let data = data(&one.device, inventory);
                let problem = match &data {
                    None => Some(DeviceProblem::Missing),
                    Some(_) => {
                        problem(&one.device, inventory, faults).map(DeviceProblem::Unhealthy)
                    }
                };
                let share = one.share.clone();
                DeviceStatus { pool: pool.to_owned(), device, share, problem, data }
            });
            (claim.key(uid), devices.collect())
        });
        statuses.collect()
    }
}

/// Returns the problem of a device: the state of its GPU, or an error that the device reported.
pub fn problem(
    device: &DraDevice,
    inventory: &Inventory,
    faults: &BTreeMap<DeviceName, String>,
) -> Option<String> {
    let state = match inventory.device(device.pci) {
        None => Some(DeviceState::Failing),
        Some(gpu) => unhealthy_state(gpu, &inventory.nvml),
    };
    let state = state.map(|state| state.as_str().to_owned());
    state.or_else(|| faults.get(&device.name()).cloned())
}

fn data(device: &DraDevice, inventory: &Inventory) -> Option<DeviceData> {
    let gpu: &Device = inventory.device(device.pci)?;
    let gpu_uuid = gpu.uuid.as_ref().map(ToString::to_string);
    let DraDeviceKind::Partition { profile, placement, .. } = &device.what else {
        return Some(DeviceData { uuid: gpu_uuid, ..DeviceData::default() });
    };
    let mut parts = gpu.mig.compute_instances();
    let (instance, compute) = parts.find(|(one, _)| is_instance(device, gpu.pci, one))?;
    Some(DeviceData {
        uuid: compute.uuid.as_ref().map(ToString::to_string),
        parent_uuid: gpu_uuid,
        gpu_instance: Some(instance.id),
        compute_instance: Some(compute.id),
        profile: Some(profile.to_string()),
        placement: Some(*placement),
    })
}
