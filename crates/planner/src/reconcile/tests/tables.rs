//! Each fault and its expected outcome.

use octavo_model::call::{DriverCall, FailureKind};
use octavo_model::holder::{Holder, HolderDetails};
use octavo_model::inventory::MigMode;

use super::hardware::{Fault, Hardware, state_of};
use super::wants;
use crate::layout::{InstanceTarget, MigTarget};
use crate::plan::Cause;
use crate::reconcile::{ChangeOutcome, ChangeRequest};

const SEVEN: &[(u32, u32, &[u32])] = &[
    (19, 0, &[1]),
    (19, 1, &[1]),
    (19, 2, &[1]),
    (19, 3, &[1]),
    (19, 4, &[1]),
    (19, 5, &[1]),
    (19, 6, &[1]),
];

fn reshaped() -> (Hardware, MigTarget) {
    (Hardware::new(&[(9, 0, &[3]), (9, 4, &[3])]), wants(&[5, 14, 19]))
}

#[test]
fn i7_change_is_read_back_before_success() {
    let mut hardware = Hardware::new(SEVEN);
    let job = hardware.job(wants(&[9, 9]));
    assert_eq!(hardware.run(job, None), Some(ChangeOutcome::Applied));
    assert_eq!(hardware.geometry(), [(9, 0, vec![3]), (9, 4, vec![3])]);
    assert_eq!(hardware.calls.len(), 7 + 7 + 2 + 2, "a call is repeated");
    let job = hardware.job(wants(&[9, 9]));
    hardware.calls.clear();
    assert_eq!(hardware.run(job, None), Some(ChangeOutcome::Applied));
    assert!(hardware.calls.is_empty(), "calls without a change");
}

#[test]
fn i1_instance_in_use_blocks_before_any_call() {
    let mut hardware = Hardware::new(SEVEN).used_by(3, 0);
    let job = hardware.job(wants(&[9, 9]));
    let Some(ChangeOutcome::Blocked { causes, rolled_back: false }) = hardware.run(job, None)
    else {
        panic!("an instance in use does not block");
    };
    assert!(matches!(causes.as_slice(), [Cause::InstanceInUse { gpu_instance: 3, .. }]));
    assert!(hardware.calls.is_empty());
}

#[test]
fn i1_user_appearing_before_call_causes_rollback() {
    let (mut hardware, target) = reshaped();
    let before = hardware.geometry();
    // A process enters the first instance while the second is being destroyed.
    hardware.faults = vec![(1, Fault::UserAppears)];
    let job = hardware.job(target);
    let outcome = hardware.run(job, None);
    assert!(hardware.violations.is_empty(), "{:?}", hardware.violations);
    let Some(ChangeOutcome::Blocked { rolled_back, .. }) = outcome else {
        panic!("{outcome:?}");
    };
    assert!(rolled_back);
    assert_eq!(hardware.geometry(), before);
}

#[test]
fn i1_unknown_users_count_as_in_use_after_retries() {
    let (mut hardware, target) = reshaped();
    hardware.faults = vec![(0, Fault::UsersUnknown); 3];
    let job = hardware.job(target.clone());
    assert_eq!(hardware.run(job, None), Some(ChangeOutcome::Applied));
    let (mut hardware, _) = reshaped();
    hardware.faults = vec![(0, Fault::UsersUnknown); 1000];
    let job = hardware.job(target);
    let outcome = hardware.run(job, None);
    assert!(
        matches!(&outcome, Some(ChangeOutcome::Blocked { causes, rolled_back: false })
            if matches!(causes.as_slice(), [Cause::StateUnknown { .. }])),
        "{outcome:?}"
    );
    assert!(hardware.calls.is_empty());
}

#[test]
fn late_holder_is_avoided_by_replanning() {
    for held in [1, 2] {
        let mut hardware = Hardware::new(&[(14, 0, &[2]), (14, 4, &[2])]);
        hardware.holders = vec![Holder {
            device: hardware.device.pci,
            gpu_instance: Some(held),
            compute_instance: Some(0),
            details: HolderDetails::default(),
        }];
        let job = hardware.job(wants(&[9, 14]));
        assert_eq!(hardware.run(job, None), Some(ChangeOutcome::Applied), "{held}");
        let there = state_of(&hardware.device).gpu_instances.iter();
        assert!(there.map(|one| one.id).any(|id| id == held), "{held}");
    }
}

