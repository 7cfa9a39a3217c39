//! Memory of a shared device that is used up, and who used it.

use std::process::Command;

use crate::problem::Problem;
use crate::process::Program;
use crate::time_limits::Finish;
use crate::usage::rig::{Groups, Rig};

const ONE: &str = "- {board: A100_80GB}\n";
const MIB: u64 = 1024;

/// A GPU that three share, and what they use of it, in GiB.
fn shared(used: &[(&str, u64)]) -> Rig {
    let rig = Rig::new(ONE);
    let gpu = rig.gpu(0);
    for (at, (pod, gib)) in (0_u32..).zip(used) {
        let pid = 101 + at;
        rig.kubelet.give(pod, "nvidia.com/gpu", &[format!("{gpu}::{at}")]);
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
    let [shown, noted] =
        [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    format!("{shown}{noted}")
}

/// Compares the agent's log, then the output of `octavo top`, with the quotations of the problem.
async fn is_reported(problem: Problem, rig: Rig) {
    // Kubelet answers meanwhile.
    let shown = tokio::task::spawn_blocking(move || {
        let mut agent = Program::start(&mut rig.agent("{replicas: 3}", &[]));
        problem.await_log(&mut agent);
        problem.assert_quoted("octavo top", &top(&rig));
        rig
    });
    drop(shown.await.unwrap());
}

#[tokio::test]
async fn container_over_its_share_is_named_and_not_evicted() {
    let rig = shared(&[("notebook-7", 31), ("notebook-8", 2)]);
    is_reported(Problem::documented("over_share"), rig).await;
}

#[tokio::test]
async fn full_shared_device_is_reported_with_all_its_tenants() {
    let rig = shared(&[("notebook-7", 26), ("notebook-8", 25), ("notebook-9", 26)]);
    rig.is_of_no_pod(900);
    rig.runs(900, 0, None, 2048);
    is_reported(Problem::documented("memory_exhausted"), rig).await;
}

#[tokio::test]
async fn missing_data_is_reported_without_host_processes() {
    let rig = shared(&[("notebook-7", 31), ("notebook-8", 2)]);
    rig.is_in_a_container();
    is_reported(Problem::documented("usage_untold"), rig).await;
}

#[test]
fn node_without_usage_scan_reports_how_to_enable_it() {
    let problem = Problem::documented("usage_not_looked_at");
    let directory = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_octavo"))
        .args(["top", "--here", "--state-dir"])
        .arg(directory.path())
        .finish();
    assert_eq!(output.status.code(), Some(1));
    let reported = String::from_utf8(output.stderr).unwrap();
    problem.assert_quoted("octavo top", &reported);
}
