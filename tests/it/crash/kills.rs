//! The agent is killed at a call, started again, and sometimes killed once more.

use octavo_planner::reconcile::NodeLayoutStatus;
use serde_json::Value;

use super::cases::By;
use super::rig::{Kill, Ran, Rig, When};
use super::tally::{Lcg, Tally};
use super::world::{changes, in_use, there};

/// Which calls.
#[derive(Debug, Clone, Copy)]
pub(super) enum Reach {
    /// All of them.
    Every,
    /// All that change something, and one of three others.
    Most,
    /// So many of those that change something and of those after which something is read, and a few others.
    Some(usize),
}

/// Where to kill.
#[derive(Debug, Clone, Copy)]
pub(super) struct Point {
    pub(super) first: Kill,
    /// The one that takes the change up again is killed too.
    pub(super) second: Option<Kill>,
    /// It is started once more after convergence, and must find nothing to do.
    pub(super) twice: bool,
}

/// The points of a case, by the calls that the agent makes without an interruption.
pub(super) fn points(calls: &[String], reach: Reach, lcg: &mut Lcg) -> Vec<Point> {
    let both = |call: usize| {
        let call = number(call);
        [When::Before, When::After].map(|when| Kill { call, when })
    };
    let all = 0..calls.len();
    let mut firsts: Vec<Kill> = match reach {
        Reach::Every => all.flat_map(both).collect(),
        Reach::Most => {
            let (mut picked, other): (Vec<usize>, Vec<usize>) =
                all.partition(|call| changes(&calls[*call]));
            picked.extend(lcg.pick(&other, other.len() / 3));
            picked.into_iter().flat_map(both).collect()
        }
        Reach::Some(few) => {
            let (changing, other): (Vec<usize>, Vec<usize>) =
                all.partition(|call| changes(&calls[*call]));
            let mut picked = lcg.pick(&changing, few);
            picked.extend(lcg.pick(&other, few / 2));
            picked.into_iter().flat_map(both).collect()
        }
    };
    firsts.sort_unstable();
    let again = match reach {
        Reach::Every | Reach::Most => 4,
        Reach::Some(_) => 3,
    };
    let longest = u64::try_from(calls.len()).unwrap();
    let points = firsts.into_iter().map(|first| Point {
        first,
        second: (lcg.below(again) == 0).then(|| Kill {
            call: lcg.below(longest).saturating_add(1),
            when: if lcg.below(2) == 0 { When::Before } else { When::After },
        }),
        twice: match reach {
            Reach::Every | Reach::Most => lcg.below(3) == 0,
            Reach::Some(_) => lcg.below(2) == 0,
        },
    });
    points.collect()
}

/// Points at which the start after a crash is killed too, at the calls that change something and at some of those that read, or at
/// so many of them. The change is taken up, brought to an end or taken back meanwhile.
pub(super) fn resumed(rig: &Rig, calls: &[String], reach: Reach, lcg: &mut Lcg) -> Vec<Point> {
    const READING: usize = 30;
    let all = 0..calls.len();
    let changing: Vec<usize> = all.filter(|call| changes(&calls[*call])).collect();
    let firsts = match reach {
        Reach::Every | Reach::Most => 1,
        Reach::Some(few) => few.min(1),
    };
    let mut points = Vec::new();
    for call in lcg.pick(&changing, firsts) {
        let first = Kill { call: number(call), when: When::After };
        rig.reset();
        if !rig.kill_at(first) {
            continue;
        }
        rig.meanwhile();
        let calls = rig.run().calls;
        let all = 0..calls.len();
        let (changing, reading): (Vec<usize>, Vec<usize>) =
            all.partition(|call| changes(&calls[*call]));
        let mut seconds = match reach {
            Reach::Every | Reach::Most => changing,
            Reach::Some(few) => lcg.pick(&changing, few / 2),
        };
        if !matches!(reach, Reach::Some(_)) {
            seconds.extend(lcg.pick(&reading, READING));
        }
        let both = |call: usize| [When::Before, When::After].map(|when| (call, when));
        let seconds: Vec<(usize, When)> = seconds.into_iter().flat_map(both).collect();
        points.extend(seconds.into_iter().map(|(call, when)| Point {
            first,
            second: Some(Kill { call: number(call), when }),
            twice: lcg.below(3) == 0,
        }));
    }
    points
}

