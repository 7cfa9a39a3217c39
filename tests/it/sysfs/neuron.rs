//! Output of `octavo inspect` for machines with Neuron devices, as golden files under `tests/golden/sysfs`.

use std::fs;
use std::mem::MaybeUninit;
use std::path::Path;
use std::process::{Command, Output};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};

use super::neuron_host::{
    Chip, DEVICE, FileLayout, Host, INFERENTIA, INFERENTIA2, SETTING, TRAINIUM1, TRAINIUM2, chain,
    garble, ring, torus,
};
use crate::golden::golden;
use crate::time_limits::Finish;
use crate::tree;

/// `octavo inspect` on the machine below `root` only.
fn inspect(root: &Path, more: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_octavo"))
        .arg("inspect")
        .arg("--sys-root")
        .arg(root.join("sys"))
        .arg("--driver-root")
        .arg(root.join("no-driver"))
        .arg("--neuron-logical-config")
        .arg(root.join(SETTING))
        .args(more)
        .finish()
}

#[track_caller]
fn reported(root: &Path, more: &[&str]) -> String {
    let output = inspect(root, more);
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{error}");
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
fn check_golden(root: &Path, name: &str) {
    let text = reported(root, &[]);
    for line in text.lines() {
        assert!(line.len() <= 80 && line.is_ascii(), "{name}: {line}");
    }
    golden(&format!("sysfs/{name}.txt"), &text);
}

fn host(driver: &'static str, chip: Chip, links: Vec<Vec<u32>>) -> Host {
    Host { driver, chip, file_layout: FileLayout::Known, links }
}

fn tree_directory(host: &Host) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    tree::write_tree(directory.path(), &host.tree());
    directory
}

#[test]
fn inf1_6xlarge_reports_no_serial_numbers_or_errors() {
    let directory = tree_directory(&host("2.21.37.0", INFERENTIA, chain(4)));
    check_golden(directory.path(), "inf1.6xlarge");
}

#[test]
fn inf2_48xlarge_has_twelve_devices_in_a_ring() {
    let directory = tree_directory(&host("2.26.5.0", INFERENTIA2, ring(12)));
    check_golden(directory.path(), "inf2.48xlarge");
}

#[test]
fn trn1_2xlarge_is_shown_as_captured() {
    let directory = tree::machine("trn1.2xlarge");
    check_golden(directory.path(), "trn1.2xlarge");
    golden("sysfs/trn1.2xlarge-wide.txt", &reported(directory.path(), &["-o", "wide"]));
}

#[test]
fn trn1_32xlarge_has_sixteen_devices_in_a_torus() {
    let directory = tree_directory(&host("2.26.5.0", TRAINIUM1, torus(4, 4)));
    check_golden(directory.path(), "trn1.32xlarge");
}

#[test]
fn trn2_48xlarge_has_half_as_many_logical_cores_by_default() {
    let directory = tree_directory(&host("2.29.1.0", TRAINIUM2, torus(4, 4)));
    check_golden(directory.path(), "trn2.48xlarge-lnc2");
    tree::write_tree(directory.path(), &format!("{SETTING} = NEURON_LOGICAL_NC_CONFIG=1\\n"));
    check_golden(directory.path(), "trn2.48xlarge-lnc1");
}

#[test]
fn cores_are_counted_with_old_driver_that_restricts_files_to_root() {
    let mut old = host("2.27.1.0", TRAINIUM1, torus(4, 4));
    old.links.truncate(2);
    old.file_layout = FileLayout::Closed;
    check_golden(tree_directory(&old).path(), "driver-2.27-unprivileged");
}

#[test]
fn driver_with_moved_files_is_read_by_name() {
    let mut new = host("2.31.7.0", TRAINIUM2, ring(4));
    new.file_layout = FileLayout::Moved;
    check_golden(tree_directory(&new).path(), "driver-2.31-moved");
}

#[test]
fn device_errors_are_found_if_only_health_files_have_moved() {
    let mut new = host("2.31.7.0", TRAINIUM2, ring(4));
    new.file_layout = FileLayout::PartlyMoved;
    let directory = tree_directory(&new);
    let counter = directory.path().join(DEVICE).join("health/ecc/mem_ecc_uncorrected");
    fs::write(counter, "7\n").unwrap();
    check_golden(directory.path(), "driver-2.31-partly-moved");
}

