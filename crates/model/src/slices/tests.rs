//! Slices of consistent and of inconsistent devices.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::catalog::{GpuInstanceProfile, InstanceResources, Placement, ProfileCatalog};
use crate::examples::{gpu, gpu_instance};
use crate::inventory::Mig;
use crate::quantity::Mebibytes;

/// A profile `1g.10gb` with id 19 that fits anywhere in this many slices; without slices, no placement is known.
fn offer(slices: u32) -> ProfileCatalog {
    let placements = (0..slices).map(|start| Placement { start, size: 1 });
    ProfileCatalog::new(vec![GpuInstanceProfile {
        id: 19,
        index: 0,
        name: "1g.10gb".parse().unwrap(),
        max_count: 7,
        memory: Mebibytes::new(9728),
        resources: InstanceResources::default(),
        placements: placements.collect(),
        compute_profiles: Vec::new(),
    }])
}

/// A device with `slices` slices and instances at these `(id, start, size)`.
fn device(current: MigMode, slices: u32, instances: &[(u32, u32, u32)]) -> Device {
    let gpu_instances = instances.iter().map(|(id, start, size)| gpu_instance(*id, *start, *size));
    let mut device = gpu();
    device.mig = Mig::Capable(MigState {
        current,
        pending: current,
        catalog: offer(slices),
        gpu_instances: gpu_instances.collect(),
        geometry: Completeness::Complete,
    });
    device
}

fn partial(mut device: Device) -> Device {
    if let Mig::Capable(state) = &mut device.mig {
        state.geometry = Completeness::Partial;
    }
    device
}

/// `2@0+4` for slices 0 to 3 of instance 2, `@4` for a free slice, `!9` for a hidden instance.
fn format_slices(slices: &Slices<'_>) -> String {
    let Slices::Partitioned { regions, hidden, .. } = slices else {
        panic!("{slices:?}");
    };
    let regions = regions.iter().map(|region| match region {
        Region::Free { start } => format!("@{start}"),
        Region::Instance { instance, start, slices } => format!("{}@{start}+{slices}", instance.id),
    });
    let hidden = hidden.iter().map(|instance| format!("!{}", instance.id));
    regions.chain(hidden).collect::<Vec<_>>().join(" ")
}

#[test]
fn partitioned_device_shows_its_instances_and_each_free_slice() {
    type Case<'a> = (u32, &'a [(u32, u32, u32)], &'a str, usize);
    let cases: [Case<'_>; 9] = [
        (4, &[], "@0 @1 @2 @3", 4),
        (8, &[(2, 0, 4), (3, 4, 2), (9, 6, 1)], "2@0+4 3@4+2 9@6+1 @7", 1),
        // Ids are not in the order of slices.
        (4, &[(3, 2, 1), (4, 3, 1), (5, 0, 2)], "5@0+2 3@2+1 4@3+1", 0),
        // Two instances in one slice: the first is shown with all its slices, the other is hidden.
        (4, &[(1, 0, 2), (2, 1, 2)], "1@0+2 @2 @3 !2", 2),
        (4, &[(1, 1, 1), (2, 0, 4), (3, 2, 2)], "@0 1@1+1 3@2+2 !2", 1),
        // An instance without a slice.
        (2, &[(1, 1, 0)], "@0 @1 !1", 2),
        // An instance beyond the offered slices extends the device.
        (4, &[(1, 5, 2)], "@0 @1 @2 @3 @4 1@5+2", 5),
        (0, &[(1, 0, 2)], "1@0+2", 0),
        // Adjacent slices of one id are one instance, separate ones are two.
        (5, &[(1, 0, 1), (1, 1, 2), (1, 4, 1)], "1@0+3 @3 1@4+1", 1),
    ];
    for (slices, instances, expected, free) in cases {
        let device = device(MigMode::Enabled, slices, instances);
        let found = Slices::from_device(&device);
        assert_eq!(format_slices(&found), expected, "{instances:?}");
        assert_eq!(found.free(), Some(free), "{instances:?}");
    }
}

