//! Problems with the built-in device plugin.

use std::fs;
use std::os::unix::net::UnixListener;

use crate::device_plugin::{GPU, Rig, shared};
use crate::problem::Problem;
use crate::sockets::age;

const ONE: &str = "- {board: A100_40GB}\n";
const TWO: &str = "- {board: A100_40GB, count: 2}\n";

#[test]
fn second_owner_of_resource_is_reported_until_it_is_gone() {
    let problem = Problem::documented("plugin_conflict");
    let rig = Rig::new(ONE);
    let socket = rig.directory().join("nvidia-gpu.sock");
    let other = UnixListener::bind(&socket).unwrap();
    let mut agent = rig.agent(&shared(4), &[]);
    problem.await_log(&mut agent);
    drop(other);
    fs::remove_file(socket).unwrap();
    rig.kubelet.await_count(GPU, 4);
}

#[test]
fn pod_holding_reduced_replicas_is_named_and_keeps_them() {
    let problem = Problem::documented("sharing_held");
    let rig = Rig::new(ONE);
    let mut agent = rig.agent(&shared(4), &[]);
    rig.kubelet.await_count(GPU, 4);
    for name in ["notebook-1", "notebook-2", "notebook-3"] {
        rig.kubelet.admit(name, GPU, 1).unwrap();
    }
    rig.node.layouts(&shared(2));
    problem.await_log(&mut agent);
    rig.kubelet.await_count(GPU, 3);
    rig.kubelet.end_pod("notebook-1");
    rig.kubelet.end_pod("notebook-2");
    rig.kubelet.await_count(GPU, 2);
}

#[test]
fn device_with_xid_is_not_allocated_until_some_time_after_reset() {
    let problem = Problem::documented("device_unhealthy");
    let rig = Rig::new(TWO);
    let mut agent = rig.agent(&shared(2), &[]);
    rig.kubelet.await_count(GPU, 4);
    agent.expect_log("sharing-in-force");
    let slot = rig.node.machine.world().slot_of_index(0).unwrap();
    rig.node.machine.change(|world| world.xid(slot, 48, None));
    let line = agent.expect_log("device-unhealthy");
    problem.assert_quoted("log", &line);
    rig.kubelet.await_ids(GPU, &rig.replicas(1, &[0, 1]));
    // A reset through the driver looks like a device that disappears briefly.
    rig.node.machine.change(|world| world.lose_gpu(slot));
    // An Xid that arrives after the return is a new fault.
    agent.expect_all_logs(&["GPU is lost", "xid=79"]);
    rig.node.machine.change(|world| world.return_gpu(slot));
    let line = agent.expect_log("device-healthy");
    problem.assert_quoted("log", &line);
    rig.kubelet.await_count(GPU, 4);
}

#[test]
fn restarted_kubelet_is_awaited() {
    let problem = Problem::documented("kubelet_young");
    let mut rig = Rig::new(ONE);
    rig.kubelet.set_behavior(|behavior| behavior.is_young = true);
    rig.kubelet.restart();
    let mut agent = rig.agent(&shared(4), &[]);
    problem.await_log(&mut agent);
    age(&rig.node.kubelet());
    rig.kubelet.await_count(GPU, 4);
}

#[test]
fn time_slice_that_cannot_be_set_is_reported_and_replicas_are_advertised() {
    let problem = Problem::documented("turns_not_set");
    let rig = Rig::new(ONE);
    let rules = "[{devices: all, timeSlicing: {replicas: 3, slice: short}}]";
    let mut agent = rig.agent(rules, &[]);
    problem.await_log(&mut agent);
    rig.kubelet.await_count(GPU, 3);
}
