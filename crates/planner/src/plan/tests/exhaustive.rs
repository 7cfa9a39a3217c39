//! All transitions of a board, compared with the oracle.

use std::collections::BTreeMap;

use octavo_model::inventory::Device;

use super::super::{DeviceChange, DevicePlanResult};
use super::boards::{A30, A100, RTX_PRO, Row, device, instance, row, simply, state, whole};
use super::oracle::{Optimum, Oracle, State, multiset};

const A100_CORE: &[u32] = &[19, 14, 9, 5, 0];

pub(super) fn with(rows: &'static [Row], there: &State) -> Device {
    let mut device = device(rows);
    state(&mut device).gpu_instances = (1..)
        .zip(there)
        .map(|(id, (start, _, profile))| {
            let row = row(rows, *profile);
            instance(id, row, *start, &[row.3])
        })
        .collect();
    device
}

fn found(there: &State, verdict: &DevicePlanResult, room: usize) -> Optimum {
    match verdict {
        DevicePlanResult::Unchanged => {
            Optimum { destroyed: 0, created: 0, room, after: there.clone() }
        }
        DevicePlanResult::Change(change) => Optimum {
            destroyed: change.summary().destroyed,
            created: change.summary().created,
            room: usize::try_from(change.room).unwrap(),
            after: after(change),
        },
        DevicePlanResult::Blocked(_) | DevicePlanResult::Infeasible(_) => panic!("{verdict:?}"),
    }
}

pub(super) fn after(change: &DeviceChange) -> State {
    let all = change.after.iter();
    all.map(|one| (one.placement.start, one.placement.size, one.profile_id)).collect()
}

/// Totals of a comparison, calculated independently by the oracle and the planner.
#[derive(Debug, Default, PartialEq, Eq)]
struct Totals {
    /// Pairs of a state and a different multiset of profiles.
    pairs: usize,
    /// Instances that the oracle destroys in all pairs.
    destroyed: usize,
    /// Instances that the planner's steps destroy.
    planned: usize,
    /// Instances destroyed if everything is cleared first.
    cleared: usize,
    /// Pairs without destruction.
    unchanged: usize,
    /// Pairs that only add to a non-empty state.
    grows: usize,
    /// Pairs that only add, including to an empty state.
    grows_or_begins: usize,
    /// Pairs that only add to a non-empty state, without destruction.
    grows_gently: usize,
}

/// Compares every `step`th state with every multiset.
fn compare(rows: &'static [Row], among: &[u32], step: usize) -> Totals {
    let oracle = Oracle::new(rows, among);
    let mut ways: BTreeMap<Vec<u32>, Vec<(State, usize)>> = BTreeMap::new();
    for state in &oracle.states {
        let same = ways.entry(multiset(state)).or_default();
        same.push((state.clone(), oracle.room(state)));
    }
    let mut figures = Totals::default();
    for there in oracle.states.iter().step_by(step) {
        let device = with(rows, there);
        let has = multiset(there);
        for (wanted, ways) in &ways {
            let best = Oracle::best(there, ways.iter(), &State::new()).unwrap();
            let verdict = simply(&device, whole(rows, wanted));
            let found = found(there, &verdict, best.room);
            assert_eq!(found, best, "{there:?} -> {wanted:?}");
            assert_eq!(verdict == DevicePlanResult::Unchanged, *wanted == has);
            if *wanted != has {
                let unchanged = best.destroyed == 0;
                let grows = contains(wanted, &has);
                figures.pairs += 1;
                figures.destroyed += best.destroyed;
                figures.planned += found.destroyed;
                figures.cleared += there.len();
                figures.unchanged += usize::from(unchanged);
                figures.grows += usize::from(grows && !has.is_empty());
                figures.grows_or_begins += usize::from(grows);
                figures.grows_gently += usize::from(grows && unchanged && !has.is_empty());
            }
        }
    }
    figures
}

fn contains(wanted: &[u32], has: &[u32]) -> bool {
    let count = |of: &[u32], id| of.iter().filter(|other| **other == id).count();
    has.iter().all(|id| count(wanted, *id) >= count(has, *id))
}

/// Returns the ratio in thousandths, rounded.
fn thousandths(sum: usize, of: usize) -> usize {
    (sum * 1000 + of / 2) / of
}

#[test]
fn all_11026_transitions_of_an_a100_are_optimal() {
    let oracle = Oracle::new(A100, A100_CORE);
    assert_eq!((oracle.states.len(), oracle.multisets().len()), (298, 38));
    let figures = compare(A100, A100_CORE, 1);
    assert_eq!(figures.pairs, 11_026);
    assert_eq!((figures.destroyed, figures.planned), (23_130, 23_130));
    assert_eq!(thousandths(figures.destroyed, figures.pairs), 2098);
    assert_eq!(thousandths(figures.cleared, figures.pairs), 3372);
    assert_eq!(thousandths(figures.unchanged, figures.pairs), 123);
    // Targets that only add, counted from every non-empty state: the empty state reaches each of the 37 others without
    // destruction and would distort the ratio.
    assert_eq!((figures.grows, figures.grows_gently), (1_873, 1_315));
    assert_eq!(figures.grows_or_begins, 1_873 + 37);
    assert_eq!(thousandths(figures.grows_gently, figures.grows), 702);
}

#[test]
fn all_transitions_of_an_a30_are_optimal() {
    let all: Vec<u32> = A30.iter().map(|row| row.0).collect();
    let figures = compare(A30, &all, 1);
    assert!(figures.pairs > 1_000, "{figures:?}");
    assert_eq!(figures.destroyed, figures.planned);
}

/// All eleven profiles, with every rule of the media engines: every state to every other combination.
#[test]
fn all_transitions_of_an_rtx_pro_are_optimal() {
    let figures = compare(RTX_PRO, &[14, 21, 47, 65, 67, 5, 35, 64, 66, 0, 32], 1);
    assert_eq!(figures.pairs, 81_738);
    assert_eq!(figures.destroyed, figures.planned);
}

/// With the 1g profile of double memory: 723 states, of which every eleventh, to all 78 multisets.
#[test]
fn transitions_of_an_a100_with_double_memory_are_optimal() {
    let among = [19, 15, 14, 9, 5, 0];
    let oracle = Oracle::new(A100, &among);
    assert_eq!((oracle.states.len(), oracle.multisets().len()), (723, 78));
    let figures = compare(A100, &among, 11);
    assert_eq!(figures.pairs, 66 * 77);
    assert_eq!(figures.destroyed, figures.planned);
}
