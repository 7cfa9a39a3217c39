//! NVIDIA's own gpu-feature-discovery, built from its module and run on the same simulated machines: its labels must
//! equal ours byte for byte.
//!
//! Only `nvidia.com/gpu.mode` is excluded: the original reads the PCI class from `/sys` of the real machine, which has
//! no GPU. The table tests of `octavo_node::labels` cover it.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::labels::boards;
use crate::machine::Machine;
use crate::peer::Peer;
use crate::time_limits::Finish;

const PEER: Peer = Peer {
    pinned: "gfd",
    package: "github.com/NVIDIA/k8s-device-plugin/cmd/gpu-feature-discovery",
    version: "v0.19.1",
};

#[test]
fn nvidia_feature_discovery_writes_the_same_labels_for_every_board() {
    let peer = PEER.build();
    let mut compared = 0;
    for board in boards() {
        for (strategy, scenario) in board.machines() {
            compare(&peer, &Machine::new(&scenario), strategy, board.name());
            compared += 1;
        }
    }
    assert_eq!(compared, 60);
}

#[test]
fn nvidia_feature_discovery_agrees_on_invalid_single_strategy() {
    let peer = PEER.build();
    let a100s = |rest: &str| format!("machine: odd\ndriver: '535.54'\ncuda: '12.2'\ngpus:\n{rest}");
    let empty = a100s("  - {board: A100_80GB, count: 2, mig: enabled}\n");
    let half = a100s(
        "  - {board: A100_80GB, mig: enabled, instances: [{profile: 3g.40gb}]}\n  - {board: A100_80GB}\n",
    );
    let split = a100s(
        "  - {board: A100_80GB, mig: enabled, instances: [{profile: 3g.40gb, compute: [2c.3g.40gb, 1c.3g.40gb]}]}\n",
    );
    for (name, scenario) in [("empty", empty), ("half", half), ("split", split)] {
        for strategy in ["none", "single", "mixed"] {
            compare(&peer, &Machine::new(&scenario), strategy, name);
        }
    }
}

/// Labels of time-sliced devices equal the original's for the same configuration.
#[test]
fn nvidia_feature_discovery_writes_the_same_sharing_labels() {
    let peer = PEER.build();
    let a100s = "machine: shared\ndriver: '535.54'\ncuda: '12.2'\ngpus:\n";
    let whole = format!("{a100s}  - {{board: A100_80GB, count: 2}}\n");
    let alike = format!(
        "{a100s}  - {{board: A100_80GB, mig: enabled, instances: [{{profile: 3g.40gb}}, {{profile: 3g.40gb}}]}}\n"
    );
    let parts = format!(
        "{a100s}  - {{board: A100_80GB, mig: enabled, instances: [{{profile: 3g.40gb}}, {{profile: 1g.10gb}}]}}\n  - {{board: A100_80GB}}\n"
    );
    let gpus = "resources: [{name: nvidia.com/gpu, replicas: 4}]";
    let renamed = format!("renameByDefault: true, {gpus}");
    let both = "resources: [{name: nvidia.com/gpu, replicas: 2}, {name: nvidia.com/mig-1g.10gb, replicas: 3}]";
    for (scenario, strategy, sharing) in [
        (&whole, "none", gpus),
        (&whole, "mixed", &renamed),
        (&alike, "single", gpus),
        (&alike, "none", gpus),
        (&parts, "mixed", both),
        (&parts, "single", both),
    ] {
        let machine = Machine::new(scenario);
        let file = machine.path().join("plugin.yaml");
        let text = format!("version: v1\nsharing: {{timeSlicing: {{{sharing}}}}}\n");
        fs::write(&file, text).unwrap();
        let theirs = theirs(&peer, &machine, strategy, &[Path::new("--config-file"), &file]);
        let ours = ours_of(&machine, strategy, &file);
        assert_eq!(theirs, ours, "{sharing}, strategy {strategy}");
    }
}

/// The labels that `octavo sharing check` predicts.
fn ours_of(machine: &Machine, strategy: &str, file: &Path) -> Vec<String> {
    let output = Command::new(env!("CARGO_BIN_EXE_octavo"))
        .args(["sharing", "check", "-o", "json", "--mig-strategy", strategy])
        .arg(file)
        .arg("--nvml-library")
        .arg(machine.library())
        .arg("--sys-root")
        .arg(machine.path().join("sys"))
        .finish();
    let reported = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{reported}");
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let all = document["labels"].as_object().unwrap().iter();
    let lines: Vec<String> =
        all.map(|(key, value)| format!("{key}={}", value.as_str().unwrap())).collect();
    labels(&lines.join("\n"))
}

#[track_caller]
fn compare(peer: &Path, machine: &Machine, strategy: &str, name: &str) {
    let theirs = theirs(peer, machine, strategy, &[]);
    let ours = machine.agent_once(&["--mig-strategy", strategy]);
    let ours = labels(&String::from_utf8(ours.stdout).unwrap());
    let only = |these: &[String], those: &[String]| -> Vec<String> {
        these.iter().filter(|label| !those.contains(label)).cloned().collect()
    };
    assert!(
        theirs == ours,
        "{name}, strategy {strategy}\nonly theirs: {:#?}\nonly ours: {:#?}",
        only(&theirs, &ours),
        only(&ours, &theirs)
    );
}

#[track_caller]
fn theirs(peer: &Path, machine: &Machine, strategy: &str, more: &[&Path]) -> Vec<String> {
    let file = machine.path().join("gfd");
    let output = Command::new(peer)
        .args([
            "--oneshot",
            "--no-timestamp",
            "--use-node-feature-api=false",
            "--mig-strategy",
            strategy,
        ])
        .arg("--machine-type-file")
        .arg(machine.path().join("sys/class/dmi/id/product_name"))
        .arg("--output-file")
        .arg(&file)
        .args(more)
        .env("LD_LIBRARY_PATH", machine.path())
        .finish();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let theirs = labels(&fs::read_to_string(&file).unwrap());
    assert!(theirs.len() > 20, "{theirs:#?}");
    theirs
}

/// NVIDIA's labels in a set, sorted.
fn labels(text: &str) -> Vec<String> {
    let compared = |label: &&str| {
        label.starts_with("nvidia.com/") && !label.starts_with("nvidia.com/gpu.mode=")
    };
    let mut labels: Vec<String> = text.lines().filter(compared).map(str::to_owned).collect();
    labels.sort();
    labels
}
