//! `octavo apply`, `history`, `checkpoint` and `restore`, with an agent and without one.

use crate::node::{Node, names};
use crate::time_limits::Finish;

const USED: &str = "- {board: A100_40GB, count: 2, mig: enabled, instances: [{profile: 3g.20gb, start: 0}, {profile: 1g.5gb, start: 4}]}\nprocesses:\n- {pid: 4711, gpu: 1, gi: 1, ci: 0, memory_mib: 100}\n";

#[track_caller]
pub(super) fn reported(output: &std::process::Output, code: i32) -> String {
    let all = [output.stdout.clone(), output.stderr.clone()].concat();
    let text = String::from_utf8(all).unwrap();
    assert_eq!(output.status.code(), Some(code), "{text}");
    text
}

#[test]
fn apply_without_agent_applies_once_and_reports_blockers() {
    let node = Node::new(USED);
    let text = reported(&node.octavo(&["apply", "all-2g.10gb"]), 4);
    assert!(text.contains("GPU 0") && text.contains("applied"), "{text}");
    assert!(
        text.contains(
            "gi 1 (3g.20gb in slices 0-3) must be removed but is in use: pid 4711, compute"
        ),
        "{text}"
    );
    assert_eq!(names(&node.geometry(0)), ["2g.10gb"; 3]);
    assert_eq!(names(&node.geometry(1)), ["3g.20gb", "1g.5gb"]);
    let history = std::process::Command::new(env!("CARGO_BIN_EXE_octavo"))
        .args(["history", "--state-dir"])
        .arg(node.state())
        .finish();
    let history = reported(&history, 0);
    assert!(history.contains("all-2g.10gb") && history.contains("command"), "{history}");
    // The other GPU was unchanged, so the history does not mention it.
    assert_eq!(history.lines().count(), 2, "{history}");
}

#[test]
fn node_with_lost_gpu_selected_by_layout_is_not_complete() {
    let two = "- {board: A100_40GB, count: 2, mig: enabled}\n";
    for (rules, lost) in [
        ("[{devices: all, mig: {3g.20gb: 2}}]", 1),
        ("[{devices: [0], mig: {3g.20gb: 2}}, {devices: [1], mig: {3g.20gb: 2}}]", 0),
        ("[{devices: all, timeSlicing: {replicas: 2}}]", 0),
    ] {
        let node = Node::new(two);
        let file = node.layouts(rules);
        let slot = node.machine.world().slot_of_index(lost).unwrap();
        node.machine.change(|world| world.lose_gpu(slot));
        let apply = reported(&node.octavo(&["apply", "wanted", "-f", &file]), 1);
        assert!(apply.contains("1 applied") && apply.contains("1 failed"), "{rules}: {apply}");
        let healthy = usize::from(lost == 0);
        if !rules.contains("timeSlicing") {
            assert_eq!(names(&node.geometry(healthy)), ["3g.20gb", "3g.20gb"]);
        }
        for (command, code) in [("plan", 4), ("assert", 3)] {
            let output = node.run_read_only(&[command, "wanted", "-f", &file]);
            let text = reported(&output, code);
            assert!(text.contains("GPU is lost"), "{rules}: {text}");
            assert!(!text.contains("never changed"), "{rules}: {text}");
        }
    }
}

#[test]
fn apply_with_wait_completes_when_blocker_exits() {
    let node = Node::new(USED);
    let waiting = std::thread::scope(|scope| {
        let command = scope.spawn(|| node.octavo(&["apply", "all-2g.10gb", "--wait"]));
        node.await_geometry(0, &["2g.10gb"; 3]);
        node.machine.change(|world| world.remove_process(4711));
        command.join().unwrap()
    });
    let text = reported(&waiting, 0);
    assert!(text.contains("Layout all-2g.10gb: applied on 2 GPUs"), "{text}");
    assert_eq!(names(&node.geometry(1)), ["2g.10gb"; 3]);
}

