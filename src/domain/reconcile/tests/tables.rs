//! Each fault and its expected outcome.

use super::hardware::{Hardware, Trouble, state_of};
use super::wants;
use crate::domain::call::{Call, FailureKind};
use crate::domain::holder::{Holder, Who};
use crate::domain::inventory::MigMode;
use crate::domain::layout::{InstanceTarget, MigTarget};
use crate::domain::plan::Cause;
use crate::domain::reconcile::{Ending, Job};

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
    (
        Hardware::new(&[(9, 0, &[3]), (9, 4, &[3])]),
        wants(&[5, 14, 19]),
    )
}

#[test]
fn i7_what_is_asked_for_is_made_and_read_before_it_is_said() {
    let mut hardware = Hardware::new(SEVEN);
    let job = hardware.job(wants(&[9, 9]));
    assert_eq!(hardware.run(job, None), Some(Ending::Applied));
    assert_eq!(hardware.geometry(), [(9, 0, vec![3]), (9, 4, vec![3])]);
    assert_eq!(hardware.calls.len(), 7 + 7 + 2 + 2, "no call twice");
    let job = hardware.job(wants(&[9, 9]));
    hardware.calls.clear();
    assert_eq!(hardware.run(job, None), Some(Ending::Applied));
    assert!(hardware.calls.is_empty(), "nothing to do is nothing done");
}

#[test]
fn i1_what_is_in_use_from_the_start_blocks_and_nothing_is_called() {
    let mut hardware = Hardware::new(SEVEN).used_by(3, 0);
    let job = hardware.job(wants(&[9, 9]));
    let Some(Ending::Blocked {
        causes,
        rolled_back: false,
    }) = hardware.run(job, None)
    else {
        panic!("it is in use");
    };
    assert!(matches!(
        causes.as_slice(),
        [Cause::InstanceInUse {
            gpu_instance: 3,
            ..
        }]
    ));
    assert!(hardware.calls.is_empty());
}

#[test]
fn i1_who_comes_between_plan_and_call_is_seen_and_all_is_brought_back() {
    let (mut hardware, target) = reshaped();
    let before = hardware.geometry();
    // A process enters the first instance while the second is being destroyed.
    hardware.troubles = vec![(1, Trouble::Appears)];
    let job = hardware.job(target);
    let ending = hardware.run(job, None);
    assert!(hardware.crimes.is_empty(), "{:?}", hardware.crimes);
    let Some(Ending::Blocked { rolled_back, .. }) = ending else {
        panic!("{ending:?}");
    };
    assert!(rolled_back);
    assert_eq!(hardware.geometry(), before);
}

#[test]
fn i1_unknown_counts_as_in_use_and_is_asked_again_before_that_is_the_end() {
    let (mut hardware, target) = reshaped();
    hardware.troubles = vec![(0, Trouble::Blind); 3];
    let job = hardware.job(target.clone());
    assert_eq!(hardware.run(job, None), Some(Ending::Applied));
    let (mut hardware, _) = reshaped();
    hardware.troubles = vec![(0, Trouble::Blind); 1000];
    let job = hardware.job(target);
    let ending = hardware.run(job, None);
    assert!(
        matches!(&ending, Some(Ending::Blocked { causes, rolled_back: false })
            if matches!(causes.as_slice(), [Cause::Untold { .. }])),
        "{ending:?}"
    );
    assert!(hardware.calls.is_empty());
}

#[test]
fn who_is_seen_right_before_a_call_is_gone_around_where_there_is_another_way() {
    for held in [1, 2] {
        let mut hardware = Hardware::new(&[(14, 0, &[2]), (14, 4, &[2])]);
        hardware.holders = vec![Holder {
            device: hardware.device.pci,
            gpu_instance: Some(held),
            compute_instance: Some(0),
            who: Who::default(),
        }];
        let job = hardware.job(wants(&[9, 14]));
        assert_eq!(hardware.run(job, None), Some(Ending::Applied), "{held}");
        let there = state_of(&hardware.device).gpu_instances.iter();
        assert!(there.map(|one| one.id).any(|id| id == held), "{held}");
    }
}

#[test]
fn i3_a_reading_that_lacks_something_is_not_taken_for_somebodys_doing() {
    let (mut hardware, target) = reshaped();
    hardware.partial_readings = 3;
    let job = hardware.job(target);
    assert_eq!(hardware.run(job, None), Some(Ending::Applied));
}

