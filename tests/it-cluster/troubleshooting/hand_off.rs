//! Requested replicas that NVIDIA's device plugin does not advertise: the missing step.

use std::fs;
use std::process::Command;

use crate::cluster::sharing::causes::{COMPLETE, NOW, PluginSetup, SHARED, start_setup};
use crate::cluster::sharing::{HandOffFixture, MAP, TWO};
use crate::problem::Problem;
use crate::process::Program;
use crate::time_limits::Finish;

/// Waits for the event and compares it with the quotations of the problem.
#[track_caller]
fn shown(problem: &Problem, fixture: &HandOffFixture, reason: &str) {
    let reported = fixture.rig.await_event(reason);
    problem.assert_quoted(&format!("event {reason}"), &reported);
}

#[test]
fn replicas_without_device_plugin_are_reported_with_remedy() {
    let problem = Problem::documented("replicas_missing");
    let setup = PluginSetup { sets: &[], pod: None, gpus: None, ..COMPLETE };
    let (fixture, _agent) = start_setup(&setup, &["--sharing-deadline=1s"]);
    shown(&problem, &fixture, "SharingNotInForce");
    assert_eq!(fixture.followed(), None);
}

#[test]
fn hand_off_is_refused_without_config_map_name() {
    let problem = Problem::documented("config_map_not_named");
    let fixture = HandOffFixture::new(TWO);
    let file = fixture.rig.machine.layouts(SHARED);
    fixture.rig.label(&["octavo.dev/layout=wanted"]);
    let mut agent = fixture.rig.start(&["--layouts", &file, "--sharing=hand-off"]);
    shown(&problem, &fixture, "SharingRefused");
    problem.await_log(&mut agent);
}

#[test]
fn each_missing_step_between_layout_and_replicas_is_named() {
    let no_key = PluginSetup { has_key: false, ..COMPLETE };
    let not_referenced = PluginSetup { sets: &[("plugin", "other", true)], ..COMPLETE };
    let not_followed = PluginSetup { sets: &[("plugin", MAP, false)], ..COMPLETE };
    let not_there = PluginSetup { pod: None, ..COMPLETE };
    let unhealthy = PluginSetup { gpus: Some((0, 6)), ..COMPLETE };
    let cases = [
        (Problem::documented("replicas_key_missing"), no_key),
        (Problem::documented("replicas_not_referenced"), not_referenced),
        (Problem::documented("replicas_not_followed"), not_followed),
        (Problem::documented("replicas_no_pod"), not_there),
        (Problem::documented("replicas_not_reloaded"), COMPLETE),
        (Problem::documented("replicas_unhealthy"), unhealthy),
    ];
    // All at the same time, because each waits for its own deadline.
    let fixtures: Vec<(HandOffFixture, Program)> =
        cases.iter().map(|(_, setup)| start_setup(setup, NOW)).collect();
    for ((problem, _), (fixture, _agent)) in cases.iter().zip(&fixtures) {
        shown(problem, fixture, "SharingNotInForce");
    }
}

#[test]
fn label_of_another_owner_stays_and_its_writer_is_named() {
    let problem = Problem::documented("replicas_label_taken");
    let fixture = HandOffFixture::new(TWO);
    fixture.make_map();
    fixture.rig.label(&["nvidia.com/device-plugin.config=default"]);
    let _agent = fixture.agent(SHARED, NOW);
    shown(&problem, &fixture, "SharingRefused");
    assert_eq!(fixture.followed().as_deref(), Some("default"));
}

#[test]
fn layout_unsupported_by_nvidia_plugin_is_refused_before_writes() {
    let problem = Problem::documented("replicas_of_two_kinds");
    let fixture = HandOffFixture::new(TWO);
    let rules =
        "[{devices: 0, timeSlicing: {replicas: 2}}, {devices: 1, timeSlicing: {replicas: 4}}]";
    let _agent = fixture.agent(rules, NOW);
    shown(&problem, &fixture, "SharingRefused");
    assert_eq!(fixture.followed(), None);
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
