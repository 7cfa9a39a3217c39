//! Output of layouts and plans for machines recorded from simulated ones. The scripts are golden files under
//! `tests/golden/plan`: run with `TRYCMD=overwrite` to rewrite them (`make golden` does), and review the difference.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::golden::golden;
use crate::machine::{Machine, built_library, simulator};
use crate::time_limits::Finish;

const PLANS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/plan");

fn octavo(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_octavo"))
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stdin(Stdio::null())
        .finish()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn in_directory(directory: &Path, extension: &str) -> Vec<PathBuf> {
    let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        files.filter(|path| path.extension().is_some_and(|end| end == extension)).collect();
    files.sort();
    assert!(!files.is_empty(), "{}", directory.display());
    files
}

#[tokio::test]
async fn recorded_plan_machines_match_their_scenarios() {
    let directory = Path::new(PLANS).join("machines");
    for path in in_directory(&directory, "yaml") {
        let machine = Machine::new(&fs::read_to_string(&path).unwrap());
        let inventory = machine.observe().await;
        let json = serde_json::to_string_pretty(&inventory).unwrap();
        let name = path.file_stem().unwrap().to_str().unwrap();
        golden(&format!("plan/machines/{name}.json"), &format!("{json}\n"));
    }
}

#[test]
fn plans_match_golden_files() {
    trycmd::TestCases::new().env("COLUMNS", "80").case("tests/golden/plan/*.trycmd");
}

#[test]
fn plan_output_fits_eighty_columns_of_ascii() {
    for script in in_directory(Path::new(PLANS), "trycmd") {
        let script = fs::read_to_string(script).unwrap();
        let shown = script
            .split("```")
            .skip(1)
            .step_by(2)
            .filter(|block| block.contains("$ octavo plan") && !block.contains("-o "));
        for line in shown.flat_map(|block| block.lines().filter(|line| !line.starts_with('$'))) {
            // Compiler-style lines, location and message, are not wrapped because tools parse them.
            let to_read_by_tools = [".yaml:", ": warning: ", "error: ", "  because: ", "  try: "];
            let shown_by_file = to_read_by_tools.iter().any(|sign| line.contains(sign));
            assert!(shown_by_file || line.len() <= 80, "{line}");
            assert!(line.is_ascii(), "{line}");
        }
    }
}

#[test]
fn colors_add_no_information() {
    let arguments = [
        "plan",
        "a100-40-reshape",
        "-f",
        "tests/golden/plan/layouts.yaml",
        "--from",
        "tests/golden/plan/machines/a100-40.json",
    ];
    let plain = octavo(&arguments);
    let colored = octavo(&[&arguments[..], &["--color=always"]].concat());
    let mut bare = text(&colored.stdout).to_owned();
    assert!(bare.contains("\u{1b}[31m"), "{bare}");
    for code in ["0", "1", "2", "31", "32", "33", "30;42", "30;43", "97;41"] {
        bare = bare.replace(&format!("\u{1b}[{code}m"), "");
    }
    assert_eq!(bare, text(&plain.stdout));
}

#[test]
fn json_and_yaml_plan_are_the_same_document() {
    for machine in in_directory(&Path::new(PLANS).join("machines"), "json") {
        let machine = machine.to_str().unwrap();
        let forms = ["json", "yaml"].map(|format| {
            let arguments = [
                "plan",
                "serving",
                "-f",
                "tests/golden/plan/layouts.yaml",
                "--from",
                machine,
                "-o",
                format,
            ];
            octavo(&arguments).stdout
        });
        let [json, yaml] = &forms;
        // A layout that does not resolve on a machine has no plan.
        if json.is_empty() {
            assert!(yaml.is_empty());
            continue;
        }
        let json: Value = serde_json::from_slice(json).unwrap();
        let yaml: Value = serde_saphyr::from_str(text(yaml)).unwrap();
        assert_eq!(json, yaml, "{machine}");
    }
}

#[test]
fn exported_layout_needs_no_change_on_its_node() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("layouts.yaml");
    let file = file.to_str().unwrap();
    let mut exported = 0;
    for machine in in_directory(&Path::new(PLANS).join("machines"), "json") {
        let machine = machine.to_str().unwrap();
        for dialect in ["octavo", "mig-parted"] {
            let output = octavo(&["export", "--from", machine, "--dialect", dialect]);
            if !output.status.success() {
                // Leftovers of a crash are no layout.
                let reported = text(&output.stderr);
                assert!(reported.contains("has no compute instance"), "{machine}: {reported}");
                continue;
            }
            fs::write(file, &output.stdout).unwrap();
            let checked = octavo(&["layouts", "check", file]);
            assert!(checked.status.success(), "{}", text(&checked.stdout));
            let asserted = octavo(&["assert", "current", "-f", file, "--from", machine]);
            assert!(asserted.status.success(), "{}", text(&asserted.stdout));
            exported += 1;
        }
    }
    assert!(exported > 8);
}