#[test]
fn in_use_that_passes_is_waited_for_and_one_that_does_not_is_told() {
    let (mut hardware, target) = reshaped();
    hardware.stubborn = 4;
    let job = hardware.job(target.clone());
    assert_eq!(hardware.run(job, None), Some(Ending::Applied));
    let (mut hardware, _) = reshaped();
    let before = hardware.geometry();
    hardware.stubborn = 1000;
    let job = hardware.job(target);
    let ending = hardware.run(job, None);
    assert!(
        matches!(&ending, Some(Ending::Blocked { causes, .. })
            if matches!(causes.as_slice(), [Cause::Untold { reason }] if reason.contains("leaked a handle"))),
        "{ending:?}"
    );
    assert_eq!(hardware.geometry(), before);
}

#[test]
fn a_destroy_that_lies_is_made_again() {
    for at in 0..4 {
        let (mut hardware, target) = reshaped();
        hardware.troubles = vec![(at, Trouble::Lies)];
        let job = hardware.job(target);
        assert_eq!(hardware.run(job, None), Some(Ending::Applied), "{at}");
        let ids = hardware.geometry().into_iter().map(|one| one.0);
        assert_eq!(ids.collect::<Vec<_>>(), [5, 14, 19], "{at}");
    }
}

#[test]
fn a_place_that_the_board_does_not_give_is_replaced_by_another() {
    let mut hardware = Hardware::new(&[]);
    hardware.defects.insert((9, 0));
    let job = hardware.job(wants(&[9]));
    assert_eq!(hardware.run(job, None), Some(Ending::Applied));
    assert_eq!(hardware.geometry(), [(9, 4, vec![3])]);
    // If there is no other placement, the previous instances are restored.
    let mut hardware = Hardware::new(&[(14, 0, &[2])]);
    hardware.defects.extend([(9, 0), (9, 4)]);
    let before = hardware.geometry();
    let job = hardware.job(wants(&[9, 9]));
    let ending = hardware.run(job, None);
    assert!(
        matches!(&ending, Some(Ending::Blocked { causes, rolled_back: true })
            if *causes == [Cause::Refused]),
        "{ending:?}"
    );
    assert_eq!(hardware.geometry(), before);
}

#[test]
fn an_instance_that_lands_elsewhere_is_not_kept_there() {
    let mut hardware = Hardware::new(&[]);
    hardware.troubles = vec![(0, Trouble::Elsewhere)];
    let job = hardware.job(wants(&[5, 9]));
    let ending = hardware.run(job, None);
    assert_eq!(ending, Some(Ending::Applied));
    let ids: Vec<u32> = hardware.geometry().iter().map(|one| one.0).collect();
    assert_eq!(ids, [5, 9]);
}

#[test]
fn a_gpu_instance_whose_compute_instance_fails_does_not_stay() {
    let mut hardware = Hardware::new(&[(14, 0, &[2])]);
    let before = hardware.geometry();
    hardware.troubles = vec![(1, Trouble::Fails(FailureKind::Refused))];
    let job = hardware.job(wants(&[14, 9]));
    let ending = hardware.run(job, None);
    assert!(
        matches!(&ending, Some(Ending::RolledBack { reason }) if reason.contains("Compute")),
        "{ending:?}"
    );
    assert_eq!(hardware.geometry(), before);
}

#[test]
fn what_failed_although_it_was_done_is_taken_as_it_is() {
    for at in 0..5 {
        for kind in [FailureKind::Gone, FailureKind::Again, FailureKind::NoRoom] {
            let (mut hardware, target) = reshaped();
            let before = hardware.geometry();
            hardware.troubles = vec![(at, Trouble::FailsLate(kind))];
            let job = hardware.job(target);
            let ending = hardware.run(job, None).unwrap();
            let now = hardware.geometry();
            if ending == Ending::Applied {
                assert_eq!(now.len(), 3, "{at} {kind:?}");
            } else {
                let back = matches!(ending, Ending::RolledBack { .. });
                assert!(back, "{at} {kind:?}: {ending:?}");
                assert_eq!(now, before, "{at} {kind:?}");
            }
        }
    }
}

