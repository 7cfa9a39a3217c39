//! Holders derived from device allocations to pods, whether or not the pods use the devices yet.

use super::{Holder, HolderDetails, Pod};
use crate::claim::ClaimRef;
use crate::id::{GpuUuid, MigUuid};
use crate::inventory::{ComputeInstance, Device, GpuInstance};
use crate::resource::ShareId;

/// Device allocated to a container of a pod, as reported by the allocator.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceAllocation {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub pod: String,
    /// Name of the container.
    pub container: String,
    /// Resource (`nvidia.com/mig-1g.10gb`), or DRA driver that allocated the claim (`gpu.nvidia.com`).
    pub resource: String,
    /// Device id, usually a UUID.
    pub device_id: String,
    /// Resource claim that was allocated the device; `None` for a resource of a device plugin.
    pub claim: Option<ClaimRef>,
}

/// Holders derived from allocations to pods.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PodHolders {
    /// Holders whose device or instance is known.
    pub holders: Vec<Holder>,
    /// Allocations whose id matches no device. Each could be any of the devices, so every instance counts as in use
    /// while there is one.
    pub unassigned: Vec<DeviceAllocation>,
}

/// Derives the holders of `devices` from the allocations.
///
/// Device ids are those of NVIDIA's device plugin: `GPU-<uuid>`, `MIG-<uuid>` or the older
/// `MIG-GPU-<uuid>/<gi>/<ci>`, each optionally with `::<replica>` of a shared device. An index (`0`, `0:1`) is
/// useless, because the device it referred to at allocation time is unknown. Source: k8s-device-plugin,
/// `internal/rm`.
///
/// A container that was allocated a whole GPU which is now partitioned could use any of its instances, so it counts
/// as a holder of each.
pub fn holders_from_allocations(
    allocations: &[DeviceAllocation],
    devices: &[Device],
) -> PodHolders {
    let mut found = PodHolders::default();
    for allocation in allocations {
        let places = places(&allocation.device_id, devices);
        if places.is_empty() {
            found.unassigned.push(allocation.clone());
        }
        let holders = places.into_iter().map(|place| place.held_by(allocation));
        found.holders.extend(holders);
    }
    found.holders.sort();
    // A container with two replicas of one device is one holder.
    found.holders.dedup();
    found
}

/// Device or part of it.
struct DevicePlace<'a> {
    device: &'a Device,
    gpu_instance: Option<u32>,
    compute_instance: Option<u32>,
}

impl<'a> DevicePlace<'a> {
    fn whole(device: &'a Device) -> Self {
        Self { device, gpu_instance: None, compute_instance: None }
    }

    fn held_by(self, allocation: &DeviceAllocation) -> Holder {
        Holder {
            device: self.device.pci,
            gpu_instance: self.gpu_instance,
            compute_instance: self.compute_instance,
            details: HolderDetails {
                // A claim has no pod that the kubelet lists yet.
                pod: (!allocation.pod.is_empty()).then(|| Pod {
                    uid: None,
                    // An allocation that the kubelet does not list yet has no namespace.
                    namespace: Some(allocation.namespace.clone()).filter(|name| !name.is_empty()),
                    name: Some(allocation.pod.clone()),
                    container: Some(allocation.container.clone()).filter(|name| !name.is_empty()),
                }),
                claim: allocation.claim.clone(),
                ..HolderDetails::default()
            },
        }
    }
}

fn places<'a>(id: &str, devices: &'a [Device]) -> Vec<DevicePlace<'a>> {
    let id = ShareId::uuid_part(id);
    if let Ok(uuid) = id.parse::<GpuUuid>() {
        let mut all = devices.iter();
        let device = all.find(|device| device.uuid.as_ref() == Some(&uuid));
        device.map(whole).unwrap_or_default()
    } else if let Ok(uuid) = id.parse::<MigUuid>() {
        let found = devices.iter().find_map(|device| {
            let mut all = device.mig.compute_instances();
            let (instance, compute) =
                all.find(|(instance, compute)| has_uuid(&uuid, device, instance, compute))?;
            let (gpu_instance, compute_instance) = (Some(instance.id), Some(compute.id));
            Some(DevicePlace { device, gpu_instance, compute_instance })
        });
        found.into_iter().collect()
    } else {
        Vec::new()
    }
}

fn whole(device: &Device) -> Vec<DevicePlace<'_>> {
    let state = device.mig.state().into_iter();
    let instances = state.flat_map(|state| &state.gpu_instances);
    let inside = instances.map(|instance| DevicePlace {
        gpu_instance: Some(instance.id),
        ..DevicePlace::whole(device)
    });
    [DevicePlace::whole(device)].into_iter().chain(inside).collect()
}

