//! Memory of a shared device that is used up, and who used it.

use std::process::Command;

use crate::patience::Finish;
use crate::process::Program;
use crate::row::Row;
use crate::usage::rig::{Groups, Rig};

const ONE: &str = "- {board: A100_80GB}\n";
const MIB: u64 = 1024;

/// A GPU that three share, and what they use of it, in GiB.
fn shared(used: &[(&str, u64)]) -> Rig {
    let rig = Rig::new(ONE);
    let gpu = rig.gpu(0);
    for (at, (pod, gib)) in (0_u32..).zip(used) {
        let pid = 101 + at;
        rig.kubelet
            .give(pod, "nvidia.com/gpu", &[format!("{gpu}::{at}")]);
        rig.is_of(pid, pod, Groups::V2Systemd);
        rig.runs(pid, 0, None, gib * MIB);
    }
    rig
}

/// What `octavo top --here` says.
fn top(rig: &Rig) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_octavo"))
        .args(["top", "--here", "--state-dir"])
        .arg(rig.state())
        .finish();
    let [told, noted] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    format!("{told}{noted}")
}

/// Finds what the row quotes of the agent's log, then of what the node says who uses what.
async fn is_told(row: Row, rig: Rig) {
    // Kubelet answers meanwhile.
    let told = tokio::task::spawn_blocking(move || {
        let mut agent = Program::start(&mut rig.agent("{replicas: 3}", &[]));
        row.hears(&mut agent);
        row.finds("octavo top", &top(&rig));
        rig
    });
    drop(told.await.unwrap());
}

#[tokio::test]
async fn a_container_over_its_share_is_named_and_left_alone() {
    let rig = shared(&[("notebook-7", 31), ("notebook-8", 2)]);
    is_told(Row::of("over_share"), rig).await;
}

#[tokio::test]
async fn a_shared_device_that_is_full_is_told_with_everybody_on_it() {
    let rig = shared(&[("notebook-7", 26), ("notebook-8", 25), ("notebook-9", 26)]);
    rig.is_of_no_pod(900);
    rig.runs(900, 0, None, 2048);
    is_told(Row::of("memory_exhausted"), rig).await;
}

#[tokio::test]
async fn without_the_hosts_processes_it_is_said_what_that_keeps_from_being_known() {
    let rig = shared(&[("notebook-7", 31), ("notebook-8", 2)]);
    rig.is_in_a_container();
    is_told(Row::of("usage_untold"), rig).await;
}

#[test]
fn a_node_whose_agent_does_not_look_says_how_to_have_it_look() {
    let row = Row::of("usage_not_looked_at");
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_octavo"))
        .args(["top", "--here", "--state-dir"])
        .arg(folder.path())
        .finish();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    row.finds("octavo top", &said);
}
