//! `octavo profiles list --watch` against an aggregator whose profiles are a file that changes.

use std::fs;
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::Watch;
use crate::process::Aggregator;
use crate::time_limits::{Finish, Lines, exit_status};

#[test]
fn watched_profiles_are_sent_when_they_change_and_when_they_are_deleted() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("profiles.yaml");
    let put = |text: &str| {
        let draft = directory.path().join("draft");
        fs::write(&draft, text).unwrap();
        fs::rename(draft, &path).unwrap();
    };
    let write = |names: &[&str]| {
        let profile = |name: &&str| {
            format!(
                "apiVersion: infrastructure.opendatahub.io/v1\nkind: HardwareProfile\nmetadata: {{name: {name}, namespace: a}}\n"
            )
        };
        let profiles: Vec<String> = names.iter().map(profile).collect();
        put(&profiles.join("---\n"));
    };
    write(&["large", "small"]);
    let aggregator = Aggregator::start(&["--plaintext", "--profiles", path.to_str().unwrap()]);
    let url = format!("http://{}", aggregator.http);
    let watch = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_octavo"));
        command.args(["profiles", "list", "--watch"]).args(more).env("OCTAVO_SERVER", &url);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = Lines::of(child.stdout.take().unwrap());
        Watch { child, lines }
    };
    let mut lines = watch(&["--no-headers"]);
    let notes = lines.child.stderr.take().unwrap();
    let mut notes = Lines::of(notes);
    assert_eq!(lines.line(), "a/large  -  unknown available");
    assert_eq!(lines.line(), "a/small  -  unknown available");
    let mut objects = watch(&["-o", "json"]);
    objects.expect_line("\"name\":\"small\"");
    write(&["large", "new"]);
    assert_eq!(lines.line(), "a/new  -  unknown available");
    assert_eq!(lines.line(), "a/small  deleted");
    let event: serde_json::Value = serde_json::from_str(&objects.expect_line("removed")).unwrap();
    assert_eq!(event["name"], "small");
    put("no profile at all");
    let note = notes.line();
    assert!(note.starts_with("note: ") && note.contains("profiles.yaml"), "{note}");
    write(&["large", "new"]);
    let note = notes.line();
    assert_eq!(note, "note: the output is up to date again");
    for watch in [&mut lines, &mut objects] {
        let pid = Pid::from_raw(i32::try_from(watch.child.id()).unwrap());
        kill(pid, Signal::SIGINT).unwrap();
        assert_eq!(exit_status(&mut watch.child).code(), Some(0));
    }
}

#[test]
fn profile_is_named_with_namespace_as_in_other_commands() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("profiles.yaml");
    let profile = |namespace: &str, name: &str| {
        format!(
            "apiVersion: infrastructure.opendatahub.io/v1\nkind: HardwareProfile\nmetadata: {{name: {name}, namespace: {namespace}}}\n"
        )
    };
    let all = [profile("a", "large"), profile("b", "large"), profile("b", "small")];
    fs::write(&path, all.join("---\n")).unwrap();
    let aggregator = Aggregator::start(&["--plaintext", "--profiles", path.to_str().unwrap()]);
    let url = format!("http://{}", aggregator.http);
    let octavo = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_octavo"))
            .args(arguments)
            .args(["--server", &url])
            .stdin(Stdio::null())
            .finish();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (code, shown, _) = octavo(&["profiles", "show", "b/large"]);
    assert_eq!(code, Some(0));
    assert!(
        shown.lines().next().is_some_and(|line| line.ends_with("b/large (hardware-profile)")),
        "{shown}"
    );
    let (code, _, wrong) = octavo(&["profiles", "show", "large"]);
    assert_eq!(code, Some(1));
    assert!(wrong.contains("several namespaces have a profile with this name: a, b"), "{wrong}");
    assert!(wrong.contains("try: specify --namespace, or use NAMESPACE/NAME"), "{wrong}");
    let (code, _, wrong) = octavo(&["profiles", "show", "b/large", "--namespace", "a"]);
    assert_eq!(code, Some(1));
    assert!(wrong.contains("hardware profile \"b/large\" not found"), "{wrong}");
    let (_, checked, _) = octavo(&["profiles", "check", "b/small", "-o", "name"]);
    assert_eq!(checked, "");
    let estimate = ["estimate", "decoding", "--parameters", "7B", "--profile", "b/large"];
    let (_, _, wrong) = octavo(&estimate);
    // It is found; its content is not relevant here.
    assert!(!wrong.contains("not found"), "{wrong}");
}