#[test]
fn i3_incomplete_reading_is_not_a_foreign_change() {
    let (mut hardware, target) = reshaped();
    hardware.partial_readings = 3;
    let job = hardware.job(target);
    assert_eq!(hardware.run(job, None), Some(ChangeOutcome::Applied));
}

#[test]
fn temporary_in_use_is_retried_and_persistent_one_reported() {
    let (mut hardware, target) = reshaped();
    hardware.in_use_failures = 4;
    let job = hardware.job(target.clone());
    assert_eq!(hardware.run(job, None), Some(ChangeOutcome::Applied));
    let (mut hardware, _) = reshaped();
    let before = hardware.geometry();
    hardware.in_use_failures = 1000;
    let job = hardware.job(target);
    let outcome = hardware.run(job, None);
    assert!(
        matches!(&outcome, Some(ChangeOutcome::Blocked { causes, .. })
            if matches!(causes.as_slice(), [Cause::StateUnknown { reason }] if reason.contains("leaked a handle"))),
        "{outcome:?}"
    );
    assert_eq!(hardware.geometry(), before);
}

#[test]
fn destroy_without_effect_is_retried() {
    for at in 0..4 {
        let (mut hardware, target) = reshaped();
        hardware.faults = vec![(at, Fault::FalseSuccess)];
        let job = hardware.job(target);
        assert_eq!(hardware.run(job, None), Some(ChangeOutcome::Applied), "{at}");
        let ids = hardware.geometry().into_iter().map(|one| one.0);
        assert_eq!(ids.collect::<Vec<_>>(), [5, 14, 19], "{at}");
    }
}

#[test]
fn rejected_placement_is_replaced() {
    let mut hardware = Hardware::new(&[]);
    hardware.defects.insert((9, 0));
    let job = hardware.job(wants(&[9]));
    assert_eq!(hardware.run(job, None), Some(ChangeOutcome::Applied));
    assert_eq!(hardware.geometry(), [(9, 4, vec![3])]);
    // If there is no other placement, the previous instances are restored.
    let mut hardware = Hardware::new(&[(14, 0, &[2])]);
    hardware.defects.extend([(9, 0), (9, 4)]);
    let before = hardware.geometry();
    let job = hardware.job(wants(&[9, 9]));
    let outcome = hardware.run(job, None);
    assert!(
        matches!(&outcome, Some(ChangeOutcome::Blocked { causes, rolled_back: true })
            if *causes == [Cause::HardwareRefused]),
        "{outcome:?}"
    );
    assert_eq!(hardware.geometry(), before);
}

#[test]
fn instance_at_other_placement_is_not_retained() {
    let mut hardware = Hardware::new(&[]);
    hardware.faults = vec![(0, Fault::OtherPlacement)];
    let job = hardware.job(wants(&[5, 9]));
    let outcome = hardware.run(job, None);
    assert_eq!(outcome, Some(ChangeOutcome::Applied));
    let ids: Vec<u32> = hardware.geometry().iter().map(|one| one.0).collect();
    assert_eq!(ids, [5, 9]);
}

#[test]
fn gpu_instance_without_compute_instance_is_removed() {
    let mut hardware = Hardware::new(&[(14, 0, &[2])]);
    let before = hardware.geometry();
    hardware.faults = vec![(1, Fault::Fails(FailureKind::Rejected))];
    let job = hardware.job(wants(&[14, 9]));
    let outcome = hardware.run(job, None);
    assert!(
        matches!(&outcome, Some(ChangeOutcome::RolledBack { reason }) if reason.contains("Compute")),
        "{outcome:?}"
    );
    assert_eq!(hardware.geometry(), before);
}

#[test]
fn effects_of_failed_calls_are_accepted() {
    for at in 0..5 {
        for kind in
            [FailureKind::NotFound, FailureKind::Temporary, FailureKind::InsufficientResources]
        {
            let (mut hardware, target) = reshaped();
            let before = hardware.geometry();
            hardware.faults = vec![(at, Fault::FailsLate(kind))];
            let job = hardware.job(target);
            let outcome = hardware.run(job, None).unwrap();
            let now = hardware.geometry();
            if outcome == ChangeOutcome::Applied {
                assert_eq!(now.len(), 3, "{at} {kind:?}");
            } else {
                let back = matches!(outcome, ChangeOutcome::RolledBack { .. });
                assert!(back, "{at} {kind:?}: {outcome:?}");
                assert_eq!(now, before, "{at} {kind:?}");
            }
        }
    }
}

