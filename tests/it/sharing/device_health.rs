//! Health of advertised devices: reported errors, visible faults, and the state after an agent restart.

use std::fs;

use crate::device_plugin::{GPU, Rig, shared};
use crate::process::Program;

const TWO: &str = "- {board: A100_40GB, count: 2}\n";

/// A GPU reports an error.
fn xid(rig: &Rig, gpu: u32, number: u64) {
    let slot = rig.node.machine.world().slot_of_index(gpu).unwrap();
    rig.node.machine.change(|world| world.xid(slot, number, None));
}

#[test]
fn device_with_ignored_xid_stays_advertised_and_other_does_not() {
    let rig = Rig::new(TWO);
    let mut agent = rig.agent(&shared(2), &["--ignore-xid=79,48"]);
    rig.kubelet.await_count(GPU, 4);
    agent.expect_log("sharing-in-force");
    xid(&rig, 0, 79);
    agent.expect_log("xid=79 description=ignored");
    xid(&rig, 1, 119);
    let line = agent.expect_log("device-unhealthy");
    assert!(line.contains("Xid 119"), "{line}");
    rig.kubelet.await_ids(GPU, &rig.replicas(0, &[0, 1]));
}

/// Number of driver calls, except event waits.
fn calls(rig: &Rig) -> usize {
    let log = fs::read_to_string(rig.node.machine.path().join("calls")).unwrap();
    let calls = log.lines();
    calls.filter(|line| !line.contains("nvmlEventSetWait")).count()
}

#[test]
fn pod_changes_trigger_no_device_reading() {
    let rig = Rig::new(TWO);
    let layouts = rig.node.layouts(&shared(4));
    let directory = rig.directory().display().to_string();
    let mut command = rig.node.agent(&[
        "--sharing=embedded",
        "--interval=1h",
        "--layouts",
        &layouts,
        "--layout=wanted",
        "--device-plugins",
        &directory,
    ]);
    command.env("NVML_SIM_LOG", rig.node.machine.path().join("calls"));
    command.env("OCTAVO_LOG_LEVEL", "debug");
    let mut agent = Program::start(&mut command);
    rig.kubelet.await_count(GPU, 8);
    agent.expect_log("sharing-in-force");
    let before = calls(&rig);
    assert!(before > 0);
    for number in 0..8 {
        let name = format!("pod-{number}");
        rig.kubelet.admit(&name, GPU, 1).unwrap();
        agent.expect_log("the allocation status changed");
    }
    assert_eq!(calls(&rig), before);
    // Hardware events are still processed.
    xid(&rig, 1, 119);
    agent.expect_log("device-unhealthy");
    assert!(calls(&rig) > before);
}

#[test]
fn first_list_of_restarted_agent_excludes_faulty_devices() {
    let rig = Rig::new("- {board: A100_40GB, count: 3}\n");
    let mut first = rig.agent(&shared(2), &[]);
    rig.kubelet.await_count(GPU, 6);
    first.expect_log("sharing-in-force");
    first.kill();
    let registrations = rig.kubelet.inspect(|known| known.registrations);
    let slot = |index| rig.node.machine.world().slot_of_index(index).unwrap();
    let (lost, sick) = (slot(0), slot(1));
    rig.node.machine.change(|world| {
        world.lose_gpu(lost)?;
        // `NVML_GPU_RECOVERY_ACTION_GPU_RESET`.
        world.set_recovery_action(sick, 1)
    });
    let _second = rig.agent(&shared(2), &[]);
    // At least one must be advertised, or there would be no list.
    rig.kubelet.wait("the list of the second agent", |known| {
        known.registrations > registrations && known.resources[GPU].lists > 0
    });
    let fit = rig.replicas(2, &[0, 1]);
    rig.kubelet.await_ids(GPU, &fit);
    let ever = rig.kubelet.inspect(|known| known.resources[GPU].ever_healthy.clone());
    assert_eq!(ever, fit.into_iter().collect());
}
