//! Units of one device, by its partitions, time slices and use.

use octavo_model::catalog::{GpuInstanceProfile, InstanceResources, ProfileCatalog};
use octavo_model::examples::{compute_instance, gpu, gpu_instance, process};
use octavo_model::inventory::{
    Completeness, ComputeInstance, Driver, GpuInstance, Mig, MigMode, MigState, NvmlState,
};
use octavo_model::resource::ShareId;
use octavo_model::sharing_status::{Health, ResourceStatus, UnitStatus};
use octavo_node::sharing::usage::{DeviceUsage, Tenant, UnitUsage};

use super::*;

const UUID: &str = "GPU-5fd4087b-86f3-7a43-b711-4771313afc50";

fn inventory(device: Device) -> Inventory {
    Inventory {
        nvml: NvmlState::Ready(Driver { version: "570.133.20".parse().unwrap(), cuda: None }),
        devices: vec![device],
        ..Inventory::default()
    }
}

fn from_inventory(
    inventory: &Inventory,
    reported: AgentReport<'_>,
    known: &mut PotentialCache,
) -> AgentUnits {
    AgentUnits::new(&DeviceSummary::all(inventory), inventory, reported, known)
}

fn seen(device: Device, usage: Option<&Usage>) -> (u64, u64, u64) {
    let reported = AgentReport { usage, sharing: None };
    let seen = from_inventory(&inventory(device), reported, &mut PotentialCache::default());
    let units = &seen.units[0];
    assert_eq!((units.resource.as_str(), units.total, seen.units.len()), ("nvidia.com/gpu", 1, 1));
    (units.free, units.in_use, units.unknown_use())
}

fn device() -> Device {
    Device { uuid: Some(UUID.parse().unwrap()), mig: Mig::NotCapable, ..gpu() }
}

/// Usage in which one container holds these units of the device.
fn held<const N: usize>(ids: [ShareId; N]) -> Usage {
    Usage {
        devices: vec![DeviceUsage {
            pci: device().pci,
            name: "GPU 0".to_owned(),
            memory: None,
            utilization: None,
            power_watts: None,
            temperature_celsius: None,
            units: vec![UnitUsage {
                uuid: UUID.to_owned(),
                tenants: vec![Tenant { ids: ids.into(), ..Tenant::default() }],
                ..UnitUsage::default()
            }],
        }],
        missing: Vec::new(),
        ..Usage::default()
    }
}

/// Report in which the device is time-sliced.
fn sliced(state: &str, replicas: u32) -> SharingStatus {
    let unit =
        UnitStatus { uuid: UUID.to_owned(), replicas: Some(replicas), health: Health::Healthy };
    SharingStatus {
        state: octavo_model::reported::Reported::parse(state),
        resources: vec![ResourceStatus {
            name: ResourceName::gpu(),
            wanted: replicas.into(),
            allocatable: None,
            units: vec![unit],
        }],
        ..SharingStatus::default()
    }
}

#[test]
fn allocated_unit_is_in_use_without_process() {
    let usage = held([ShareId::whole(UUID)]);
    assert_eq!(seen(device(), None), (1, 0, 0));
    assert_eq!(seen(device(), Some(&usage)), (0, 1, 0));
}

#[test]
fn units_of_resource_claims_have_the_name_of_their_class() {
    let sharing = SharingStatus { mode: DeviceProvider::Dra.into(), ..SharingStatus::default() };
    let usage = held([ShareId::whole(UUID)]);
    let of = |usage: Option<&Usage>| {
        let reported = AgentReport { usage, sharing: Some(&sharing) };
        let inventory = inventory(device());
        let known = &mut PotentialCache::default();
        let seen = from_inventory(&inventory, reported, known);
        assert!(seen.serves_claims && seen.idle.is_empty());
        let units = seen.units.into_iter().next().unwrap();
        (units.resource, units.total, units.in_use, units.free)
    };
    assert_eq!(of(Some(&Usage::default())), (GPU_CLASS.to_owned(), 1, 0, 1));
    // A claim may hold the device.
    assert_eq!(of(None), (GPU_CLASS.to_owned(), 1, 0, 0));
    assert_eq!(of(Some(&usage)), (GPU_CLASS.to_owned(), 1, 1, 0));
}

#[test]
fn gpu_under_a_static_rule_is_not_free_for_claims() {
    let pci = device().pci;
    let dra = DeviceProvider::Dra.into();
    let sharing = SharingStatus { mode: dra, covered: vec![pci], ..SharingStatus::default() };
    let of = |device: Device, usage: Option<&Usage>| {
        let reported = AgentReport { usage, sharing: Some(&sharing) };
        let known = &mut PotentialCache::default();
        let seen = from_inventory(&inventory(device), reported, known);
        let units = seen.units.into_iter().next().unwrap();
        (units.covered, units.free, units.in_use, units.unknown_use())
    };
    assert_eq!(of(device(), Some(&Usage::default())), (1, 0, 0, 0));
    assert_eq!(of(device(), None), (1, 0, 0, 0));
    let mut busy = device();
    busy.processes = vec![process(7, None, None)];
    assert_eq!(of(busy, None), (0, 0, 1, 0));
}