#[test]
fn device_without_mig_mode_is_one_whole_gpu() {
    for instances in [&[][..], &[(1, 0, 2)]] {
        let device = device(MigMode::Disabled, 8, instances);
        let found = Slices::from_device(&device);
        assert_eq!(found, Slices::Whole { slices: 8 });
        assert_eq!(found.free(), None);
    }
}

#[test]
fn unreported_slices_are_not_drawn() {
    for mode in [MigMode::Disabled, MigMode::Enabled] {
        for (device, why) in [
            (device(mode, 0, &[]), UndrawableReason::NoSlices),
            (partial(device(mode, 0, &[])), UndrawableReason::NoSlices),
            (device(mode, 25, &[]), UndrawableReason::TooMany(25)),
            (partial(device(mode, 25, &[])), UndrawableReason::TooMany(25)),
            (device(mode, 8, &[(1, u32::MAX, 4)]), UndrawableReason::TooMany(u32::MAX)),
            (partial(device(mode, 8, &[(1, 0, 4)])), UndrawableReason::Geometry),
        ] {
            let found = Slices::from_device(&device);
            assert_eq!(found, Slices::Undrawable(why));
            assert_eq!(found.free(), None);
        }
        let most = device(mode, 24, &[]);
        assert!(!matches!(Slices::from_device(&most), Slices::Undrawable(_)));
    }
}

#[test]
fn device_without_slices_or_response_is_not_partitionable() {
    let mut incapable = gpu();
    incapable.mig = Mig::NotCapable;
    let mut unknown = gpu();
    unknown.mig = Mig::Unknown;
    let mut failing = device(MigMode::Enabled, 8, &[(1, 0, 4)]);
    failing.condition = Condition::Failing { reason: "GPU is lost".to_owned() };
    let mut bus_only = device(MigMode::Enabled, 8, &[(1, 0, 4)]);
    bus_only.condition = Condition::PciOnly { kernel_driver: None };
    for device in [incapable, unknown, failing, bus_only] {
        let found = Slices::from_device(&device);
        assert_eq!(found, Slices::NotPartitionable);
        assert_eq!(found.free(), None);
    }
}

#[test]
fn instance_name_is_profile_or_number() {
    let device = device(MigMode::Enabled, 8, &[(1, 0, 1)]);
    let state = device.mig.state().unwrap();
    let mut instance = gpu_instance(1, 0, 1);
    assert_eq!(state.profile_name(&instance), "1g.10gb");
    instance.profile_id = 5;
    assert_eq!(state.profile_name(&instance), "profile 5");
}

proptest! {
    #[test]
    fn regions_cover_each_slice_once(
        offered in 0_u32..30,
        // Few ids, so that some repeat; occasionally one far outside.
        instances in vec((0_u32..8, prop_oneof![20 => 0_u32..20, 1 => any::<u32>()], 0_u32..10), 0..10),
    ) {
        let device = device(MigMode::Enabled, offered, &instances);
        let found = Slices::from_device(&device);
        let Slices::Partitioned { slices, regions, hidden } = &found else {
            let refused = matches!(found, Slices::Undrawable(UndrawableReason::NoSlices | UndrawableReason::TooMany(_)));
            prop_assert!(refused, "{:?}", found);
            return Ok(());
        };
        let covered: Vec<u32> = regions
            .iter()
            .flat_map(|region| region.start()..region.start() + region.slices())
            .collect();
        prop_assert_eq!(covered, (0..*slices).collect::<Vec<u32>>());
        // No free slice lies in a visible instance.
        let shown: Vec<&GpuInstance> = device
            .mig
            .state()
            .unwrap()
            .gpu_instances
            .iter()
            .filter(|instance| !hidden.iter().any(|other| std::ptr::eq(*instance, *other)))
            .collect();
        let taken: u32 = shown.iter().map(|instance| instance.placement.size).sum();
        let free = u32::try_from(found.free().unwrap()).unwrap();
        prop_assert_eq!(taken + free, *slices);
        for region in regions {
            if let Region::Free { start } = region {
                let inside = |instance: &&GpuInstance| {
                    (instance.placement.start..instance.placement.end()).contains(start)
                };
                prop_assert!(!shown.iter().any(inside));
            }
        }
    }
}
