//! Replicas that a layout asks for and NVIDIA's device plugin does not offer: which step is missing.

use std::fs;
use std::process::Command;

use crate::cluster::sharing::causes::{NOW, SHARED, Scenery, WELL, play};
use crate::cluster::sharing::{MAP, Stage, TWO};
use crate::problem::Problem;
use crate::process::Program;
use crate::time_limits::Finish;

/// Waits for the event and compares it with the quotations of the problem.
#[track_caller]
fn shown(problem: &Problem, stage: &Stage, reason: &str) {
    let reported = stage.rig.await_event(reason);
    problem.assert_quoted(&format!("event {reason}"), &reported);
}

#[test]
fn replicas_without_device_plugin_are_reported_with_remedy() {
    let problem = Problem::documented("replicas_missing");
    let scenery = Scenery { sets: &[], pod: None, gpus: None, ..WELL };
    let (stage, _agent) = play(&scenery, &["--sharing-deadline=1s"]);
    shown(&problem, &stage, "SharingNotInForce");
    assert_eq!(stage.followed(), None);
}

#[test]
fn hand_off_is_refused_without_config_map_name() {
    let problem = Problem::documented("config_map_not_named");
    let stage = Stage::new(TWO);
    let file = stage.rig.machine.layouts(SHARED);
    stage.rig.label(&["octavo.dev/layout=wanted"]);
    let mut agent = stage.rig.start(&["--layouts", &file, "--sharing=hand-off"]);
    shown(&problem, &stage, "SharingRefused");
    problem.await_log(&mut agent);
}

#[test]
fn each_missing_step_between_layout_and_replicas_is_named() {
    let no_key = Scenery { has_key: false, ..WELL };
    let not_referenced = Scenery { sets: &[("plugin", "other", true)], ..WELL };
    let not_followed = Scenery { sets: &[("plugin", MAP, false)], ..WELL };
    let not_there = Scenery { pod: None, ..WELL };
    let unhealthy = Scenery { gpus: Some((0, 6)), ..WELL };
    let cases = [
        (Problem::documented("replicas_key_missing"), no_key),
        (Problem::documented("replicas_not_referenced"), not_referenced),
        (Problem::documented("replicas_not_followed"), not_followed),
        (Problem::documented("replicas_no_pod"), not_there),
        (Problem::documented("replicas_not_reloaded"), WELL),
        (Problem::documented("replicas_unhealthy"), unhealthy),
    ];
    // All at once, for each waits for its own deadline.
    let playing: Vec<(Stage, Program)> =
        cases.iter().map(|(_, scenery)| play(scenery, NOW)).collect();
    for ((problem, _), (stage, _agent)) in cases.iter().zip(&playing) {
        shown(problem, stage, "SharingNotInForce");
    }
}

#[test]
fn label_of_another_owner_stays_and_its_writer_is_named() {
    let problem = Problem::documented("replicas_label_taken");
    let stage = Stage::new(TWO);
    stage.make_map();
    stage.rig.label(&["nvidia.com/device-plugin.config=default"]);
    let _agent = stage.agent(SHARED, NOW);
    shown(&problem, &stage, "SharingRefused");
    assert_eq!(stage.followed().as_deref(), Some("default"));
}

#[test]
fn layout_unsupported_by_nvidia_plugin_is_refused_before_writes() {
    let problem = Problem::documented("replicas_of_two_kinds");
    let stage = Stage::new(TWO);
    let rules =
        "[{devices: 0, timeSlicing: {replicas: 2}}, {devices: 1, timeSlicing: {replicas: 4}}]";
    let _agent = stage.agent(rules, NOW);
    shown(&problem, &stage, "SharingRefused");
    assert_eq!(stage.followed(), None);
}

#[test]
fn configuration_with_mps_is_refused_with_its_line() {
    let problem = Problem::documented("mps_refused");
    let directory = tempfile::tempdir().unwrap();
    let text = "version: v1\nsharing:\n  mps:\n    resources:\n    - name: nvidia.com/gpu\n      replicas: 4\n";
    fs::write(directory.path().join("mps.yaml"), text).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_octavo"))
        .args(["sharing", "import", "mps.yaml", "--name=a100"])
        .current_dir(directory.path())
        .finish();
    assert_eq!(output.status.code(), Some(1));
    let reported = String::from_utf8(output.stderr).unwrap();
    problem.assert_quoted("octavo sharing import", &reported);
}
