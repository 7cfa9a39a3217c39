//! The `octavo` binary at a shell. Complete outputs are golden files under `tests/golden/cli`: run with
//! `TRYCMD=overwrite` to rewrite them (`make golden` does), and review the difference.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use octavo_files::inventory::parse;

use crate::golden::golden;
use crate::time_limits::{Finish, output};

const MACHINES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/cli/machines");

fn machine(name: &str) -> String {
    format!("{MACHINES}/{name}.json")
}

fn octavo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_octavo"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn run(arguments: &[&str]) -> Output {
    octavo(arguments).finish()
}

/// Runs with `text` on standard input.
fn piped(arguments: &[&str], text: &str) -> Output {
    let mut child = octavo(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    output(child, "octavo")
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

#[test]
fn cli_output_matches_golden_files() {
    // Help is wrapped to the width of the terminal.
    trycmd::TestCases::new().env("COLUMNS", "80").case("tests/golden/cli/*.trycmd");
}

/// A report of the simulation with these arguments, on this number of GPUs like those of a recorded node.
fn simulation_report(gpus: &str, arguments: &[&str]) -> String {
    let machine = machine("h100x8");
    let fleet = ["simulate", "--from", &machine, "--gpus", gpus, "--strategy", "octavo,spread"];
    let output = run(&[&fleet[..], arguments, &["-o", "html"]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    stdout(&output).replace(env!("CARGO_PKG_VERSION"), "VERSION")
}

#[test]
fn simulation_report_of_a_file_matches_golden_file() {
    let trace = "tests/golden/cli/simulate/queue.csv";
    let page = simulation_report("1", &["--trace", trace, "--queue"]);
    golden("cli/simulate/queue.html", &page);
}

#[test]
fn simulation_report_of_random_requests_matches_golden_file() {
    let page = simulation_report("2", &["--mix", "uniform", "--requests", "50", "--runs", "2"]);
    golden("cli/simulate/uniform.html", &page);
}

#[test]
fn recorded_inventory_is_printed_unchanged_in_json_and_yaml() {
    for entry in std::fs::read_dir(MACHINES).unwrap() {
        let path = entry.unwrap().path();
        let path = path.to_str().unwrap();
        let recorded = parse(&std::fs::read_to_string(path).unwrap()).unwrap();
        for format in ["json", "yaml"] {
            let output = run(&["inspect", "--from", path, "-o", format]);
            assert_eq!(parse(stdout(&output)).unwrap(), recorded, "{path} {format}");
            let again = piped(&["inspect", "--from", "-", "-o", format], stdout(&output));
            assert_eq!(stdout(&again), stdout(&output), "{path} {format}");
        }
        let json = run(&["inspect", "--from", path, "-o", "json"]);
        let expected = serde_json::to_string_pretty(&recorded).unwrap();
        assert_eq!(stdout(&json), format!("{expected}\n"));
    }
}

#[test]
fn table_fits_eighty_columns_of_ascii() {
    for entry in std::fs::read_dir(MACHINES).unwrap() {
        let path = entry.unwrap().path();
        let output = run(&["inspect", "--from", path.to_str().unwrap()]);
        for line in stdout(&output).lines() {
            assert!(line.len() <= 80 && line.is_ascii(), "{path:?}: {line}");
            assert_eq!(line, line.trim_end(), "{path:?}");
        }
    }
}

#[test]
fn colors_add_no_information() {
    let path = machine("failing");
    let arguments = ["inspect", "--from", &path];
    let plain = run(&arguments);
    let colored = run(&[&arguments[..], &["--color=always"]].concat());
    assert!(stdout(&colored).contains("\u{1b}[31mfailing\u{1b}[0m"));
    let mut bare = stdout(&colored).to_owned();
    for code in ["0", "1", "2", "31", "32", "33", "30;42", "30;43", "97;41"] {
        bare = bare.replace(&format!("\u{1b}[{code}m"), "");
    }
    assert_eq!(bare, stdout(&plain));
    let quiet = octavo(&arguments).env("NO_COLOR", "1").finish();
    assert_eq!(stdout(&quiet), stdout(&plain));
}

#[test]
fn closed_output_pipe_is_no_failure() {
    let path = machine("h100x8");
    let mut child = octavo(&["inspect", "--from", &path, "-o", "json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = output(child, "octavo inspect");
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""));
}

#[test]
fn completion_scripts_request_candidates_from_the_program() {
    for shell in ["bash", "zsh", "fish"] {
        let output = run(&["completion", shell]);
        assert!(stdout(&output).contains("OCTAVO_COMPLETE="), "{shell}: {}", stdout(&output));
        for (words, expected) in [
            (&["nod"][..], "nodes"),
            (&["doctor", "--kubelet"], "--kubelet-root"),
            (&["layouts", "gen"], "generate"),
            (&["nodes", "--sort-by", "fr"], "free"),
        ] {
            let mut command = octavo(&["--", "octavo"]);
            command.args(words).env("OCTAVO_COMPLETE", shell);
            command.env("_CLAP_COMPLETE_INDEX", words.len().to_string());
            let output = command.finish();
            assert!(stdout(&output).contains(expected), "{shell} {words:?}: {}", stdout(&output));
            assert_eq!(stderr(&output), "", "{shell} {words:?}");
        }
    }
    assert_eq!(run(&["completion", "cmd"]).status.code(), Some(2));
}

#[test]
fn labels_equal_their_own_output_in_every_format() {
    let path = machine("a100");
    let diff = ["labels", "--from", &path, "--diff", "-"];
    for format in ["table", "json", "yaml"] {
        let labels = run(&["labels", "--from", &path, "-o", format]);
        let same = piped(&diff, stdout(&labels));
        assert_eq!((same.status.code(), stdout(&same)), (Some(0), ""), "{format}");
    }
    let labels = run(&["labels", "--from", &path]);
    let all_new = piped(&diff, "");
    let added: Vec<String> = stdout(&labels).lines().map(|line| format!("+{line}")).collect();
    assert!(!added.is_empty());
    let lines: Vec<&str> = stdout(&all_new).lines().collect();
    assert_eq!(
        (all_new.status.code(), lines),
        (Some(3), added.iter().map(String::as_str).collect())
    );
}

#[test]
fn node_is_compared_by_octavo_labels_only() {
    let path = machine("cpu-only");
    let node = r#"{"kind": "Node", "metadata": {"name": "n", "labels":
        {"kubernetes.io/arch": "amd64", "octavo.dev/type": "nvidia-a30-24gb"}}}"#;
    let output = piped(&["labels", "--from", &path, "--diff", "-"], node);
    assert_eq!(
        (output.status.code(), stdout(&output)),
        (Some(3), "-octavo.dev/type=nvidia-a30-24gb\n")
    );
}

#[test]
fn errors_go_to_standard_error_with_causes_and_remedy() {
    let check = |output: &Output, expected: &str| {
        assert_eq!((output.status.code(), stdout(output), stderr(output)), (Some(1), "", expected));
    };
    check(
        &run(&["inspect", "--from", "/nowhere/x.json"]),
        "error: cannot read an inventory from /nowhere/x.json\n  \
         because: No such file or directory (os error 2)\n  \
         try: check the path; a dash reads standard input\n",
    );
    check(
        &run(&["inspect", "--nvml-library", "/nowhere/libnvidia-ml.so.1"]),
        "error: no NVML library at /nowhere/libnvidia-ml.so.1\n  \
         try: specify the path of libnvidia-ml.so.1, or omit --nvml-library to search for it\n",
    );
    let text = std::fs::read_to_string(machine("t4")).unwrap();
    check(
        &piped(&["inspect", "--from", "-"], &text.replace("0000:3b:00.0", "3b:00.0")),
        "error: cannot use the inventory in standard input\n  \
         because: not an inventory in JSON, at devices[0].pci\n  \
         because: \"3b:00.0\" is not a PCI address like 0000:07:00.0 at line 16 column 19\n  \
         try: record one with `octavo inspect -o json`, or correct the value named above\n",
    );
}

#[test]
fn environment_variable_sets_flag_and_flag_takes_precedence() {
    let reported = |flags: &[&str]| {
        let mut command = octavo(&["inspect"]);
        command.args(flags).env("OCTAVO_NVML_LIBRARY", "/variable");
        stderr(&command.finish()).lines().next().map(str::to_owned)
    };
    let missing = |path| Some(format!("error: no NVML library at {path}"));
    assert_eq!(reported(&[]), missing("/variable"));
    assert_eq!(reported(&["--nvml-library", "/flag"]), missing("/flag"));
    assert_eq!(reported(&["--from", &machine("t4")]), None);
}

#[test]
fn empty_environment_variable_counts_as_unset() {
    let output = Command::new(env!("CARGO_BIN_EXE_octavo-agent"))
        .args(["--oneshot", "--sys-root", "/nowhere", "--driver-root", "/nowhere"])
        .env("OCTAVO_NVML_LIBRARY", "")
        .env("OCTAVO_INTERVAL", "")
        .env("OCTAVO_LABEL_SINK", "")
        .finish();
    assert!(output.status.success(), "{}", stderr(&output));
    let machine = machine("t4");
    let output = octavo(&["labels", "--from", &machine]).env("OCTAVO_MIG_STRATEGY", "").finish();
    assert!(output.status.success(), "{}", stderr(&output));
}

#[test]
fn endless_recording_is_rejected_with_bounded_memory() {
    let output = run(&["inspect", "--from", "/dev/zero"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("it is longer than 16 MiB"), "{}", stderr(&output));
}
