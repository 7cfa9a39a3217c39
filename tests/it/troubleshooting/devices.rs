//! Devices and their driver.

use crate::machine::Machine;
use crate::node::{Node, names};
use crate::problem::Problem;

const TWO: &str =
    "- {board: A100_40GB, count: 2, mig: enabled, instances: [{profile: 1g.5gb, count: 7}]}\n";

#[test]
fn late_driver_is_retried() {
    let problem = Problem::documented("pain_14");
    let machine = Machine::without_driver("machine: late\ngpus:\n- {board: A100_40GB}\n");
    let mut agent = machine.agent(&["--interval=100ms"]);
    problem.assert_quoted("log", &agent.expect_log("nvml: absent"));
    machine.install_driver();
    problem.await_log(&mut agent);
}

#[test]
fn hanging_driver_is_named_with_its_call_and_agent_continues() {
    let problem = Problem::documented("driver_stalled");
    let node = Node::new(TWO);
    let mut agent = node.start(&["--call-deadline=2s", "--interval=100ms"]);
    agent.expect_log("labels published");
    node.machine.faults("- {call: nvmlDeviceGetMigMode, hang: forever}");
    problem.await_log(&mut agent);
    node.machine.faults("[]");
    agent.expect_log("nvml: ready");
}

#[test]
fn gpu_off_the_bus_is_one_gpu_and_the_other_gets_its_layout() {
    let problem = Problem::documented("gpu_lost");
    let node = Node::new(TWO);
    node.machine
        .faults("- {call: nvmlGpuInstanceDestroy, gpu: 0, nth: 3, times: 1, lose_gpu: true}");
    problem.assert_quoted("log", &node.apply_once_failing("all-3g.20gb"));
    problem.assert_quoted("octavo inspect", &node.command_output(&["inspect"]));
    assert_eq!(names(&node.geometry(1)), ["3g.20gb", "3g.20gb"]);
}

#[test]
fn unresponsive_device_is_shown_with_reason_beside_others() {
    let problem = Problem::documented("device_failing");
    let node = Node::new(TWO);
    node.machine.faults("- {call: nvmlDeviceGetMemoryInfo*, gpu: 0, return: UNKNOWN}");
    let shown = node.command_output(&["inspect"]);
    problem.assert_quoted("octavo inspect", &shown);
    assert!(shown.contains("40 GiB"), "{shown}");
}

#[test]
fn unknown_gpu_is_shown_and_counted() {
    let problem = Problem::documented("unknown_gpu");
    let node = Node::new("- {board: L40S, pci_device: 0x9999}\n");
    node.machine.change(|world| {
        world.driver.loaded = false;
        Ok(())
    });
    problem.assert_quoted("octavo inspect", &node.command_output(&["inspect"]));
    problem.assert_quoted("octavo labels", &node.command_output(&["labels"]));
}
