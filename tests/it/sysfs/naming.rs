//! Names of devices that only the bus shows: by ids of the catalog, or set manually.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::golden::golden;
use crate::time_limits::Finish;
use crate::tree::machine;

fn octavo(root: &Path, command: &str, more: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_octavo"))
        .args([command, "--driver-root", "/nowhere", "--sys-root"])
        .arg(root)
        .args(more)
        .stdin(Stdio::null())
        .finish()
}

/// Output and notes.
#[track_caller]
fn reported(root: &Path, command: &str, more: &[&str]) -> (String, String) {
    let output = octavo(root, command, more);
    assert!(output.status.success(), "{output:?}");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr))
}

#[test]
fn devices_of_all_vendors_are_identified_by_ids() {
    let tree = machine("makers");
    let (few, _) = reported(tree.path(), "inspect", &[]);
    for line in few.lines() {
        assert!(line.len() <= 80, "{line}");
    }
    golden("sysfs/makers.txt", &few);
    let (labels, notes) = reported(tree.path(), "labels", &[]);
    golden("sysfs/makers-labels.txt", &format!("{labels}\n{notes}"));
}

#[test]
fn previewed_name_applies_to_unknown_devices_and_is_marked() {
    let tree = machine("makers");
    let (named, notes) = reported(tree.path(), "inspect", &["--type-override", "acme-x9"]);
    assert!(named.contains("acme-x9 (manual)"), "{named}");
    assert!(
        notes.contains(
            "note: octavo.dev/type-override=acme-x9: 1 device is manually set to type acme-x9"
        ),
        "{notes}"
    );
    let (recorded, _) =
        reported(tree.path(), "inspect", &["--type-override=acme-x9", "-o", "json"]);
    let file = tree.path().join("node.json");
    fs::write(&file, &recorded).unwrap();
    let from = ["--from", file.to_str().unwrap()];
    assert!(recorded.contains("\"typeSource\": \"manual\""), "{recorded}");
    let (labels, _) = reported(tree.path(), "labels", &from);
    assert!(labels.contains("octavo.dev/type-source=manual\n"), "{labels}");
    assert!(labels.contains("type.octavo.dev/acme-x9=1\n"), "{labels}");
    // A recording is named like a machine.
    let (labels, _) =
        reported(tree.path(), "labels", &[&from[..], &["--type-override=other"]].concat());
    assert!(labels.contains("type.octavo.dev/other=1\n"), "{labels}");
    let (labels, notes) = reported(tree.path(), "labels", &["--type-override", "H100"]);
    assert!(notes.contains("it is ambiguous and matches nvidia-h100-sxm5-80gb"), "{notes}");
    assert!(labels.contains("type.octavo.dev/unknown=1\n"), "{labels}");
    assert!(!labels.contains("type-source"), "{labels}");
}
