//! Blockers, disruptions of mode changes, and hardware rules: one case each.

use std::collections::BTreeSet;

use super::super::{
    Blocked, Cause, Change, Disruption, Feasible, HardwareRule, Infeasible, Policy, Refusal, Step,
    Verdict, feasible,
};
use super::boards::{A100, device, instance, planned, row, simply, state, whole};
use crate::domain::catalog::{Placement, ProfileCatalog};
use crate::domain::holder::{Holder, Who};
use crate::domain::inventory::tests_support::process;
use crate::domain::inventory::{Device, Mig, MigMode};
use crate::domain::layout::{InstanceTarget, MigTarget};

#[track_caller]
fn change(verdict: Verdict) -> Change {
    match verdict {
        Verdict::Change(change) => change,
        Verdict::Unchanged | Verdict::Blocked(_) | Verdict::Infeasible(_) => panic!("{verdict:?}"),
    }
}

#[track_caller]
fn causes(verdict: Verdict) -> Vec<Cause> {
    match verdict {
        Verdict::Blocked(Blocked { causes }) => causes,
        Verdict::Unchanged | Verdict::Change(_) | Verdict::Infeasible(_) => panic!("{verdict:?}"),
    }
}

fn moded(current: MigMode, pending: MigMode) -> Device {
    let mut device = device(A100);
    state(&mut device).current = current;
    state(&mut device).pending = pending;
    device
}

#[test]
fn an_instance_in_use_is_never_destroyed_and_the_plan_says_which() {
    let mut device = device(A100);
    state(&mut device).gpu_instances = vec![instance(1, row(A100, 9), 0, &[3])];
    device.processes = vec![process(7, Some(1), Some(0))];
    let blocked = causes(simply(&device, whole(A100, &[0])));
    assert!(
        matches!(&blocked[..], [Cause::InstanceInUse { gpu_instance: 1, holders, .. }] if holders.len() == 1)
    );
    let tally = change(simply(&device, whole(A100, &[9, 9]))).tally();
    assert_eq!((tally.destroyed, tally.created), (0, 1));
}

#[test]
fn a_process_that_does_not_say_where_it_runs_may_be_in_any_instance() {
    let mut device = device(A100);
    state(&mut device).gpu_instances = vec![
        instance(1, row(A100, 9), 0, &[3]),
        instance(2, row(A100, 9), 4, &[3]),
    ];
    // No instance, or an instance created after the geometry was read.
    for (gpu, compute) in [(None, None), (None, Some(0)), (Some(5), Some(0))] {
        device.processes = vec![process(7, gpu, compute)];
        let blocked = causes(simply(&device, whole(A100, &[0])));
        let instances = blocked.iter().filter(
            |cause| matches!(cause, Cause::InstanceInUse { holders, .. } if holders.len() == 1),
        );
        assert_eq!(instances.count(), 2, "{blocked:?}");
        assert_eq!(simply(&device, whole(A100, &[9, 9])), Verdict::Unchanged);
    }
    // A process that only has the device open has no context.
    device.processes.clear();
    let open = Holder {
        device: device.pci,
        gpu_instance: None,
        compute_instance: None,
        who: Who::default(),
    };
    let target = whole(A100, &[0]);
    let policy = Policy::default();
    change(planned(&device, target, &[open], policy, &BTreeSet::new()));
}

