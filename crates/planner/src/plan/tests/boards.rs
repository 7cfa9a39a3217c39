//! Real catalogs, and devices with instances. Source: `nvidia-smi mig -lgip` and `-lgipp` of these boards, as recorded
//! in `tests/nvml-sim/data/mig-profiles.json`.

use std::collections::BTreeSet;

use octavo_model::catalog::{
    ComputeInstanceProfile, GpuInstanceProfile, InstanceResources, Placement, ProfileCatalog,
};
use octavo_model::examples::gpu;
use octavo_model::holder::Holder;
use octavo_model::inventory::{
    Completeness, ComputeInstance, Device, GpuInstance, Inventory, Mig, MigMode, MigState,
    NvmlState,
};
use octavo_model::quantity::{ComputeCapability, Mebibytes};

use super::super::{DevicePlanResult, NodePlan, PlanInput, Policy, RefusedPlacement, plan};
use crate::layout::{DeviceTarget, InstanceTarget, MigTarget, TargetScope, Targets};

/// Profile id, name, index, GPU slices, maximum count, size of a placement, placement starts.
pub(super) type Row = (u32, &'static str, u32, u32, u32, u32, &'static [u32]);

pub(super) const A100: &[Row] = &[
    (19, "1g.5gb", 0, 1, 7, 1, &[0, 1, 2, 3, 4, 5, 6]),
    (20, "1g.5gb+me", 7, 1, 1, 1, &[0, 1, 2, 3, 4, 5, 6]),
    (15, "1g.10gb", 9, 1, 4, 2, &[0, 2, 4, 6]),
    (14, "2g.10gb", 1, 2, 3, 2, &[0, 2, 4]),
    (9, "3g.20gb", 2, 3, 2, 4, &[0, 4]),
    (5, "4g.20gb", 3, 4, 1, 4, &[0]),
    (0, "7g.40gb", 4, 7, 1, 8, &[0]),
];

pub(super) const A30: &[Row] = &[
    (14, "1g.6gb", 0, 1, 4, 1, &[0, 1, 2, 3]),
    (21, "1g.6gb+me", 7, 1, 1, 1, &[0, 1, 2, 3]),
    (5, "2g.12gb", 1, 2, 2, 2, &[0, 2]),
    (6, "2g.12gb+me", 8, 2, 1, 2, &[0, 2]),
    (0, "4g.24gb", 3, 4, 1, 4, &[0]),
];

pub(super) const RTX_PRO: &[Row] = &[
    (14, "1g.24gb", 0, 1, 4, 3, &[0, 3, 6, 9]),
    (21, "1g.24gb+me", 7, 1, 1, 3, &[0, 3, 6, 9]),
    (47, "1g.24gb+gfx", 10, 1, 4, 3, &[0, 3, 6, 9]),
    (65, "1g.24gb+me.all", 15, 1, 1, 3, &[0, 3, 6, 9]),
    (67, "1g.24gb-me", 13, 1, 4, 3, &[0, 3, 6, 9]),
    (5, "2g.48gb", 1, 2, 2, 6, &[0, 6]),
    (35, "2g.48gb+gfx", 11, 2, 2, 6, &[0, 6]),
    (64, "2g.48gb+me.all", 16, 2, 1, 6, &[0, 6]),
    (66, "2g.48gb-me", 14, 2, 2, 6, &[0, 6]),
    (0, "4g.96gb", 3, 4, 1, 12, &[0]),
    (32, "4g.96gb+gfx", 12, 4, 1, 12, &[0]),
];

fn profile(row: &Row) -> GpuInstanceProfile {
    let (id, name, index, slices, max_count, size, starts) = *row;
    let splits = (1..=slices).filter(|part| *part == slices || 2 * *part <= slices + 1);
    GpuInstanceProfile {
        id,
        index,
        name: name.parse().unwrap(),
        max_count,
        memory: Mebibytes::new(u64::from(size) * 4864),
        resources: InstanceResources {
            gpu_slices: slices,
            compute_slices: slices,
            ..InstanceResources::default()
        },
        placements: starts.iter().map(|start| Placement { start: *start, size }).collect(),
        compute_profiles: splits
            .map(|part| ComputeInstanceProfile {
                id: part,
                index: part,
                slices: part,
                max_count: slices / part,
                multiprocessors: 14 * part,
            })
            .collect(),
    }
}

/// A working Ampere device with MIG mode on and no instances.
pub(super) fn device(rows: &[Row]) -> Device {
    let mut device = gpu();
    device.compute_capability = Some(ComputeCapability { major: 8, minor: 0 });
    device.mig = Mig::Capable(MigState {
        current: MigMode::Enabled,
        pending: MigMode::Enabled,
        catalog: ProfileCatalog::new(rows.iter().map(profile).collect()),
        gpu_instances: Vec::new(),
        geometry: Completeness::Complete,
    });
    device
}

pub(super) fn state(device: &mut Device) -> &mut MigState {
    match &mut device.mig {
        Mig::Capable(state) => state,
        Mig::Unknown | Mig::NotCapable => panic!("it can be partitioned"),
    }
}

/// A GPU instance with this profile and start, and compute instances of these slices (ids from 0).
pub(super) fn instance(id: u32, row: &Row, start: u32, split: &[u32]) -> GpuInstance {
    GpuInstance {
        id,
        profile_id: row.0,
        placement: Placement { start, size: row.5 },
        compute_instances: (0..)
            .zip(split)
            .map(|(id, slices)| ComputeInstance {
                id,
                profile_id: *slices,
                placement: None,
                uuid: None,
                memory: None,
                resources: None,
            })
            .collect(),
    }
}

pub(super) fn row(rows: &'static [Row], id: u32) -> &'static Row {
    rows.iter().find(|row| row.0 == id).unwrap()
}

/// A target of unsplit instances, by profile id.
pub(super) fn whole(rows: &'static [Row], ids: &[u32]) -> MigTarget {
    let mut instances: Vec<InstanceTarget> = ids
        .iter()
        .map(|id| InstanceTarget {
            profile_id: *id,
            compute: vec![row(rows, *id).3],
            placement: None,
        })
        .collect();
    instances.sort();
    MigTarget::Enabled(instances)
}

pub(super) fn node(devices: Vec<Device>) -> Inventory {
    Inventory {
        nvml: NvmlState::Ready(octavo_model::inventory::Driver {
            version: "570.133.20".parse().unwrap(),
            cuda: None,
        }),
        devices,
        ..Inventory::default()
    }
}

pub(super) fn targets(device: &Device, mig: MigTarget) -> Targets {
    Targets {
        devices: vec![DeviceTarget::generated(device.pci, mig, TargetScope::Layout)],
        ..Targets::default()
    }
}

pub(super) fn planned(
    device: &Device,
    mig: MigTarget,
    holders: &[Holder],
    policy: Policy,
    refused: &BTreeSet<RefusedPlacement>,
) -> DevicePlanResult {
    let inventory = node(vec![device.clone()]);
    let targets = targets(device, mig);
    let NodePlan { mut devices } = plan(&PlanInput {
        inventory: &inventory,
        targets: &targets,
        holders,
        policy: &policy,
        refused,
    });
    devices.remove(0).verdict
}

/// The verdict without holders and refusals, under the default policy.
pub(super) fn simply(device: &Device, mig: MigTarget) -> DevicePlanResult {
    planned(device, mig, &[], Policy::default(), &BTreeSet::new())
}