#[test]
fn unreadable_bus_is_not_reported_as_empty() {
    let directory = tempfile::tempdir().unwrap();
    tree::write_tree(directory.path(), "sys/bus/pci/devices = not a directory\\n");
    check_golden(directory.path(), "bus-unreadable");
}

#[test]
fn garbage_in_files_of_one_device_is_reported_and_other_is_read() {
    let directory = tree_directory(&host("2.30.2.0", TRAINIUM2, ring(3)));
    garble(directory.path());
    // The location of the setting differs between runs.
    let text = reported(directory.path(), &[]).replace(directory.path().to_str().unwrap(), "");
    let words: Vec<&str> = text.split_whitespace().collect();
    let setting = format!("/{SETTING}: it is not a regular file");
    assert!(words.join(" ").contains(&setting), "{text}");
    let (known, _) = text.split_once("Problems").unwrap();
    golden("sysfs/garbage.txt", known);
    for expected in [
        "Neuron 0: core_count: invalid value: \"banana\"",
        "Neuron 0: connected_devices: invalid value: \"1, two\"",
        "Neuron 0: info/serial_number: it is not text",
        "Neuron 0: info/architecture/device_name: invalid value: \"\\u{1b}[31mTrainium2\"",
        "Neuron 0: stats/hardware/mem_ecc_uncorrected: invalid value: \"-1\"",
        "device_mem/total: it is longer than 4096 bytes",
        "Neuron 1: its driver reports it as unhealthy: hbm",
        "Neuron 1: uncorrected errors of device memory since the driver was loaded: 3",
    ] {
        assert!(words.join(" ").contains(expected), "{expected}: {text}");
    }
}

#[test]
fn lost_device_is_reported_and_passed_through_device_is_not() {
    let mut all = host("2.26.5.0", TRAINIUM1, chain(4)).tree();
    for number in [2, 3] {
        let lost = format!("neuron_device/neuron{number}");
        let left: Vec<&str> = all.lines().filter(|line| !line.contains(&lost)).collect();
        all = left.join("\n");
    }
    let passed = "0000:13:1e.0/driver -> ../../../../bus/pci/drivers/";
    let all = all.replace(&format!("{passed}neuron"), &format!("{passed}vfio-pci"));
    let directory = tempfile::tempdir().unwrap();
    tree::write_tree(directory.path(), &all);
    check_golden(directory.path(), "one-lost-one-passed-through");
}

/// True if each file in these directories that is closed after `act` was open for writing, according to inotify.
fn opened(folders: &[&str], root: &Path, act: impl FnOnce()) -> Vec<(String, bool)> {
    let watch = inotify::init(CreateFlags::NONBLOCK).unwrap();
    let closed = WatchFlags::CLOSE_WRITE | WatchFlags::CLOSE_NOWRITE;
    for directory in folders {
        inotify::add_watch(&watch, root.join(directory), closed).unwrap();
    }
    act();
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut events = Reader::new(&watch, &mut buffer);
    let mut seen = Vec::new();
    while let Ok(event) = events.next() {
        if let Some(name) = event.file_name() {
            let writes = event.events().contains(ReadFlags::CLOSE_WRITE);
            seen.push((name.to_string_lossy().into_owned(), writes));
        }
    }
    seen
}

#[test]
fn no_file_is_opened_for_writing_and_reset_file_is_never_opened() {
    let directory = tree::machine("trn1.2xlarge");
    let root = directory.path();
    let watched = [
        DEVICE.to_owned(),
        format!("{DEVICE}/info"),
        format!("{DEVICE}/stats/hardware"),
        format!("{DEVICE}/neuron_core0/stats/memory_usage/device_mem"),
    ];
    let watched: Vec<&str> = watched.iter().map(String::as_str).collect();
    let seen = opened(&watched, root, || {
        reported(root, &[]);
    });
    let has = |name: &str| seen.iter().any(|(file, _)| file == name);
    for read in ["core_count", "serial_number", "mem_ecc_uncorrected", "total"] {
        assert!(has(read), "{read} was not seen to be read: {seen:?}");
    }
    assert!(!has("reset"), "{seen:?}");
    assert!(seen.iter().all(|(_, writes)| !writes), "{seen:?}");
    // The watch detects writers.
    let written = opened(&watched, root, || {
        fs::write(root.join(DEVICE).join("reset"), "1\n").unwrap();
    });
    assert_eq!(written, [("reset".to_owned(), true)]);
}
