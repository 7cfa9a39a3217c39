//! `octavo doctor`: the shipped program on machines that miss something, on one that does not, and on this one.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use octavo::domain::doctor::Check;
use octavo::wire::diagnosis::{FindingJson, VerdictJson, parse};
use octavo::wire::inventory;
use tempfile::TempDir;

use crate::machine::Machine;
use crate::sharing::kubelet::Kubelet;
use crate::sysfs::tree::{machine, plant};

use VerdictJson::{Failing, NotApplicable, Ok as Fine, Unknown, Warning};

fn octavo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_octavo"));
    command.args(arguments).stdin(Stdio::null());
    // What a pod sees is said where it is meant.
    command.env_remove("KUBERNETES_SERVICE_HOST");
    command
}

/// What it found, and how it ended.
struct Diagnosis {
    findings: Vec<FindingJson>,
    code: Option<i32>,
}

impl Diagnosis {
    #[track_caller]
    fn of(output: &Output) -> Self {
        let said = String::from_utf8_lossy(&output.stdout);
        let complaints = String::from_utf8_lossy(&output.stderr);
        let document = parse(&said).unwrap_or_else(|error| panic!("{error}: {said}{complaints}"));
        let diagnosis = Self {
            findings: document.findings,
            code: output.status.code(),
        };
        // Whatever the machine is: every check is there, and the exit code says whether one fails.
        let fails = diagnosis.findings.iter().any(|one| one.verdict == Failing);
        assert_eq!(diagnosis.code, Some(i32::from(fails)), "{said}");
        for check in Check::ALL {
            let is_it = |one: &FindingJson| one.check == check.as_str();
            assert!(
                diagnosis.findings.iter().any(is_it),
                "{}: {said}",
                check.as_str()
            );
        }
        diagnosis
    }

    /// The only finding of a check.
    #[track_caller]
    fn only(&self, check: &str) -> &FindingJson {
        let found: Vec<&FindingJson> = self.of_check(check);
        assert_eq!(found.len(), 1, "{found:#?}");
        found[0]
    }

    fn of_check(&self, check: &str) -> Vec<&FindingJson> {
        let all = self.findings.iter();
        all.filter(|finding| finding.check == check).collect()
    }

    #[track_caller]
    fn says(&self, check: &str, verdict: VerdictJson, evidence: &str) {
        let found = self.only(check);
        assert_eq!(found.verdict, verdict, "{found:#?}");
        assert!(found.evidence.contains(evidence), "{found:#?}");
    }
}

/// A machine of files: `sys`, `dev` and the kubelet's folder below one.
struct Planted(TempDir);

impl Planted {
    fn new(tree: &str) -> Self {
        let planted = Self(tempfile::tempdir().unwrap());
        for folder in ["sys/bus/pci/devices", "dev"] {
            fs::create_dir_all(planted.at(folder)).unwrap();
        }
        planted.plant(tree);
        planted
    }

    fn plant(&self, tree: &str) {
        plant(self.0.path(), tree);
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = octavo(&["doctor", "--driver-root", "/nowhere"]);
        for (flag, folder) in [
            ("--sys-root", "sys"),
            ("--dev-root", "dev"),
            ("--kubelet-root", "kubelet"),
        ] {
            command.arg(flag).arg(self.at(folder));
        }
        command.args(arguments);
        command
    }

    #[track_caller]
    fn diagnosis(&self) -> Diagnosis {
        Diagnosis::of(&self.command(&["-o", "json"]).output().unwrap())
    }
}

