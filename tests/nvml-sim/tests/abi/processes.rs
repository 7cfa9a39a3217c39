//! Several processes on one machine: shared state, and the state after one is killed during a call.

use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio;

use crate::support::{HGX_A100, Machine, ONE_H100, call, succeeded};

const SIGKILL: i32 = 9;

/// The lines of the call log, reduced to function and result.
fn log(machine: &Machine) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(machine.path("log")).unwrap();
    let lines = text.lines().map(|line| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let part = |key: &str| line[key].as_str().unwrap().to_owned();
        (part("function"), part("result"))
    });
    lines.collect()
}

#[test]
fn two_processes_see_the_same_gpus() {
    let machine = Machine::new(ONE_H100);
    let nvml = machine.open();
    let output = machine.client(&["apply"]).output().unwrap();
    assert_eq!(
        succeeded(&output),
        "gi 13 at 6\ngi 11 at 4\ngi 12 at 5\ngi 7 at 0\ngi 8 at 1\ngi 9 at 2\ngi 10 at 3\nInsufficient Resources\n"
    );
    let device = nvml.gpu(0);
    let mut count = 0;
    let mut list = [std::ptr::null_mut(); 8];
    let code =
        call!(nvml, nvmlDeviceGetGpuInstances, device, 19, list.as_mut_ptr(), &raw mut count);
    assert_eq!((code, count), (0, 7));
    assert_eq!(nvml.create_gi(device, 19), Err(23));
}

/// Kills the client at its third creation and returns its output, the geometry and the last call.
fn killed(when: &str) -> (String, Vec<(u32, u32)>, (String, String)) {
    let machine = Machine::new(ONE_H100);
    drop(machine.open());
    machine.faults(&format!("[{{call: nvmlDeviceCreateGpuInstance, nth: 3, abort: {when}}}]"));
    let output =
        machine.client(&["apply"]).env("NVML_SIM_LOG", machine.path("log")).output().unwrap();
    assert_eq!(output.status.signal(), Some(SIGKILL));
    let printed = String::from_utf8(output.stdout).unwrap();
    (printed, machine.geometry(), log(&machine).pop().unwrap())
}

#[test]
fn client_killed_before_call_leaves_previous_state() {
    let (printed, geometry, last) = killed("before");
    assert_eq!(printed, "gi 13 at 6\ngi 11 at 4\n");
    assert_eq!(geometry, [(4, 11), (6, 13)]);
    assert_eq!(last, ("nvmlDeviceCreateGpuInstance".to_owned(), "ABORT_BEFORE".to_owned()));
}

#[test]
fn client_killed_after_call_leaves_new_state() {
    let (printed, geometry, last) = killed("after");
    assert_eq!(printed, "gi 13 at 6\ngi 11 at 4\n");
    assert_eq!(geometry, [(4, 11), (5, 12), (6, 13)]);
    assert_eq!(last, ("nvmlDeviceCreateGpuInstance".to_owned(), "ABORT_AFTER".to_owned()));
}

#[test]
fn log_has_every_call_once() {
    let machine = Machine::new(ONE_H100);
    let output =
        machine.client(&["quiet", "3"]).env("NVML_SIM_LOG", machine.path("log")).output().unwrap();
    succeeded(&output);
    let log = log(&machine);
    let count = |name: &str| log.iter().filter(|(function, _)| function == name).count();
    assert_eq!(
        (count("nvmlInit_v2"), count("nvmlDeviceGetUUID"), count("nvmlShutdown"), log.len()),
        (1, 3, 1, 2 + 3 * 9)
    );
    assert!(log.iter().all(|(_, result)| result == "SUCCESS"));
}

#[test]
fn without_scenario_there_is_no_driver_and_reason_is_printed_once() {
    let machine = Machine::without_scenario();
    let output = machine.client(&["walk"]).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "Init_v2: Driver Not Loaded\n");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.starts_with("nvml-sim: cannot create the machine"), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
}

#[test]
fn unreadable_faults_are_reported_once_and_not_applied() {
    let machine = Machine::new(ONE_H100);
    drop(machine.open());
    let faults = machine.path("nvml-sim.state/faults.yaml");
    std::fs::write(faults, "- {call: nvmlDeviceGetUUID, retrun: TIMEOUT}\n").unwrap();
    let output = machine.client(&["quiet", "3"]).output().unwrap();
    succeeded(&output);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("unknown field `retrun`"), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
}

#[test]
fn environment_selects_the_machine() {
    let machine = Machine::new(ONE_H100);
    std::fs::write(machine.path("other.yaml"), HGX_A100).unwrap();
    let output = machine
        .client(&["quiet", "1"])
        .env("NVML_SIM_SCENARIO", machine.path("other.yaml"))
        .output()
        .unwrap();
    assert!(succeeded(&output).contains("per walk of 8 GPUs"));
    assert!(machine.path("other.yaml.state").exists());
    assert!(!machine.path("nvml-sim.state").exists());
}
