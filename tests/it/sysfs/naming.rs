//! Names of devices that only the bus shows: by ids of the catalog, by a custom file, or set manually.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::golden::golden;
use crate::time_limits::Finish;
use crate::tree::{machine, write_tree};

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

/// A board that is in no catalog.
fn stranger(class: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let at = "bus/pci/devices/0000:5d:00.0";
    let tree = [("vendor", "0x1e52"), ("device", "0xfff7"), ("class", class)];
    let tree: Vec<String> =
        tree.iter().map(|(file, value)| format!("{at}/{file} = {value}\\n")).collect();
    write_tree(directory.path(), &tree.join("\n"));
    directory
}

const OWN: &str = "apiVersion: octavo.dev/v1\nkind: Catalogue\naccelerators:\n- sku: acme-x1\n  vendor: acme\n  name: Acme X1\n  \
                   architecture: One\n  pciIds: ['1e52:fff7']\n  aliases: [big one]\n";

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

#[test]
fn custom_catalog_recognizes_devices_of_any_pci_class() {
    for class in ["0x120000", "0x088000"] {
        let tree = stranger(class);
        let file = tree.path().join("own.yaml");
        fs::write(&file, OWN).unwrap();
        let catalog = ["--catalog", file.to_str().unwrap()];
        let (labels, _) = reported(tree.path(), "labels", &catalog);
        for line in [
            "octavo.dev/type=acme-x1\n",
            "octavo.dev/sku=acme-x1\n",
            "octavo.dev/architecture=one\n",
        ] {
            assert!(labels.contains(line), "{class}: {labels}");
        }
        assert!(!labels.contains("type-source"), "{labels}");
        let (unknown, _) = reported(tree.path(), "labels", &[]);
        let is_seen = unknown.contains("octavo.dev/type=unknown\n");
        assert_eq!(is_seen, class == "0x120000", "{unknown}");
        let agent = Command::new(env!("CARGO_BIN_EXE_octavo-agent"))
            .args(["--oneshot", "--driver-root", "/nowhere", "--sys-root"])
            .arg(tree.path())
            .args(catalog)
            .finish();
        assert!(agent.status.success(), "{agent:?}");
        let printed = String::from_utf8(agent.stdout).unwrap();
        assert!(printed.contains("octavo.dev/sku=acme-x1"), "{printed}");
    }
}

#[test]
fn invalid_catalog_ends_every_program_with_its_location() {
    let tree = stranger("0x120000");
    let file = tree.path().join("own.yaml");
    fs::write(&file, OWN.replace("1e52:fff7", "10de:2330")).unwrap();
    let path = file.to_str().unwrap();
    let expected =
        "\"10de:2330\" cannot identify acme-x1: it already identifies nvidia-h100-sxm5-80gb";
    let output = octavo(tree.path(), "inspect", &["--catalog", path]);
    let shown = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{shown}");
    assert!(shown.contains(&format!("own.yaml:8:11: error: {expected}")), "{shown}");
    let agent = Command::new(env!("CARGO_BIN_EXE_octavo-agent"))
        .args(["--oneshot", "--catalog", path, "--sys-root"])
        .arg(tree.path())
        .finish();
    let shown = String::from_utf8(agent.stderr).unwrap();
    assert!(!agent.status.success(), "{shown}");
    assert!(shown.contains("8:11") && shown.contains(expected), "{shown}");
}