/// Inferentia2, as many as an inf2.24xlarge has and as their driver shows them. Source: PCI ids of the Neuron driver; its sysfs up to 2.30.
fn inferentia(count: u32, driver: &str) -> String {
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

fn loaded(numbers: std::ops::Range<u32>) -> String {
    let device = |number: u32| {
        let at = format!("sys/class/neuron_device/neuron{number}");
        format!(
            "{at}/core_count = 2\n{at}/info/architecture/device_name = Inferentia2\\n\n{at}/neuron_core0/\n{at}/neuron_core1/\n"
        )
    };
    let devices: String = numbers.map(device).collect();
    format!("sys/module/neuron/version = 2.26.5.0\\n\n{devices}")
}

/// Kubelet's record, in which these are registered.
fn record(registered: &str) -> String {
    format!(
        "kubelet/device-plugins/kubelet_internal_checkpoint = {{\"Data\":{{\"PodDeviceEntries\":null,\"RegisteredDevices\":{registered}}},\"Checksum\":1}}\n"
    )
}

fn device_files(planted: &Planted, names: impl IntoIterator<Item = String>) {
    for name in names {
        // Only root may make others.
        symlink("/dev/null", planted.at("dev").join(name)).unwrap();
    }
}

#[test]
fn f4_each_thing_that_a_neuron_node_misses_is_named_with_what_to_do() {
    let bare = Planted::new(&inferentia(6, ""));
    let said = bare.diagnosis();
    said.says(
        "neuron-driver",
        Failing,
        "6 devices of AWS Neuron, and its driver is not loaded",
    );
    let remedy = said.only("neuron-driver").remedy.clone().unwrap();
    assert!(
        remedy.contains("aws-neuronx-dkms") && remedy.contains("modprobe neuron"),
        "{remedy}"
    );
    assert_eq!(said.of_check("kernel-driver").len(), 6);
    said.says("device-plugin", NotApplicable, "nothing to give out");

    let half = Planted::new(&(inferentia(6, "neuron") + &loaded(0..5)));
    device_files(&half, (0..5).map(|number| format!("neuron{number}")));
    let said = half.diagnosis();
    said.says("neuron-driver", Fine, "2.26.5.0");
    said.says("neuron-devices", Failing, "6 functions on the bus");

    let whole = Planted::new(&(inferentia(6, "neuron") + &loaded(0..6)));
    let said = whole.diagnosis();
    said.says("neuron-devices", Fine, "6 functions on the bus");
    said.says("neuron-device-files", Failing, "has no neuron0, neuron1");
    device_files(&whole, (0..6).map(|number| format!("neuron{number}")));
    let said = whole.diagnosis();
    assert_eq!(said.code, Some(0), "{:#?}", said.findings);
    said.says("device-plugin", NotApplicable, "no kubelet ever ran here");

    whole.plant(&record("null"));
    let said = whole.diagnosis();
    said.says(
        "device-plugin",
        Failing,
        "no device plugin has registered aws.amazon.com/neuron*",
    );
    let remedy = said.only("device-plugin").remedy.clone().unwrap();
    assert!(
        remedy.contains("node.kubernetes.io/instance-type"),
        "{remedy}"
    );

    whole.plant(&record("{\"aws.amazon.com/neuron\":null}"));
    let said = whole.diagnosis();
    said.says("device-plugin", Fine, "aws.amazon.com/neuron");
    said.says("allocatable", Failing, "none of it is healthy");

    whole.plant(&record(
        "{\"aws.amazon.com/neuron\":[\"0\",\"1\",\"2\",\"3\",\"4\"]}",
    ));
    whole.diagnosis().says(
        "allocatable",
        Failing,
        "aws.amazon.com/neuron: 5 offered, 6 there",
    );

    whole.plant(&record(
        "{\"aws.amazon.com/neuron\":[\"0\",\"1\",\"2\",\"3\",\"4\",\"5\"]}",
    ));
    let said = whole.diagnosis();
    said.says("allocatable", Fine, "6 offered, 6 there");
    assert_eq!(said.code, Some(0), "{:#?}", said.findings);
}

#[test]
fn functions_that_a_virtual_machine_is_given_are_no_failure() {
    let said = Planted::new(&inferentia(2, "vfio-pci")).diagnosis();
    assert_eq!(said.code, Some(0));
    said.says("neuron-driver", NotApplicable, "for this machine to use");
    for finding in said.of_check("kernel-driver") {
        assert_eq!(finding.verdict, Fine);
        assert!(finding.evidence.contains("set aside for a virtual machine"));
    }
}

#[test]
fn who_holds_a_gpu_is_told_and_a_stranger_is_told_by_its_id() {
    let sys = machine("nouveau");
    let mut command = octavo(&["doctor", "-o", "json", "--driver-root", "/nowhere"]);
    command.arg("--sys-root").arg(sys.path());
    command.args(["--kubelet-root", "/nowhere"]);
    let said = Diagnosis::of(&command.output().unwrap());
    assert_eq!(said.code, Some(1));
    said.says("nvidia-driver", Failing, "1 device of NVIDIA");
    let told: Vec<(&str, VerdictJson)> = said
        .of_check("kernel-driver")
        .iter()
        .map(|finding| (finding.subject.as_str(), finding.verdict))
        .collect();
    let expected = [
        ("0000:17:00.0", Failing),
        ("0000:3b:00.0", Fine),
        ("0000:5d:00.0", Warning),
    ];
    assert_eq!(told, expected);
    let stranger = said.of_check("accelerators");
    let stranger = stranger.iter().find(|one| one.verdict == Warning).unwrap();
    assert_eq!(stranger.subject, "0000:5d:00.0");
    assert!(
        stranger.evidence.starts_with("PCI id 1e52:fff7"),
        "{stranger:?}"
    );
}

#[test]
fn an_empty_machine_and_one_whose_bus_is_hidden_are_told_apart() {
    let empty = Planted::new("");
    let said = empty.diagnosis();
    said.says("accelerators", NotApplicable, "is an accelerator");
    assert_eq!(said.code, Some(0));
    fs::remove_dir_all(empty.at("sys/bus")).unwrap();
    let said = empty.diagnosis();
    said.says("accelerators", Unknown, "to be read");
    assert_eq!(said.code, Some(0));
}

#[test]
fn in_a_pod_what_is_not_mounted_is_not_taken_for_missing() {
    let node = Planted::new(&(inferentia(1, "neuron") + &loaded(0..1)));
    let mut command = octavo(&["doctor", "-o", "json", "--driver-root", "/nowhere"]);
    command.arg("--sys-root").arg(node.at("sys"));
    command.arg("--kubelet-root").arg(node.at("kubelet"));
    command.env("KUBERNETES_SERVICE_HOST", "10.0.0.1");
    let said = Diagnosis::of(&command.output().unwrap());
    said.says("neuron-device-files", Unknown, "this pod's own");
    said.says("device-plugin", Unknown, "is not mounted in this pod");
    assert_eq!(said.code, Some(0));
}

/// A simulated machine with three GPUs: one with a GPU instance and nothing in it, one with MIG mode on and nothing else, one whole.
fn leftovers() -> Machine {
    Machine::new(
        "machine: leftovers\ngpus:\n- {board: A100_80GB, mig: enabled, instances: [{profile: 1g.10gb, compute: []}]}\n\
         - {board: A100_80GB, mig: enabled}\n- {board: A100_80GB}\n",
    )
}

#[track_caller]
fn of_machine(machine: &Machine, more: &[&str]) -> Diagnosis {
    let mut command = octavo(&["doctor", "-o", "json"]);
    command.arg("--nvml-library").arg(machine.library());
    command.arg("--sys-root").arg(machine.path().join("sys"));
    command.args(more);
    Diagnosis::of(&command.output().unwrap())
}

#[test]
fn leftovers_of_mig_and_a_board_that_is_lost_are_told_of_their_devices() {
    let machine = leftovers();
    let kubelet = machine.path().join("none");
    let said = of_machine(&machine, &["--kubelet-root", kubelet.to_str().unwrap()]);
    said.says("nvidia-library", Fine, "NVML answers");
    let instances = said.of_check("mig-instances");
    let told: Vec<(VerdictJson, &str)> = instances
        .iter()
        .map(|finding| (finding.verdict, finding.evidence.as_str()))
        .collect();
    assert_eq!(
        told,
        [
            (
                Warning,
                "without a compute instance, and so of no use: gi 13"
            ),
            (Warning, "MIG mode is on, and it has no instance"),
            (Fine, "it is one whole GPU"),
        ]
    );
    assert_eq!(said.code, Some(0), "{:#?}", said.findings);
    machine.faults("- {call: nvmlDeviceGetHandleByIndex_v2, gpu: 2, return: GPU_IS_LOST}\n");
    let said = of_machine(&machine, &["--kubelet-root", kubelet.to_str().unwrap()]);
    let health = said.of_check("device-health");
    let failing: Vec<&&FindingJson> = health.iter().filter(|one| one.verdict == Failing).collect();
    assert_eq!(failing.len(), 1, "{health:#?}");
    assert_eq!(said.code, Some(1));
}

#[tokio::test]
async fn what_a_real_kubelets_socket_offers_is_held_against_the_hardware() {
    let machine = Machine::new("machine: offers\ngpus: [{board: T4, count: 2}]\n");
    let devices = machine.observe().await.devices;
    let uuids: Vec<String> = devices
        .iter()
        .map(|device| device.uuid.clone().unwrap().to_string())
        .collect();
    let root = machine.path().join("kubelet");
    let kubelet = Kubelet::start(
        &root.join("device-plugins"),
        &root.join("pod-resources/kubelet.sock"),
    );
    let look = || of_machine(&machine, &["--kubelet-root", root.to_str().unwrap()]);
    look().says(
        "device-plugin",
        Failing,
        "no device plugin has registered nvidia.com/*",
    );

    kubelet.has("nvidia.com/gpu", &uuids);
    let said = look();
    said.says(
        "allocatable",
        Fine,
        "all 2 devices and partitions are offered",
    );
    said.says("time-slicing", NotApplicable, "by turns");
    assert_eq!(said.code, Some(0), "{:#?}", said.findings);

    kubelet.has("nvidia.com/gpu", &uuids[..1]);
    look().says(
        "allocatable",
        Failing,
        &format!("there, and not offered: {}", uuids[1]),
    );

    kubelet.has("nvidia.com/gpu", &uuids);
    let replicas: Vec<String> = (0..3)
        .map(|number| format!("{}::{number}", uuids[0]))
        .collect();
    kubelet.has("nvidia.com/gpu.shared", &replicas);
    let said = look();
    said.says(
        "resource-owners",
        Failing,
        "nvidia.com/gpu and nvidia.com/gpu.shared",
    );
    said.says(
        "time-slicing",
        Fine,
        "nvidia.com/gpu.shared: 3 replicas of 1 device",
    );
}

#[test]
fn labels_of_another_time_are_told() {
    let machine = Machine::new("machine: labels\ngpus: [{board: T4, count: 2}]\n");
    let file = machine.path().join("features");
    let mut command = octavo(&["labels"]);
    command.arg("--nvml-library").arg(machine.library());
    command.arg("--sys-root").arg(machine.path().join("sys"));
    let labels = String::from_utf8(command.output().unwrap().stdout).unwrap();
    let look = || {
        of_machine(
            &machine,
            &[
                "--labels",
                file.to_str().unwrap(),
                "--kubelet-root",
                "/nowhere",
            ],
        )
    };
    fs::write(&file, &labels).unwrap();
    look().says("labels", Fine, "says what the hardware does");
    assert!(labels.contains("octavo.dev/count=2\n"), "{labels}");
    fs::write(
        &file,
        labels.replace("octavo.dev/count=2\n", "octavo.dev/count=4\n"),
    )
    .unwrap();
    look().says(
        "labels",
        Warning,
        "-octavo.dev/count=4, +octavo.dev/count=2",
    );
    fs::remove_file(&file).unwrap();
    let mut command = octavo(&["doctor", "--labels"]);
    let output = command.arg(&file).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.starts_with("error: cannot read labels from"), "{said}");
}

