//! Replicas that a layout asks for and NVIDIA's device plugin does not offer: which step is missing.

use std::fs;
use std::process::Command;

use crate::cluster::sharing::causes::{NOW, SHARED, Scenery, WELL, play};
use crate::cluster::sharing::{MAP, Stage, TWO};
use crate::patience::Finish;
use crate::process::Program;
use crate::row::Row;

/// Holds what a row quotes of the event against the event, once there is one.
#[track_caller]
fn told(row: &Row, stage: &Stage, reason: &str) {
    let said = stage.rig.await_event(reason);
    row.finds(&format!("event {reason}"), &said);
}

#[test]
fn replicas_that_nobody_gives_out_are_missed_with_what_to_install() {
    let row = Row::of("replicas_missing");
    let scenery = Scenery {
        sets: &[],
        pod: None,
        gpus: None,
        ..WELL
    };
    let (stage, _agent) = play(&scenery, &["--sharing-deadline=1s"]);
    told(&row, &stage, "SharingNotInForce");
    assert_eq!(stage.followed(), None);
}

#[test]
fn without_the_name_of_the_plugins_config_map_nothing_is_handed_over() {
    let row = Row::of("config_map_not_named");
    let stage = Stage::new(TWO);
    let file = stage.rig.machine.layouts(SHARED);
    stage.rig.label(&["octavo.dev/layout=wanted"]);
    let mut agent = stage.rig.start(&["--layouts", &file, "--sharing=hand-off"]);
    told(&row, &stage, "SharingRefused");
    row.hears(&mut agent);
}

#[test]
fn each_step_between_a_layout_and_its_replicas_is_named_where_it_is_missing() {
    let no_key = Scenery {
        has_key: false,
        ..WELL
    };
    let not_referenced = Scenery {
        sets: &[("plugin", "other", true)],
        ..WELL
    };
    let not_followed = Scenery {
        sets: &[("plugin", MAP, false)],
        ..WELL
    };
    let not_there = Scenery { pod: None, ..WELL };
    let unhealthy = Scenery {
        gpus: Some((0, 6)),
        ..WELL
    };
    let cases = [
        (Row::of("replicas_key_missing"), no_key),
        (Row::of("replicas_not_referenced"), not_referenced),
        (Row::of("replicas_not_followed"), not_followed),
        (Row::of("replicas_no_pod"), not_there),
        (Row::of("replicas_not_reloaded"), WELL),
        (Row::of("replicas_unhealthy"), unhealthy),
    ];
    // All at once, for each waits for its own deadline.
    let playing: Vec<(Stage, Program)> = cases
        .iter()
        .map(|(_, scenery)| play(scenery, NOW))
        .collect();
    for ((row, _), (stage, _agent)) in cases.iter().zip(&playing) {
        told(row, stage, "SharingNotInForce");
    }
}

#[test]
fn a_label_of_somebody_else_is_left_and_its_writer_named() {
    let row = Row::of("replicas_label_taken");
    let stage = Stage::new(TWO);
    stage.make_map();
    stage
        .rig
        .label(&["nvidia.com/device-plugin.config=default"]);
    let _agent = stage.agent(SHARED, NOW);
    told(&row, &stage, "SharingRefused");
    assert_eq!(stage.followed().as_deref(), Some("default"));
}

#[test]
fn what_nvidias_plugin_cannot_is_refused_before_anything_is_written() {
    let row = Row::of("replicas_of_two_kinds");
    let stage = Stage::new(TWO);
    let rules =
        "[{devices: 0, timeSlicing: {replicas: 2}}, {devices: 1, timeSlicing: {replicas: 4}}]";
    let _agent = stage.agent(rules, NOW);
    told(&row, &stage, "SharingRefused");
    assert_eq!(stage.followed(), None);
}

#[test]
fn a_configuration_with_mps_is_refused_at_its_line() {
    let row = Row::of("mps_refused");
    let folder = tempfile::tempdir().unwrap();
    let text = "version: v1\nsharing:\n  mps:\n    resources:\n    - name: nvidia.com/gpu\n      replicas: 4\n";
    fs::write(folder.path().join("mps.yaml"), text).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_octavo"))
        .args(["sharing", "import", "mps.yaml", "--name=a100"])
        .current_dir(folder.path())
        .finish();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    row.finds("octavo sharing import", &said);
}
