//! Devices that claims can be allocated: whole GPUs, and every possible placement of every MIG profile.
//!
//! A device is identified by its PCI address and, for a partition, by its profile and placement. Its name is derived from
//! these and never parsed: [`by_name`] looks names up among the devices of the node.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use octavo_model::catalog::{Placement, ProfileCatalog};
use octavo_model::id::{PciAddress, is_label_name};
use octavo_model::inventory::{Condition, Device, GpuInstance, Inventory, Mig, MigMode, Vendor};
use octavo_model::profile::ProfileName;
use serde::{Deserialize, Serialize};
use serde_with::{DeserializeFromStr, SerializeDisplay};
use thiserror::Error;

/// Maximum length of the profile in a name, so that every name is a DNS label.
const MAX_PROFILE: usize = 24;

/// Device that a claim can be allocated.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DraDevice {
    /// The GPU.
    pub pci: PciAddress,
    /// The whole GPU, or a part of it.
    pub what: DraDeviceKind,
}

/// Part of a GPU that a claim can be allocated.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum DraDeviceKind {
    /// The whole GPU, with MIG mode off.
    Gpu,
    /// A GPU instance with one compute instance that takes all of it.
    #[serde(rename_all = "camelCase")]
    Partition {
        /// The driver's id of the profile.
        profile_id: u32,
        /// Name of the profile.
        profile: ProfileName,
        /// Memory slices.
        placement: Placement,
    },
}

/// Name of a device in `ResourceSlices` and claims: a DNS label.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, SerializeDisplay, DeserializeFromStr)]
pub struct DeviceName(String);

/// Text that is not a DNS label.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0:?} is not a device name: at most 63 lowercase letters, digits and '-'")]
pub struct DeviceNameError(String);

impl DeviceName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for DeviceName {
    type Err = DeviceNameError;

    fn from_str(text: &str) -> Result<Self, DeviceNameError> {
        if is_label_name(text) {
            Ok(Self(text.to_owned()))
        } else {
            Err(DeviceNameError(text.to_owned()))
        }
    }
}

impl DraDevice {
    /// Device of an instance of the GPU at `pci`; `None` if its profile is not in the catalog.
    pub fn from_instance(
        pci: PciAddress,
        catalog: &ProfileCatalog,
        instance: &GpuInstance,
    ) -> Option<Self> {
        let profile = catalog.by_id(instance.profile_id)?;
        let what = DraDeviceKind::Partition {
            profile_id: profile.id,
            profile: profile.name.clone(),
            placement: instance.placement,
        };
        Some(Self { pci, what })
    }

    /// Name of the device: `gpu-0000-1b-00-0`, or `gpu-0000-1b-00-0-mig-1g10gb-19-2` with the profile, its id and the
    /// first slice. Minor numbers and indices are not part of it, because they change.
    pub fn name(&self) -> DeviceName {
        let pci = self.pci.to_string().replace([':', '.'], "-");
        DeviceName(match &self.what {
            DraDeviceKind::Gpu => format!("gpu-{pci}"),
            DraDeviceKind::Partition { profile_id, profile, placement } => {
                let profile = profile.to_string();
                let letters = profile.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-');
                let profile: String = letters.take(MAX_PROFILE).collect();
                format!("gpu-{pci}-mig-{profile}-{profile_id}-{}", placement.start)
            }
        })
    }
}

/// Returns the devices of the node that claims can be allocated, except those of the GPUs in `covered`: the GPUs that
/// the layout of the node covers.
///
/// A GPU with MIG mode on has a device per profile and placement; any other GPU is one device. A GPU of which the driver
/// does not report the MIG mode has none. The order is that of the inventory, of NVML's profile index and of the slices.
pub fn devices(inventory: &Inventory, covered: &BTreeSet<PciAddress>) -> Vec<DraDevice> {
    let own = inventory.devices.iter().filter(|device| !covered.contains(&device.pci));
    own.flat_map(devices_of).collect()
}

/// Returns the devices by name.
pub fn by_name(devices: impl IntoIterator<Item = DraDevice>) -> BTreeMap<DeviceName, DraDevice> {
    devices.into_iter().map(|device| (device.name(), device)).collect()
}

