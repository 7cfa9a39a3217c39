//! `nvidia-mig-parted`: our program compared with NVIDIA's on the same simulated GPUs, and each defect of NVIDIA's that
//! ours does not have.
//!
//! Three defects of nvidia-mig-manager concern pausing and resuming its clients within one long-lived process (flags
//! that are never reset, waiting for pods without a limit, a condition variable outside a loop). They cannot occur in
//! this program: it pauses no client, stores nothing between runs except the journal, and its hooks have a time limit.

mod defects;
mod hooks;
mod node;
mod peer_comparison;

use std::os::unix::fs::symlink;

use node::Node;

#[test]
fn output_under_both_program_names_matches_golden_files() {
    let programs = tempfile::tempdir().unwrap();
    let named = programs.path().join("nvidia-mig-parted");
    symlink(env!("CARGO_BIN_EXE_octavo"), &named).unwrap();
    for case in ["help", "verbs", "errors"] {
        let node = Node::new(
            "  - {board: A100_40GB, mig: enabled, instances: [{profile: 1g.5gb}]}\n  - {board: A100_40GB}\n",
        );
        let text = |name: &str| node.path(name).to_str().unwrap().to_owned();
        trycmd::TestCases::new()
            .register_bin("nvidia-mig-parted", named.as_path())
            .env("COLUMNS", "80")
            .env("OCTAVO_NVML_LIBRARY", node.machine.library().to_str().unwrap())
            .env("OCTAVO_SYS_ROOT", text("sys"))
            .env("OCTAVO_PROC_ROOT", text("proc"))
            .env("OCTAVO_STATE_DIR", text("state"))
            .env("OCTAVO_POD_RESOURCES", text("no-kubelet/kubelet.sock"))
            .env("OCTAVO_NVIDIA_SMI", text("bin/nvidia-smi"))
            .case(format!("tests/golden/mig-parted/{case}.trycmd"));
    }
}
