//! The points of a sweep.

use super::tally::Lcg;
use super::world::changes;
use super::{KillPoint, KillTiming};

/// The calls of a sweep.
#[derive(Debug, Clone, Copy)]
pub(crate) enum SweepScope {
    /// All calls.
    Every,
    /// All changing calls, and one in three others.
    Most,
    /// This many changing calls, this many calls before a reading, and a few others.
    Some(usize),
}

/// A point at which the agent is killed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SweepPoint {
    pub(crate) first: KillPoint,
    /// The start that continues the change is killed as well.
    pub(crate) second: Option<KillPoint>,
    /// One more start after convergence must change nothing.
    pub(crate) twice: bool,
}

/// The points of a case, from the calls of an uninterrupted run.
pub(crate) fn points(calls: &[String], scope: SweepScope, lcg: &mut Lcg) -> Vec<SweepPoint> {
    let both = |call: usize| {
        let call = number(call);
        [KillTiming::Before, KillTiming::After].map(|when| KillPoint { call, when })
    };
    let all = 0..calls.len();
    let mut firsts: Vec<KillPoint> = match scope {
        SweepScope::Every => all.flat_map(both).collect(),
        SweepScope::Most => {
            let (mut picked, other): (Vec<usize>, Vec<usize>) =
                all.partition(|call| changes(&calls[*call]));
            picked.extend(lcg.pick(&other, other.len() / 3));
            picked.into_iter().flat_map(both).collect()
        }
        SweepScope::Some(few) => {
            let (changing, other): (Vec<usize>, Vec<usize>) =
                all.partition(|call| changes(&calls[*call]));
            let mut picked = lcg.pick(&changing, few);
            picked.extend(lcg.pick(&other, few / 2));
            picked.into_iter().flat_map(both).collect()
        }
    };
    firsts.sort_unstable();
    let again = match scope {
        SweepScope::Every | SweepScope::Most => 4,
        SweepScope::Some(_) => 3,
    };
    let longest = u64::try_from(calls.len()).unwrap();
    let points = firsts.into_iter().map(|first| SweepPoint {
        first,
        second: (lcg.below(again) == 0).then(|| KillPoint {
            call: lcg.below(longest).saturating_add(1),
            when: if lcg.below(2) == 0 { KillTiming::Before } else { KillTiming::After },
        }),
        twice: match scope {
            SweepScope::Every | SweepScope::Most => lcg.below(3) == 0,
            SweepScope::Some(_) => lcg.below(2) == 0,
        },
    });
    points.collect()
}

/// The number of a call, from 1.
pub(crate) fn number(call: usize) -> u64 {
    u64::try_from(call).unwrap().saturating_add(1)
}
