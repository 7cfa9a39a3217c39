//! The shipped agent as a process, with drivers that hang, start late, are replaced or disappear.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nvml_sim::model::Slot;

use crate::machine::Machine;
use crate::time_limits::{Lines, exit_status};

const FOUR_H100: &str = "
machine: four
driver: 570.133.20
gpus:
  - board: H100_80GB_SXM
    count: 4
";

/// Short intervals, so that a test sees many polls and the expiry of the feature file advances.
fn arguments(file: &Path) -> Vec<String> {
    let file = file.to_str().unwrap();
    [
        "--interval=100ms",
        "--call-deadline=2s",
        "--label-sink=file",
        "--feature-file-expiry=4s",
        "--log-level=debug",
        "--feature-file",
        file,
    ]
    .map(str::to_owned)
    .to_vec()
}

fn start(machine: &Machine) -> crate::process::Program {
    let arguments = arguments(&machine.path().join("features.d/octavo"));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    machine.agent(&arguments)
}

fn labels(machine: &Machine) -> Vec<String> {
    let text = fs::read_to_string(machine.path().join("features.d/octavo")).unwrap();
    text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
}

fn has(labels: &[String], label: &str) -> bool {
    labels.iter().any(|found| found == label)
}

#[test]
fn i8_labels_survive_and_agent_stops_while_nvml_hangs() {
    let machine = Machine::new(FOUR_H100);
    let mut agent = start(&machine);
    agent.expect_log("labels published");
    let before = labels(&machine);
    assert!(has(&before, "octavo.dev/count=4"), "{before:#?}");

    let hang = "- {call: nvmlDeviceGetMigMode, hang: forever}\n";
    machine.faults(hang);
    let line = agent.expect_log("nvml: stalled");
    assert!(line.contains("nvmlDeviceGetMigMode"), "{line}");
    assert!(line.ends_with(" reason=nvml-stalled"), "{line}");
    // The heartbeat of the file: its expiry advances while NVML hangs.
    agent.expect_log("expiry time of the labels extended");
    agent.expect_log("expiry time of the labels extended");
    assert_eq!(labels(&machine), before);

    machine.faults("[]");
    let line = agent.expect_log("nvml: ready");
    assert!(line.ends_with(" reason=driver-back"), "{line}");

    machine.faults(hang);
    agent.expect_log("nvml: stalled");
    assert!(agent.stop().success());
    assert_eq!(labels(&machine), before);
}

#[test]
fn i8_oneshot_agent_can_be_stopped_while_nvml_hangs() {
    let machine = Machine::new(FOUR_H100);
    machine.faults("- {call: nvmlInit_v2, hang: forever}\n");
    let mut agent = machine.agent(&["--oneshot"]);
    agent.expect_log("octavo-agent");
    assert_eq!(agent.stop().code(), Some(1));
}

#[test]
fn i8_agent_started_while_nvml_hangs_keeps_previous_labels() {
    let machine = Machine::new(FOUR_H100);
    let mut agent = start(&machine);
    agent.expect_log("labels published");
    let before = labels(&machine);
    assert!(agent.stop().success());
    machine.faults("- {call: nvmlInit_v2, hang: forever}\n");
    let mut agent = start(&machine);
    let line = agent.expect_log("nvml: stalled");
    assert!(line.contains("nvmlInit_v2"), "{line}");
    agent.expect_log("expiry time of the labels extended");
    assert_eq!(labels(&machine), before);
    machine.faults("[]");
    agent.expect_log("nvml: ready");
    assert!(agent.stop().success());
    assert_eq!(labels(&machine), before);
}

#[test]
fn late_replaced_and_lost_drivers_are_detected_without_restart() {
    let machine = Machine::without_driver(FOUR_H100);
    let mut agent = start(&machine);
    let line = agent.expect_log("nvml: absent");
    assert!(line.contains("libnvidia-ml.so.1"), "{line}");
    agent.expect_log("labels published");
    let bus_only = labels(&machine);
    assert!(has(&bus_only, "type.octavo.dev/nvidia-h100-80gb=4"), "{bus_only:#?}");
    assert!(!bus_only.iter().any(|label| label.starts_with("octavo.dev/driver=")), "{bus_only:#?}");

    machine.install_driver();
    let line = agent.expect_log("nvml: ready driver=570.133.20");
    assert!(!line.contains("reason="), "a driver that was never lost has a reason: {line}");
    agent.expect_log("labels published");
    assert!(has(&labels(&machine), "octavo.dev/driver=570.133.20"));

    machine.change(nvml_sim::model::World::unload_driver);
    let line = agent.expect_log("nvml: lost");
    assert!(line.ends_with(" reason=nvml-lost"), "{line}");
    machine.change(|world| world.reload_driver(Some("580.95.05")));
    let line = agent.expect_log("nvml: ready driver=580.95.05");
    assert!(line.ends_with(" reason=driver-back"), "{line}");
    agent.expect_log("labels published");
    assert!(has(&labels(&machine), "octavo.dev/driver=580.95.05"));

    machine.change(nvml_sim::model::World::unload_driver);
    agent.expect_log("nvml: lost");
    agent.expect_log("labels published");
    assert_eq!(labels(&machine), bus_only);
    assert!(agent.stop().success());
}

