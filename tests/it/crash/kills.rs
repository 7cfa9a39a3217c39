//! The agent is killed at a call, started again, and sometimes killed once more.

use super::rig::{Kill, Ran, Rig, When, changes, in_use, there};
use super::tally::{Lcg, Tally};

/// Which calls.
#[derive(Debug, Clone, Copy)]
pub(super) enum Reach {
    /// All of them.
    Every,
    /// So many of those that change something and of those after which something is read, and a few others.
    Some(usize),
}

/// Where to kill.
#[derive(Debug, Clone, Copy)]
pub(super) struct Point {
    pub(super) first: Kill,
    /// The one that takes the change up again is killed too.
    pub(super) second: Option<Kill>,
    /// It is started once more when it has converged, and shall find nothing to do.
    pub(super) twice: bool,
}

/// The points of a case, by the calls that the agent makes when nobody interrupts it.
pub(super) fn points(calls: &[String], reach: Reach, lcg: &mut Lcg) -> Vec<Point> {
    let both = |call: usize| {
        let call = u64::try_from(call).unwrap().saturating_add(1);
        [When::Before, When::After].map(|when| Kill { call, when })
    };
    let all = 0..calls.len();
    let mut firsts: Vec<Kill> = match reach {
        Reach::Every => all.flat_map(both).collect(),
        Reach::Some(few) => {
            let (changing, other): (Vec<usize>, Vec<usize>) =
                all.partition(|call| changes(&calls[*call]));
            let mut picked = lcg.pick(&changing, few);
            picked.extend(lcg.pick(&other, few / 3));
            picked.into_iter().flat_map(both).collect()
        }
    };
    firsts.sort_unstable();
    let again = match reach {
        Reach::Every => 4,
        Reach::Some(_) => 3,
    };
    let longest = u64::try_from(calls.len()).unwrap();
    let points = firsts.into_iter().map(|first| Point {
        first,
        second: (lcg.below(again) == 0).then(|| Kill {
            call: lcg.below(longest).saturating_add(1),
            when: if lcg.below(2) == 0 {
                When::Before
            } else {
                When::After
            },
        }),
        twice: matches!(reach, Reach::Some(_)) || lcg.below(3) == 0,
    });
    points.collect()
}

/// Runs one point. What is wrong, if anything is.
pub(super) fn strike(rig: &Rig, point: Point, tally: &Tally) -> Result<(), String> {
    rig.reset();
    if !rig.kill_at(point.first) {
        tally.missed();
        return Ok(());
    }
    rig.meanwhile();
    let used = in_use(&rig.world());
    if let Some(second) = point.second
        && rig.kill_at(second)
    {
        tally.killed_twice();
    }
    let ran = rig.run();
    let side = converged(rig, &ran, &used)?;
    if point.twice {
        calm(rig)?;
    }
    tally.converged(side);
    Ok(())
}

/// Whether all devices are at their targets, or why the node did not converge: `ran` is the start after the last kill.
pub(super) fn converged(rig: &Rig, ran: &Ran, used: &[String]) -> Result<bool, String> {
    let wrong = |what: &str| Err(format!("{what}; the agent said:\n{}", ran.said()));
    // The layout of which nothing is left, or which is written otherwise afterwards, fails; what was begun is ended all the same.
    let may_fail = rig.case.afterwards.is_some() && ran.output.status.code() == Some(1);
    if !ran.output.status.success() && !may_fail {
        return wrong(&format!("it ended with {}", ran.output.status));
    }
    let sides = match rig.sides() {
        Ok(sides) => sides,
        Err(what) => return wrong(&format!("I3: {what}")),
    };
    let now = there(&rig.world());
    if let Some(lost) = used.iter().find(|uuid| !now.contains(uuid)) {
        return wrong(&format!("I1: {lost} was in use and is gone"));
    }
    if rig.journal().exists() {
        return wrong("I3: the journal is still there");
    }
    Ok(sides.into_iter().all(|at_target| at_target))
}

/// Whether one start more changes nothing.
pub(super) fn calm(rig: &Rig) -> Result<(), String> {
    let before = rig.sides();
    let ran = rig.run();
    let wrong = |what: &str| {
        Err(format!(
            "I3: the next start {what}; it said:\n{}",
            ran.said()
        ))
    };
    // Where the driver refuses for ever a new start tries once more, and goes back.
    let refused = rig.case.ends != "t" && !rig.case.faults.is_empty();
    if ran.changed() && !refused {
        return wrong("changed something");
    }
    if rig.sides() != before && !(refused && rig.sides().is_ok()) {
        return wrong("ended elsewhere");
    }
    if rig.journal().exists() {
        return wrong("left a journal");
    }
    Ok(())
}
