//! Layout files and the state directory.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::node::{Node, names};
use crate::problem::Problem;
use crate::time_limits::Finish;

const ONE: &str = "- {board: A100_40GB, mig: enabled}\n";
const MISTAKE: &str = "[{devices: all, migg: {7g.40gb: 1}}]";

#[test]
fn edited_file_is_used_without_restart() {
    let problem = Problem::documented("pain_07");
    let node = Node::new(ONE);
    let file = node.layouts("[{devices: all, mig: {3g.20gb: 2}}]");
    let mut agent = node.start(&["--layouts", &file, "--layout=wanted", "--interval=100ms"]);
    agent.expect_log("GPU 0: applied");
    node.layouts("[{devices: all, mig: {7g.40gb: 1}}]");
    problem.await_log(&mut agent);
    assert_eq!(names(&node.geometry(0)), ["7g.40gb"]);
}

#[test]
fn error_in_edited_file_is_located_and_previous_file_stays_in_use() {
    let problem = Problem::documented("file_broken");
    let node = Node::new(ONE);
    let file = node.layouts("[{devices: all, mig: {3g.20gb: 2}}]");
    let mut agent = node.start(&["--layouts", &file, "--layout=wanted", "--interval=100ms"]);
    agent.expect_log("GPU 0: applied");
    node.layouts(MISTAKE);
    problem.await_log(&mut agent);
    assert_eq!(names(&node.geometry(0)), ["3g.20gb", "3g.20gb"]);
    let checked =
        Command::new(env!("CARGO_BIN_EXE_octavo")).args(["layouts", "check", &file]).finish();
    problem.assert_quoted(
        "octavo layouts check",
        &String::from_utf8([checked.stdout, checked.stderr].concat()).unwrap(),
    );
}

#[test]
fn agent_starts_with_invalid_file_and_reads_the_repaired_one() {
    let problem = Problem::documented("file_broken_at_the_start");
    let node = Node::new(ONE);
    let file = node.layouts(MISTAKE);
    let arguments = ["--layouts", &file, "--layout=wanted", "--interval=100ms"];
    let mut agent = node.start(&arguments);
    problem.await_log(&mut agent);
    node.layouts("[{devices: all, mig: {3g.20gb: 2}}]");
    agent.expect_log("GPU 0: applied");
    // A oneshot agent cannot wait for the correction.
    node.layouts(MISTAKE);
    let once = node.agent(&["--oneshot", "--layouts", &file]).finish();
    assert!(!once.status.success(), "{once:?}");
}

#[test]
fn second_agent_on_machine_waits_for_first() {
    let problem = Problem::documented("two_agents_of_a_machine");
    let node = Node::new(ONE);
    let mut first = node.start(&["--layout=all-3g.20gb"]);
    first.expect_log("GPU 0: applied");
    let mut second = node.start(&["--layout=all-7g.40gb", "--interval=100ms"]);
    problem.await_log(&mut second);
    assert_eq!(names(&node.geometry(0)), ["3g.20gb", "3g.20gb"]);
}

#[test]
fn state_directory_writable_by_others_is_not_used() {
    let problem = Problem::documented("state_directory_open");
    let node = Node::new(ONE);
    fs::create_dir_all(node.state()).unwrap();
    fs::set_permissions(node.state(), fs::Permissions::from_mode(0o777)).unwrap();
    problem.assert_quoted("log", &node.apply_once_failing("all-7g.40gb"));
    assert!(node.geometry(0).is_empty());
}

#[test]
fn nothing_changes_without_space_for_the_journal() {
    let problem = Problem::documented("journal_not_written");
    let node = Node::new(ONE);
    // Replaces the draft by a directory: even root cannot write there, as on a full disk.
    fs::create_dir_all(node.state().join("journal.draft")).unwrap();
    problem.assert_quoted("log", &node.apply_once_failing("all-7g.40gb"));
    assert!(node.geometry(0).is_empty());
}
