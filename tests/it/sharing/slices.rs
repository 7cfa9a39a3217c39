//! Length of time slices: the agent with a substitute for `nvidia-smi`, which has the only call for it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use crate::device_plugin::{GPU, Rig};

const TWO: &str = "- {board: A100_40GB, count: 2}\n";
const SHORT: &str = "[{devices: all, timeSlicing: {replicas: 3, slice: short}}]";
const ONE_LONG: &str = "[{devices: 0, timeSlicing: {replicas: 3, slice: long}}, {devices: 1, timeSlicing: {replicas: 3}}]";

/// Arguments of each call of the program.
fn calls(rig: &Rig) -> Vec<String> {
    let text = fs::read_to_string(noted(rig)).unwrap();
    text.lines().map(ToOwned::to_owned).collect()
}

fn noted(rig: &Rig) -> PathBuf {
    rig.node.machine.path().join("called")
}

/// A program that logs its arguments and then runs `more`.
fn install(rig: &Rig, more: &str) {
    let path = rig.node.machine.path().join("nvidia-smi");
    let draft = path.with_extension("draft");
    let text = format!("#!/bin/sh\necho \"$@\" >> '{}'\n{more}\n", noted(rig).display());
    fs::write(&draft, text).unwrap();
    fs::set_permissions(&draft, fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(draft, path).unwrap();
}

fn call(rig: &Rig, gpu: usize, number: u32) -> String {
    let uuid = rig.uuid(gpu);
    format!("compute-policy -i {uuid} --set-timeslice {number}")
}

#[test]
fn time_slice_durations_follow_layout_and_return_to_driver_default() {
    let rig = Rig::new(TWO);
    install(&rig, "exit 0");
    let mut agent = rig.agent(SHORT, &[]);
    agent.expect_log("duration=short");
    agent.expect_log("duration=short");
    agent.expect_log("sharing-in-force");
    let mut wanted = vec![call(&rig, 0, 1), call(&rig, 1, 1)];
    assert_eq!(calls(&rig), wanted);
    rig.node.layouts(ONE_LONG);
    agent.expect_log("duration=long");
    agent.expect_log("duration=default");
    wanted.extend([call(&rig, 0, 3), call(&rig, 1, 0)]);
    assert_eq!(calls(&rig), wanted);
    rig.kubelet.await_count(GPU, 6);
}

#[test]
fn missing_nvidia_smi_is_reported_and_replicas_are_advertised() {
    let rig = Rig::new(TWO);
    let mut agent = rig.agent(SHORT, &[]);
    let line = agent.expect_log("sharing-refused");
    assert!(line.contains("time-slice duration of GPU 0"), "{line}");
    assert!(line.contains("to short"), "{line}");
    assert!(line.contains("/nvidia-smi: No such file"), "{line}");
    rig.kubelet.await_count(GPU, 6);
    // The program is found once it exists.
    install(&rig, "exit 0");
    agent.expect_log("duration=short");
    agent.expect_log("duration=short");
    agent.expect_log("sharing-in-force");
}

#[test]
fn unsupported_time_slice_of_one_device_is_reported_and_another_is_set() {
    let rig = Rig::new(TWO);
    let uuid = rig.uuid(0);
    let refuses =
        format!("case \"$*\" in *{uuid}*) echo 'Timeslice is not supported' >&2; exit 3;; esac");
    install(&rig, &refuses);
    let mut agent = rig.agent(SHORT, &[]);
    agent.expect_log(
        "cannot set the time-slice duration of GPU 0 to short: Timeslice is not supported",
    );
    agent.expect_log("duration=short");
    rig.kubelet.await_count(GPU, 6);
    assert!(calls(&rig).contains(&call(&rig, 1, 1)));
}
