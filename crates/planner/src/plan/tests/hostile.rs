//! Tables that no device has, built to keep the planner busy: planning ends with a message, and the work is counted.

use std::collections::BTreeSet;

use octavo_model::catalog::{GpuInstanceProfile, InstanceResources, Placement, ProfileCatalog};
use octavo_model::inventory::Device;
use octavo_model::quantity::Mebibytes;

use super::super::cache::PlanCache;
use super::super::{
    Cause, DevicePlanResult, Feasibility, NodePlan, PlanInput, Policy, device, feasible, plan,
};
use super::boards::{device as board, instance, node, state, targets};
use crate::layout::{DeviceTarget, InstanceTarget, MigTarget, Targets};

/// The maximum number of profiles and placements over 64 slices: placements of two slices overlap each other, so that
/// nearly everything fits partly and hardly anything completely.
fn hostile() -> Device {
    let profiles = (0..64).map(|id| GpuInstanceProfile {
        id,
        index: 0,
        name: "1g.5gb".parse().unwrap(),
        max_count: 64,
        memory: Mebibytes::new(1),
        resources: InstanceResources {
            gpu_slices: 1 + u32::from(id == 63) * 63,
            ..InstanceResources::default()
        },
        placements: (0..8)
            .map(|at| Placement { start: (id * 7 + at * 8 + 1) % 61, size: 2 })
            .collect(),
        compute_profiles: Vec::new(),
    });
    let mut device = board(&[]);
    state(&mut device).catalog = ProfileCatalog::new(profiles.collect());
    device
}

fn wanted(count: u32) -> Vec<InstanceTarget> {
    (0..count)
        .map(|profile_id| InstanceTarget { profile_id, compute: vec![1], placement: None })
        .collect()
}

fn planned(devices: Vec<Device>, target: &MigTarget) -> NodePlan {
    let list = devices.iter().map(|device| DeviceTarget {
        mig: Some(target.clone()),
        ..targets(device, MigTarget::Disabled).devices.remove(0)
    });
    let targets = Targets { devices: list.collect(), ..Targets::default() };
    plan(&PlanInput {
        inventory: &node(devices),
        targets: &targets,
        holders: &[],
        policy: &Policy::default(),
        refused: &BTreeSet::new(),
    })
}

#[test]
fn table_with_too_many_arrangements_is_reported() {
    for count in [20, 30, 31] {
        let instances = wanted(count);
        let verdict = planned(vec![hostile()], &MigTarget::Enabled(instances.clone()));
        let DevicePlanResult::Blocked(blocked) = &verdict.devices[0].verdict else {
            panic!("{verdict:?}");
        };
        assert!(
            matches!(&blocked.causes[..], [Cause::StateUnknown { reason }] if reason.contains("compared"))
        );
        // Feasibility may be known or unknown, but is never wrong.
        if count == 20 {
            assert_ne!(feasible(&hostile(), &instances), Ok(Feasibility::Unknown));
        }
    }
}

#[test]
fn search_for_alternatives_is_bounded() {
    let Err(infeasible) = feasible(&hostile(), &wanted(63)) else {
        panic!("32 of two slices fill 64");
    };
    assert!(infeasible.alternatives.len() <= 3);
}

#[test]
fn overlapping_partitions_are_an_invalid_state() {
    let mut device = hostile();
    let row = (0, "1g.5gb", 0, 1, 1, 2, &[0][..]);
    state(&mut device).gpu_instances = (0..1000).map(|id| instance(id, &row, 1, &[1])).collect();
    let verdict = planned(vec![device], &MigTarget::Enabled(wanted(1)));
    assert!(matches!(&verdict.devices[0].verdict, DevicePlanResult::Blocked(_)));
}

#[test]
fn sixteen_equal_devices_cost_little_more_than_one() {
    let rows = super::boards::A100;
    let devices: Vec<Device> = (0..16)
        .map(|bus| {
            let mut device = board(rows);
            device.pci = format!("0000:{bus:02x}:00.0").parse().unwrap();
            device
        })
        .collect();
    let target = super::boards::whole(rows, &[19; 7]);
    let cost = |many: usize| {
        let devices = devices[..many].to_vec();
        let inventory = node(devices.clone());
        let empty = Targets::default();
        let input = PlanInput {
            inventory: &inventory,
            targets: &empty,
            holders: &[],
            policy: &Policy::default(),
            refused: &BTreeSet::new(),
        };
        let mut memo = PlanCache::new();
        for one in &devices {
            let verdict = device::verdict(&input, one.pci, &target, &mut memo);
            assert!(matches!(verdict, DevicePlanResult::Change(_)), "{verdict:?}");
        }
        memo.work.used()
    };
    let (one, all) = (cost(1), cost(16));
    // Only the work for each device: setting up its board and comparing it with known ones.
    assert!(one < 100_000 && all < one + 15 * 2_200, "{one} {all}");
}
