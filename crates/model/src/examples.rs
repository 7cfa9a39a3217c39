//! Example devices for tests and benchmarks.

use crate::catalog::{GpuInstanceProfile, InstanceResources, Placement, ProfileCatalog};
use crate::id::PciAddress;
use crate::inventory::{
    Completeness, ComputeInstance, Condition, Device, GpuInstance, MigMode, MigState, PciIds,
    Process, ProcessKind,
};
use crate::quantity::Mebibytes;

/// A GPU that answers, with no other data.
#[expect(clippy::unwrap_used, clippy::missing_panics_doc, reason = "the address is valid")]
pub fn gpu() -> Device {
    let ids = PciIds {
        vendor: 0x10de,
        device: 0x2330,
        subsystem_vendor: 0,
        subsystem_device: 0,
        class: None,
    };
    let mut device = Device::new(PciAddress::new(0, 7, 0, 0).unwrap(), ids);
    device.condition = Condition::Working;
    device
}

/// A GPU instance of profile 19 without a compute instance.
pub fn gpu_instance(id: u32, start: u32, size: u32) -> GpuInstance {
    GpuInstance {
        id,
        profile_id: 19,
        placement: Placement { start, size },
        compute_instances: Vec::new(),
    }
}

/// A compute instance with only an id.
pub fn compute_instance(id: u32) -> ComputeInstance {
    ComputeInstance {
        id,
        profile_id: 0,
        placement: None,
        uuid: None,
        memory: None,
        resources: None,
    }
}

/// A compute process in these instances.
pub fn process(pid: u32, gpu_instance: Option<u32>, compute_instance: Option<u32>) -> Process {
    Process { pid, kind: ProcessKind::Compute, gpu_instance, compute_instance, memory: None }
}

/// MIG state of an H100 80GB without instances. Source: `nvidia-smi mig -lgipp`.
pub fn h100() -> MigState {
    let profiles = [
        profile((19, 0, "1g.10gb"), 1, 1, &[0, 1, 2, 3, 4, 5, 6]),
        profile((20, 7, "1g.10gb+me"), 1, 1, &[0, 1, 2, 3, 4, 5, 6]),
        profile((15, 9, "1g.20gb"), 1, 2, &[0, 2, 4, 6]),
        profile((14, 1, "2g.20gb"), 2, 2, &[0, 2, 4]),
        profile((9, 2, "3g.40gb"), 3, 4, &[0, 4]),
        profile((5, 3, "4g.40gb"), 4, 4, &[0]),
        profile((0, 4, "7g.80gb"), 7, 8, &[0]),
    ];
    MigState {
        current: MigMode::Enabled,
        pending: MigMode::Enabled,
        gpu_instances: Vec::new(),
        geometry: Completeness::Complete,
        catalog: ProfileCatalog::new(profiles.to_vec()),
    }
}

#[expect(clippy::unwrap_used, reason = "the names are valid")]
fn profile(
    (id, index, name): (u32, u32, &str),
    slices: u32,
    size: u32,
    starts: &[u32],
) -> GpuInstanceProfile {
    GpuInstanceProfile {
        id,
        index,
        name: name.parse().unwrap(),
        max_count: u32::try_from(starts.len()).unwrap(),
        memory: Mebibytes::new(10_000 * u64::from(size)),
        resources: InstanceResources { gpu_slices: slices, ..InstanceResources::default() },
        placements: starts.iter().map(|start| Placement { start: *start, size }).collect(),
        compute_profiles: Vec::new(),
    }
}
