//! `octavo migrate` with saved objects of a cluster. Complete outputs are golden files under `tests/golden/cli/migrate`.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::golden::golden;
use crate::time_limits::{Finish, output};

const OBJECTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/cli/migrate/objects.yaml");
const FILES: [&str; 3] = ["layouts.yaml", "policies.yaml", "values.yaml"];

fn migrate(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_octavo"));
    command.args(["migrate", "gpu-operator", "--output-dir"]).arg(directory).args(arguments);
    command.stdin(Stdio::null()).env_remove("OCTAVO_SERVER").env_remove("OCTAVO_NAMESPACE");
    command
}

/// Standard output and standard error, with `DIR` for the directory.
fn text(output: &Output, directory: &Path) -> String {
    let text = [&output.stdout[..], &output.stderr].concat();
    String::from_utf8(text).unwrap().replace(directory.to_str().unwrap(), "DIR")
}

#[test]
fn p5_saved_objects_are_converted_to_the_golden_files() {
    let directory = tempfile::tempdir().unwrap();
    let first = migrate(directory.path(), &["-f", OBJECTS]).finish();
    assert_eq!(first.status.code(), Some(3), "{first:?}");
    golden("cli/migrate/output.txt", &text(&first, directory.path()));
    for name in FILES {
        let path = directory.path().join(name);
        golden(&format!("cli/migrate/{name}"), &fs::read_to_string(path).unwrap());
    }
}

#[test]
fn p5_written_layouts_are_valid_and_files_are_compared() {
    let directory = tempfile::tempdir().unwrap();
    let check = |file: &str| migrate(directory.path(), &["-f", file, "--check"]).finish();
    let missing = check(OBJECTS);
    assert_eq!(missing.status.code(), Some(3));
    assert!(text(&missing, directory.path()).contains("DIR/layouts.yaml is missing\n"));
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    migrate(directory.path(), &["-f", OBJECTS]).finish();
    assert!(!text(&check(OBJECTS), directory.path()).contains("DIR/"));
    let layouts = directory.path().join("layouts.yaml");
    let valid = Command::new(env!("CARGO_BIN_EXE_octavo"))
        .args(["layouts", "check", "-f"])
        .arg(layouts)
        .finish();
    assert!(valid.status.success(), "{valid:?}");
}

#[test]
fn p5_a_cluster_without_changes_and_findings_exits_with_0() {
    let directory = tempfile::tempdir().unwrap();
    let objects = fs::read_to_string(OBJECTS).unwrap();
    // The nodes after the second one, and the setting for virtual machines, need attention.
    let (first, _) =
        objects.split_once("- apiVersion: v1\n  kind: Node\n  metadata:\n    name: gpu-3").unwrap();
    let usual =
        first.replace("    sandboxWorkloads: {enabled: true, defaultWorkload: container}\n", "");
    let mut child = migrate(directory.path(), &["-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(usual.as_bytes()).unwrap();
    let output = output(child, "octavo migrate");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = text(&output, directory.path());
    assert_eq!(text.matches("no change").count(), 2, "{text}");
    assert!(!text.contains("needs attention"), "{text}");
}

#[test]
fn i12_objects_that_cannot_be_used_are_named_and_nothing_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("objects.yaml");
    let target = directory.path().join("result");
    for (content, expected) in [
        ("kind: List\nitems: []\n", "no ClusterPolicy (nvidia.com/v1)"),
        (
            "kind: ClusterPolicy\nmetadata: {name: a}\n",
            "no Node has the label nvidia.com/gpu.present=true",
        ),
        ("kind: Node\nmetadata: {name: node-1, labels: 3}\n", "cannot read Node node-1"),
        ("kind: [\n", "cannot use the objects"),
    ] {
        fs::write(&file, content).unwrap();
        let output = migrate(&target, &["-f", file.to_str().unwrap()]).finish();
        let text = text(&output, directory.path());
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains(expected), "{text}");
    }
    assert!(!target.exists());
}
