//! Blockers, disruptions of mode changes, and hardware rules: one case each.

use std::collections::BTreeSet;

use octavo_model::catalog::{Placement, ProfileCatalog};
use octavo_model::examples::process;
use octavo_model::holder::{Holder, HolderDetails};
use octavo_model::inventory::{Device, Mig, MigMode};

use super::super::{
    Blocked, Cause, DeviceChange, DevicePlanResult, Disruption, Feasibility, HardwareRule,
    Infeasible, Policy, RefusedPlacement, Step, feasible,
};
use super::boards::{A100, device, instance, planned, row, simply, state, whole};
use crate::layout::{InstanceTarget, MigTarget};

#[track_caller]
fn change(verdict: DevicePlanResult) -> DeviceChange {
    match verdict {
        DevicePlanResult::Change(change) => change,
        DevicePlanResult::Unchanged
        | DevicePlanResult::Blocked(_)
        | DevicePlanResult::Infeasible(_) => panic!("{verdict:?}"),
    }
}

#[track_caller]
fn causes(verdict: DevicePlanResult) -> Vec<Cause> {
    match verdict {
        DevicePlanResult::Blocked(Blocked { causes }) => causes,
        DevicePlanResult::Unchanged
        | DevicePlanResult::Change(_)
        | DevicePlanResult::Infeasible(_) => panic!("{verdict:?}"),
    }
}

fn moded(current: MigMode, pending: MigMode) -> Device {
    let mut device = device(A100);
    state(&mut device).current = current;
    state(&mut device).pending = pending;
    device
}

#[test]
fn instance_in_use_is_never_destroyed_and_is_named() {
    let mut device = device(A100);
    state(&mut device).gpu_instances = vec![instance(1, row(A100, 9), 0, &[3])];
    device.processes = vec![process(7, Some(1), Some(0))];
    let blocked = causes(simply(&device, whole(A100, &[0])));
    assert!(
        matches!(&blocked[..], [Cause::InstanceInUse { gpu_instance: 1, holders, .. }] if holders.len() == 1)
    );
    let tally = change(simply(&device, whole(A100, &[9, 9]))).summary();
    assert_eq!((tally.destroyed, tally.created), (0, 1));
}

#[test]
fn process_in_unknown_instance_pins_every_instance() {
    let mut device = device(A100);
    state(&mut device).gpu_instances =
        vec![instance(1, row(A100, 9), 0, &[3]), instance(2, row(A100, 9), 4, &[3])];
    // No instance, or an instance created after the geometry was read.
    for (gpu, compute) in [(None, None), (None, Some(0)), (Some(5), Some(0))] {
        device.processes = vec![process(7, gpu, compute)];
        let blocked = causes(simply(&device, whole(A100, &[0])));
        let instances = blocked.iter().filter(
            |cause| matches!(cause, Cause::InstanceInUse { holders, .. } if holders.len() == 1),
        );
        assert_eq!(instances.count(), 2, "{blocked:?}");
        assert_eq!(simply(&device, whole(A100, &[9, 9])), DevicePlanResult::Unchanged);
    }
    // A process that only has the device open has no context.
    device.processes.clear();
    let open = Holder {
        device: device.pci,
        gpu_instance: None,
        compute_instance: None,
        details: HolderDetails::default(),
    };
    let target = whole(A100, &[0]);
    let policy = Policy::default();
    change(planned(&device, target, &[open], policy, &BTreeSet::new()));
}

#[test]
fn holder_unknown_to_the_driver_counts() {
    let mut device = device(A100);
    state(&mut device).gpu_instances = vec![instance(1, row(A100, 9), 0, &[1, 1, 1])];
    let holder = Holder {
        device: device.pci,
        gpu_instance: Some(1),
        compute_instance: Some(2),
        details: HolderDetails::default(),
    };
    let resplit = |compute: Vec<u32>| {
        let target =
            MigTarget::Enabled(vec![InstanceTarget { profile_id: 9, compute, placement: None }]);
        planned(&device, target, std::slice::from_ref(&holder), Policy::default(), &BTreeSet::new())
    };
    let mixed = change(resplit(vec![2, 1]));
    let tally = mixed.summary();
    assert_eq!((tally.compute_destroyed, tally.compute_created), (2, 1));
    assert_eq!((tally.destroyed, tally.created), (0, 0));
    assert_eq!(mixed.after[0].compute[0].existing_id, Some(2));
    // Both ways destroy three partitions, but re-splitting destroys no GPU instance, so one compute instance blocks the
    // plan.
    assert!(matches!(
        &causes(resplit(vec![3]))[..],
        [Cause::InstanceInUse { gpu_instance: 1, compute_instances, .. }] if *compute_instances == [2]
    ));
}

#[test]
fn process_with_both_device_nodes_uses_the_compute_instance() {
    let mut device = device(A100);
    state(&mut device).gpu_instances = vec![instance(1, row(A100, 9), 0, &[1, 1, 1])];
    let open = |pid, compute_instance| Holder {
        device: device.pci,
        gpu_instance: Some(1),
        compute_instance,
        details: HolderDetails { pid: Some(pid), ..HolderDetails::default() },
    };
    let resplit = |holders: &[Holder]| {
        let target = MigTarget::Enabled(vec![InstanceTarget {
            profile_id: 9,
            compute: vec![2, 1],
            placement: None,
        }]);
        planned(&device, target, holders, Policy::default(), &BTreeSet::new())
    };
    let mixed = change(resplit(&[open(5, None), open(5, Some(2))]));
    assert_eq!(mixed.after[0].compute[0].existing_id, Some(2));
    // The instance of the other process is unknown.
    let verdict = resplit(&[open(5, None), open(5, Some(2)), open(6, None)]);
    assert!(matches!(&causes(verdict)[..], [Cause::InstanceInUse { gpu_instance: 1, .. }]));
}