/// The number of a call, from 1.
pub(super) fn number(call: usize) -> u64 {
    u64::try_from(call).unwrap().saturating_add(1)
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
    rig.read_badly();
    let before = rig.world();
    let known = rig.history().len();
    let plan = rig.case.other.is_some().then(|| rig.plan()).flatten();
    let ran = rig.run();
    let side = converged(rig, &ran, &used)?;
    let changed = Rig::changed(&before, &rig.world());
    named(rig, &ran, (&changed, known))?;
    if let Some(plan) = plan {
        planned(&plan, &changed, &ran)?;
    }
    if point.twice {
        calm(rig)?;
    }
    tally.converged(side);
    Ok(())
}

/// Whether output and history name every device that was changed, each under the layout that it was changed for.
fn named(rig: &Rig, ran: &Ran, (changed, known): (&[String], usize)) -> Result<(), String> {
    let wrong = |what: &str| Err(format!("I2: {what}; it said:\n{}", ran.all()));
    let history = rig.history();
    let has = |pci: &String| history.iter().any(|(_, device)| device == pci);
    if let Some(pci) = rig.reshaped().iter().find(|pci| !has(pci)) {
        return wrong(&format!("{pci} was changed, and the history has nothing of it"));
    }
    let new: Vec<&(String, String)> = history.iter().skip(known).collect();
    let status: NodeLayoutStatus = serde_json::from_slice(&ran.output.stdout).unwrap_or_default();
    for pci in changed {
        let mut interrupted = status.interrupted.iter().filter(|one| one.pci.to_string() == *pci);
        let of_other = interrupted.next().map(|one| one.layout.clone());
        let is_requested = status.devices.iter().any(|one| one.pci.to_string() == *pci);
        if rig.by() == By::Command && of_other.is_none() && !is_requested {
            return wrong(&format!("{pci} was changed, and the output does not name it"));
        }
        let layout = match rig.by() {
            By::Command => of_other.unwrap_or_else(|| "other".to_owned()),
            By::Agent => new
                .iter()
                .find(|(_, device)| device == pci)
                .map_or_else(String::new, |(layout, _)| layout.clone()),
        };
        if !new.iter().any(|(of, device)| *of == layout && device == pci) {
            return wrong(&format!(
                "{pci} was changed for layout {layout:?}, and the history does not say so: {new:?}"
            ));
        }
    }
    Ok(())
}

/// Whether the plan has every device that was changed.
fn planned(plan: &Value, changed: &[String], ran: &Ran) -> Result<(), String> {
    let devices = plan["devices"].as_array();
    let has = |pci: &&String| {
        let mut devices = devices.into_iter().flatten();
        devices.any(|device| device["pci"] == pci.as_str())
    };
    match changed.iter().find(|pci| !has(pci)) {
        None => Ok(()),
        Some(pci) => Err(format!(
            "I2: {pci} was changed, and the plan called it untouched:\n{plan}\n{}",
            ran.all()
        )),
    }
}

/// Whether all devices are at their targets, or why the node did not converge: `ran` is the start after the last kill.
pub(super) fn converged(rig: &Rig, ran: &Ran, used: &[String]) -> Result<bool, String> {
    let wrong = |what: &str| Err(format!("{what}; it said:\n{}", ran.all()));
    // A layout that no longer resolves, or that is written otherwise afterwards, fails; what was begun is finished nevertheless.
    let has_failed = ran.output.status.code() == Some(1);
    let may_fail = rig.case.afterwards.is_some() && has_failed;
    let ended = match rig.by() {
        _ if rig.case.is_refused && rig.other().is_some() => has_failed,
        By::Agent => ran.output.status.success() || may_fail,
        // What is blocked, impossible or not to be read has a code of its own.
        By::Command => ran.output.status.code().is_some(),
    };
    if !ended {
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
    let wrong =
        |what: &str| Err(format!("I3: the next start {what}; it said:\n{}", ran.reported()));
    // Where the driver refuses permanently, a new start tries once more and rolls back.
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
    if rig.by() == By::Agent {
        let shown = String::from_utf8_lossy(&ran.output.stdout);
        let shown: Vec<&str> = shown.lines().collect();
        let labels = rig.labels();
        let mut labels = labels.lines().filter(|line| !line.contains("timestamp"));
        if let Some(label) = labels.find(|label| !shown.contains(label)) {
            return wrong(&format!("I6: did not publish {label}"));
        }
    }
    Ok(())
}
