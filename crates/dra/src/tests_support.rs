//! Boards for tests: the catalogs that real boards reported, as collected in `tests/nvml-sim/data/mig-profiles.json`.

use octavo_model::catalog::{GpuInstanceProfile, InstanceResources, Placement, ProfileCatalog};
use octavo_model::id::PciAddress;
use octavo_model::inventory::{
    Completeness, ComputeInstance, Condition, Device, Driver, GpuInstance, Inventory, Mig, MigMode,
    MigState, NvmlState, PciIds,
};
use octavo_model::quantity::Mebibytes;
use serde_json::Value;

/// The boards whose profiles have all figures and placements, by name.
pub(crate) fn boards() -> Vec<(String, ProfileCatalog)> {
    let text = include_str!("../../../tests/nvml-sim/data/mig-profiles.json");
    let data: Value = serde_json::from_str(text).unwrap();
    let mut boards: Vec<(String, ProfileCatalog)> = data
        .as_object()
        .unwrap()
        .iter()
        .filter(|(sku, _)| *sku != "_meta")
        .filter_map(|(sku, board)| {
            let profiles = board["gpu_instance_profiles"].as_array().unwrap().iter();
            let profiles: Option<Vec<_>> = profiles.map(profile).collect();
            Some((sku.clone(), ProfileCatalog::new(profiles?)))
        })
        .collect();
    boards.sort_by(|one, other| one.0.cmp(&other.0));
    boards
}

/// The board with this name.
pub(crate) fn board(sku: &str) -> ProfileCatalog {
    boards().into_iter().find(|(found, _)| found == sku).unwrap().1
}

/// Returns a profile; `None` if a figure is missing.
fn profile(row: &Value) -> Option<GpuInstanceProfile> {
    let number = |key: &str| row[key].as_u64().and_then(|number| u32::try_from(number).ok());
    let slices = number("slices")?;
    let placements: Vec<Placement> = serde_json::from_value(row["placements"].clone())
        .ok()
        .filter(|all: &Vec<_>| !all.is_empty())?;
    Some(GpuInstanceProfile {
        id: number("id")?,
        index: number("nvml_profile_index")?,
        name: row["name"].as_str()?.parse().ok()?,
        max_count: number("max_count")?,
        memory: Mebibytes::new(number("memory_mb")?.into()),
        resources: InstanceResources {
            gpu_slices: slices,
            compute_slices: slices,
            multiprocessors: number("sms")?,
            copy_engines: number("ce")?,
            decoders: number("dec")?,
            encoders: number("enc")?,
            jpeg_engines: number("jpeg")?,
            ofa_engines: number("ofa")?,
        },
        placements,
        compute_profiles: Vec::new(),
    })
}

/// A working GPU of NVIDIA that cannot be partitioned.
pub(crate) fn gpu(pci: &str) -> Device {
    let ids = PciIds {
        vendor: 0x10de,
        device: 0x20b2,
        subsystem_vendor: 0x10de,
        subsystem_device: 0x1463,
        class: None,
    };
    let mut device = Device::new(pci.parse::<PciAddress>().unwrap(), ids);
    device.condition = Condition::Working;
    device.memory = Some(Mebibytes::new(81_920));
    device.mig = Mig::NotCapable;
    device
}

/// A GPU with MIG mode on and these instances: profile id, placement, and the slices of its compute instances.
pub(crate) fn partitioned(pci: &str, sku: &str, instances: &[(u32, Placement, &[u32])]) -> Device {
    let instances = (1..).zip(instances).map(|(id, (profile_id, placement, parts))| GpuInstance {
        id,
        profile_id: *profile_id,
        placement: *placement,
        compute_instances: (0..)
            .zip(*parts)
            .map(|(id, slices)| ComputeInstance {
                id,
                profile_id: slices - 1,
                uuid: None,
                placement: None,
                memory: None,
                resources: Some(InstanceResources {
                    compute_slices: *slices,
                    ..InstanceResources::default()
                }),
            })
            .collect(),
    });
    let mut device = gpu(pci);
    device.mig = Mig::Capable(MigState {
        current: MigMode::Enabled,
        pending: MigMode::Enabled,
        gpu_instances: instances.collect(),
        geometry: Completeness::Complete,
        catalog: board(sku),
    });
    device
}

/// A node with these devices and a driver that answers.
pub(crate) fn node(devices: impl IntoIterator<Item = Device>) -> Inventory {
    Inventory {
        nvml: NvmlState::Ready(Driver {
            version: "535.104.05".parse().unwrap(),
            cuda: Some("12.2".parse().unwrap()),
        }),
        devices: devices.into_iter().collect(),
        ..Inventory::default()
    }
}