/// A directory with `octavo` and the simulator in cargo's layout.
pub(crate) fn programs() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let built = Path::new(env!("CARGO_BIN_EXE_octavo")).parent().unwrap();
    let octavo = directory.path().join("octavo");
    // A symbolic link would be resolved to a directory without the other programs.
    fs::hard_link(built.join("octavo"), &octavo)
        .or_else(|_| fs::copy(built.join("octavo"), &octavo).map(|_| ()))
        .unwrap();
    symlink(simulator(), directory.path().join("nvml-simctl")).unwrap();
    symlink(built_library(), directory.path().join("libnvml_sim.so")).unwrap();
    directory
}

#[test]
fn scenario_shows_the_same_as_its_recording() {
    let programs = programs();
    for name in ["a100-40", "rtx"] {
        let shown = ["yaml", "json"].map(|kind| {
            let machine = format!("tests/golden/plan/machines/{name}.{kind}");
            let output = Command::new(programs.path().join("octavo"))
                .args(["inspect", "--machine", &machine])
                .current_dir(env!("CARGO_MANIFEST_DIR"))
                .stdin(Stdio::null())
                .finish();
            assert!(output.status.success(), "{}", text(&output.stderr));
            text(&output.stdout).to_owned()
        });
        assert_eq!(shown[0], shown[1]);
    }
}

#[test]
fn scenario_is_simulated_despite_other_machine_in_environment() {
    let programs = programs();
    let other = Machine::new("machine: other\ngpus: [{board: T4, count: 3}]\n");
    let shown = |state: Option<PathBuf>| {
        let mut command = Command::new(programs.path().join("octavo"));
        command
            .args(["inspect", "-o", "json", "--from"])
            .arg("tests/golden/plan/machines/a30.yaml")
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .stdin(Stdio::null());
        if let Some(state) = state {
            command.env("NVML_SIM_STATE", state);
        }
        let output = command.finish();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout).to_owned()
    };
    let named = other.path().join("nvml-sim.state");
    assert_eq!(shown(Some(named)), shown(None));
}

#[test]
fn document_is_printed_for_infeasible_layout() {
    let machine = Machine::new("machine: two\ngpus: [{board: A100_40GB}, {board: T4}]\n");
    let layouts = machine.path().join("layouts.yaml");
    for (rules, rule) in [
        ("[{devices: 0, mig: {9g.90gb: 1}}]", "noSuchProfile"),
        ("[{devices: 0, mig: {3g.20gb: 3}}]", "tooMany"),
        ("[{devices: 1, mig: {1g.5gb: 1}}]", "notMigCapable"),
    ] {
        let file =
            format!("apiVersion: octavo.dev/v1\nkind: Layouts\nlayouts:\n  wanted: {rules}\n");
        fs::write(&layouts, file).unwrap();
        let output = machine_plan(&machine, &layouts, "json");
        let reported = text(&output.stderr);
        assert_eq!(output.status.code(), Some(5), "{reported}");
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(document["outcome"], "infeasible");
        let [device] = document["devices"].as_array().unwrap().as_slice() else {
            panic!("{rules}: {document:?}");
        };
        let why = &device["infeasible"];
        assert_eq!(why["rule"], rule, "{rules}");
        // The location in the file stays on standard error.
        assert!(reported.contains(why["message"].as_str().unwrap()), "{reported}");
        let yaml = machine_plan(&machine, &layouts, "yaml");
        let yaml: Value = serde_saphyr::from_str(text(&yaml.stdout)).unwrap();
        assert_eq!(document, yaml);
    }
}

fn machine_plan(machine: &Machine, layouts: &Path, format: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_octavo"));
    command.args(["plan", "wanted", "-o", format, "--nvml-library"]);
    command.arg(machine.library()).arg("--sys-root");
    command.arg(machine.path().join("sys")).arg("--layouts");
    command.arg(layouts);
    command.stdin(Stdio::null()).finish()
}

