//! A long-running agent: layouts after driver reloads, reboots and foreign changes.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::command::reported;
use crate::node::{Node, names};
use crate::time_limits::Finish;

const TWO: &str = "- {board: A100_40GB, count: 2, mig: enabled}\n";

#[test]
fn geometry_lost_by_reset_is_restored() {
    let node = Node::new(TWO);
    let mut agent = node.start(&["--layout", "all-3g.20gb"]);
    agent.expect_log("GPU 1: applied");
    node.machine.change(|world| world.reset_gpu(world.slot_of_index(0).unwrap()));
    agent.expect_log("GPU 0: applied");
    assert_eq!(names(&node.geometry(0)), ["3g.20gb", "3g.20gb"]);
}

#[test]
fn foreign_changes_are_reverted_if_unused_or_left_by_policy() {
    for (policy, expected) in [("repair", vec!["7g.40gb"]), ("report", vec!["1g.5gb"])] {
        let node = Node::new("- {board: A100_40GB, mig: enabled}\n");
        let mut agent =
            node.start(&["--layout", "all-7g.40gb", "--drift", policy, "--interval=100ms"]);
        agent.expect_log("GPU 0: applied");
        node.is_changed_by_another_process();
        if policy == "repair" {
            agent.expect_log("another program changed it; restoring the layout");
            agent.expect_log("GPU 0: applied");
        } else {
            agent.expect_log("GPU 0: drifted");
        }
        assert_eq!(names(&node.geometry(0)), expected, "{policy}");
    }
}

#[test]
fn lost_gpu_sets_node_to_failed_until_it_returns() {
    let node = Node::new(TWO);
    let file = node.layouts("[{devices: all, mig: {3g.20gb: 2}}]");
    let mut agent = node.start(&["--layouts", &file, "--layout", "wanted", "--interval=100ms"]);
    agent.expect_log("GPU 1: applied");
    let slot = node.machine.world().slot_of_index(1).unwrap();
    node.machine.change(|world| world.lose_gpu(slot));
    agent.expect_log("its state cannot be read: failing: ");
    let text = reported(&node.octavo(&["apply", "wanted"]), 1);
    assert!(text.contains("Layout wanted: 1 applied, 1 failed"), "{text}");
    assert!(text.contains("GPU is lost"), "{text}");
    node.machine.change(|world| world.return_gpu(slot));
    let text = reported(&node.octavo(&["apply", "wanted", "--wait"]), 0);
    assert!(text.contains("Layout wanted: applied on 2 GPUs"), "{text}");
}

#[test]
fn second_agent_waits_until_first_exits() {
    let node = Node::new(TWO);
    let mut first = node.start(&["--layout", "all-3g.20gb"]);
    first.expect_log("GPU 1: applied");
    let mut second = node.start(&["--layout", "all-7g.40gb", "--interval=100ms"]);
    second.expect_log("octavo-agent is running (pid ");
    assert_eq!(names(&node.geometry(0)), ["3g.20gb", "3g.20gb"]);
    first.kill();
    second.expect_log("GPU 0: applied");
    second.expect_log("GPU 1: applied");
    assert_eq!(names(&node.geometry(0)), ["7g.40gb"]);
}

#[test]
fn edited_layout_file_is_used_and_invalid_file_keeps_previous_layouts() {
    let node = Node::new(TWO);
    let file = node.layouts("[{devices: all, mig: {3g.20gb: 2}}]");
    let mut agent = node.start(&["--layouts", &file, "--layout", "wanted", "--interval=100ms"]);
    agent.expect_log("GPU 1: applied");
    node.layouts("[{devices: [0], mig: {7g.40gb: 1}}]");
    agent.expect_log("GPU 0: applied");
    fs::write(&file, "apiVersion: octavo.dev/v1\nkind: Layouts\nlayouts: {wanted: 7}\n").unwrap();
    agent.expect_log("the previous layouts stay in use");
    assert_eq!(names(&node.geometry(0)), ["7g.40gb"]);
    assert_eq!(names(&node.geometry(1)), ["3g.20gb", "3g.20gb"]);
}