#[test]
fn device_that_claims_share_has_one_unit_per_replica() {
    let unit = UnitStatus { uuid: UUID.to_owned(), replicas: Some(4), health: Health::Healthy };
    let dra = DeviceProvider::Dra.into();
    let sharing = SharingStatus { mode: dra, claim_shares: vec![unit], ..SharingStatus::default() };
    // Two pods of one claim, and a pod of another one.
    let mut usage = held([ShareId::whole(UUID)]);
    let tenants = &mut usage.devices[0].units[0].tenants;
    let tenant = |namespace: &str, claim: &str| Tenant {
        namespace: Some(namespace.to_owned()),
        claim: Some(claim.to_owned()),
        ..tenants[0].clone()
    };
    *tenants = vec![tenant("team-a", "x"), tenant("team-a", "x"), tenant("team-b", "x")];
    let of = |usage: Option<&Usage>| {
        let reported = AgentReport { usage, sharing: Some(&sharing) };
        let known = &mut PotentialCache::default();
        let seen = from_inventory(&inventory(device()), reported, known);
        let units = seen.units.into_iter().next().unwrap();
        assert_eq!((units.resource.as_str(), units.shape), (SHARED_CLASS, Shape::TimeSlice));
        (units.total, units.free, units.in_use)
    };
    assert_eq!(of(Some(&Usage::default())), (4, 4, 0));
    assert_eq!(of(Some(&usage)), (4, 2, 2));
    assert_eq!(of(None), (4, 0, 0), "claims may hold any");
}

#[test]
fn units_of_resource_claims_are_separated_by_profile() {
    let profile = |id: u32, name: &str, slices: u32| GpuInstanceProfile {
        id,
        index: id,
        name: name.parse().unwrap(),
        max_count: 7 / slices,
        memory: Mebibytes::new(5_000),
        resources: InstanceResources { gpu_slices: slices, ..InstanceResources::default() },
        placements: Vec::new(),
        compute_profiles: Vec::new(),
    };
    let instance = |id: u32, (profile_id, slices): (u32, u32)| GpuInstance {
        profile_id,
        compute_instances: vec![ComputeInstance {
            resources: Some(InstanceResources {
                compute_slices: slices,
                ..InstanceResources::default()
            }),
            ..compute_instance(0)
        }],
        ..gpu_instance(id, id, slices)
    };
    let partitioned = Device {
        mig: Mig::Capable(MigState {
            current: MigMode::Enabled,
            pending: MigMode::Enabled,
            gpu_instances: vec![instance(0, (19, 1)), instance(1, (19, 1)), instance(4, (9, 3))],
            geometry: Completeness::Complete,
            catalog: ProfileCatalog::new(vec![profile(19, "1g.5gb", 1), profile(9, "3g.20gb", 3)]),
        }),
        ..device()
    };
    let sharing = SharingStatus { mode: DeviceProvider::Dra.into(), ..SharingStatus::default() };
    let usage = Usage::default();
    let reported = AgentReport { usage: Some(&usage), sharing: Some(&sharing) };
    let known = &mut PotentialCache::default();
    let seen = from_inventory(&inventory(partitioned), reported, known);
    let units = seen.units.iter();
    let units: Vec<_> =
        units.map(|one| (one.resource.as_str(), one.shape.to_string(), one.total)).collect();
    let expected = [("1g.5gb", 2), ("3g.20gb", 1)];
    assert_eq!(units, expected.map(|(profile, total)| (MIG_CLASS, profile.to_owned(), total)));
}

#[test]
fn amd_partitions_without_a_known_mode_have_the_shape_of_devices() {
    assert_eq!(amd_shape(&Amd::default()), Shape::Device);
}

#[test]
fn time_sliced_device_has_one_unit_per_replica() {
    let usage = held([ShareId::replica(UUID, 0), ShareId::replica(UUID, 1)]);
    let mut busy = device();
    busy.processes = vec![process(7, None, None)];
    let of = |sharing: &SharingStatus| {
        let reported = AgentReport { usage: Some(&usage), sharing: Some(sharing) };
        let seen =
            from_inventory(&inventory(busy.clone()), reported, &mut PotentialCache::default());
        let units = seen.units.into_iter().next().unwrap();
        (units.shape, units.total, units.in_use, units.free)
    };
    assert_eq!(of(&sliced("sharing-in-force", 3)), (Shape::TimeSlice, 3, 2, 1));
    // Another GPU of the node is lost, and all healthy units are offered.
    let mut partly = sliced("sharing-not-in-force", 3);
    partly.resources[0].allocatable = Some(3);
    assert_eq!(of(&partly), (Shape::TimeSlice, 3, 2, 1));
    // A layout that is not applied yet does not count.
    assert_eq!(of(&sliced("sharing-pending", 3)), (Shape::Device, 1, 1, 0));
}

#[test]
fn i10_replicas_are_counted_without_a_list() {
    let sharing = sliced("sharing-in-force", u32::MAX);
    let counted = |device: Device, usage: Option<&Usage>| {
        let reported = AgentReport { usage, sharing: Some(&sharing) };
        let seen = from_inventory(&inventory(device), reported, &mut PotentialCache::default());
        let [units] = seen.units.as_slice() else {
            panic!("{:?}", seen.units);
        };
        assert_eq!(units.total, u64::from(u32::MAX));
        (units.free, units.in_use, units.unknown_use())
    };
    let all = u64::from(u32::MAX);
    let usage = held([ShareId::replica(UUID, 0), ShareId::replica(UUID, 1)]);
    assert_eq!(counted(device(), None), (all, 0, 0));
    assert_eq!(counted(device(), Some(&usage)), (all - 2, 2, 0));
    // Allocated slices are in use even where the processes of the device are unknown.
    let mut silent = device();
    silent.record_unknown_users("no permission".to_owned());
    assert_eq!(counted(silent, Some(&usage)), (0, 2, all - 2));
}

#[test]
fn unknown_processes_are_not_idle() {
    let mut busy = device();
    busy.processes = vec![process(7, None, None)];
    assert_eq!(seen(busy, None), (0, 1, 0));
    let mut silent = device();
    silent.record_unknown_users("no permission".to_owned());
    assert_eq!(seen(silent, None), (0, 0, 1));
}
