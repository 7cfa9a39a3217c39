//! Agents that are killed while they prepare or release a claim.

use std::fmt::Debug;

use super::rig::{Claim, ClaimRig, ONE};
use crate::cluster::Api;
use crate::process::Program;
use crate::time_limits::until;

/// Calls that change the hardware, and some of the readings between them.
const PREPARE_POINTS: &[(&str, u64)] = &[
    ("nvmlDeviceCreateGpuInstanceWithPlacement", 1),
    ("nvmlGpuInstanceCreateComputeInstance*", 1),
    ("nvmlDeviceGetGpuInstances", 3),
    ("nvmlDeviceGetMigMode", 6),
    ("nvmlGpuInstanceGetComputeInstances", 1),
];
const RELEASE_POINTS: &[(&str, u64)] = &[
    ("nvmlComputeInstanceDestroy", 1),
    ("nvmlGpuInstanceDestroy", 1),
    ("nvmlDeviceGetMigMode", 9),
];

/// Starts an agent that is killed at this call.
fn start_faulty(rig: &ClaimRig, (call, nth): (&str, u64), when: &str) -> Program {
    let rule =
        format!("[{{call: \"{call}\", nth: {nth}, times: 1, count: process, abort: {when}}}]\n");
    rig.machine().machine.faults(&rule);
    Program::start(&mut rig.agent(&[]))
}

/// Starts an agent without faults.
fn start(rig: &ClaimRig) -> Program {
    rig.machine().machine.faults("[]\n");
    rig.start(&[])
}

/// Calls until the agent answers; `None` if it ends before.
fn answer<T: Debug>(agent: &mut Program, mut call: impl FnMut() -> Option<T>) -> Option<T> {
    let outcome = until(
        "an answer or the end of the agent",
        || call().map(Some).or_else(|| agent.has_ended().then_some(None)),
        Option::is_some,
    );
    outcome.flatten()
}

#[test]
fn i3_agent_killed_while_preparing_or_releasing_converges() {
    let rig = ClaimRig::new(Api::shared(), ONE);
    let claim = rig.claim("train", &[&rig.device("3g.20gb", 4)]);
    let mut killed = 0;
    for point in PREPARE_POINTS {
        for when in ["before", "after"] {
            killed += u32::from(prepare_at(&rig, &claim, *point, when));
        }
    }
    assert!(killed >= 6, "only {killed} agents were killed while they prepared the claim");
    let mut killed = 0;
    for point in RELEASE_POINTS {
        for when in ["before", "after"] {
            killed += u32::from(release_at(&rig, &claim, *point, when));
        }
    }
    // An agent that is killed after its last call leaves nothing to wait for.
    assert!(killed >= 3, "only {killed} agents were killed while they released the claim");
}

/// Returns whether the agent was killed.
fn prepare_at(rig: &ClaimRig, claim: &Claim, point: (&str, u64), when: &str) -> bool {
    let mut faulty = start_faulty(rig, point, when);
    let answered = answer(&mut faulty, || rig.try_prepare(claim));
    faulty.kill();
    let mut agent = start(rig);
    rig.prepare(claim).unwrap();
    assert_eq!(rig.geometry(), [("3g.20gb".to_owned(), 4)], "{point:?} {when}");
    rig.unprepare(claim).unwrap();
    rig.await_geometry(&[]);
    agent.kill();
    answered.is_none()
}

/// Returns whether the agent was killed.
fn release_at(rig: &ClaimRig, claim: &Claim, point: (&str, u64), when: &str) -> bool {
    let mut agent = start(rig);
    rig.prepare(claim).unwrap();
    agent.kill();
    let mut faulty = start_faulty(rig, point, when);
    let answered = answer(&mut faulty, || rig.try_unprepare(claim));
    // Unprepare answers before the instance is destroyed.
    let is_killed = answer(&mut faulty, || rig.geometry().is_empty().then_some(())).is_none();
    faulty.kill();
    let mut agent = start(rig);
    if answered.is_none() {
        rig.unprepare(claim).unwrap();
    }
    rig.await_geometry(&[]);
    agent.kill();
    is_killed || answered.is_none()
}