#[test]
fn on_this_machine_it_says_the_truth() {
    let inspected = octavo(&["inspect", "-o", "json"]).output().unwrap();
    let inventory = inventory::parse(&String::from_utf8(inspected.stdout).unwrap()).unwrap();
    let said = Diagnosis::of(&octavo(&["doctor", "-o", "json"]).output().unwrap());
    let accelerators = said.of_check("accelerators");
    if inventory.devices.is_empty() {
        assert!(
            accelerators
                .iter()
                .all(|one| matches!(one.verdict, NotApplicable | Unknown)),
            "{accelerators:#?}"
        );
        assert_eq!(said.code, Some(0), "{:#?}", said.findings);
    } else {
        assert_eq!(accelerators[0].verdict, Fine);
        assert_eq!(
            said.of_check("kernel-driver").len(),
            inventory.devices.len()
        );
    }
    // The forms for people and for programs say the same.
    let table = octavo(&["doctor"]).output().unwrap();
    assert_eq!(table.status.code(), said.code);
    let table = String::from_utf8(table.stdout).unwrap();
    let failing = said.findings.iter().filter(|one| one.verdict == Failing);
    let failing = failing.count();
    let sentence = format!("{} findings: {failing} failing", said.findings.len());
    assert!(table.contains(&sentence), "{table}");
    let yaml = octavo(&["doctor", "-o", "yaml"]).output().unwrap();
    let yaml = String::from_utf8(yaml.stdout).unwrap();
    assert!(yaml.contains("kind: Diagnosis"), "{yaml}");
}

#[test]
fn the_document_of_the_command_line_explains_every_check() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/cli.md");
    let document = fs::read_to_string(path).unwrap();
    for check in Check::ALL {
        let row = format!("| `{}` |", check.as_str());
        assert!(document.contains(&row), "{row}");
    }
}
