//! Every transition of a board, compared with the oracle.

use std::collections::BTreeMap;

use super::super::{Change, Verdict};
use super::boards::{A30, A100, RTX_PRO, Row, device, instance, row, simply, state, whole};
use super::oracle::{Best, Oracle, State, multiset};
use crate::domain::inventory::Device;

const A100_CORE: &[u32] = &[19, 14, 9, 5, 0];

fn with(rows: &'static [Row], there: &State) -> Device {
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

fn found(there: &State, verdict: &Verdict, room: usize) -> Best {
    match verdict {
        Verdict::Unchanged => Best {
            destroyed: 0,
            created: 0,
            room,
            after: there.clone(),
        },
        Verdict::Change(change) => Best {
            destroyed: change.destroyed(),
            created: change.created(),
            room: usize::try_from(change.room).unwrap(),
            after: after(change),
        },
        Verdict::Blocked(_) | Verdict::Infeasible(_) => panic!("{verdict:?}"),
    }
}

fn after(change: &Change) -> State {
    let all = change.after.iter();
    all.map(|one| (one.placement.start, one.placement.size, one.profile_id))
        .collect()
}

/// Compares every `step`th state with every multiset: pairs, destroyed in all, pairs without destruction, pairs that only
/// grow from something, and those of them without destruction.
fn compare(rows: &'static [Row], among: &[u32], step: usize) -> [usize; 5] {
    let oracle = Oracle::new(rows, among);
    let mut ways: BTreeMap<Vec<u32>, Vec<(State, usize)>> = BTreeMap::new();
    for state in &oracle.states {
        let same = ways.entry(multiset(state)).or_default();
        same.push((state.clone(), oracle.room(state)));
    }
    let mut figures = [0; 5];
    for there in oracle.states.iter().step_by(step) {
        let device = with(rows, there);
        let has = multiset(there);
        for (wanted, ways) in &ways {
            let best = Oracle::best(there, ways.iter(), &State::new()).unwrap();
            let verdict = simply(&device, whole(rows, wanted));
            assert_eq!(
                found(there, &verdict, best.room),
                best,
                "{there:?} -> {wanted:?}"
            );
            assert_eq!(verdict == Verdict::Unchanged, *wanted == has);
            if *wanted != has {
                let kept = best.destroyed == 0;
                let grows = !has.is_empty() && contains(wanted, &has);
                figures[0] += 1;
                figures[1] += best.destroyed;
                figures[2] += usize::from(kept);
                figures[3] += usize::from(grows);
                figures[4] += usize::from(grows && kept);
            }
        }
    }
    figures
}

fn contains(wanted: &[u32], has: &[u32]) -> bool {
    let count = |of: &[u32], id| of.iter().filter(|other| **other == id).count();
    has.iter().all(|id| count(wanted, *id) >= count(has, *id))
}

#[test]
fn all_11026_transitions_of_an_a100_are_optimal() {
    let oracle = Oracle::new(A100, A100_CORE);
    assert_eq!((oracle.states.len(), oracle.multisets().len()), (298, 38));
    let [pairs, destroyed, kept, grows, gently] = compare(A100, A100_CORE, 1);
    // 23,133 of 11,026 pairs: 2.098 a pair; nothing is destroyed in 12.3 % of them.
    assert_eq!((pairs, grows, gently), (11_026, 1_873, 1_315));
    assert_eq!((destroyed * 1000 + pairs / 2) / pairs, 2098, "{destroyed}");
    assert_eq!((kept * 1000 + pairs / 2) / pairs, 123, "{kept}");
}

#[test]
fn all_transitions_of_an_a30_are_optimal() {
    let all: Vec<u32> = A30.iter().map(|row| row.0).collect();
    let [pairs, ..] = compare(A30, &all, 1);
    assert!(pairs > 1_000, "{pairs}");
}

#[test]
fn transitions_of_an_rtx_pro_are_optimal() {
    let [pairs, ..] = compare(RTX_PRO, &[14, 21, 65, 67, 5, 64, 0], 7);
    assert!(pairs > 1_000, "{pairs}");
}