#[test]
fn a_holder_that_the_driver_does_not_name_counts_as_well() {
    let mut device = device(A100);
    state(&mut device).gpu_instances = vec![instance(1, row(A100, 9), 0, &[1, 1, 1])];
    let holder = Holder {
        device: device.pci,
        gpu_instance: Some(1),
        compute_instance: Some(2),
        who: Who::default(),
    };
    let resplit = |compute: Vec<u32>| {
        let target = MigTarget::Enabled(vec![InstanceTarget {
            profile_id: 9,
            compute,
            placement: None,
        }]);
        planned(
            &device,
            target,
            std::slice::from_ref(&holder),
            Policy::default(),
            &BTreeSet::new(),
        )
    };
    let mixed = change(resplit(vec![2, 1]));
    let tally = mixed.tally();
    assert_eq!((tally.compute_destroyed, tally.compute_created), (2, 1));
    assert_eq!((tally.destroyed, tally.created), (0, 0));
    assert_eq!(mixed.after[0].compute[0].kept, Some(2));
    // Both ways destroy three partitions, but re-splitting destroys no GPU instance, so one compute instance blocks the
    // plan.
    assert!(matches!(
        &causes(resplit(vec![3]))[..],
        [Cause::InstanceInUse { gpu_instance: 1, compute_instances, .. }] if *compute_instances == [2]
    ));
}

#[test]
fn who_is_let_through_a_gpu_instance_into_a_part_of_it_is_in_that_part() {
    let mut device = device(A100);
    state(&mut device).gpu_instances = vec![instance(1, row(A100, 9), 0, &[1, 1, 1])];
    let open = |pid, compute_instance| Holder {
        device: device.pci,
        gpu_instance: Some(1),
        compute_instance,
        who: Who {
            pid: Some(pid),
            ..Who::default()
        },
    };
    let resplit = |holders: &[Holder]| {
        let target = MigTarget::Enabled(vec![InstanceTarget {
            profile_id: 9,
            compute: vec![2, 1],
            placement: None,
        }]);
        planned(
            &device,
            target,
            holders,
            Policy::default(),
            &BTreeSet::new(),
        )
    };
    let mixed = change(resplit(&[open(5, None), open(5, Some(2))]));
    assert_eq!(mixed.after[0].compute[0].kept, Some(2));
    // The instance of the other process is unknown.
    let verdict = resplit(&[open(5, None), open(5, Some(2)), open(6, None)]);
    assert!(matches!(
        &causes(verdict)[..],
        [Cause::InstanceInUse {
            gpu_instance: 1,
            ..
        }]
    ));
}

#[test]
fn a_context_that_may_be_anywhere_is_not_forgotten_because_its_process_has_the_device_open() {
    let mut device = device(A100);
    state(&mut device).gpu_instances = vec![instance(1, row(A100, 9), 0, &[3])];
    device.processes = vec![process(5, None, None)];
    let open = Holder {
        device: device.pci,
        gpu_instance: None,
        compute_instance: None,
        who: Who {
            pid: Some(5),
            ..Who::default()
        },
    };
    let target = whole(A100, &[0]);
    let verdict = planned(
        &device,
        target,
        &[open],
        Policy::default(),
        &BTreeSet::new(),
    );
    assert!(matches!(
        &causes(verdict)[..],
        [Cause::InstanceInUse {
            gpu_instance: 1,
            ..
        }]
    ));
}

#[test]
fn a_gpu_instance_without_compute_instances_is_given_some_or_goes() {
    let mut device = device(A100);
    state(&mut device).gpu_instances = vec![instance(1, row(A100, 9), 4, &[])];
    let adopted = change(simply(&device, whole(A100, &[9])));
    assert!(matches!(
        &adopted.steps[..],
        [Step::CreateComputeInstance { slices: 3, .. }]
    ));
    let cleared = change(simply(&device, whole(A100, &[0])));
    let tally = cleared.tally();
    assert_eq!((tally.destroyed, tally.created), (1, 1));
}

