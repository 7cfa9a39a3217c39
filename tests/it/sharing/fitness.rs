//! Which devices are fit to be given out: what they report, what they show, and what an agent knows that was just started.

use super::plugin::{GPU, Rig, shared};

const TWO: &str = "- {board: A100_40GB, count: 2}\n";

/// A GPU reports an error.
fn xid(rig: &Rig, gpu: u32, number: u64) {
    let slot = rig.node.machine.world().slot_of_index(gpu).unwrap();
    rig.node
        .machine
        .change(|world| world.xid(slot, number, None));
}

#[test]
fn a_device_that_reports_what_is_to_be_ignored_is_given_out_and_another_one_is_not() {
    let rig = Rig::new(TWO);
    let mut agent = rig.agent(&shared(2), &["--ignore-xid=79,48"]);
    rig.kubelet.counts(GPU, 4);
    agent.says("sharing-in-force");
    xid(&rig, 0, 79);
    agent.says("reports Xid 79: not looked at");
    xid(&rig, 1, 119);
    let line = agent.says("device-unhealthy");
    assert!(line.contains("Xid 119"), "{line}");
    rig.kubelet.offers(GPU, &rig.replicas(0, &[0, 1]));
}
