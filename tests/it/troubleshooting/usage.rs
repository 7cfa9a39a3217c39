//! Exhausted memory of a shared device, and its users.

use std::process::Command;

use crate::problem::Problem;
use crate::process::Program;
use crate::time_limits::Finish;
use crate::usage::rig::{CgroupLayout, Rig};

const ONE: &str = "- {board: A100_80GB}\n";
const MIB: u64 = 1024;

/// A GPU shared by three pods with this usage in GiB.
fn shared(used: &[(&str, u64)]) -> Rig {
    let rig = Rig::new(ONE);
    let gpu = rig.gpu(0);
    for (at, (pod, gib)) in (0_u32..).zip(used) {
        let pid = 101 + at;
        rig.kubelet.give(pod, "nvidia.com/gpu", &[format!("{gpu}::{at}")]);
        rig.assign_to_pod(pid, pod, CgroupLayout::V2Systemd);
        rig.add_process(pid, 0, None, gib * MIB);
    }
    rig
}

/// Output of `octavo top --here`.
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
    // The kubelet answers meanwhile.
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
    rig.assign_to_no_pod(900);
    rig.add_process(900, 0, None, 2048);
    is_reported(Problem::documented("memory_exhausted"), rig).await;
}

#[tokio::test]
async fn missing_data_is_reported_without_host_processes() {
    let rig = shared(&[("notebook-7", 31), ("notebook-8", 2)]);
    rig.restrict_pid_namespace();
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