#[test]
fn agent_applies_layout_and_retains_it_until_forgotten() {
    let node = Node::new("- {board: A100_40GB, mig: enabled}\n");
    let mut agent = node.start(&["--layout", "all-balanced", "--interval=100ms"]);
    agent.expect_log("listening for commands");
    let text = reported(&node.octavo(&["apply", "all-7g.40gb"]), 0);
    assert!(text.contains("Layout all-7g.40gb: applied on 1 GPU"), "{text}");
    assert_eq!(names(&node.geometry(0)), ["7g.40gb"]);
    let refused = reported(&node.octavo(&["apply", "nonsense"]), 1);
    assert!(refused.contains("no layout \"nonsense\""), "{refused}");
    let locked = reported(&node.octavo(&["restore", "/dev/null"]), 1);
    assert!(locked.contains("checkpoint"), "{locked}");
    // A new agent remembers the manual choice.
    agent.kill();
    node.machine.change(|world| world.reset_gpu(world.slot_of_index(0).unwrap()));
    let mut agent = node.start(&["--layout", "all-balanced", "--interval=100ms"]);
    agent.expect_log("GPU 0: applied");
    assert_eq!(names(&node.geometry(0)), ["7g.40gb"]);
    agent.expect_log("listening for commands");
    reported(&node.octavo(&["apply", "--forget"]), 0);
    assert_eq!(names(&node.geometry(0)).len(), 4);
}

#[test]
fn agent_uses_layout_file_sent_with_the_command() {
    let node = Node::new("- {board: A100_40GB, count: 2, mig: enabled}\n");
    let mut agent = node.start(&["--layout", "all-balanced", "--interval=100ms"]);
    agent.expect_log("listening for commands");
    let file = node.layouts("[{devices: [0], mig: {1g.5gb: 3}}]");
    let text = reported(&node.octavo(&["apply", "wanted", "-f", &file]), 0);
    assert!(text.contains("applied on 1 GPU"), "{text}");
    assert_eq!(names(&node.geometry(0)), ["1g.5gb"; 3]);
    assert_eq!(names(&node.geometry(1)).len(), 4, "I2: a GPU without a rule was changed");
}

#[test]
fn i4_layout_infeasible_on_one_gpu_changes_none() {
    let node = Node::new("- {board: A100_40GB, mig: enabled}\n- {board: T4}\n");
    let file =
        node.layouts("[{devices: [0], mig: {3g.20gb: 1}}, {devices: [1], mig: {3g.20gb: 1}}]");
    reported(&node.octavo(&["apply", "wanted", "-f", &file]), 5);
    assert!(node.geometry(0).is_empty());
}

#[test]
fn checkpoint_restores_every_placement() {
    let node = Node::new(
        "- {board: A100_40GB, mig: enabled, instances: [{profile: 1g.5gb, start: 6}, {profile: 2g.10gb, start: 2}, {profile: 1g.5gb, start: 0}]}\n",
    );
    let before = node.geometry(0);
    let file = node.machine.path().join("before.json");
    let file = file.to_str().unwrap();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_octavo"))
        .args(["checkpoint", file, "--nvml-library"])
        .arg(node.machine.library())
        .arg("--sys-root")
        .arg(node.machine.path().join("sys"))
        .finish();
    reported(&output, 0);
    reported(&node.octavo(&["apply", "all-7g.40gb"]), 0);
    assert_eq!(names(&node.geometry(0)), ["7g.40gb"]);
    reported(&node.octavo(&["restore", file]), 0);
    assert_eq!(node.geometry(0), before);
    // The agent retains the restored state until it is forgotten.
    let mut agent = node.start(&["--layout", "all-7g.40gb", "--interval=100ms"]);
    agent.expect_log("GPU 0: applied");
    agent.expect_log("listening for commands");
    let text = reported(&node.octavo(&["restore", file]), 0);
    assert!(text.contains("Layout (checkpoint): applied on 1 GPU"), "{text}");
    assert_eq!(node.geometry(0), before);
    reported(&node.octavo(&["apply", "--forget"]), 0);
    assert_eq!(names(&node.geometry(0)), ["7g.40gb"]);
}