#[test]
fn i6_hardware_event_updates_labels_before_the_next_poll() {
    let machine = Machine::new(FOUR_H100);
    let mut agent = machine.agent(&[
        "--interval=1h",
        "--feature-file-expiry=0",
        "--label-sink=file",
        "--feature-file",
        machine.path().join("features.d/octavo").to_str().unwrap(),
    ]);
    agent.expect_log("labels published");
    machine.change(|world| world.lose_gpu(Slot(2)));
    // The poll interval is an hour and retries take minutes, so only the event can have caused it.
    let line = agent.expect_log("failing");
    assert!(line.contains("nvidia-h100-80gb"), "{line}");
}

#[test]
fn one_lost_gpu_is_one_failing_device() {
    let machine = Machine::new(FOUR_H100);
    machine.change(|world| world.lose_gpu(Slot(1)));
    let output = machine.agent_once(&["--log-level=info"]);
    let reported = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{reported}");
    assert_eq!(reported.matches(", failing: ").count(), 1, "{reported}");
    assert_eq!(reported.matches("device found").count(), 4, "{reported}");
}

#[test]
fn i12_file_that_is_not_nvml_is_named_and_agent_continues() {
    let machine = Machine::without_driver(FOUR_H100);
    fs::write(machine.library(), "not a library").unwrap();
    let output = machine.agent_once(&[]);
    let reported = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{reported}");
    assert!(
        reported.contains("nvml: absent") && reported.contains("libnvidia-ml.so.1"),
        "{reported}"
    );
}

#[test]
fn i12_partially_copied_library_is_retried() {
    let machine = Machine::new(FOUR_H100);
    let whole = fs::read(machine.library()).unwrap();
    for length in [3000, 200_000, whole.len() - 1] {
        fs::write(machine.library(), &whole[..length]).unwrap();
        let output = machine.agent_once(&[]);
        let reported = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{length}: {:?} {reported}", output.status);
        assert!(reported.contains("still be being copied"), "{length}: {reported}");
    }
    let mut agent = start(&machine);
    agent.expect_log("still be being copied");
    fs::remove_file(machine.library()).unwrap();
    machine.install_driver();
    agent.expect_log("nvml: ready");
}

#[test]
fn i12_pipe_in_place_of_library_is_reported_and_does_not_block() {
    let machine = Machine::without_driver(FOUR_H100);
    nix::unistd::mkfifo(&machine.library(), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let output = machine.agent_once(&[]);
    let reported = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{reported}");
    assert!(reported.contains("it is not a regular file"), "{reported}");
}

/// A file lease: opening the file waits, by the kernel's rule, until the lease ends.
struct FileLease(Child);

impl FileLease {
    /// Takes a lease on the file. Source: fcntl(2), "Leases".
    fn of(file: &Path) -> Self {
        const TAKE: &str = "import fcntl, os, signal, sys\n\
            signal.signal(signal.SIGIO, signal.SIG_IGN)\n\
            file = os.open(sys.argv[1], os.O_RDWR)\n\
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)\n\
            print('taken', flush=True)\n\
            sys.stdin.read()\n";
        let mut holder = Command::new("python3")
            .args(["-c", TAKE])
            .arg(file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Lines::of(holder.stdout.take().unwrap()).find_line("taken");
        Self(holder)
    }
}

impl Drop for FileLease {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        exit_status(&mut self.0);
    }
}

#[test]
fn i8_unresponsive_sysfs_file_is_reported_as_named_stall() {
    let machine = Machine::new(FOUR_H100);
    let devices = machine.path().join("sys/bus/pci/devices");
    let device = fs::read_dir(devices).unwrap().next().unwrap().unwrap();
    let file = device.path().join("config");
    fs::write(&file, [0; 64]).unwrap();
    let lease = FileLease::of(&file);
    let mut agent = start(&machine);
    let line = agent.expect_log("nvml: stalled");
    assert!(line.contains("reading /sys"), "{line}");
    drop(lease);
    agent.expect_log("nvml: ready");
}