#[test]
fn somebody_else_at_work_is_yielded_to() {
    let (mut hardware, target) = reshaped();
    hardware.troubles = vec![(1, Trouble::Foreign)];
    // Another process destroys the second instance while the transaction destroys the first.
    let job = hardware.job(wants(&[9, 14]));
    let _ = target;
    let ending = hardware.run(job, None);
    assert!(
        matches!(&ending, Some(Ending::Yielded { reason }) if reason.contains("somebody else")),
        "{ending:?}"
    );
}

#[test]
fn a_lost_device_ends_at_once_and_says_so() {
    let (mut hardware, target) = reshaped();
    hardware.troubles = vec![(2, Trouble::Fails(FailureKind::DeviceLost))];
    let job = hardware.job(target);
    let ending = hardware.run(job, None);
    assert!(
        matches!(&ending, Some(Ending::Failed { rollback: None, .. })),
        "{ending:?}"
    );
    assert_eq!(hardware.calls.len(), 3);
}

#[test]
fn a_mode_change_that_needs_a_reset_says_so_and_one_that_is_blocked_is_taken_back() {
    let mut hardware = Hardware::new(&[(9, 0, &[3])]);
    let job = hardware.job(MigTarget::Disabled);
    let ending = hardware.run(job, None);
    assert!(
        matches!(ending, Some(Ending::NeedsReset { .. })),
        "{ending:?}"
    );
    assert_eq!(state_of(&hardware.device).pending, MigMode::Disabled);
    assert!(hardware.geometry().is_empty());
    // Since Hopper no reset is needed, but an open device handle blocks the change.
    let mut device = crate::domain::layout::tests_support::H100.with(0, &[]);
    device.compute_capability =
        Some(crate::domain::quantity::ComputeCapability { major: 9, minor: 0 });
    let mut hardware = Hardware::of(device);
    let job = hardware.job(MigTarget::Disabled);
    // The simulated device always answers "pending", as it does for a client that cannot be identified.
    let ending = hardware.run(job, None);
    assert!(
        matches!(&ending, Some(Ending::Blocked { causes, rolled_back: true })
            if matches!(causes.as_slice(), [Cause::Untold { reason }] if reason.contains("leaked a handle"))),
        "{ending:?}"
    );
    let state = state_of(&hardware.device);
    assert_eq!(
        (state.current, state.pending),
        (MigMode::Enabled, MigMode::Enabled)
    );
}

#[test]
fn what_is_restored_comes_back_in_its_place() {
    let mut hardware = Hardware::new(&[(19, 6, &[1]), (19, 3, &[1])]);
    let there = crate::domain::layout::standing(state_of(&hardware.device)).unwrap();
    let job = hardware.job(wants(&[0]));
    assert_eq!(hardware.run(job, None), Some(Ending::Applied));
    let job = hardware.job(there);
    assert_eq!(hardware.run(job, None), Some(Ending::Applied));
    assert_eq!(hardware.geometry(), [(19, 3, vec![1]), (19, 6, vec![1])]);
}

#[test]
fn a_killed_apply_goes_on_from_what_is_there() {
    for kill in 0..8 {
        let (mut hardware, target) = reshaped();
        let job = hardware.job(target.clone());
        let previous = job.previous.clone();
        if hardware.run(job, Some(kill)).is_some() {
            break;
        }
        let job = Job {
            previous,
            resumed: true,
            ..hardware.job(target)
        };
        assert_eq!(hardware.run(job, None), Some(Ending::Applied), "{kill}");
    }
}

#[test]
fn a_target_without_place_keeps_what_is_there_and_one_with_place_does_not() {
    let mut hardware = Hardware::new(&[(9, 4, &[3])]);
    let job = hardware.job(wants(&[9]));
    assert_eq!(hardware.run(job, None), Some(Ending::Applied));
    assert!(hardware.calls.is_empty());
    let place = crate::domain::catalog::Placement { start: 0, size: 4 };
    let job = hardware.job(MigTarget::Enabled(vec![InstanceTarget {
        profile_id: 9,
        compute: vec![3],
        placement: Some(place),
    }]));
    assert_eq!(hardware.run(job, None), Some(Ending::Applied));
    assert_eq!(hardware.geometry(), [(9, 0, vec![3])]);
    assert!(matches!(
        hardware.calls[0],
        Call::DestroyComputeInstance { .. }
    ));
}
