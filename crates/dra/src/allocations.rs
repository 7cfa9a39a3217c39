//! Devices of claims in the kubelet's list of allocations.
//!
//! The kubelet reports `<pool>/<device>` for a claim, and a UUID for a device plugin. With the UUIDs of the devices, claims
//! count like the allocations of a device plugin: as users, in the usage by pod, and in availability.

use std::collections::BTreeMap;

use octavo_model::holder::DeviceAllocation;
use octavo_model::inventory::Device;

use crate::DRIVER;
use crate::device::{DeviceName, DraDevice, DraDeviceKind};

/// Replaces the names of this driver's devices in `allocations` by UUIDs. An allocation whose device does not exist now
/// stays as it is: its pod uses none of `devices`.
pub fn with_uuids(allocations: &mut [DeviceAllocation], devices: &[Device]) {
    let is_ours = |one: &&mut DeviceAllocation| one.resource == DRIVER;
    let mut own = allocations.iter_mut().filter(is_ours).peekable();
    if own.peek().is_none() {
        return;
    }
    let uuids: BTreeMap<DeviceName, String> =
        devices.iter().flat_map(existing).map(|(device, uuid)| (device.name(), uuid)).collect();
    for one in own {
        let name = one.device_id.rsplit_once('/').map(|(_pool, name)| name);
        let name = name.and_then(|name| name.parse::<DeviceName>().ok());
        if let Some(uuid) = name.and_then(|name| uuids.get(&name)) {
            one.device_id.clone_from(uuid);
        }
    }
}

/// Returns the devices of `gpu` that exist, with their UUIDs. A partition without a UUID has the name that drivers before
/// R470 use.
pub(crate) fn existing(gpu: &Device) -> Vec<(DraDevice, String)> {
    let Some(uuid) = gpu.uuid.as_ref() else {
        return Vec::new();
    };
    let whole = (DraDevice { pci: gpu.pci, what: DraDeviceKind::Gpu }, uuid.to_string());
    let instances = gpu.mig.state().into_iter().flat_map(|state| {
        state.gpu_instances.iter().filter_map(|instance| {
            let compute = instance.compute_instances.first()?;
            let older = || format!("MIG-{uuid}/{}/{}", instance.id, compute.id);
            let uuid = compute.uuid.as_ref().map_or_else(older, ToString::to_string);
            Some((DraDevice::from_instance(gpu.pci, &state.catalog, instance)?, uuid))
        })
    });
    std::iter::once(whole).chain(instances).collect()
}

#[cfg(test)]
mod tests {
    use octavo_model::catalog::Placement;
    use octavo_model::holder::holders_from_allocations;

    use super::*;
    use crate::tests_support::{gpu, partitioned};

    const POOL: &str = "node-1/gpu.octavo.dev";
    const HALF: Placement = Placement { start: 4, size: 4 };
    const UUIDS: [&str; 2] =
        ["GPU-5fd4087b-86f3-7a43-b711-4771313afc50", "GPU-5fd4087b-86f3-7a43-b711-4771313afc51"];

    fn allocation(resource: &str, device: &str) -> DeviceAllocation {
        DeviceAllocation {
            namespace: "team".to_owned(),
            pod: "train-0".to_owned(),
            container: "main".to_owned(),
            resource: resource.to_owned(),
            device_id: format!("{POOL}/{device}"),
            claim: None,
        }
    }

    #[test]
    fn existing_devices_of_claims_are_known_by_uuid() {
        let mut devices =
            [partitioned("0000:07:00.0", "A100_80GB", &[(9, HALF, &[3])]), gpu("0000:08:00.0")];
        for (device, uuid) in devices.iter_mut().zip(UUIDS) {
            device.uuid = Some(uuid.parse().unwrap());
        }
        let half = "gpu-0000-07-00-0-mig-3g40gb-9-4";
        let other_half = "gpu-0000-07-00-0-mig-3g40gb-9-0";
        let mut all = [
            allocation(DRIVER, half),
            allocation(DRIVER, other_half),
            allocation(DRIVER, "gpu-0000-08-00-0"),
            allocation("gpu.nvidia.com", "gpu-0000-08-00-0"),
            allocation(DRIVER, "gpu-0000-09-00-0"),
        ];
        with_uuids(&mut all, &devices);
        let ids = all.each_ref().map(|one| one.device_id.clone());
        let expected = [
            format!("MIG-{}/1/0", UUIDS[0]),
            format!("{POOL}/{other_half}"),
            UUIDS[1].to_owned(),
            format!("{POOL}/gpu-0000-08-00-0"),
            format!("{POOL}/gpu-0000-09-00-0"),
        ];
        assert_eq!(ids, expected);
        let found = holders_from_allocations(&all, &devices);
        let places: Vec<_> =
            found.holders.iter().map(|one| (one.device, one.gpu_instance)).collect();
        assert_eq!(places, [(devices[0].pci, Some(1)), (devices[1].pci, None)]);
    }

    #[test]
    fn whole_gpu_of_a_claim_holds_partitions_that_exist_nevertheless() {
        let mut device = partitioned("0000:07:00.0", "A100_80GB", &[(9, HALF, &[3])]);
        device.uuid = Some(UUIDS[0].parse().unwrap());
        let mut all = [allocation(DRIVER, "gpu-0000-07-00-0")];
        with_uuids(&mut all, std::slice::from_ref(&device));
        let found = holders_from_allocations(&all, &[device]).holders;
        let places: Vec<_> = found.iter().map(|one| one.gpu_instance).collect();
        assert_eq!(places, [None, Some(1)]);
    }
}
