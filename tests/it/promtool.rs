//! Prometheus's own tool, which parses metrics as Prometheus does.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::time_limits::{Finish, output};

/// Asserts that promtool reports no issue in `metrics`.
#[track_caller]
pub(crate) fn finds_no_fault(metrics: &str) {
    let mut command = Command::new("promtool");
    command.args(["check", "metrics"]).stdin(Stdio::piped());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.unwrap_or_else(|error| {
        panic!("promtool: {error}; this test needs it (Debian: apt-get install prometheus)")
    });
    let mut input = child.stdin.take().unwrap();
    input.write_all(metrics.as_bytes()).unwrap();
    drop(input);
    let output = output(child, "promtool check metrics");
    let reported = [&output.stdout[..], &output.stderr[..]].concat();
    let reported = String::from_utf8_lossy(&reported);
    assert!(output.status.success() && reported.is_empty(), "{reported}\n{metrics}");
}

/// Runs promtool and asserts that it succeeds.
#[track_caller]
pub(crate) fn run(arguments: &[&str]) {
    let output = Command::new("promtool").args(arguments).finish();
    let reported = [&output.stdout[..], &output.stderr[..]].concat();
    let reported = String::from_utf8_lossy(&reported);
    // It only warns about duplicate rules.
    let doubted = reported.contains("duplicate rule");
    assert!(output.status.success() && !doubted, "{arguments:?}\n{reported}");
}