/// Returns `true` if `uuid` identifies the compute instance, in either form: a device plugin that is older than the
/// driver may still use the older form.
fn has_uuid(
    uuid: &MigUuid,
    device: &Device,
    instance: &GpuInstance,
    compute: &ComputeInstance,
) -> bool {
    let older = || {
        let gpu = device.uuid.as_ref()?;
        Some(format!("MIG-{gpu}/{}/{}", instance.id, compute.id))
    };
    compute.uuid.as_ref() == Some(uuid) || older().is_some_and(|older| older == uuid.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::ProfileCatalog;
    use crate::examples::{compute_instance, gpu, gpu_instance};
    use crate::inventory::{Completeness, Mig, MigMode, MigState};

    const GPU: &str = "GPU-5fd4087b-86f3-7a43-b711-4771313afc50";
    const MIG: &str = "MIG-11111111-2222-3333-4444-555555555555";

    fn device() -> Device {
        let mut device = gpu();
        device.uuid = Some(GPU.parse().unwrap());
        let mut first = gpu_instance(1, 0, 4);
        first.compute_instances = vec![compute_instance(0), compute_instance(1)];
        first.compute_instances[1].uuid = Some(MIG.parse().unwrap());
        let mut second = gpu_instance(2, 4, 4);
        second.compute_instances = vec![compute_instance(0)];
        device.mig = Mig::Capable(MigState {
            current: MigMode::Enabled,
            pending: MigMode::Enabled,
            catalog: ProfileCatalog::default(),
            gpu_instances: vec![first, second],
            geometry: Completeness::Complete,
        });
        device
    }

    fn allocation(id: &str) -> DeviceAllocation {
        DeviceAllocation {
            namespace: "team-a".to_owned(),
            pod: "train-0".to_owned(),
            container: "main".to_owned(),
            resource: "nvidia.com/gpu".to_owned(),
            device_id: id.to_owned(),
            claim: None,
        }
    }

    #[track_caller]
    fn assigned(ids: &[&str], expected: &[(Option<u32>, Option<u32>)]) {
        let allocations: Vec<DeviceAllocation> = ids.iter().copied().map(allocation).collect();
        let found = holders_from_allocations(&allocations, &[device()]);
        let place = |holder: &Holder| (holder.gpu_instance, holder.compute_instance);
        let places: Vec<_> = found.holders.iter().map(place).collect();
        assert_eq!(places, expected);
        assert_eq!(found.unassigned, []);
    }

    #[test]
    fn every_id_form_identifies_its_instance_and_replicas_are_one_holder() {
        let older = format!("MIG-{GPU}/1/1");
        let replica = format!("{MIG}::3");
        let place = (Some(1), Some(1));
        assigned(&[MIG], &[place]);
        assigned(&[&older], &[place]);
        assigned(&[&replica, MIG, &format!("{older}::0")], &[place]);
        let found = holders_from_allocations(&[allocation(MIG)], &[device()]);
        let pod = found.holders[0].details.pod.clone().unwrap();
        assert_eq!(pod.namespace.as_deref(), Some("team-a"));
        assert_eq!(pod.name.as_deref(), Some("train-0"));
        assert_eq!(pod.container.as_deref(), Some("main"));
    }

    #[test]
    fn whole_gpu_allocation_holds_every_instance() {
        let everywhere = [(None, None), (Some(1), None), (Some(2), None)];
        assigned(&[GPU], &everywhere);
        assigned(&[&format!("{GPU}::7")], &everywhere);
        let mut device = device();
        device.mig = Mig::NotCapable;
        assert_eq!(holders_from_allocations(&[allocation(GPU)], &[device]).holders.len(), 1);
    }

    #[test]
    fn unmatched_allocations_are_reported() {
        let gone = format!("MIG-{GPU}/9/0");
        for id in [
            "",
            "0",
            "0:1",
            "0::1",
            "mlx5_0",
            "GPU-5fd4087b-86f3-7a43-b711-000000000000",
            "MIG-11111111-2222-3333-4444-000000000000",
            &gone,
            "node-1/gpu-0-mig-1g10gb-0",
        ] {
            let found = holders_from_allocations(&[allocation(MIG), allocation(id)], &[device()]);
            assert_eq!(found.unassigned, [allocation(id)], "{id}");
            assert_eq!(found.holders.len(), 1, "{id}");
        }
    }
}