#[test]
fn missing_simulator_is_reported_for_scenario() {
    let programs = programs();
    fs::remove_file(programs.path().join("nvml-simctl")).unwrap();
    let output = Command::new(programs.path().join("octavo"))
        .args(["layouts", "check", "tests/golden/plan/layouts.yaml"])
        .args(["--machine", "tests/golden/plan/machines/rtx.yaml"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .finish();
    let reported = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(reported.contains("a scenario needs nvml-simctl, which is not in"), "{reported}");
}

const PARTITIONED: &str = "
machine: live
driver: 550.163.01
cuda: '12.4'
gpus:
  - board: A100_40GB
    mig: enabled
    minor: 0
    instances:
      - {profile: 3g.20gb, start: 0}
";

/// A process file system in which process 4711 has these capabilities open and no other process uses the driver.
fn processes(machine: &Machine, capabilities: &[u32]) -> PathBuf {
    let root = machine.path().join("proc");
    let write = |name: &str, text: &str| {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("devices", "Character devices:\n195 nvidia\n235 nvidia-caps\n");
    let gi = machine.world().gpus[0].mig.as_ref().unwrap().instances[0].id;
    let table = format!("config 1\nmonitor 2\ngpu0/gi{gi}/access 12\ngpu0/gi{gi}/ci0/access 13\n");
    write("driver/nvidia-caps/mig-minors", &table);
    let stat = |pid: u32, name: &str, flags: u32| {
        let zeros = "0 ".repeat(43);
        format!("{pid} ({name}) S 0 0 0 0 -1 {flags} {}\n", zeros.trim_end())
    };
    write("2/stat", &stat(2, "kthreadd", 0x0020_8040));
    write("4711/stat", &stat(4711, "notebook", 0));
    write("4711/cmdline", "jupyter\0lab\0");
    fs::create_dir_all(root.join("4711/fd")).unwrap();
    for capability in capabilities {
        let node = format!("/nowhere/dev/nvidia-caps/nvidia-cap{capability}");
        symlink(node, root.join("4711/fd").join(capability.to_string())).unwrap();
    }
    root
}

/// Output of `octavo plan` for a layout that removes the only instance of the machine.
fn planned(machine: &Machine, root: &Path) -> Output {
    let layouts = machine.path().join("layouts.yaml");
    let text = "version: v1\nmig-configs:\n  small:\n  - devices: all\n    mig-enabled: true\n    mig-devices: {1g.5gb: 7}\n";
    fs::write(&layouts, text).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_octavo"));
    command.args(["plan", "small", "--nvml-library"]);
    command.arg(machine.library()).arg("--sys-root");
    command.arg(machine.path().join("sys")).arg("--proc-root");
    command.arg(root).arg("--layouts").arg(layouts);
    command.stdin(Stdio::null()).finish()
}

#[test]
fn i1_open_instance_is_in_use_on_live_machine() {
    let machine = Machine::new(PARTITIONED);
    let root = processes(&machine, &[2]);
    let output = planned(&machine, &root);
    assert_eq!(text(&output.stderr), "");
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stdout));

    fs::remove_dir_all(&root).unwrap();
    let root = processes(&machine, &[12, 13]);
    let output = planned(&machine, &root);
    assert_eq!(text(&output.stderr), "");
    assert_eq!(output.status.code(), Some(4));
    let shown = text(&output.stdout);
    assert!(shown.contains("must be removed but is in use"), "{shown}");
    assert!(shown.contains("pid 4711, jupyter lab"), "{shown}");
    assert!(shown.contains("| in use ") && !shown.contains("| idle "), "{shown}");
}

#[test]
fn i1_unknown_counts_as_in_use_on_live_machine() {
    let machine = Machine::new(PARTITIONED);
    let root = processes(&machine, &[]);
    fs::remove_file(root.join("driver/nvidia-caps/mig-minors")).unwrap();
    let output = planned(&machine, &root);
    assert_eq!(output.status.code(), Some(4));
    let shown = text(&output.stdout);
    assert!(shown.contains("must be removed, but usage is unknown"), "{shown}");
    let reported = text(&output.stderr);
    assert!(
        reported.starts_with("warning: cannot determine which processes have a GPU open"),
        "{reported}"
    );
    assert!(reported.contains("driver/nvidia-caps/mig-minors"), "{reported}");
}
