//! Example devices for tests and benchmarks.

use crate::catalog::Placement;
use crate::id::PciAddress;
use crate::inventory::{
    ComputeInstance, Condition, Device, GpuInstance, PciIds, Process, ProcessKind,
};

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
