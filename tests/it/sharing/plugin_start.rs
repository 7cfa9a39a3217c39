//! An agent that starts with a lost GPU, or with an invalid layout file.

use crate::device_plugin::{GPU, Rig, shared};

const ONE: &str = "- {board: A100_40GB}\n";

#[test]
fn gpu_lost_before_start_is_a_sharing_warning_until_it_returns() {
    let rig = Rig::new("- {board: A100_40GB, count: 2}\n");
    let slot = rig.node.machine.world().slot_of_index(1).unwrap();
    rig.node.machine.change(|world| world.lose_gpu(slot));
    let mut agent = rig.agent(&shared(2), &[]);
    let line = agent.expect_log("sharing-not-in-force");
    assert!(line.contains("failing devices are not allocated: "), "{line}");
    rig.kubelet.await_count(GPU, 2);
    rig.node.machine.change(|world| world.return_gpu(slot));
    agent.expect_log("sharing-in-force");
    rig.kubelet.await_count(GPU, 4);
}

#[test]
fn invalid_layout_file_at_agent_start_withdraws_no_device() {
    let rig = Rig::new(ONE);
    let mut agent = rig.agent(&shared(4), &[]);
    rig.kubelet.await_count(GPU, 4);
    agent.expect_log("sharing-in-force");
    agent.kill();
    let mut agent = rig.agent("[{devices: all, migg: disabled}]", &[]);
    agent.expect_log("no layouts are available until the file is corrected");
    agent.expect_log("sharing-in-force");
    rig.kubelet.await_count(GPU, 4);
    rig.node.layouts(&shared(2));
    rig.kubelet.await_count(GPU, 2);
}