#[test]
fn i8_gpu_with_hanging_call_is_named_and_others_are_applied() {
    let node = Node::new(
        "- {board: A100_40GB, count: 2, mig: enabled, instances: [{profile: 1g.5gb, count: 7}]}\n",
    );
    let stuck = node.machine.path().join("go-on");
    node.machine.faults(&format!(
        "- {{call: nvmlGpuInstanceDestroy, gpu: 0, times: 1, hang: {{until_file: {}}}}}",
        stuck.display()
    ));
    let mut agent =
        node.start(&["--layout", "all-3g.20gb", "--call-deadline=2s", "--interval=100ms"]);
    agent.expect_log("call=nvmlGpuInstanceDestroy");
    node.await_geometry(1, &["3g.20gb", "3g.20gb"]);
    fs::write(stuck, "").unwrap();
    agent.expect_log("GPU 0: applied");
    assert_eq!(names(&node.geometry(0)), ["3g.20gb", "3g.20gb"]);
}

#[test]
fn agent_without_layout_changes_nothing_and_takes_no_lock() {
    let node = Node::new("- {board: A100_40GB, mig: enabled, instances: [{profile: 1g.5gb}]}\n");
    let output = node.agent(&["--oneshot"]).finish();
    assert!(output.status.success());
    assert!(!node.state().exists());
    assert_eq!(names(&node.geometry(0)), ["1g.5gb"]);
}

#[test]
fn driver_replaced_under_agent_triggers_reapply() {
    // With mig-manager, "failed" was final: the pod had to be deleted manually (gpu-operator #2874).
    let node = Node::new(TWO);
    let mut agent = node.start(&["--layout", "all-3g.20gb", "--interval=100ms"]);
    agent.expect_log("GPU 1: applied");
    node.machine.change(|world| world.reload_driver(Some("590.10")));
    agent.expect_log("GPU 0: applied");
    assert_eq!(names(&node.geometry(0)), ["3g.20gb", "3g.20gb"]);
    node.await_geometry(1, &["3g.20gb", "3g.20gb"]);
}

#[test]
fn mode_and_partitions_are_restored_at_start_after_reboot() {
    for board in ["H100_80GB_SXM", "A100_80GB"] {
        let node = Node::new(&format!("- {{board: {board}}}\n"));
        node.apply_once("all-3g.40gb");
        node.machine.change(|world| {
            world.reboot();
            Ok(())
        });
        assert!(node.geometry(0).is_empty());
        node.apply_once("all-3g.40gb");
        assert_eq!(names(&node.geometry(0)), ["3g.40gb", "3g.40gb"], "{board}");
    }
}

#[test]
fn mig_that_could_not_be_disabled_before_reboot_is_disabled_after_it() {
    let node = Node::new(
        "- {board: A100_40GB, mig: enabled, instances: [{profile: 3g.20gb, start: 0}]}\n",
    );
    node.machine.faults("- {call: nvmlDeviceSetMigMode, activation: RESET_REQUIRED}");
    let reported = node.apply_once("all-disabled");
    assert!(reported.contains("needs-reset"), "{reported}");
    assert!(node.is_partitioned(0));
    node.machine.faults("[]");
    node.machine.change(|world| {
        world.reboot();
        Ok(())
    });
    let reported = node.apply_once("all-disabled");
    assert!(!reported.contains("needs-reset"), "{reported}");
    assert!(!node.is_partitioned(0));
    assert!(node.is_clear());
}

#[test]
fn node_is_rebooted_once_and_only_if_allowed_and_unused() {
    let node = Node::new("- {board: A100_40GB}\n");
    node.machine.faults("- {call: nvmlDeviceSetMigMode, activation: RESET_REQUIRED}");
    let marks = node.machine.path().join("reboots");
    let program = node.machine.path().join("reboot");
    fs::write(&program, format!("#!/bin/sh\necho once >> '{}'\n", marks.display())).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let program = program.display().to_string();
    let reboots = || fs::read_to_string(&marks).unwrap_or_default().lines().count();
    let run = |more: &[&str]| {
        let arguments = ["--oneshot", "--layout", "all-3g.20gb", "--reboot-program", &program];
        let output = node.agent(&arguments).args(more).finish();
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(run(&[]).contains("needs-reset"));
    assert_eq!(reboots(), 0, "by default nothing is rebooted");
    run(&["--allow", "reboot"]);
    assert_eq!(reboots(), 1);
    // The simulated reboot has no effect.
    let reported = run(&["--allow", "reboot"]);
    assert!(reported.contains("was already rebooted for this layout"), "{reported}");
    assert_eq!(reboots(), 1);
    // After a successful change the marker is removed, so the next reboot is allowed.
    node.machine.faults("[]");
    node.machine.change(|world| {
        world.reboot();
        Ok(())
    });
    run(&["--allow", "reboot"]);
    assert_eq!(names(&node.geometry(0)), ["3g.20gb", "3g.20gb"]);
    assert!(!node.state().join("rebooted").exists());
}