#[test]
fn modes_change_only_where_they_must() {
    use MigMode::{Disabled, Enabled};
    let none = || MigTarget::Enabled(Vec::new());
    let steps = |device: &Device, target| match simply(device, target) {
        Verdict::Unchanged => (0, Disruption::None),
        verdict @ (Verdict::Change(_) | Verdict::Blocked(_) | Verdict::Infeasible(_)) => {
            let change = change(verdict);
            (change.steps.len(), change.disruption())
        }
    };
    let reset = Disruption::GpuReset;
    assert_eq!(
        steps(&moded(Enabled, Enabled), none()),
        (0, Disruption::None)
    );
    assert_eq!(steps(&moded(Disabled, Disabled), none()), (2, reset));
    assert_eq!(steps(&moded(Disabled, Enabled), none()), (1, reset));
    assert_eq!(
        steps(&moded(Enabled, Disabled), none()),
        (1, Disruption::None)
    );
    let off = || MigTarget::Disabled;
    assert_eq!(
        steps(&moded(Disabled, Disabled), off()),
        (0, Disruption::None)
    );
    assert_eq!(steps(&moded(Enabled, Enabled), off()), (2, reset));
    let mut hopper = moded(Disabled, Disabled);
    hopper.compute_capability.as_mut().unwrap().major = 9;
    assert_eq!(steps(&hopper, none()), (1, Disruption::ClientsBounce));
}

#[test]
fn a_mode_change_waits_for_clients_and_for_leave() {
    let mut device = moded(MigMode::Disabled, MigMode::Disabled);
    device.processes = vec![process(7, None, None)];
    let strict = Policy {
        most_disruption: Disruption::ClientsBounce,
    };
    let verdict = planned(&device, whole(A100, &[0]), &[], strict, &BTreeSet::new());
    assert!(matches!(
        &causes(verdict)[..],
        [
            Cause::DeviceInUse { .. },
            Cause::NotAllowed {
                disruption: Disruption::GpuReset
            }
        ]
    ));
}

#[test]
fn what_is_not_told_is_not_guessed() {
    let mut silent = device(A100);
    silent.mig = Mig::Unknown;
    let mut listless = moded(MigMode::Disabled, MigMode::Disabled);
    state(&mut listless).catalog = ProfileCatalog::default();
    for device in [silent, listless] {
        let causes = causes(simply(&device, whole(A100, &[0])));
        assert!(matches!(&causes[..], [Cause::Untold { .. }]), "{causes:?}");
    }
}

#[test]
fn the_rule_that_forbids_is_named_with_what_would_fit() {
    let ask = |ids: &[u32]| match whole(A100, ids) {
        MigTarget::Enabled(instances) => feasible(&device(A100), &instances),
        MigTarget::Disabled => Ok(Feasible::Untold),
    };
    assert_eq!(ask(&[9, 5]), Ok(Feasible::Yes));
    let rule = |ids: &[u32]| ask(ids).unwrap_err().rule;
    let exclusive = HardwareRule::Exclusive {
        profile_id: 20,
        other: 20,
    };
    assert_eq!(rule(&[20, 20]), exclusive);
    let many = HardwareRule::TooMany {
        profile_id: 9,
        asked: 3,
        most: 2,
    };
    assert_eq!(rule(&[9, 9, 9]), many);
    let slices = HardwareRule::GpuSlices { asked: 8, most: 7 };
    assert_eq!(rule(&[0, 19]), slices);
    let memory = HardwareRule::MemorySlices { asked: 9, most: 8 };
    assert_eq!(rule(&[9, 9, 19]), memory);
    assert_eq!(rule(&[5, 14, 14]), slices);
    let Infeasible { nearest, .. } = ask(&[9, 9, 9]).unwrap_err();
    let MigTarget::Enabled(two) = whole(A100, &[9, 9]) else {
        return;
    };
    assert_eq!((nearest.len(), &nearest[0].instances), (3, &two));
}

#[test]
fn refusals_end_with_another_place_or_with_a_word() {
    let device = device(A100);
    let mut refused = BTreeSet::new();
    for left in [true, true, false] {
        let verdict = planned(&device, whole(A100, &[9]), &[], Policy::default(), &refused);
        if !left {
            assert_eq!(causes(verdict), [Cause::Refused]);
            return;
        }
        let placement = change(verdict).after[0].placement;
        let new = refused.insert(Refusal {
            device: device.pci,
            profile_id: 9,
            placement,
        });
        assert!(new && placement != Placement { start: 1, size: 4 });
    }
}
