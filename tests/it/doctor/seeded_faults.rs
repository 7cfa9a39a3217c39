//! Machines made of files: Neuron nodes with one missing component each, GPUs held by another process, and pods without
//! access to their node.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

use octavo_node::doctor::CheckResult::{
    self, Failing, NotApplicable, Ok as Fine, Unknown, Warning,
};
use tempfile::TempDir;

use super::{Diagnosis, octavo};
use crate::time_limits::Finish;
use crate::tree::{machine, write_tree};

/// A machine made of files: `sys`, `dev` and the directory of the kubelet.
pub(super) struct MachineFiles(TempDir);

impl MachineFiles {
    pub(super) fn new(tree: &str) -> Self {
        let machine = Self(tempfile::tempdir().unwrap());
        for directory in ["sys/bus/pci/devices", "dev"] {
            fs::create_dir_all(machine.at(directory)).unwrap();
        }
        machine.write_tree(tree);
        machine
    }

    pub(super) fn write_tree(&self, tree: &str) {
        write_tree(self.0.path(), tree);
    }

    pub(super) fn at(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = octavo(&["doctor", "--driver-root", "/nowhere"]);
        for (flag, directory) in [
            ("--sys-root", "sys"),
            ("--dev-root", "dev"),
            ("--proc-root", "proc"),
            ("--kubelet-root", "kubelet"),
            ("--state-dir", "state"),
            ("--modules-root", "modules"),
        ] {
            command.arg(flag).arg(self.at(directory));
        }
        command.args(arguments);
        command
    }

    #[track_caller]
    pub(super) fn diagnosis(&self) -> Diagnosis {
        Diagnosis::of(&self.command(&["-o", "json"]).finish())
    }
}

/// Inferentia2 devices as shown by their driver on an inf2.24xlarge. Source: PCI ids of the Neuron driver; its sysfs up
/// to 2.30.
pub(super) fn inferentia(count: u32, driver: &str) -> String {
    let function = |slot: u32| {
        let at = format!("sys/bus/pci/devices/0000:00:{:02x}.0", slot + 16);
        format!(
            "{at}/vendor = 0x1d0f\\n\n{at}/device = 0x7264\\n\n{at}/class = 0x088000\\n\n{driver}",
            driver = if driver.is_empty() {
                String::new()
            } else {
                format!("{at}/driver -> ../../../../bus/pci/drivers/{driver}\n")
            }
        )
    };
    (0..count).map(function).collect()
}

pub(super) fn loaded(numbers: std::ops::Range<u32>) -> String {
    let device = |number: u32| {
        let at = format!("sys/class/neuron_device/neuron{number}");
        format!(
            "{at}/core_count = 2\n{at}/info/architecture/device_name = Inferentia2\\n\n{at}/neuron_core0/\n{at}/neuron_core1/\n"
        )
    };
    let devices: String = numbers.map(device).collect();
    format!("sys/module/neuron/version = 2.26.5.0\\n\n{devices}")
}

/// A kubelet checkpoint with these registered resources.
pub(super) fn record(registered: &str) -> String {
    format!(
        "kubelet/device-plugins/kubelet_internal_checkpoint = {{\"Data\":{{\"PodDeviceEntries\":null,\"RegisteredDevices\":{registered}}},\"Checksum\":1}}\n"
    )
}

pub(super) fn device_files(machine: &MachineFiles, names: impl IntoIterator<Item = String>) {
    for name in names {
        // Only root can create device files.
        symlink("/dev/null", machine.at("dev").join(name)).unwrap();
    }
}

