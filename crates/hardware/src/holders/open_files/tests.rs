//! Tests on synthetic process file systems and on the real one.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::{Child, Command, Stdio};

use octavo_model::id::PciAddress;
use octavo_model::inventory::{Condition, PciIds};
use tempfile::TempDir;

use super::*;

const CAPS: &str = "Character devices:\n  1 mem\n195 nvidia\n195 nvidiactl\n235 nvidia-caps\n\nBlock devices:\n  8 sd\n";
const TABLE: &str = "config 1\nmonitor 2\ngpu0/gi1/access 12\ngpu0/gi1/ci0/access 13\ngpu0/gi2/access 21\n\
                     gpu0/gi2/ci0/access 22\ngpu1/gi1/access 147\ngpu9/gi1/access 1227\n";
const POD: &str = "3f1c9a52-7d0b-4a6e-9c7f-0d3b8e5a1c24";
/// A directory without files, whose paths are only names.
const DEV: &str = "/nowhere/dev";

/// A process file system of a machine with the driver and only kernel threads.
struct Proc(TempDir);

impl Proc {
    fn new() -> Self {
        let proc = Self(tempfile::tempdir().unwrap());
        proc.write("devices", CAPS);
        proc.write("driver/nvidia-caps/mig-minors", TABLE);
        proc.write("driver/nvidia-caps/nvlink-minors", "fabric-mgmt 0\n");
        proc.write(
            "driver/nvidia-caps/sys-minors",
            "fabric-imex-mgmt 4323\nprofiler-device 4324\n",
        );
        proc.write("stat", "cpu 0 0 0 0 0 0 0 0 0 0\nctxt 1\nbtime 1700000000\nprocesses 1\nprocs_running 1\nprocs_blocked 0\n");
        proc.process(2, "kthreadd", 0x0020_8040);
        proc
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn remove(&self, name: &str) {
        fs::remove_file(self.path().join(name)).unwrap();
    }

    /// Adds a process without open files and returns its directory.
    fn process(&self, pid: u32, name: &str, flags: u32) -> PathBuf {
        let directory = self.path().join(pid.to_string());
        fs::create_dir_all(directory.join("fd")).unwrap();
        let rest = "0 0 0 0 0 0 0 0 0 20 0 1 0 6000 0 0 18446744073709551615 0 0 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 0";
        let stat = format!("{pid} ({name}) S 0 0 0 0 -1 {flags} {rest}\n");
        fs::write(directory.join("stat"), stat).unwrap();
        fs::write(directory.join("cmdline"), format!("{name}\0--all\0")).unwrap();
        let group = format!("0::/kubepods/burstable/pod{POD}/\n");
        fs::write(directory.join("cgroup"), group).unwrap();
        directory
    }

    /// Adds a process with these files open.
    fn with_open(&self, pid: u32, targets: &[&str]) -> PathBuf {
        let directory = self.process(pid, "train", 0);
        for (fd, target) in targets.iter().enumerate() {
            let target = target.replace("DEV", DEV);
            symlink(target, directory.join("fd").join(fd.to_string())).unwrap();
        }
        directory
    }

    fn open(&self) -> Result<Vec<Holder>, HoldersError> {
        let (first, second) = (device(7, Some(0)), device(8, Some(1)));
        open(self.path(), &[&first, &second])
    }

    /// Asserts the holders: bus, GPU instance, compute instance, process.
    #[track_caller]
    fn finds(&self, expected: &[(u8, Option<u32>, Option<u32>, u32)]) {
        let found = places(&self.open().unwrap());
        assert_eq!(found, expected);
    }

    #[track_caller]
    fn fails(&self, message: &str) {
        let error = self.open().unwrap_err().to_string();
        let root = self.path().to_str().unwrap();
        assert_eq!(error.replace(root, "/proc"), message);
    }
}

fn places(holders: &[Holder]) -> Vec<(u8, Option<u32>, Option<u32>, u32)> {
    let places = holders.iter().map(|holder| {
        let bus = if holder.device == address(7) { 7 } else { 8 };
        let pid = holder.details.pid.unwrap();
        (bus, holder.gpu_instance, holder.compute_instance, pid)
    });
    places.collect()
}

fn address(bus: u8) -> PciAddress {
    PciAddress::new(0, bus, 0, 0).unwrap()
}

fn device(bus: u8, minor: Option<u32>) -> Device {
    let ids = PciIds {
        vendor: 0x10de,
        device: 0x2330,
        subsystem_vendor: 0,
        subsystem_device: 0,
        class: None,
    };
    let mut device = Device::new(address(bus), ids);
    device.condition = Condition::Working;
    device.minor = minor;
    device
}

#[test]
fn open_node_is_reported_with_instance_and_process() {
    let proc = Proc::new();
    proc.with_open(
        50,
        &[
            "/dev/null",
            "socket:[4711]",
            "anon_inode:[eventpoll]",
            "/memfd:nvidia0 (deleted)",
            "DEV/nvidiactl",
            "DEV/nvidia-uvm",
            "DEV/nvidia0",
            "DEV/nvidia0",
            "DEV/nvidia-caps/nvidia-cap12",
            "DEV/nvidia-caps/nvidia-cap13",
            "DEV/nvidia-caps/nvidia-cap13",
        ],
    );
    // Monitoring or profiling tools.
    let watching = [
        "DEV/nvidia1 (deleted)",
        "DEV/nvidia-caps/nvidia-cap2",
        "DEV/nvidia-caps/nvidia-cap4324",
        "DEV/nvidia-caps/nvidia-cap0",
    ];
    proc.with_open(51, &watching);
    proc.with_open(52, &["/dev/null"]);
    proc.finds(&[
        (7, None, None, 50),
        (7, Some(1), None, 50),
        (7, Some(1), Some(0), 50),
        (8, None, None, 51),
    ]);
    let mut holders = proc.open().unwrap();
    crate::holders::describe(proc.path(), &mut holders);
    let who = &holders[0].details;
    assert_eq!(who.kind, None);
    assert_eq!(who.command.as_deref(), Some("train --all"));
    assert!(who.since.as_deref().is_some_and(|since| since > "2023"));
    let pod = who.pod.as_ref().unwrap();
    assert_eq!(pod.uid.as_deref(), Some(POD));
}

#[test]
fn own_process_is_excluded() {
    let proc = Proc::new();
    proc.with_open(60, &["DEV/nvidia0"]);
    proc.with_open(61, &["DEV/nvidia0"]);
    symlink("61", proc.path().join("self")).unwrap();
    proc.finds(&[(7, None, None, 60)]);
    // The procfs of a namespace without this process, so that no process in it is excluded.
    proc.remove("self");
    proc.finds(&[(7, None, None, 60), (7, None, None, 61)]);
}

#[test]
fn files_of_a_process_without_main_thread_are_found() {
    let proc = Proc::new();
    let directory = proc.process(70, "train", 0);
    let fd = directory.join("task/71/fd");
    fs::create_dir_all(&fd).unwrap();
    symlink(format!("{DEV}/nvidia-caps/nvidia-cap21"), fd.join("9")).unwrap();
    proc.finds(&[(7, Some(2), None, 70)]);
}

#[test]
fn no_holders_without_the_driver() {
    let proc = Proc::new();
    proc.with_open(50, &["DEV/nvidia0", "DEV/nvidia-caps/nvidia-cap13"]);
    proc.write("devices", "Character devices:\n  1 mem\n");
    proc.remove("driver/nvidia-caps/mig-minors");
    proc.finds(&[]);
    // A driver from before capabilities were introduced.
    proc.write("devices", "Character devices:\n195 nvidia-frontend\n");
    proc.finds(&[(7, None, None, 50)]);
    // IMEX channels are not capabilities.
    proc.write("devices", "Character devices:\n195 nvidia\n240 nvidia-caps-imex-channels\n");
    proc.finds(&[(7, None, None, 50)]);
}

#[test]
fn unreadable_file_is_an_error() {
    let proc = Proc::new();
    proc.remove("driver/nvidia-caps/mig-minors");
    proc.fails("cannot read /proc/driver/nvidia-caps/mig-minors");

    let proc = Proc::new();
    proc.write("driver/nvidia-caps/mig-minors", &"\n".repeat(2 << 20));
    proc.fails("/proc/driver/nvidia-caps/mig-minors is longer than 1048576 bytes");

    let proc = Proc::new();
    proc.remove("devices");
    proc.fails("cannot read /proc/devices");
    proc.write("devices", "Character devices:\nnonsense\n");
    proc.fails("cannot read /proc/devices");

    let proc = Proc::new();
    let directory = proc.process(50, "train", 0);
    fs::remove_dir(directory.join("fd")).unwrap();
    // The process has ended.
    proc.finds(&[]);
    // The tests can read everything, so a file stands for an unreadable directory.
    fs::write(directory.join("fd"), "").unwrap();
    proc.fails("cannot read /proc/50/fd");

    let proc = Proc::new();
    let directory = proc.process(50, "train", 0);
    // A file stands for an unreadable link.
    fs::write(directory.join("fd/0"), "").unwrap();
    proc.fails("cannot read /proc/50/fd/0");
}

#[test]
fn container_pid_namespace_is_an_error() {
    const MESSAGE: &str = "/proc does not show all processes of the machine: it belongs to the PID namespace of a container, \
                           or hides processes of other users";
    let proc = Proc::new();
    fs::remove_dir_all(proc.path().join("2")).unwrap();
    proc.fails(MESSAGE);
    // Any process can have this name.
    proc.process(2, "kthreadd", 0x0040_0040);
    proc.fails(MESSAGE);
}

#[test]
fn unknown_open_capability_is_an_error() {
    let proc = Proc::new();
    let garbage = "\u{1}\u{2}garbage\ngpu0/gi1/access 12\ngpu0/gi1/access 12\ngpu0/gi7/access 4294967296\n\
                   gpu4294967295/gi4294967295/access 77\ngpu0/gi3/access 30\ngpu0/gi4/access 30\ngpu0/gi5/vm0/access 31\n";
    proc.write("driver/nvidia-caps/mig-minors", garbage);
    proc.with_open(50, &["DEV/nvidia-caps/nvidia-cap12"]);
    proc.with_open(51, &["DEV/nvidia-caps/nvidia-cap77"]);
    proc.finds(&[(7, Some(1), None, 50)]);
    for minor in [30, 31, 4_294_967_295_u32] {
        let node = format!("DEV/nvidia-caps/nvidia-cap{minor}");
        let directory = proc.with_open(52, &[&node]);
        proc.fails(&format!(
            "process 52 has nvidia-cap{minor} open, which the driver's tables do not identify"
        ));
        fs::remove_dir_all(directory).unwrap();
    }
    // A capability is also unknown if two tables disagree about it.
    proc.write("driver/nvidia-caps/sys-minors", "gpu0/gi1/access 12\n");
    proc.fails("process 50 has nvidia-cap12 open, which the driver's tables do not identify");
}

#[test]
fn node_of_unknown_gpu_is_ignored_if_all_minors_are_known() {
    let proc = Proc::new();
    proc.with_open(50, &["DEV/nvidia9", "DEV/nvidia-caps/nvidia-cap1227"]);
    proc.finds(&[]);
    let (message, unreported) = (device(7, Some(0)), device(8, None));
    let error = open(proc.path(), &[&message, &unreported]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "process 50 has a device file of GPU 9 open, which matches no known device"
    );
    let mut other = unreported;
    other.vendor = Vendor::Amd;
    assert_eq!(open(proc.path(), &[&message, &other]).unwrap(), []);
}

#[test]
fn scan_limits_are_enforced() {
    let proc = Proc::new();
    let names: Vec<String> = (0..10_000).map(|n| format!("/data/{n}")).collect();
    let mut targets: Vec<&str> = names.iter().map(String::as_str).collect();
    targets.push("DEV/nvidia-caps/nvidia-cap22");
    proc.with_open(50, &targets);
    proc.finds(&[(7, Some(2), Some(0), 50)]);

    let device = device(7, Some(0));
    let mut limits = Limits { processes: 2, files: 10_001 };
    assert_eq!(scan_with_limits(proc.path(), &[&device], limits).unwrap().len(), 1);
    limits.files -= 1;
    let error = scan_with_limits(proc.path(), &[&device], limits).unwrap_err();
    assert_eq!(
        error.to_string(),
        "there are more than 10000 open files; the limit was reached at process 50"
    );
    limits.processes = 1;
    limits.files = 10_001;
    let error = scan_with_limits(proc.path(), &[&device], limits).unwrap_err();
    assert_eq!(error.to_string(), "there are more than 1 processes");
}

/// Starts a process with this standard error. It runs until it is killed.
fn waiting(error: Stdio) -> Child {
    Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(error).spawn().unwrap()
}

#[test]
fn device_number_takes_precedence_over_file_name() {
    let proc = Proc::new();
    // The memory devices stand for the driver's. `/dev/full`, which no other process has open, has minor number 7.
    proc.write("devices", "Character devices:\n  1 nvidia-caps\n");
    // The children may inherit any of these from the process that runs the tests.
    proc.write("driver/nvidia-caps/sys-minors", "a 3\nb 5\nc 8\nd 9\n");
    proc.write("driver/nvidia-caps/mig-minors", "gpu0/gi5/ci1/access 7\n");
    let file = proc.path().join("nvidia-cap7");
    let file = fs::File::create(file).unwrap();
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let mut children = [waiting(full.into()), waiting(file.into())];
    for child in &children {
        let name = child.id().to_string();
        let real = Path::new("/proc").join(&name);
        symlink(real, proc.path().join(name)).unwrap();
    }
    let found = proc.open();
    for child in &mut children {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let expected = [(7, Some(5), Some(1), children[0].id())];
    assert_eq!(places(&found.unwrap()), expected);
}

#[test]
fn real_machine_without_driver_has_no_holders() {
    let root = Path::new("/proc");
    let driver = fs::read_to_string(root.join("devices")).unwrap();
    let device = device(7, Some(0));
    let mut child = waiting(Stdio::null());
    let found = open(root, &[&device]);
    child.kill().unwrap();
    child.wait().unwrap();
    if driver.contains(" nvidia") {
        // With the driver, the result depends on the user who runs the tests; only this is certain.
        let of_child = |holder: &Holder| holder.details.pid == Some(child.id());
        assert!(!found.unwrap_or_default().iter().any(of_child));
    } else {
        assert_eq!(found.unwrap(), []);
    }
}
