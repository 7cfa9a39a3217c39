//! The invariants hold for any geometry, users and faults, and with two interruptions at any call.

use octavo_model::call::FailureKind;
use proptest::prelude::*;

use super::hardware::{Fault, Hardware};
use super::wants;
use crate::reconcile::{ChangeOutcome, ChangeRequest};

type Geometry = &'static [(u32, u32, &'static [u32])];

/// Legal geometries of an A100.
const STARTS: &[Geometry] = &[
    &[],
    &[(0, 0, &[7])],
    &[(9, 0, &[3]), (9, 4, &[3])],
    &[(9, 4, &[3])],
    &[(5, 0, &[4]), (14, 4, &[2]), (19, 6, &[1])],
    &[(14, 0, &[2]), (14, 2, &[2]), (9, 4, &[2, 1])],
    &[(19, 0, &[1]), (19, 1, &[1]), (19, 5, &[1]), (19, 6, &[1])],
    &[(15, 0, &[1]), (15, 4, &[1]), (19, 6, &[1])],
    &[(9, 0, &[1, 1, 1])],
    &[(9, 0, &[]), (19, 4, &[1])],
];

const TARGETS: &[&[u32]] = &[
    &[],
    &[0],
    &[9, 9],
    &[5, 9],
    &[5, 14, 19],
    &[14, 14, 14],
    &[19, 19, 19, 19, 19, 19, 19],
    &[9, 14],
    &[15, 15, 14],
];

fn fault() -> impl Strategy<Value = Fault> {
    let kind = prop_oneof![
        Just(FailureKind::InUse),
        Just(FailureKind::InsufficientResources),
        Just(FailureKind::NotFound),
        Just(FailureKind::Temporary),
        Just(FailureKind::Rejected),
        Just(FailureKind::DeviceLost),
    ];
    prop_oneof![
        kind.clone().prop_map(Fault::Fails),
        kind.prop_map(Fault::FailsLate),
        Just(Fault::FalseSuccess),
        Just(Fault::OtherPlacement),
        Just(Fault::UserAppears),
        Just(Fault::Foreign),
        Just(Fault::UsersUnknown),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn i1_i3_i5_i7_hold_under_any_faults_and_two_kills(
        start in 0..STARTS.len(),
        target in 0..TARGETS.len(),
        users in proptest::collection::vec(1_u32..8, 0..3),
        faults in proptest::collection::vec((0_usize..20, fault()), 0..4),
        kills in proptest::collection::vec(0_usize..20, 0..3),
        stubborn in prop_oneof![3 => Just(0_usize), 1 => 1_usize..30],
    ) {
        let mut hardware = Hardware::new(STARTS[start]);
        for user in users {
            let state = hardware.state();
            let mut all = state.gpu_instances.iter();
            let found = all.find(|one| one.id == user).and_then(|one| one.compute_instances.first());
            if let Some(part) = found.map(|part| part.id) {
                hardware = hardware.used_by(user, part);
            }
        }
        hardware.faults = faults;
        hardware.in_use_failures = stubborn;
        let before: Vec<_> = {
            let mut all = hardware.geometry();
            all.retain(|one| !one.2.is_empty());
            all
        };
        let target = wants(TARGETS[target]);
        let previous = hardware.job(target.clone()).previous;
        let mut resumed = false;
        for kill in kills {
            let job = ChangeRequest { previous: previous.clone(), resumed, ..hardware.job(target.clone()) };
            resumed |= hardware.run(job, Some(hardware.calls.len() + kill)).is_none();
        }
        // Once faults have passed and new users have left, one more attempt succeeds.
        let job = ChangeRequest { previous: previous.clone(), resumed, ..hardware.job(target.clone()) };
        let outcome = hardware.run(job, None).unwrap();
        prop_assert!(hardware.violations.is_empty(), "I1: {:?}", hardware.violations);
        match &outcome {
            ChangeOutcome::Blocked { rolled_back: true, .. } | ChangeOutcome::RolledBack { .. } => {
                let mut now = hardware.geometry();
                now.retain(|one| !one.2.is_empty());
                prop_assert_eq!(now, before, "I3: {:?}", &outcome);
            }
            ChangeOutcome::Blocked { .. } | ChangeOutcome::Applied | ChangeOutcome::Failed { .. } | ChangeOutcome::Yielded { .. } => {}
            ChangeOutcome::Infeasible(_) | ChangeOutcome::NeedsReset { .. } => prop_assert!(false, "{:?}", outcome),
        }
        hardware.faults.clear();
        hardware.in_use_failures = 0;
        hardware.device.processes.clear();
        let settled = outcome.is_settled();
        let job = ChangeRequest {
            previous: if settled { hardware.job(target.clone()).previous } else { previous },
            resumed: !settled,
            ..hardware.job(target)
        };
        prop_assert_eq!(hardware.run(job, None), Some(ChangeOutcome::Applied), "after {:?}", outcome);
    }
}
