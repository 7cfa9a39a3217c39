//! Machines with AMD devices: the output of `octavo inspect`, also with missing or invalid files.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use octavo_hardware::Settings;
use octavo_model::inventory::{Condition, Inventory};

use super::amd_host::{CPX, DEVICES, MI300X, NODES, SPX, mi300x};
use super::faults::Fault;
use crate::golden::golden;
use crate::machine::start;
use crate::time_limits::Finish;
use crate::tree::{machine, write_tree};

fn tree_directory(tree: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    write_tree(directory.path(), tree);
    directory
}

/// Output of the shipped program for the machine with this sysfs.
fn inspect(root: &Path, more: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_octavo"))
        .args(["inspect", "--driver-root", "/nowhere", "--sys-root"])
        .arg(root)
        .args(more)
        .stdin(Stdio::null())
        .finish();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
fn reviewed(name: &str, root: &Path) {
    let few = inspect(root, &[]);
    for line in few.lines() {
        assert!(line.len() <= 80, "{line}");
    }
    golden(&format!("sysfs/{name}.txt"), &few);
    golden(&format!("sysfs/{name}-wide.txt"), &inspect(root, &["-o", "wide"]));
}

#[test]
fn two_bridged_cards_are_one_hive() {
    reviewed("mi210x2", machine("mi210x2").path());
}

#[test]
fn virtual_function_has_type_without_name() {
    reviewed("mi300x-vf", machine("mi300x-vf").path());
}

#[test]
fn passed_through_device_is_shown_as_such() {
    reviewed("mi300x-vfio", machine("mi300x-vfio").path());
}

#[test]
fn invalid_data_of_one_device_is_reported_for_that_device_only() {
    reviewed("amd-garbage", machine("amd-garbage").path());
}

#[test]
fn whole_device_has_one_partition_regardless_of_drm_nodes() {
    reviewed("mi300x-spx", tree_directory(&mi300x(&MI300X, SPX)).path());
}

#[test]
fn partitioned_device_has_eight_partitions() {
    reviewed("mi300x-cpx-nps4", tree_directory(&mi300x(&MI300X, CPX)).path());
}

/// One reading by a new process.
async fn observe(root: &Path) -> Inventory {
    let settings = settings(root);
    Inventory::clone(&*start(&settings).observe().await)
}

fn settings(root: &Path) -> Settings {
    // Named explicitly, or the loader returns the simulated library that another test has open.
    crate::machine::settings(root.join("no driver/libnvidia-ml.so.1"), root.to_owned())
}

#[tokio::test]
async fn partitioning_is_seen_by_next_scan_of_same_program() {
    let root = tree_directory(&mi300x(&MI300X, SPX));
    let handle = start(&settings(root.path()));
    let parts = |inventory: &Inventory| -> Vec<(String, usize)> {
        let shown = inventory.devices.iter().filter_map(|device| device.amd.as_ref());
        let mode = |mode: &Option<octavo_model::inventory::PartitioningMode>| {
            mode.clone().unwrap().current
        };
        shown.map(|amd| (mode(&amd.compute), amd.partitions.len())).collect()
    };
    assert_eq!(parts(&*handle.observe().await), vec![("SPX".to_owned(), 1); 8]);
    for gone in [NODES, DEVICES] {
        fs::remove_dir_all(root.path().join(gone)).unwrap();
    }
    write_tree(root.path(), &mi300x(&MI300X, CPX));
    assert_eq!(parts(&*handle.observe().await), vec![("CPX".to_owned(), 8); 8]);
}

#[tokio::test]
async fn unreadable_file_yields_no_number_and_is_named() {
    let root = machine("mi210x2");
    let at = root.path().join(DEVICES).join("0000:03:00.0");
    let _faults = [
        Fault::Directory.inject(&at.join("mem_info_vram_used")),
        Fault::NoUtf8.inject(&at.join("serial_number")),
        Fault::Directory.inject(&root.path().join(NODES).join("3/properties")),
    ];
    let found = observe(root.path()).await;
    let device = &found.devices[0];
    let amd = device.amd.as_ref().unwrap();
    assert_eq!((amd.memory_used, &amd.serial, amd.partitions.len()), (None, &None, 0));
    assert_eq!(device.condition, Condition::Working);
    let named: Vec<&str> = device.problems.iter().map(|problem| problem.source.as_str()).collect();
    assert_eq!(named, ["serial_number", "mem_info_vram_used", "KFD's topology"]);
}