#[test]
fn f4_each_missing_part_of_neuron_node_is_named_with_remedy() {
    let bare = MachineFiles::new(&inferentia(6, ""));
    let reported = bare.diagnosis();
    reported.expect_finding(
        "neuron-driver",
        Failing,
        "6 devices of AWS Neuron, but the driver is not loaded",
    );
    let remedy = reported.only("neuron-driver").remedy.clone().unwrap();
    assert!(remedy.contains("aws-neuronx-dkms") && remedy.contains("modprobe neuron"), "{remedy}");
    assert_eq!(reported.of_check("kernel-driver").len(), 6);
    reported.expect_finding("device-plugin", NotApplicable, "nothing to allocate");

    let half = MachineFiles::new(&(inferentia(6, "neuron") + &loaded(0..5)));
    device_files(&half, (0..5).map(|number| format!("neuron{number}")));
    let reported = half.diagnosis();
    reported.expect_finding("neuron-driver", Fine, "2.26.5.0");
    reported.expect_finding("neuron-devices", Failing, "6 functions on the bus");

    let whole = MachineFiles::new(&(inferentia(6, "neuron") + &loaded(0..6)));
    let reported = whole.diagnosis();
    reported.expect_finding("neuron-devices", Fine, "6 functions on the bus");
    reported.expect_finding("neuron-device-files", Failing, "has no neuron0, neuron1");
    device_files(&whole, (0..6).map(|number| format!("neuron{number}")));
    let reported = whole.diagnosis();
    assert_eq!(reported.code, Some(0), "{:#?}", reported.findings);
    reported.expect_finding("device-plugin", NotApplicable, "no kubelet has run here");

    whole.write_tree(&record("null"));
    let reported = whole.diagnosis();
    reported.expect_finding(
        "device-plugin",
        Failing,
        "no device plugin has registered aws.amazon.com/neuron*",
    );
    let remedy = reported.only("device-plugin").remedy.clone().unwrap();
    assert!(remedy.contains("node.kubernetes.io/instance-type"), "{remedy}");

    whole.write_tree("kubelet/device-plugins/neuron.sock = \n");
    let reported = whole.diagnosis();
    reported.expect_finding(
        "device-plugin",
        Failing,
        "sockets of a plugin exist there: neuron.sock",
    );

    whole.write_tree(&record("{\"aws.amazon.com/neuron\":null}"));
    let reported = whole.diagnosis();
    reported.expect_finding("device-plugin", Fine, "aws.amazon.com/neuron");
    reported.expect_finding("allocatable", Failing, "no healthy device");

    whole.write_tree(&record("{\"aws.amazon.com/neuron\":[\"0\",\"1\",\"2\",\"3\",\"4\"]}"));
    whole.diagnosis().expect_finding(
        "allocatable",
        Failing,
        "aws.amazon.com/neuron: 5 offered, 6 present",
    );

    whole.write_tree(&record("{\"aws.amazon.com/neuron\":[\"0\",\"1\",\"2\",\"3\",\"4\",\"5\"]}"));
    let reported = whole.diagnosis();
    reported.expect_finding("allocatable", Fine, "6 offered, 6 present");
    assert_eq!(reported.code, Some(0), "{:#?}", reported.findings);
}

#[test]
fn f4_neuron_module_built_for_this_kernel_should_be_loaded() {
    let bare = MachineFiles::new(&inferentia(1, ""));
    let list = "modules/6.1.0/modules.dep";
    bare.write_tree(&format!(
        "proc/sys/kernel/osrelease = 6.1.0\\n\n{list} = kernel/fs/ext4/ext4.ko:\\n\n"
    ));
    bare.diagnosis().expect_finding(
        "neuron-driver",
        Failing,
        "modules.dep does not contain the module",
    );
    bare.write_tree(&format!("{list} = updates/dkms/neuron.ko.xz:\\n\n"));
    let reported = bare.diagnosis();
    reported.expect_finding("neuron-driver", Failing, "modules.dep contains the module");
    let remedy = reported.only("neuron-driver").remedy.clone().unwrap();
    assert!(remedy.starts_with("load it: `modprobe neuron`"), "{remedy}");
}

