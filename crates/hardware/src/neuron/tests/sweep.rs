//! Fault injection: every path of a machine in turn becomes missing, a directory, huge, a FIFO or invalid text. The
//! reader must terminate, and every value must be unchanged or absent.

use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::*;

/// A replacement of a path.
#[derive(Debug, Clone, Copy)]
enum Fault {
    Missing,
    Folder,
    Huge,
    Fifo,
    NoText,
    Zeros,
    LoopingLink,
}

const FAULTS: [Fault; 7] = [
    Fault::Missing,
    Fault::Folder,
    Fault::Huge,
    Fault::Fifo,
    Fault::NoText,
    Fault::Zeros,
    Fault::LoopingLink,
];

const HUGE: u64 = 64 << 20;

fn put(path: &Path, fault: Fault) {
    match fault {
        Fault::Missing => {}
        Fault::Folder => fs::create_dir(path).unwrap(),
        Fault::Huge => fs::File::create(path).unwrap().set_len(HUGE).unwrap(),
        Fault::Fifo => {
            let mode = Mode::RUSR | Mode::WUSR;
            mknodat(CWD, path, FileType::Fifo, mode, 0).unwrap();
        }
        Fault::NoText => fs::write(path, [0xff, 0xfe, 0x80, b'\n']).unwrap(),
        Fault::Zeros => fs::write(path, [0; 64]).unwrap(),
        Fault::LoopingLink => symlink(path, path).unwrap(),
    }
}

fn remove(path: &Path) {
    if !exists(path) {
        return;
    }
    if path.is_dir() {
        fs::remove_dir(path).unwrap();
    } else {
        fs::remove_file(path).unwrap();
    }
}

/// Returns every path below a directory, including links and directories.
fn paths(root: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    let mut open = vec![root.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                open.push(entry.path());
            }
            all.push(entry.path());
        }
    }
    all.sort();
    all
}

/// Returns whether every value is unchanged or absent.
fn reports_nothing_new(now: &NeuronDevice, before: &NeuronDevice) -> bool {
    fn same<T: PartialEq>(now: Option<&T>, before: Option<&T>) -> bool {
        now.is_none() || now == before
    }
    same(now.serial.as_ref(), before.serial.as_ref())
        && same(now.device_name.as_ref(), before.device_name.as_ref())
        && same(now.core_architecture.as_ref(), before.core_architecture.as_ref())
        && same(now.cores.as_ref(), before.cores.as_ref())
        && same(now.connected.as_ref(), before.connected.as_ref())
        && same(now.memory_used.as_ref(), before.memory_used.as_ref())
        && same(now.errors.memory_uncorrected.as_ref(), before.errors.memory_uncorrected.as_ref())
        && same(now.errors.memory_repairable.as_ref(), before.errors.memory_repairable.as_ref())
        && same(now.errors.sram_uncorrected.as_ref(), before.errors.sram_uncorrected.as_ref())
        && same(now.unhealthy.as_ref(), before.unhealthy.as_ref())
}

/// Returns the device number in a path; `None` for a path that belongs to no single device.
fn concerned(path: &Path) -> Option<u32> {
    let mut parts = path.iter().filter_map(|part| part.to_str());
    parts.find_map(|part| part.strip_prefix("neuron")?.parse().ok())
}

fn sweep(version: &str) {
    let host = Host::new(version, &[0, 1]);
    for number in [0, 1] {
        let health = "stats/hardware/health_status/unhealthy_components";
        host.put(&format!("{}/{health}", at(number)), "\n");
    }
    host.put("opt/logical_nc_config", "NEURON_LOGICAL_NC_CONFIG=1\n");
    let before = host.read().unwrap();
    let aside = tempfile::tempdir().unwrap();
    let aside = aside.path().join("aside");
    let all = paths(host.0.path());
    assert!(all.len() > 70, "{} paths", all.len());
    for path in all {
        for fault in FAULTS {
            fs::rename(&path, &aside).unwrap();
            put(&path, fault);
            let place = format!("{fault:?} at {}", path.display());
            check(host.read(), &before, concerned(&path), &place);
            remove(&path);
            fs::rename(&aside, &path).unwrap();
        }
    }
    assert_eq!(host.read().unwrap(), before);
}

fn check(now: Option<Neuron>, before: &Neuron, concerned: Option<u32>, place: &str) {
    let now = now.unwrap_or_else(|| panic!("nothing is read with {place}"));
    for device in &now.devices {
        let number = usize::try_from(device.number).unwrap();
        let known = &before.devices[number];
        assert!(reports_nothing_new(device, known), "{place}: {device:?}");
        if concerned.is_some_and(|number| number != device.number) {
            assert_eq!(device, known, "{place}");
        }
        assert!(device.problems.len() < 16, "{place}: {:?}", device.problems);
    }
    if let Some(concerned) = concerned {
        let others = before.devices.iter().map(|device| device.number);
        for other in others.filter(|number| *number != concerned) {
            let is_there = now.devices.iter().any(|device| device.number == other);
            assert!(is_there, "{place}: {other} is gone");
        }
    }
    let version = &now.driver_version;
    assert!(version.is_none() || *version == before.driver_version, "{place}");
}

#[test]
fn any_single_fault_leaves_other_values_unchanged() {
    sweep("2.30.0.0");
}

#[test]
fn any_single_fault_leaves_other_values_unchanged_during_search() {
    sweep("2.31.7.0");
}