/// Returns the devices of one GPU; none for a device of another vendor or without a driver library.
pub(crate) fn devices_of(device: &Device) -> Vec<DraDevice> {
    let pci = device.pci;
    let without_driver = matches!(device.condition, Condition::PciOnly { .. });
    if device.vendor != Vendor::Nvidia || without_driver {
        return Vec::new();
    }
    let state = match &device.mig {
        Mig::Unknown => return Vec::new(),
        Mig::NotCapable => return vec![DraDevice { pci, what: DraDeviceKind::Gpu }],
        Mig::Capable(state) if state.current == MigMode::Disabled => {
            return vec![DraDevice { pci, what: DraDeviceKind::Gpu }];
        }
        Mig::Capable(state) => state,
    };
    let profiles = state.catalog.profiles().iter();
    profiles
        .flat_map(|profile| {
            let placements: BTreeSet<Placement> = profile.placements.iter().copied().collect();
            placements.into_iter().map(|placement| DraDevice {
                pci,
                what: DraDeviceKind::Partition {
                    profile_id: profile.id,
                    profile: profile.name.clone(),
                    placement,
                },
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use octavo_model::catalog::{GpuInstanceProfile, InstanceResources, ProfileCatalog};
    use octavo_model::inventory::{Completeness, MigState, PciIds};
    use octavo_model::quantity::Mebibytes;

    use super::*;

    const A100: PciIds = PciIds {
        vendor: 0x10de,
        device: 0x20b2,
        subsystem_vendor: 0x10de,
        subsystem_device: 0x1463,
        class: None,
    };

    fn gpu(pci: &str, current: MigMode) -> Device {
        let profile = |id, index, name: &str, starts: &[u32], size| GpuInstanceProfile {
            id,
            index,
            name: name.parse().unwrap(),
            max_count: 1,
            memory: Mebibytes::new(9_728),
            resources: InstanceResources::default(),
            placements: starts.iter().map(|start| Placement { start: *start, size }).collect(),
            compute_profiles: Vec::new(),
        };
        let mut device = Device::new(pci.parse().unwrap(), A100);
        device.condition = Condition::Working;
        device.mig = Mig::Capable(MigState {
            current,
            pending: current,
            gpu_instances: Vec::new(),
            geometry: Completeness::Complete,
            catalog: ProfileCatalog::new(vec![
                profile(19, 0, "1g.10gb", &[0, 2], 1),
                profile(20, 7, "1g.10gb+me", &[0], 1),
                profile(9, 2, "3g.40gb", &[4, 0, 4], 4),
                profile(67, 13, "1g.10gb-me", &[], 1),
                profile(65, 15, "1g.10gb+me.all", &[6], 1),
            ]),
        });
        device
    }

    fn names(devices: &[Device], covered: &[&str]) -> Vec<String> {
        let inventory = Inventory { devices: devices.to_vec(), ..Inventory::default() };
        let covered = covered.iter().map(|pci| pci.parse().unwrap()).collect();
        let all = super::devices(&inventory, &covered);
        assert_eq!(by_name(all.clone()).len(), all.len());
        all.iter().map(|device| device.name().to_string()).collect()
    }

    #[test]
    fn partitioned_gpu_has_a_device_per_profile_and_placement() {
        assert_eq!(
            names(&[gpu("0000:1b:00.0", MigMode::Enabled)], &[]),
            [
                "gpu-0000-1b-00-0-mig-1g10gb-19-0",
                "gpu-0000-1b-00-0-mig-1g10gb-19-2",
                "gpu-0000-1b-00-0-mig-3g40gb-9-0",
                "gpu-0000-1b-00-0-mig-3g40gb-9-4",
                "gpu-0000-1b-00-0-mig-1g10gbme-20-0",
                "gpu-0000-1b-00-0-mig-1g10gbmeall-65-6",
            ]
        );
    }

    #[test]
    fn gpu_without_partitions_is_one_device() {
        let mut plain = gpu("00010000:03:1f.7", MigMode::Disabled);
        assert_eq!(names(&[plain.clone()], &[]), ["gpu-10000-03-1f-7"]);
        plain.mig = Mig::NotCapable;
        assert_eq!(names(&[plain.clone()], &[]), ["gpu-10000-03-1f-7"]);
        plain.mig = Mig::Unknown;
        assert!(names(&[plain], &[]).is_empty());
    }

    #[test]
    fn covered_foreign_and_driverless_devices_are_left_out() {
        let own = gpu("0000:01:00.0", MigMode::Disabled);
        let covered = gpu("0000:02:00.0", MigMode::Enabled);
        let mut bare = gpu("0000:03:00.0", MigMode::Disabled);
        bare.condition = Condition::PciOnly { kernel_driver: None };
        let mut amd = gpu("0000:04:00.0", MigMode::Disabled);
        amd.vendor = Vendor::Amd;
        assert_eq!(names(&[own, covered, bare, amd], &["0000:02:00.0"]), ["gpu-0000-01-00-0"]);
    }

    #[test]
    fn name_of_a_long_profile_is_a_dns_label() {
        let profile = format!("7g.65535gb+{}", "m".repeat(80)).parse().unwrap();
        let device = DraDevice {
            pci: PciAddress::unreported(7),
            what: DraDeviceKind::Partition {
                profile_id: u32::MAX,
                profile,
                placement: Placement { start: 63, size: 1 },
            },
        };
        assert_eq!(device.name().as_str().parse(), Ok(device.name()));
        assert!("gpu_1".parse::<DeviceName>().is_err());
    }

    #[test]
    fn device_keeps_its_identity_in_json() {
        let partitioned = gpu("0000:1b:00.0", MigMode::Enabled);
        for device in devices_of(&partitioned) {
            let text = serde_json::to_string(&device).unwrap();
            assert_eq!(serde_json::from_str::<DraDevice>(&text).unwrap(), device);
        }
    }
}