#[test]
fn functions_passed_through_to_virtual_machine_are_no_failure() {
    let reported = MachineFiles::new(&inferentia(2, "vfio-pci")).diagnosis();
    assert_eq!(reported.code, Some(0));
    reported.expect_finding("neuron-driver", NotApplicable, "no usable AWS Neuron device");
    for finding in reported.of_check("kernel-driver") {
        assert_eq!(finding.verdict, Fine);
        assert!(finding.evidence.contains("passed through to a virtual machine"));
    }
}

#[test]
fn gpu_holders_are_reported_and_unknown_ones_by_process_id() {
    let sys = machine("nouveau");
    let mut command = octavo(&["doctor", "-o", "json", "--driver-root", "/nowhere"]);
    command.arg("--sys-root").arg(sys.path());
    command.args(["--kubelet-root", "/nowhere"]);
    let reported = Diagnosis::of(&command.finish());
    assert_eq!(reported.code, Some(1));
    reported.expect_finding("nvidia-driver", Failing, "1 device of NVIDIA");
    let shown: Vec<(String, CheckResult)> = reported
        .of_check("kernel-driver")
        .iter()
        .map(|finding| (finding.subject.to_string(), finding.verdict))
        .collect();
    let expected = [("0000:17:00.0", Failing), ("0000:3b:00.0", Fine), ("0000:5d:00.0", Warning)]
        .map(|(subject, verdict)| (subject.to_owned(), verdict));
    assert_eq!(shown, expected);
    let stranger = reported.of_check("accelerators");
    let stranger = stranger.iter().find(|one| one.verdict == Warning).unwrap();
    assert_eq!(stranger.subject.to_string(), "0000:5d:00.0");
    assert!(stranger.evidence.starts_with("PCI ID 1e52:fff7"), "{stranger:?}");
}

#[test]
fn empty_machine_and_hidden_bus_are_distinguished() {
    let empty = MachineFiles::new("");
    let reported = empty.diagnosis();
    reported.expect_finding("accelerators", NotApplicable, "is an accelerator");
    assert_eq!(reported.code, Some(0));
    fs::remove_dir_all(empty.at("sys/bus")).unwrap();
    let reported = empty.diagnosis();
    reported.expect_finding("accelerators", Unknown, "does not exist");
    assert_eq!(reported.code, Some(0));
}

#[test]
fn unmounted_paths_in_pod_are_not_reported_as_missing() {
    let node = MachineFiles::new(&(inferentia(1, "neuron") + &loaded(0..1)));
    let mut command = octavo(&["doctor", "-o", "json", "--driver-root", "/nowhere"]);
    command.arg("--sys-root").arg(node.at("sys"));
    command.arg("--kubelet-root").arg(node.at("kubelet"));
    command.env("KUBERNETES_SERVICE_HOST", "10.0.0.1");
    let reported = Diagnosis::of(&command.finish());
    reported.expect_finding("neuron-device-files", Unknown, "the pod's own");
    reported.expect_finding("device-plugin", Unknown, "is not mounted in this pod");
    assert_eq!(reported.code, Some(0));
}

#[test]
fn existing_labels_are_compared_with_driver_observation() {
    let sys = machine("mi210x2");
    let labels = sys.path().join("node");
    let look = |written: &str| {
        fs::write(&labels, format!("kubernetes.io/hostname=n\n{written}\n")).unwrap();
        let mut command = octavo(&["doctor", "-o", "json", "--driver-root", "/nowhere"]);
        command.arg("--sys-root").arg(sys.path()).arg("--labels").arg(&labels);
        command.args(["--kubelet-root", "/nowhere", "--state-dir", "/nowhere"]);
        Diagnosis::of(&command.finish())
    };
    look("amd.com/gpu.device-id=740f").expect_finding("vendor-labels", Fine, "1 label matches");
    look("amd.com/gpu.device-id=74a1").expect_finding(
        "vendor-labels",
        Warning,
        "amd.com/gpu.device-id=74a1, but the hardware has 740f",
    );
    look("karpenter.k8s.aws/instance-gpu-count=8").expect_finding(
        "vendor-labels",
        Warning,
        "the hardware has 2",
    );
}
