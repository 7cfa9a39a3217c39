//! One table of machines: the output of `octavo inspect`, `octavo labels` and `octavo doctor` for each, as golden files
//! under `tests/golden/machines`, and the same data from the agent. All programs are the shipped ones and run without
//! permissions.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use octavo_files::inventory::parse;
use octavo_fleet::summary::rounded_for_report;
use octavo_model::label::{LabelKey, LabelValue};
use serde_json::Value;
use tempfile::TempDir;

use super::amd_host::{CPX, MI300X, SPX, mi300x};
use super::neuron_host::{
    Chip, DEVICE, FileLayout, Host, INFERENTIA, INFERENTIA2, SETTING, TRAINIUM1, TRAINIUM2, chain,
    garble, ring, torus,
};
use super::unprivileged::{command, give};
use crate::fleet_api::Api;
use crate::golden::golden;
use crate::machine::Machine;
use crate::process::{Aggregator, Program};
use crate::time_limits::Finish;
use crate::tree;

const OCTAVO: &str = env!("CARGO_BIN_EXE_octavo");

/// The first process, by which a program detects that it sees the whole process table: kthreadd, a kernel thread.
const PROCESSES: &str = "proc/2/stat = 2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 5 0 0 18446744073709551615 0 0 0 0 0 0 0 2147483647 \
    0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\\n";

/// Current control groups, including those of pods.
const GROUPS: &str =
    "sys/fs/cgroup/cgroup.controllers = cpu memory pids\\n\nsys/fs/cgroup/kubepods/";

/// Output of NVIDIA's driver on the machine with devices of four vendors.
const FOUR_KINDS: &str = "
machine: four-kinds
machine_type: Four Kinds 4U
driver: 570.133.20
gpus:
  - {board: T4}
  - {board: A100_80GB}
";

/// A machine in its own directory: `sys`, `dev`, `proc`, `opt`.
enum Site {
    Files(TempDir),
    /// With NVIDIA's driver.
    Simulated(Machine),
}

