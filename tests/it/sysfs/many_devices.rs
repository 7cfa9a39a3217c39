//! Too many entries, and entries that disappear: reads are bounded, and real devices are found.

use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Barrier};
use std::thread;

use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use octavo_model::inventory::Inventory;
use tempfile::TempDir;

use super::amd_host::NODES;
use super::faults::paths;
use super::neuron_host::SETTING;
use super::sweep::{handle, machine, observe};
use super::unprivileged::{command, give};
use crate::time_limits::watch;

/// More entries than a directory of any kernel has.
const MANY: u32 = 5000;
/// Bytes read from one file at most: two scans, with the driver version read for each of two devices.
const MOST: u64 = 4097 * 4;

/// Number of bytes that an agent reads to publish its labels once.
fn bytes_read(directory: &Path) -> u64 {
    watch();
    let mut agent = command(env!("CARGO_BIN_EXE_octavo-agent"), directory)
        .args(["--oneshot", "--sys-root", "sys", "--driver-root", "no-driver"])
        .args(["--neuron-logical-config", SETTING, "--label-sink=file"])
        .args(["--feature-file=features/octavo", "--feature-file-expiry=0"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // The counters of a process that has exited can be read until its parent waits for it.
    let exited = Id::Pid(Pid::from_raw(agent.id().try_into().unwrap()));
    waitid(exited, WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT).unwrap();
    let counted = fs::read_to_string(format!("/proc/{}/io", agent.id())).unwrap();
    assert!(agent.wait().unwrap().success());
    fs::remove_dir_all(directory.join("features")).unwrap();
    let line = counted.lines().find_map(|line| line.strip_prefix("rchar:"));
    line.unwrap().trim().parse().unwrap()
}

/// Makes files 64 MiB long without changing their beginning, and returns their number.
fn lengthen(directory: &Path, is_meant: impl Fn(&Path) -> bool) -> u64 {
    let mut changed = 0;
    for path in paths(directory).iter().filter(|path| is_meant(path)) {
        let path = directory.join(path);
        let metadata = fs::symlink_metadata(&path).unwrap();
        // Other tests run the program, which can be linked into the directory.
        if metadata.is_file() && metadata.permissions().mode() & 0o111 == 0 {
            let file = File::options().write(true).open(&path).unwrap();
            file.set_len(64 << 20).unwrap();
            changed += 1;
        }
    }
    changed
}

#[test]
fn reads_of_endless_files_are_bounded() {
    let directory = machine();
    let usual = bytes_read(directory.path());
    // The ids of functions stay readable, so that the rest is read.
    let is_id = |path: &Path| {
        let name = path.file_name().unwrap().as_bytes();
        [&b"vendor"[..], b"device", b"class"].contains(&name)
    };
    let files = lengthen(directory.path(), |path| !is_id(path));
    assert!(files > 60, "{files}");
    let most = usual + files * MOST;
    let read = bytes_read(directory.path());
    assert!(read <= most, "{read} bytes of {files} files, {usual} before");
    let all = files + lengthen(directory.path(), is_id);
    assert!(bytes_read(directory.path()) <= usual + all * MOST);
}

#[test]
fn first_nodes_of_endless_topology_are_read() {
    let directory = machine();
    let nodes = directory.path().join("sys").join(NODES);
    let huge = directory.path().join("huge");
    File::create(&huge).unwrap().set_len(64 << 20).unwrap();
    let (clean, usual) = (observe(directory.path()), bytes_read(directory.path()));
    for number in 4..MANY {
        let node = nodes.join(number.to_string());
        fs::create_dir(&node).unwrap();
        symlink(&huge, node.join("properties")).unwrap();
    }
    fs::create_dir(nodes.join(std::ffi::OsStr::from_bytes(b"7\xff"))).unwrap();
    give(directory.path());
    assert_eq!(observe(directory.path()), clean);
    let read = bytes_read(directory.path());
    assert!(read <= usual + 512 * MOST, "{read}, {usual} before");
}

#[test]
fn real_devices_are_found_among_thousands_of_names() {
    let directory = machine();
    let root = directory.path();
    let clean = observe(root);
    let neuron = root.join("sys/class/neuron_device");
    let cores = root.join("sys/devices/virtual/neuron_device/neuron1");
    let bus = root.join("sys/bus/pci/devices");
    for number in 2..MANY {
        fs::create_dir(neuron.join(format!("neuron{number}"))).unwrap();
        fs::write(neuron.join(format!("other{number}")), "").unwrap();
        fs::write(cores.join(format!("neuron_core{number}")), "").unwrap();
        fs::create_dir(bus.join(format!("function{number}"))).unwrap();
    }
    give(root);
    let found = observe(root);
    assert_eq!(found.devices, clean.devices);
    let (found, clean) = (found.neuron.unwrap(), clean.neuron.unwrap());
    assert_eq!(found.devices[..2], clean.devices);
    assert_eq!(found.devices.len(), 64);
    let reported: Vec<&str> = found.problems.iter().map(|problem| problem.error.as_str()).collect();
    assert_eq!(
        reported,
        [
            "neuron64 is ignored: device numbers from 64 on are not supported",
            "the driver reports 64, but 2 are on the PCI bus"
        ]
    );
}

/// Asserts that everything is equal except the device with this address and the Neuron device 0.
fn others_are_the_same(now: &Inventory, before: &Inventory, gone: &str) -> bool {
    let bus = |all: &Inventory| {
        let others = all.devices.iter();
        let others = others.filter(|device| device.pci.to_string() != gone);
        others.cloned().collect::<Vec<_>>()
    };
    let neuron = |all: &Inventory| {
        let devices = all.neuron.as_ref().unwrap().devices.iter();
        let others = devices.filter(|device| device.number != 0);
        others.cloned().collect::<Vec<_>>()
    };
    bus(now) == bus(before) && neuron(now) == neuron(before) && now.machine == before.machine
}

/// A directory that disappears at varying moments of a reading, and is back at the next poll.
async fn vanishes(directory: &TempDir, path: &str, of: &str) {
    let root = directory.path();
    let reader = handle(root);
    let before = reader.observe().await;
    let (there, aside) = (root.join(path), root.join("aside"));
    for round in 0..150_u32 {
        let begin = Arc::new(Barrier::new(2));
        let (other, from, to) = (Arc::clone(&begin), there.clone(), aside.clone());
        let goes = thread::spawn(move || {
            other.wait();
            for _ in 0..round * 400 {
                std::hint::spin_loop();
            }
            fs::rename(from, to).unwrap();
        });
        begin.wait();
        let now = reader.observe().await;
        goes.join().unwrap();
        assert!(others_are_the_same(&now, &before, of), "{path}, {round}: {now:?}");
        fs::rename(&aside, &there).unwrap();
        let again = reader.observe().await;
        assert_eq!(again.devices, before.devices, "{path}, {round}");
        assert_eq!(again.neuron, before.neuron, "{path}, {round}");
    }
}

#[tokio::test]
async fn directory_that_vanishes_while_read_affects_its_device_until_it_returns() {
    let directory = machine();
    let functions = "sys/bus/pci/devices";
    for (path, of) in [
        (format!("{functions}/0000:03:00.0"), "0000:03:00.0"),
        (format!("{functions}/0000:3b:00.0"), "0000:3b:00.0"),
        (format!("sys/{NODES}/3"), "0000:03:00.0"),
        ("sys/devices/virtual/neuron_device/neuron0".to_owned(), "none"),
    ] {
        vanishes(&directory, &path, of).await;
    }
}