#[test]
fn unlocated_context_counts_even_if_the_device_is_open() {
    let mut device = device(A100);
    state(&mut device).gpu_instances = vec![instance(1, row(A100, 9), 0, &[3])];
    device.processes = vec![process(5, None, None)];
    let open = Holder {
        device: device.pci,
        gpu_instance: None,
        compute_instance: None,
        details: HolderDetails { pid: Some(5), ..HolderDetails::default() },
    };
    let target = whole(A100, &[0]);
    let verdict = planned(&device, target, &[open], Policy::default(), &BTreeSet::new());
    assert!(matches!(&causes(verdict)[..], [Cause::InstanceInUse { gpu_instance: 1, .. }]));
}

#[test]
fn empty_gpu_instance_gets_compute_instances_or_is_destroyed() {
    let mut device = device(A100);
    state(&mut device).gpu_instances = vec![instance(1, row(A100, 9), 4, &[])];
    let adopted = change(simply(&device, whole(A100, &[9])));
    assert!(matches!(&adopted.steps[..], [Step::CreateComputeInstance { slices: 3, .. }]));
    let cleared = change(simply(&device, whole(A100, &[0])));
    let tally = cleared.summary();
    assert_eq!((tally.destroyed, tally.created), (1, 1));
}

#[test]
fn modes_change_only_if_required() {
    use MigMode::{Disabled, Enabled};
    let none = || MigTarget::Enabled(Vec::new());
    let steps = |device: &Device, target| match simply(device, target) {
        DevicePlanResult::Unchanged => (0, Disruption::None),
        verdict @ (DevicePlanResult::Change(_)
        | DevicePlanResult::Blocked(_)
        | DevicePlanResult::Infeasible(_)) => {
            let change = change(verdict);
            (change.steps.len(), change.disruption())
        }
    };
    let reset = Disruption::GpuReset;
    assert_eq!(steps(&moded(Enabled, Enabled), none()), (0, Disruption::None));
    assert_eq!(steps(&moded(Disabled, Disabled), none()), (2, reset));
    assert_eq!(steps(&moded(Disabled, Enabled), none()), (1, reset));
    assert_eq!(steps(&moded(Enabled, Disabled), none()), (1, Disruption::None));
    let off = || MigTarget::Disabled;
    assert_eq!(steps(&moded(Disabled, Disabled), off()), (0, Disruption::None));
    assert_eq!(steps(&moded(Enabled, Enabled), off()), (2, reset));
    let mut hopper = moded(Disabled, Disabled);
    hopper.compute_capability.as_mut().unwrap().major = 9;
    assert_eq!(steps(&hopper, none()), (1, Disruption::ClientsBounce));
}

#[test]
fn mode_change_requires_no_clients_and_permission() {
    let mut device = moded(MigMode::Disabled, MigMode::Disabled);
    device.processes = vec![process(7, None, None)];
    let strict = Policy { max_disruption: Disruption::ClientsBounce };
    let verdict = planned(&device, whole(A100, &[0]), &[], strict, &BTreeSet::new());
    assert!(matches!(
        &causes(verdict)[..],
        [Cause::DeviceInUse { .. }, Cause::NotAllowed { disruption: Disruption::GpuReset }]
    ));
}

#[test]
fn unreported_state_is_never_guessed() {
    let mut silent = device(A100);
    silent.mig = Mig::Unknown;
    let mut listless = moded(MigMode::Disabled, MigMode::Disabled);
    state(&mut listless).catalog = ProfileCatalog::default();
    for device in [silent, listless] {
        let causes = causes(simply(&device, whole(A100, &[0])));
        assert!(matches!(&causes[..], [Cause::StateUnknown { .. }]), "{causes:?}");
    }
}

#[test]
fn violated_rule_is_named_with_alternatives() {
    let ask = |ids: &[u32]| match whole(A100, ids) {
        MigTarget::Enabled(instances) => feasible(&device(A100), &instances),
        MigTarget::Disabled => Ok(Feasibility::Unknown),
    };
    assert_eq!(ask(&[9, 5]), Ok(Feasibility::Feasible));
    let rule = |ids: &[u32]| ask(ids).unwrap_err().rule;
    let exclusive = HardwareRule::Exclusive { profile_id: 20, other: 20 };
    assert_eq!(rule(&[20, 20]), exclusive);
    let many = HardwareRule::TooMany { profile_id: 9, requested: 3, most: 2 };
    assert_eq!(rule(&[9, 9, 9]), many);
    let slices = HardwareRule::GpuSlices { requested: 8, most: 7 };
    assert_eq!(rule(&[0, 19]), slices);
    let memory = HardwareRule::MemorySlices { requested: 9, most: 8 };
    assert_eq!(rule(&[9, 9, 19]), memory);
    assert_eq!(rule(&[5, 14, 14]), slices);
    let Infeasible { alternatives: nearest, .. } = ask(&[9, 9, 9]).unwrap_err();
    let MigTarget::Enabled(two) = whole(A100, &[9, 9]) else {
        return;
    };
    assert_eq!((nearest.len(), &nearest[0]), (3, &two));
}

#[test]
fn refusals_lead_to_another_placement_or_blocked() {
    let device = device(A100);
    let mut refused = BTreeSet::new();
    for left in [true, true, false] {
        let verdict = planned(&device, whole(A100, &[9]), &[], Policy::default(), &refused);
        if !left {
            assert_eq!(causes(verdict), [Cause::HardwareRefused]);
            return;
        }
        let placement = change(verdict).after[0].placement;
        let new = refused.insert(RefusedPlacement { device: device.pci, profile_id: 9, placement });
        assert!(new && placement != Placement { start: 1, size: 4 });
    }
}
