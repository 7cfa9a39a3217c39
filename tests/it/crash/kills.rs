//! Kills the agent at a call, restarts it, and sometimes kills it again.

use octavo_planner::reconcile::NodeLayoutStatus;
use serde_json::Value;

use super::cases::AppliedBy;
use super::rig::{Rig, RunResult};
use crate::sweep::points::{SweepPoint, SweepScope, number};
use crate::sweep::tally::{Lcg, SweepCounts};
use crate::sweep::world::{changes, in_use, there};
use crate::sweep::{KillPoint, KillTiming};

/// Points at which the start after a crash is killed as well: at changing calls and at some readings, or at a sample of
/// them. That start continues, completes or rolls back the change.
pub(super) fn resumed(
    rig: &Rig,
    calls: &[String],
    scope: SweepScope,
    lcg: &mut Lcg,
) -> Vec<SweepPoint> {
    const READING: usize = 30;
    let all = 0..calls.len();
    let changing: Vec<usize> = all.filter(|call| changes(&calls[*call])).collect();
    let firsts = match scope {
        SweepScope::Every | SweepScope::Most => 1,
        SweepScope::Some(few) => few.min(1),
    };
    let mut points = Vec::new();
    for call in lcg.pick(&changing, firsts) {
        let first = KillPoint { call: number(call), when: KillTiming::After };
        rig.reset();
        if !rig.kill_at(first) {
            continue;
        }
        rig.meanwhile();
        let calls = rig.run().calls;
        let all = 0..calls.len();
        let (changing, reading): (Vec<usize>, Vec<usize>) =
            all.partition(|call| changes(&calls[*call]));
        let mut seconds = match scope {
            SweepScope::Every | SweepScope::Most => changing,
            SweepScope::Some(few) => lcg.pick(&changing, few / 2),
        };
        if !matches!(scope, SweepScope::Some(_)) {
            seconds.extend(lcg.pick(&reading, READING));
        }
        let both = |call: usize| [KillTiming::Before, KillTiming::After].map(|when| (call, when));
        let seconds: Vec<(usize, KillTiming)> = seconds.into_iter().flat_map(both).collect();
        points.extend(seconds.into_iter().map(|(call, when)| SweepPoint {
            first,
            second: Some(KillPoint { call: number(call), when }),
            twice: lcg.below(3) == 0,
        }));
    }
    points
}

/// Runs one point and returns what is wrong, if anything.
pub(super) fn kill_and_recover(
    rig: &Rig,
    point: SweepPoint,
    tally: &SweepCounts,
) -> Result<(), String> {
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
    rig.run_with_faulty_reading();
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

/// Checks that output and history name every changed device under its layout.
fn named(rig: &Rig, ran: &RunResult, (changed, known): (&[String], usize)) -> Result<(), String> {
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
        if rig.by() == AppliedBy::Command && of_other.is_none() && !is_requested {
            return wrong(&format!("{pci} was changed, and the output does not name it"));
        }
        let layout = match rig.by() {
            AppliedBy::Command => of_other.unwrap_or_else(|| "other".to_owned()),
            AppliedBy::Agent => new
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

/// Checks that the plan has every changed device.
fn planned(plan: &Value, changed: &[String], ran: &RunResult) -> Result<(), String> {
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

/// True if all devices are at their targets, or the reason why the node did not converge. `ran` is the start after the last kill.
pub(super) fn converged(rig: &Rig, ran: &RunResult, used: &[String]) -> Result<bool, String> {
    let wrong = |what: &str| Err(format!("{what}; it said:\n{}", ran.all()));
    // A layout that no longer resolves or was edited fails; the interrupted change is completed anyway.
    let has_failed = ran.output.status.code() == Some(1);
    let may_fail = rig.case.afterwards.is_some() && has_failed;
    let ended = match rig.by() {
        _ if rig.case.is_refused && rig.other().is_some() => has_failed,
        AppliedBy::Agent => ran.output.status.success() || may_fail,
        // Blocked, infeasible and unreadable have their own exit codes.
        AppliedBy::Command => ran.output.status.code().is_some(),
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

/// Checks that one more start changes nothing.
pub(super) fn calm(rig: &Rig) -> Result<(), String> {
    let before = rig.sides();
    let ran = rig.run();
    let wrong =
        |what: &str| Err(format!("I3: the next start {what}; it said:\n{}", ran.reported()));
    // If the driver refuses permanently, each start tries once and rolls back.
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
    if rig.by() == AppliedBy::Agent {
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
