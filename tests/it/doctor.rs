//! `octavo doctor`: the shipped program on machines with faults, on a healthy machine and on this machine.

mod agent;
mod hostile;
mod real;
mod seeded_faults;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use CheckResult::{Failing, NotApplicable, Ok as Fine, Unknown, Warning};
use octavo_node::doctor::{Check, CheckResult, Diagnosis as Document, Finding};

use crate::kubelet::Kubelet;
use crate::machine::Machine;
use crate::time_limits::Finish;

fn octavo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_octavo"));
    command.args(arguments).stdin(Stdio::null());
    // The variable of a pod is set only by tests that need it.
    command.env_remove("KUBERNETES_SERVICE_HOST");
    command
}

/// Findings and exit code.
struct Diagnosis {
    findings: Vec<Finding>,
    code: Option<i32>,
}

impl Diagnosis {
    #[track_caller]
    fn of(output: &Output) -> Self {
        let reported = String::from_utf8_lossy(&output.stdout);
        let complaints = String::from_utf8_lossy(&output.stderr);
        let document: Document = serde_json::from_str(&reported)
            .unwrap_or_else(|error| panic!("{error}: {reported}{complaints}"));
        let diagnosis = Self { findings: document.findings, code: output.status.code() };
        // On any machine every check is present, and the exit code shows whether one fails.
        let fails = diagnosis.findings.iter().any(|one| one.verdict == Failing);
        assert_eq!(diagnosis.code, Some(i32::from(fails)), "{reported}");
        for &check in Check::ALL {
            let is_it = |one: &Finding| one.check == check;
            assert!(diagnosis.findings.iter().any(is_it), "{}: {reported}", check.as_str());
        }
        diagnosis
    }

    /// The only finding of a check.
    #[track_caller]
    fn only(&self, check: &str) -> &Finding {
        let found: Vec<&Finding> = self.of_check(check);
        assert_eq!(found.len(), 1, "{found:#?}");
        found[0]
    }

    fn of_check(&self, check: &str) -> Vec<&Finding> {
        let all = self.findings.iter();
        all.filter(|finding| finding.check.as_str() == check).collect()
    }

    #[track_caller]
    fn expect_finding(&self, check: &str, verdict: CheckResult, evidence: &str) {
        let found = self.only(check);
        assert_eq!(found.verdict, verdict, "{found:#?}");
        assert!(found.evidence.contains(evidence), "{found:#?}");
    }
}

/// A simulated machine with three GPUs: one with an empty GPU instance, one with MIG enabled and no instance, one
/// without MIG.
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
    Diagnosis::of(&command.finish())
}

#[test]
fn leftover_mig_instances_are_reported_with_their_devices() {
    let machine = leftovers();
    let kubelet = machine.path().join("none");
    let reported = of_machine(&machine, &["--kubelet-root", kubelet.to_str().unwrap()]);
    reported.expect_finding("nvidia-library", Fine, "NVML responds");
    let instances = reported.of_check("mig-instances");
    let shown: Vec<(CheckResult, &str)> =
        instances.iter().map(|finding| (finding.verdict, finding.evidence.as_str())).collect();
    assert_eq!(
        shown,
        [
            (Warning, "unusable, because they have no compute instance: gi 13"),
            (Warning, "MIG mode is on, but there are no instances"),
            (Fine, "not partitioned"),
        ]
    );
    assert_eq!(reported.code, Some(0), "{:#?}", reported.findings);
}

#[tokio::test]
async fn kubelet_socket_resources_are_compared_with_hardware() {
    let machine = Machine::new("machine: offers\ngpus: [{board: T4, count: 2}]\n");
    let devices = machine.observe().await.devices;
    let uuids: Vec<String> =
        devices.iter().map(|device| device.uuid.clone().unwrap().to_string()).collect();
    let root = machine.path().join("kubelet");
    let kubelet =
        Kubelet::start(&root.join("device-plugins"), &root.join("pod-resources/kubelet.sock"));
    let look = || of_machine(&machine, &["--kubelet-root", root.to_str().unwrap()]);
    look().expect_finding("device-plugin", Failing, "no device plugin has registered nvidia.com/*");

    kubelet.has("nvidia.com/gpu", &uuids);
    let reported = look();
    reported.expect_finding("allocatable", Fine, "all 2 devices and partitions are offered");
    reported.expect_finding("time-slicing", NotApplicable, "time-sliced");
    assert_eq!(reported.code, Some(0), "{:#?}", reported.findings);

    kubelet.has("nvidia.com/gpu", &uuids[..1]);
    look().expect_finding(
        "allocatable",
        Failing,
        &format!("present but not offered: {}", uuids[1]),
    );

    kubelet.has("nvidia.com/gpu", &uuids);
    let replicas: Vec<String> = (0..3).map(|number| format!("{}::{number}", uuids[0])).collect();
    kubelet.has("nvidia.com/gpu.shared", &replicas);
    let reported = look();
    reported.expect_finding("resource-owners", Failing, "nvidia.com/gpu and nvidia.com/gpu.shared");
    reported.expect_finding("time-slicing", Fine, "nvidia.com/gpu.shared: 3 replicas of 1 device");
}

