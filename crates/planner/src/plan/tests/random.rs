//! Random boards: some instances in use, some placements refused by the hardware, and various splits.

use std::collections::{BTreeMap, BTreeSet};

use octavo_model::holder::{Holder, HolderDetails};
use octavo_model::inventory::{Device, MigState};
use proptest::prelude::*;

use super::super::{Cause, DeviceChange, DevicePlanResult, Policy, RefusedPlacement, Step};
use super::boards::{A100, RTX_PRO, Row, instance, planned, row, simply, state, whole};
use super::exhaustive::{after, with};
use super::model::Model;
use super::oracle::{Oracle, State, multiset};
use crate::layout::{InstanceTarget, MigTarget};

/// States, each with its room.
type StatesWithRoom = Vec<(State, usize)>;

/// A board with all its states, grouped by their profiles.
struct Space {
    rows: &'static [Row],
    oracle: Oracle,
    ways: Vec<(Vec<u32>, StatesWithRoom)>,
}

fn space(rows: &'static [Row], among: &[u32]) -> Space {
    let oracle = Oracle::new(rows, among);
    let mut ways: BTreeMap<Vec<u32>, StatesWithRoom> = BTreeMap::new();
    for state in &oracle.states {
        let same = ways.entry(multiset(state)).or_default();
        same.push((state.clone(), oracle.room(state)));
    }
    Space { rows, oracle, ways: ways.into_iter().collect() }
}

fn there(device: &mut Device) -> &MigState {
    state(device)
}

fn held(device: &Device, gpu_instance: u32) -> Holder {
    Holder {
        device: device.pci,
        gpu_instance: Some(gpu_instance),
        compute_instance: None,
        details: HolderDetails::default(),
    }
}

/// Selects instances by mask. Instance ids count from 1 in the order of the state.
fn pinned(from: &State, mask: u8) -> BTreeMap<u32, (u32, u32, u32)> {
    let all = (1_u32..).zip(from.iter().copied());
    all.filter(|(id, _)| mask & (1 << (id - 1)) != 0).collect()
}

fn check_pins(space: &Space, from: usize, to: usize, mask: u8) {
    let from = &space.oracle.states[from % space.oracle.states.len()];
    let (wanted, ways) = &space.ways[to % space.ways.len()];
    let device = with(space.rows, from);
    let pinned = pinned(from, mask);
    let holders: Vec<Holder> = pinned.keys().map(|id| held(&device, *id)).collect();
    let used: State = pinned.values().copied().collect();
    let refused = BTreeSet::new();
    let verdict = super::boards::planned(
        &device,
        whole(space.rows, wanted),
        &holders,
        Policy::default(),
        &refused,
    );
    match (Oracle::best(from, ways.iter(), &used), verdict) {
        (Some(best), DevicePlanResult::Unchanged) => assert_eq!(best.after, *from),
        (Some(best), DevicePlanResult::Change(change)) => {
            assert_eq!(after(&change), best.after);
            let goes = |step: &Step| matches!(step, Step::DestroyGpuInstance { gpu_instance, .. } if pinned.contains_key(gpu_instance));
            assert!(!change.steps.iter().any(goes), "{change:?}");
            run(space.rows, device, wanted, &change);
        }
        (None, DevicePlanResult::Blocked(blocked)) => {
            let named: State = blocked.causes.iter().map(|cause| in_use(cause, &pinned)).collect();
            let gone = |to: &State| -> State { used.difference(to).copied().collect() };
            let least = ways.iter().map(|(to, _)| gone(to).len()).min();
            assert_eq!(Some(blocked.causes.len()), least);
            assert!(ways.iter().any(|(to, _)| gone(to) == named));
        }
        (best, verdict) => panic!("{best:?} {verdict:?}"),
    }
}

fn in_use(cause: &Cause, pinned: &BTreeMap<u32, (u32, u32, u32)>) -> (u32, u32, u32) {
    match cause {
        Cause::InstanceInUse { gpu_instance, .. } => pinned[gpu_instance],
        Cause::DeviceInUse { .. }
        | Cause::NotAllowed { .. }
        | Cause::StateUnknown { .. }
        | Cause::HardwareRefused => panic!("{cause:?}"),
    }
}

/// Executes the steps on a board, then checks that nothing is left to do.
fn run(rows: &'static [Row], mut device: Device, wanted: &[u32], change: &DeviceChange) {
    let mut model = Model::new(rows, &there(&mut device).gpu_instances);
    model.run(change).unwrap();
    assert_eq!(model.state(), after(change));
    state(&mut device).gpu_instances = model.instances();
    assert_eq!(simply(&device, whole(rows, wanted)), DevicePlanResult::Unchanged);
}

#[test]
fn instances_in_use_are_never_destroyed_and_the_plan_is_optimal() {
    let boards = [space(A100, &[19, 20, 15, 14, 9, 5, 0]), space(RTX_PRO, &[14, 21, 67, 5, 0])];
    let given = (0..2_usize, any::<usize>(), any::<usize>(), any::<u8>());
    proptest!(ProptestConfig::with_cases(600), |((board, from, to, mask) in given)| {
        check_pins(&boards[board], from, to, mask);
    });
}

