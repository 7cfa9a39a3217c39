//! A brute-force search over the states of a board. It shares only the board's table with the planner.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::boards::Row;

/// Instances by start, size and profile: the order in which arrangements are compared.
pub(super) type State = BTreeSet<(u32, u32, u32)>;

pub(super) struct Oracle {
    rows: &'static [Row],
    /// Every valid state of the selected profiles.
    pub(super) states: Vec<State>,
}

/// The optimum of a transition.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Optimum {
    pub(super) destroyed: usize,
    pub(super) created: usize,
    pub(super) room: usize,
    pub(super) after: State,
}

impl Oracle {
    pub(super) fn new(rows: &'static [Row], among: &[u32]) -> Self {
        let mut states = BTreeSet::from([State::new()]);
        let mut fresh: Vec<State> = states.iter().cloned().collect();
        while let Some(state) = fresh.pop() {
            for row in rows.iter().filter(|row| among.contains(&row.0)) {
                for wider in grown(rows, &state, row) {
                    if states.insert(wider.clone()) {
                        fresh.push(wider);
                    }
                }
            }
        }
        Self { rows, states: states.into_iter().collect() }
    }

    pub(super) fn multisets(&self) -> BTreeSet<Vec<u32>> {
        self.states.iter().map(multiset).collect()
    }

    pub(super) fn room(&self, state: &State) -> usize {
        let rows = self.rows.iter();
        rows.map(|row| grown(self.rows, state, row).len()).sum()
    }

    /// Returns the best of the candidate states, given with their room, that keep all of `pinned`.
    pub(super) fn best<'a>(
        from: &State,
        ways: impl Iterator<Item = &'a (State, usize)>,
        pinned: &State,
    ) -> Option<Optimum> {
        ways.filter(|(to, _)| pinned.is_subset(to))
            .map(|(to, room)| {
                let common = from.intersection(to).count();
                (from.len() - common, to.len() - common, Reverse(*room), to)
            })
            .min()
            .map(|(destroyed, created, room, after)| Optimum {
                destroyed,
                created,
                room: room.0,
                after: after.clone(),
            })
    }
}

pub(super) fn multiset(state: &State) -> Vec<u32> {
    let mut ids: Vec<u32> = state.iter().map(|(_, _, id)| *id).collect();
    ids.sort_unstable();
    ids
}

/// Returns the states with one more instance of the row.
fn grown(rows: &[Row], state: &State, row: &Row) -> Vec<State> {
    let wider = row.6.iter().map(|start| {
        let mut wider = state.clone();
        (wider.insert((*start, row.5, row.0)), wider)
    });
    wider.filter(|(new, wider)| *new && legal(rows, wider)).map(|(_, wider)| wider).collect()
}

fn legal(rows: &[Row], state: &State) -> bool {
    let row = |id: u32| rows.iter().find(|row| row.0 == id).unwrap();
    let mut taken = 0_u32;
    for (start, size, _) in state {
        let bits = ((1_u32 << size) - 1) << start;
        if taken & bits != 0 {
            return false;
        }
        taken |= bits;
    }
    let named = |part: fn(&str) -> bool| state.iter().filter(|one| part(row(one.2).1)).count();
    let all = named(|name| name.ends_with("+me.all"));
    let own = named(|name| name.ends_with("+me"));
    let none = named(|name| name.ends_with("-me"));
    let slices: u32 = state.iter().map(|one| row(one.2).3).sum();
    slices <= rows.iter().map(|row| row.3).max().unwrap()
        && own <= 1
        && (all == 0 || (all == 1 && none + 1 == state.len()))
}
