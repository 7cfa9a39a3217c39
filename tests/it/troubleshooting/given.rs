//! What goes wrong where the agent itself gives devices out.

use std::fs;
use std::os::unix::net::UnixListener;

use crate::device_plugin::{GPU, Rig, shared};
use crate::row::Row;
use crate::sockets::age;

const ONE: &str = "- {board: A100_40GB}\n";
const TWO: &str = "- {board: A100_40GB, count: 2}\n";

#[test]
fn a_second_owner_of_the_name_is_named_and_when_it_is_gone_all_is_given_out() {
    let row = Row::of("plugin_conflict");
    let rig = Rig::new(ONE);
    let socket = rig.folder().join("nvidia-gpu.sock");
    let other = UnixListener::bind(&socket).unwrap();
    let mut agent = rig.agent(&shared(4), &[]);
    row.hears(&mut agent);
    drop(other);
    fs::remove_file(socket).unwrap();
    rig.kubelet.counts(GPU, 4);
}

#[test]
fn who_has_what_is_to_be_shared_less_is_named_and_keeps_it() {
    let row = Row::of("sharing_held");
    let rig = Rig::new(ONE);
    let mut agent = rig.agent(&shared(4), &[]);
    rig.kubelet.counts(GPU, 4);
    for name in ["notebook-1", "notebook-2", "notebook-3"] {
        rig.kubelet.admit(name, GPU, 1).unwrap();
    }
    rig.node.layouts(&shared(2));
    row.hears(&mut agent);
    rig.kubelet.counts(GPU, 3);
    rig.kubelet.ended("notebook-1");
    rig.kubelet.ended("notebook-2");
    rig.kubelet.counts(GPU, 2);
}

#[test]
fn a_device_that_reported_an_xid_is_given_to_nobody_until_a_while_after_its_reset() {
    let row = Row::of("device_unhealthy");
    let rig = Rig::new(TWO);
    let mut agent = rig.agent(&shared(2), &[]);
    rig.kubelet.counts(GPU, 4);
    agent.says("sharing-in-force");
    let slot = rig.node.machine.world().slot_of_index(0).unwrap();
    rig.node.machine.change(|world| world.xid(slot, 48, None));
    let line = agent.says("device-unhealthy");
    row.finds("log", &line);
    rig.kubelet.offers(GPU, &rig.replicas(1, &[0, 1]));
    // What the driver's way of a reset looks like from here: it is not there for a moment.
    rig.node.machine.change(|world| world.lose_gpu(slot));
    agent.says("GPU is lost");
    rig.node.machine.change(|world| world.return_gpu(slot));
    let line = agent.says("device-healthy");
    row.finds("log", &line);
    rig.kubelet.counts(GPU, 4);
}

#[test]
fn a_kubelet_that_was_started_just_now_is_waited_for() {
    let row = Row::of("kubelet_young");
    let mut rig = Rig::new(ONE);
    rig.kubelet.behaves(|manners| manners.is_young = true);
    rig.kubelet.restart();
    let mut agent = rig.agent(&shared(4), &[]);
    row.hears(&mut agent);
    age(&rig.node.kubelet());
    rig.kubelet.counts(GPU, 4);
}

#[test]
fn turns_whose_length_nobody_can_set_are_told_and_replicas_are_given_out() {
    let row = Row::of("turns_not_set");
    let rig = Rig::new(ONE);
    let rules = "[{devices: all, timeSlicing: {replicas: 3, slice: short}}]";
    let mut agent = rig.agent(rules, &[]);
    row.hears(&mut agent);
    rig.kubelet.counts(GPU, 3);
}