/// Plans, executes, and plans again after each refusal, as the executor of plans does.
#[test]
fn defective_board_gets_a_feasible_plan_or_is_blocked() {
    let space = space(A100, &[19, 14, 9, 5, 0]);
    let defect = (prop::sample::select(vec![19, 14, 9, 5, 0]), 0..7_u32);
    let given = (any::<usize>(), prop::collection::vec(defect, 0..10));
    proptest!(ProptestConfig::with_cases(300), |((to, defects) in given)| {
        let (wanted, ways) = &space.ways[to % space.ways.len()];
        let mut device = with(A100, &State::new());
        let mut refused = BTreeSet::new();
        let possible = ways.iter().any(|(to, _)| {
            to.iter().all(|(start, _, profile)| !defects.contains(&(*profile, *start)))
        });
        for _ in 0..=14 {
            let verdict = planned(&device, whole(A100, wanted), &[], Policy::default(), &refused);
            let change = match verdict {
                DevicePlanResult::Change(change) => change,
                DevicePlanResult::Unchanged => {
                    prop_assert!(possible);
                    return Ok(());
                }
                DevicePlanResult::Blocked(blocked) => {
                    prop_assert!(!possible && blocked.causes == [Cause::HardwareRefused]);
                    return Ok(());
                }
                DevicePlanResult::Infeasible(_) => panic!("{wanted:?} fits"),
            };
            let mut model = Model::new(A100, &there(&mut device).gpu_instances);
            model.defects.clone_from(&defects);
            if let Err((profile_id, placement)) = model.run(&change) {
                let refusal = RefusedPlacement { device: device.pci, profile_id, placement };
                prop_assert!(refused.insert(refusal), "the planner repeats a refused placement");
            }
            state(&mut device).gpu_instances = model.instances();
        }
        prop_assert!(false, "no plan succeeds");
    });
}

/// Partitions destroyed, GPU instances destroyed, partitions created, GPU instances created.
type Counts = (usize, usize, usize, usize);

fn counts(verdict: &DevicePlanResult) -> Counts {
    let Some(change) = verdict.change() else {
        assert_eq!(*verdict, DevicePlanResult::Unchanged);
        return (0, 0, 0, 0);
    };
    let of = |kind: fn(&Step) -> bool| change.steps.iter().filter(|step| kind(step)).count();
    (
        of(|step| matches!(step, Step::DestroyComputeInstance { .. })),
        of(|step| matches!(step, Step::DestroyGpuInstance { .. })),
        of(|step| matches!(step, Step::CreateComputeInstance { .. })),
        of(|step| matches!(step, Step::CreateGpuInstance { .. })),
    )
}

/// An instance with its split: start, profile, parts.
type Split = (u32, u32, Vec<u32>);

/// Tries every assignment of the desired splits to the instances of a state, by plain recursion.
fn least(from: &[Split], to: &State, wanted: &[InstanceTarget]) -> Counts {
    let Some((start, _, profile)) = to.first().copied() else {
        let parts = from.iter().map(|one| one.2.len()).sum();
        return (parts, from.len(), 0, 0);
    };
    let rest: State = to.iter().skip(1).copied().collect();
    let mut best: Option<Counts> = None;
    for (at, target) in wanted.iter().enumerate().filter(|(_, one)| one.profile_id == profile) {
        let mut others = wanted.to_vec();
        others.remove(at);
        let retained = from.iter().position(|one| (one.0, one.1) == (start, profile));
        let mut left = from.to_vec();
        let mut missing = target.compute.clone();
        let mut own = (0, 0, 0, 1);
        if let Some(retained) = retained {
            own.3 = 0;
            for part in left.remove(retained).2 {
                match missing.iter().position(|size| *size == part) {
                    Some(same) => drop(missing.remove(same)),
                    None => own.0 += 1,
                }
            }
        }
        let below = least(&left, &rest, &others);
        let sum = (own.0 + below.0, below.1, missing.len() + below.2, own.3 + below.3);
        best = Some(best.map_or(sum, |known| known.min(sum)));
    }
    best.unwrap()
}

#[test]
fn splits_destroy_the_fewest_partitions() {
    let space = space(A100, &[14, 9, 5]);
    let given = (any::<usize>(), any::<usize>(), any::<[u8; 8]>());
    proptest!(ProptestConfig::with_cases(400), |((from, to, dice) in given)| {
        let from = &space.oracle.states[from % space.oracle.states.len()];
        let (wanted, ways) = &space.ways[to % space.ways.len()];
        let split = |profile: u32, die: u8| -> Vec<u32> {
            let splits: &[&[u32]] = match profile {
                14 => &[&[2], &[1, 1], &[1], &[]],
                9 => &[&[3], &[1, 1, 1], &[2, 1], &[]],
                _ => &[&[4], &[1, 1, 1, 1], &[2, 2], &[2, 1, 1]],
            };
            splits[usize::from(die) % 4].to_vec()
        };
        let splits: Vec<Split> = from
            .iter()
            .zip(dice)
            .map(|((start, _, profile), die)| (*start, *profile, split(*profile, die)))
            .collect();
        let mut targets: Vec<InstanceTarget> = wanted
            .iter()
            .zip(dice.iter().rev())
            .map(|(profile, die)| {
                let mut compute = split(*profile, *die);
                if compute.is_empty() {
                    compute = vec![1];
                }
                InstanceTarget { profile_id: *profile, compute, placement: None,}
            })
            .collect();
        targets.sort();
        let mut device = with(A100, from);
        state(&mut device).gpu_instances = (1..)
            .zip(&splits)
            .map(|(id, (start, profile, parts))| instance(id, row(A100, *profile), *start, parts))
            .collect();
        let verdict = simply(&device, MigTarget::Enabled(targets.clone()));
        let oracle = ways.iter().map(|(to, _)| least(&splits, to, &targets)).min();
        prop_assert_eq!(Some(counts(&verdict)), oracle);
        if let DevicePlanResult::Change(change) = verdict {
            let mut model = Model::new(A100, &there(&mut device).gpu_instances);
            model.run(&change).unwrap();
            state(&mut device).gpu_instances = model.instances();
            let again = simply(&device, MigTarget::Enabled(targets));
            prop_assert_eq!(again, DevicePlanResult::Unchanged);
        }
    });
}