/// Name of a machine, and its constructor.
type Row = (&'static str, fn() -> Site);

const MACHINES: &[Row] = &[
    ("inf1.6xlarge", || neuron("2.21.37.0", INFERENTIA, chain(4))),
    ("inf2.48xlarge", || neuron("2.26.5.0", INFERENTIA2, ring(12))),
    ("trn1.2xlarge", trn1_as_captured),
    ("trn1.32xlarge", || neuron("2.26.5.0", TRAINIUM1, torus(4, 4))),
    ("trn2.48xlarge-lnc1", || {
        let site = neuron("2.29.1.0", TRAINIUM2, torus(4, 4));
        site.write_tree(&format!("{SETTING} = NEURON_LOGICAL_NC_CONFIG=1\\n"));
        site
    }),
    ("trn2.48xlarge-lnc2", || neuron("2.29.1.0", TRAINIUM2, torus(4, 4))),
    ("neuron-driver-2.27", files_of_root_only),
    ("neuron-driver-2.31", || file_layout("2.31.7.0", TRAINIUM2, ring(4), FileLayout::Moved)),
    ("neuron-no-driver", without_neuron_driver),
    ("neuron-garbage", || {
        let site = neuron("2.30.2.0", TRAINIUM2, ring(3));
        garble(site.path());
        site
    }),
    ("mi210x2", || amd(&fixture("mi210x2"), &[128, 130])),
    ("mi300x-spx", || {
        let minors: Vec<u64> = (0..8).map(|device| 128 + device * 8).collect();
        amd(&mi300x(&MI300X, SPX), &minors)
    }),
    ("mi300x-cpx-nps4", || {
        let minors: Vec<u64> = (128..192).collect();
        amd(&mi300x(&MI300X, CPX), &minors)
    }),
    ("mi300x-vf", || amd(&fixture("mi300x-vf"), &[128, 136])),
    ("mi300x-vfio", || amd(&fixture("mi300x-vfio"), &[128])),
    ("amd-garbage", || amd(&fixture("amd-garbage"), &[128, 136, 144])),
    ("h100-nouveau-vfio", || {
        let site = Site::empty();
        tree::write_tree(&site.path().join("sys"), &fixture("nouveau"));
        site
    }),
    ("four-kinds", four_kinds),
];

impl Site {
    fn empty() -> Self {
        let site = Self::Files(tempfile::tempdir().unwrap());
        site.write_tree("dev/\nsys/bus/pci/devices/");
        site.write_tree(PROCESSES);
        site.write_tree(GROUPS);
        site
    }

    fn path(&self) -> &Path {
        match self {
            Self::Files(directory) => directory.path(),
            Self::Simulated(machine) => machine.path(),
        }
    }

    fn write_tree(&self, text: &str) {
        tree::write_tree(self.path(), text);
    }

    /// Device files: only root can create real ones, so they are links to one.
    fn devices(&self, names: impl IntoIterator<Item = String>) {
        for name in names {
            self.write_tree(&format!("dev/{name} -> /dev/null"));
        }
    }

    /// A program on this machine only. Its paths are short and constant, because the output contains some.
    fn program(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = command(program, self.path());
        command.args(arguments).args(["--sys-root", "sys"]);
        command.args(["--neuron-logical-config", SETTING]);
        match self {
            Self::Files(_) => command.args(["--driver-root", "no-driver"]),
            Self::Simulated(_) => command.args(["--nvml-library", "./libnvidia-ml.so.1"]),
        };
        command
    }

    fn octavo(&self, arguments: &[&str]) -> Output {
        self.program(OCTAVO, arguments).finish()
    }

    #[track_caller]
    fn run(&self, arguments: &[&str]) -> (String, String) {
        let output = self.octavo(arguments);
        let notes = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{arguments:?}: {notes}");
        (String::from_utf8(output.stdout).unwrap(), notes)
    }
}

fn fixture(name: &str) -> String {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/sysfs");
    fs::read_to_string(directory.join(format!("{name}.tree"))).unwrap()
}

fn file_layout(
    driver: &'static str,
    chip: Chip,
    links: Vec<Vec<u32>>,
    file_layout: FileLayout,
) -> Site {
    let site = Site::empty();
    let count = links.len();
    let host = Host { driver, chip, file_layout, links };
    site.write_tree(&host.tree());
    site.devices((0..count).map(|number| format!("neuron{number}")));
    site
}

fn neuron(driver: &'static str, chip: Chip, links: Vec<Vec<u32>>) -> Site {
    file_layout(driver, chip, links, FileLayout::Known)
}

fn trn1_as_captured() -> Site {
    let site = Site::empty();
    site.write_tree(&fixture("trn1.2xlarge"));
    site.devices(["neuron0".to_owned()]);
    site
}

/// Until release 2.28 two files of each device are readable by root only.
fn files_of_root_only() -> Site {
    let site = neuron("2.27.1.0", TRAINIUM1, torus(4, 4));
    for number in 0..16 {
        let device = DEVICE.replace("neuron0", &format!("neuron{number}"));
        for file in ["core_count", "connected_devices"] {
            let file = site.path().join(&device).join(file);
            fs::set_permissions(file, Permissions::from_mode(0o000)).unwrap();
        }
    }
    site
}

/// The bus of a trn1.32xlarge without the driver.
fn without_neuron_driver() -> Site {
    let site = Site::empty();
    let host = Host {
        driver: "none",
        chip: TRAINIUM1,
        file_layout: FileLayout::Known,
        links: torus(4, 4),
    };
    let tree = host.tree();
    let bus = tree.lines().filter(|line| line.contains("/bus/pci/"));
    let bus: Vec<&str> = bus.filter(|line| !line.contains("/driver -> ")).collect();
    site.write_tree(&bus.join("\n"));
    site
}

/// With the device files of the driver for these render minors.
fn amd(tree: &str, minors: &[u64]) -> Site {
    let site = Site::empty();
    tree::write_tree(&site.path().join("sys"), tree);
    site.devices(["kfd".to_owned()]);
    site.devices(minors.iter().map(|minor| format!("dri/renderD{minor}")));
    site
}

/// A T4, an A100, an MI300X and an Inferentia2 on one bus.
fn four_kinds() -> Site {
    let site = Site::Simulated(Machine::new(FOUR_KINDS));
    site.write_tree(PROCESSES);
    site.write_tree(GROUPS);
    tree::write_tree(&site.path().join("sys"), &mi300x(&[0xc5], SPX));
    let host = Host {
        driver: "2.26.5.0",
        chip: INFERENTIA2,
        file_layout: FileLayout::Known,
        links: chain(1),
    };
    site.write_tree(&host.tree());
    for bus in sorted_functions(&site) {
        site.write_tree(&format!(
            "sys/bus/pci/devices/{bus}/driver -> ../../../../bus/pci/drivers/nvidia"
        ));
    }
    site.write_tree("sys/module/nvidia/version = 570.133.20\\n");
    let files = ["nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"];
    site.devices(files.map(str::to_owned));
    site.devices(["kfd", "dri/renderD128", "neuron0"].map(str::to_owned));
    site
}

/// The functions of NVIDIA.
fn sorted_functions(site: &Site) -> Vec<String> {
    let bus = site.path().join("sys/bus/pci/devices");
    let is_nvidias = |name: &String| {
        let vendor = fs::read_to_string(bus.join(name).join("vendor")).unwrap();
        vendor.trim() == "0x10de"
    };
    let entries = fs::read_dir(&bus).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(is_nvidias).collect();
    names.sort();
    names
}

#[track_caller]
fn sound_labels(name: &str, labels: &str) {
    for line in labels.lines() {
        let (key, value) = line.split_once('=').unwrap();
        assert!(key.parse::<LabelKey>().is_ok(), "{name}: {key}");
        assert!(value.parse::<LabelValue>().is_ok(), "{name}: {line}");
        let is_ours = key.contains("octavo.dev/") || key.starts_with("nvidia.com/");
        assert!(is_ours, "{name}: {key} is another owner's");
    }
}

#[test]
fn each_machine_has_its_inventory_labels_and_diagnosis() {
    for (name, made) in MACHINES {
        let site = made();
        give(site.path());
        let (inventory, _) = site.run(&["inspect", "-o", "json"]);
        golden(&format!("machines/{name}/inventory.json"), &inventory);
        let read = parse(&inventory).unwrap();
        let printed = serde_json::to_string(&read).unwrap();
        assert_eq!(parse(&printed).unwrap(), read, "{name}");

        let (labels, notes) = site.run(&["labels"]);
        sound_labels(name, &labels);
        golden(&format!("machines/{name}/labels"), &labels);
        golden(&format!("machines/{name}/notes"), &notes);
        fs::write(site.path().join("labels"), &labels).unwrap();
        // A recording has the labels of its machine.
        fs::write(site.path().join("recorded"), &inventory).unwrap();
        let recorded = command(OCTAVO, site.path()).args(["labels", "--from", "recorded"]).finish();
        assert_eq!(String::from_utf8(recorded.stdout).unwrap(), labels, "{name}");

        let output = site.octavo(&[
            "doctor",
            "--verbose",
            "--dev-root=dev",
            "--proc-root=proc",
            "--kubelet-root=kubelet",
            "--labels=labels",
        ]);
        let reported = String::from_utf8(output.stdout).unwrap();
        for line in reported.lines() {
            assert!(line.len() <= 80 && line.is_ascii(), "{name}: {line}");
        }
        let code = output.status.code().unwrap();
        golden(&format!("machines/{name}/doctor"), &format!("{reported}\nexit code {code}\n"));
    }
}

/// Lines in the form of the API.
fn as_object(labels: &str) -> Value {
    let labels = labels.lines().map(|line| {
        let (key, value) = line.split_once('=').unwrap();
        (key.to_owned(), Value::from(value))
    });
    Value::Object(labels.collect())
}

fn agent(site: &Site, name: &str, aggregator: &Aggregator) -> Program {
    let url = format!("http://{}", aggregator.grpc);
    Program::start(
        site.program(env!("CARGO_BIN_EXE_octavo-agent"), &["--label-sink=file"])
            .args(["--feature-file=features/octavo", "--feature-file-expiry=0"])
            .args(["--aggregator-plaintext", "--interval=1s"])
            .args(["--aggregator", &url, "--node-name", name]),
    )
}

#[tokio::test]
async fn agent_reports_each_machine_and_exits_on_sigterm() {
    let aggregator = Aggregator::start(&["--plaintext"]);
    let api = Api::at(aggregator.http);
    let running: Vec<(&str, Site, Program)> = MACHINES
        .iter()
        .map(|(name, made)| {
            let site = made();
            give(site.path());
            let program = agent(&site, name, &aggregator);
            (*name, site, program)
        })
        .collect();
    for (name, site, mut program) in running {
        program.expect_log("labels published");
        let (labels, _) = site.run(&["labels"]);
        let file = fs::read_to_string(site.path().join("features/octavo")).unwrap();
        let written: Vec<&str> = file.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(written, labels.lines().collect::<Vec<_>>(), "{name}");

        // Used memory is reported in steps.
        let (inventory, _) = site.run(&["inspect", "-o", "json"]);
        let inventory = parse(&inventory).unwrap();
        let inventory = rounded_for_report(&inventory).unwrap_or(inventory);
        let document =
            api.node(name, |node| node["connected"] == true && node["inventory"].is_object());
        let document = document.await;
        let shown = parse(&document["inventory"].to_string()).unwrap();
        assert_eq!(shown, inventory, "{name}");
        assert_eq!(document["labels"], as_object(&labels), "{name}");
        assert!(program.stop().success(), "{name}");
    }
}