#[test]
fn outdated_labels_are_reported() {
    let machine = Machine::new("machine: labels\ngpus: [{board: T4, count: 2}]\n");
    let file = machine.path().join("features");
    let mut command = octavo(&["labels"]);
    command.arg("--nvml-library").arg(machine.library());
    command.arg("--sys-root").arg(machine.path().join("sys"));
    let labels = String::from_utf8(command.finish().stdout).unwrap();
    let look = || {
        of_machine(&machine, &["--labels", file.to_str().unwrap(), "--kubelet-root", "/nowhere"])
    };
    fs::write(&file, &labels).unwrap();
    look().expect_finding("labels", Fine, "matches the hardware");
    assert!(labels.contains("octavo.dev/count=2\n"), "{labels}");
    fs::write(&file, labels.replace("octavo.dev/count=2\n", "octavo.dev/count=4\n")).unwrap();
    look().expect_finding("labels", Warning, "-octavo.dev/count=4, +octavo.dev/count=2");
    // Octavo writes vendor labels into the same file.
    look().expect_finding("vendor-labels", Fine, "match the hardware");
    fs::write(machine.path().join("gfd"), "").unwrap();
    let count = "nvidia.com/gpu.count=2\n";
    assert!(labels.contains(count), "{labels}");
    fs::write(&file, labels.replace(count, "nvidia.com/gpu.count=8\n")).unwrap();
    let reported = look();
    reported.expect_finding("labels", Fine, "matches the hardware");
    reported.expect_finding(
        "vendor-labels",
        Warning,
        "nvidia.com/gpu.count=8, but the hardware has 2",
    );
    reported.expect_finding("other-managers", Warning, "two programs write the same labels");
    fs::remove_file(&file).unwrap();
    let mut command = octavo(&["doctor", "--labels"]);
    let output = command.arg(&file).finish();
    assert_eq!(output.status.code(), Some(1));
    let reported = String::from_utf8_lossy(&output.stderr);
    assert!(reported.starts_with("error: cannot read labels from"), "{reported}");
}

/// First words of the rows in the table of checks.
fn rows(text: &str) -> Vec<&str> {
    let table = text.split("| check | ").nth(1).unwrap();
    let lines = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let words = lines.map(|line| line.split('`').nth(1).unwrap());
    words.collect()
}

fn document(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    fs::read_to_string(path).unwrap()
}

#[test]
fn cli_document_lists_every_check_in_order() {
    let text = document("docs/tasks/command-line.md");
    let words: Vec<&str> = Check::ALL.iter().copied().map(Check::as_str).collect();
    assert_eq!(rows(&text), words);
}

#[test]
fn example_document_is_valid() {
    let text = document("docs/tasks/command-line.md");
    let examples = text.split("```json\n").skip(1);
    let examples = examples.map(|rest| rest.split("\n```").next().unwrap());
    let examples: Vec<&str> = examples.filter(|text| text.contains("Diagnosis")).collect();
    assert_eq!(examples.len(), 1);
    let document: Document = serde_json::from_str(examples[0]).unwrap();
    assert_eq!(document.findings[0].check, Check::NeuronDriver);
    for verdict in [Fine, Warning, Failing, Unknown, NotApplicable] {
        let word = serde_json::to_value(verdict).unwrap();
        let word = format!("`{}`", word.as_str().unwrap());
        assert!(text.contains(&word), "{word}");
    }
}

#[test]
fn troubleshooting_page_lists_every_check_and_no_other() {
    let text = document("docs/operations/troubleshooting.md");
    let (_, section) = text.split_once("### Checks of `octavo doctor`").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let rows =
        section.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| Problem"));
    let cells = rows.map(|line| line.split(" | ").nth(1).unwrap());
    let words = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    let named: BTreeSet<&str> = words.collect();
    let all: BTreeSet<&str> = Check::ALL.iter().copied().map(Check::as_str).collect();
    assert_eq!(named, all);
}