#[test]
fn foreign_change_ends_as_yielded() {
    let (mut hardware, target) = reshaped();
    hardware.faults = vec![(1, Fault::Foreign)];
    // Another process destroys the second instance while the transaction destroys the first.
    let job = hardware.job(wants(&[9, 14]));
    let _ = target;
    let outcome = hardware.run(job, None);
    assert!(
        matches!(&outcome, Some(ChangeOutcome::Yielded { reason }) if reason.contains("another process")),
        "{outcome:?}"
    );
}

#[test]
fn lost_device_ends_change_immediately() {
    let (mut hardware, target) = reshaped();
    hardware.faults = vec![(2, Fault::Fails(FailureKind::DeviceLost))];
    let job = hardware.job(target);
    let outcome = hardware.run(job, None);
    assert!(matches!(&outcome, Some(ChangeOutcome::Failed { rollback: None, .. })), "{outcome:?}");
    assert_eq!(hardware.calls.len(), 3);
}

#[test]
fn mode_change_reports_needed_reset_and_rolls_back_if_blocked() {
    let mut hardware = Hardware::new(&[(9, 0, &[3])]);
    let job = hardware.job(MigTarget::Disabled);
    let outcome = hardware.run(job, None);
    assert!(matches!(outcome, Some(ChangeOutcome::NeedsReset { .. })), "{outcome:?}");
    assert_eq!(state_of(&hardware.device).pending, MigMode::Disabled);
    assert!(hardware.geometry().is_empty());
    // Since Hopper no reset is needed, but an open device handle blocks the change.
    let mut device = crate::layout::tests_support::H100.with(0, &[]);
    device.compute_capability =
        Some(octavo_model::quantity::ComputeCapability { major: 9, minor: 0 });
    let mut hardware = Hardware::of(device);
    let job = hardware.job(MigTarget::Disabled);
    // The simulated device always answers "pending", as it does for a client that cannot be identified.
    let outcome = hardware.run(job, None);
    assert!(
        matches!(&outcome, Some(ChangeOutcome::Blocked { causes, rolled_back: true })
            if matches!(causes.as_slice(), [Cause::StateUnknown { reason }] if reason.contains("leaked a handle"))),
        "{outcome:?}"
    );
    let state = state_of(&hardware.device);
    assert_eq!((state.current, state.pending), (MigMode::Enabled, MigMode::Enabled));
}

#[test]
fn rollback_restores_placements() {
    let mut hardware = Hardware::new(&[(19, 6, &[1]), (19, 3, &[1])]);
    let there = crate::layout::current_target(state_of(&hardware.device)).unwrap();
    let job = hardware.job(wants(&[0]));
    assert_eq!(hardware.run(job, None), Some(ChangeOutcome::Applied));
    let job = hardware.job(there);
    assert_eq!(hardware.run(job, None), Some(ChangeOutcome::Applied));
    assert_eq!(hardware.geometry(), [(19, 3, vec![1]), (19, 6, vec![1])]);
}

#[test]
fn interrupted_apply_continues_from_current_state() {
    for kill in 0..8 {
        let (mut hardware, target) = reshaped();
        let job = hardware.job(target.clone());
        let previous = job.previous.clone();
        if hardware.run(job, Some(kill)).is_some() {
            break;
        }
        let job = ChangeRequest { previous, resumed: true, ..hardware.job(target) };
        assert_eq!(hardware.run(job, None), Some(ChangeOutcome::Applied), "{kill}");
    }
}

#[test]
fn target_without_placement_keeps_existing_instances() {
    let mut hardware = Hardware::new(&[(9, 4, &[3])]);
    let job = hardware.job(wants(&[9]));
    assert_eq!(hardware.run(job, None), Some(ChangeOutcome::Applied));
    assert!(hardware.calls.is_empty());
    let place = octavo_model::catalog::Placement { start: 0, size: 4 };
    let job = hardware.job(MigTarget::Enabled(vec![InstanceTarget {
        profile_id: 9,
        compute: vec![3],
        placement: Some(place),
    }]));
    assert_eq!(hardware.run(job, None), Some(ChangeOutcome::Applied));
    assert_eq!(hardware.geometry(), [(9, 0, vec![3])]);
    assert!(matches!(hardware.calls[0], DriverCall::DestroyComputeInstance { .. }));
}
