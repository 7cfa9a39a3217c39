//! Completion of names in a real bash.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use super::{Fleet, reported};
use crate::time_limits::Finish;

/// Loads the script, and prints the candidates of a line on one line.
const BASH: &str = r#"
source <(octavo completion bash)
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_TYPE=9
_clap_complete_octavo octavo "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
echo "${COMPREPLY[@]}"
"#;

/// Returns the candidates of the last word, and what is printed on the user's terminal.
fn completed(server: &str, words: &[&str]) -> (String, String) {
    let directory = tempfile::tempdir().unwrap();
    symlink(env!("CARGO_BIN_EXE_octavo"), directory.path().join("octavo")).unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c", BASH, "bash", "octavo"]).args(words);
    bash.env("PATH", format!("{}:{path}", directory.path().display()));
    bash.env("OCTAVO_SERVER", server);
    // The default is too short for a loaded machine.
    bash.env("OCTAVO_TIMEOUT", "60s");
    let output = bash.finish();
    (reported(&output.stdout).trim().to_owned(), reported(&output.stderr))
}

#[test]
fn names_of_the_fleet_are_completed_in_bash() {
    let fleet = Fleet::new();
    for (words, expected) in [
        (&["node", ""][..], "a100 h100"),
        (&["node", "h"], "h100"),
        (&["doctor", "a"], "a100"),
        (&["nodes", "--type", "nvidia-a"], "nvidia-a100-80gb"),
        (&["availability", "--type", "x"], ""),
        (&["nod"], "nodes node"),
    ] {
        assert_eq!(completed(&fleet.url, words), (expected.to_owned(), String::new()), "{words:?}");
    }
    // The flag of the line takes precedence over the environment. Bash splits a URL at its colons, and `--flag=value`.
    let (host, port) = fleet.url.strip_prefix("http:").unwrap().split_once(':').unwrap();
    let line = ["node", "--server", "http", ":", host, ":", port, "a"];
    let elsewhere = completed("http://127.0.0.1:9", &line);
    assert_eq!(elsewhere, ("a100".to_owned(), String::new()));
    let value = completed(&fleet.url, &["nodes", "--type", "=", "nvidia-h"]);
    assert_eq!(value, ("nvidia-h100-80gb".to_owned(), String::new()));
}

#[test]
fn completion_is_silent_without_an_aggregator() {
    for server in ["http://127.0.0.1:9", "not a url"] {
        assert_eq!(completed(server, &["node", "a"]), (String::new(), String::new()), "{server}");
    }
}

#[test]
fn layouts_of_a_file_are_completed() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("layouts.yaml");
    fs::copy("tests/golden/plan/layouts.yaml", &file).unwrap();
    let file = file.to_str().unwrap();
    let (found, printed) = completed("http://127.0.0.1:9", &["plan", "-f", file, "who"]);
    assert_eq!((found.as_str(), printed.as_str()), ("whole", ""));
}

#[test]
fn kubectl_completes_its_plugin() {
    let fleet = Fleet::new();
    let directory = tempfile::tempdir().unwrap();
    let link = directory.path().join("kubectl_complete-octavo");
    symlink(env!("CARGO_BIN_EXE_octavo"), &link).unwrap();
    let mut command = Command::new(&link);
    let output = command.args(["node", "h"]).env("OCTAVO_SERVER", &fleet.url);
    let output = output.env("OCTAVO_TIMEOUT", "60s").finish();
    assert_eq!(reported(&output.stdout), "h100\n:4\n");
    assert_eq!(reported(&output.stderr), "");
}
