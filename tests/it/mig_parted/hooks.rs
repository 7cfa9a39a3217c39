//! Hooks run at the same steps as NVIDIA's, with the same input and with a time limit.

use std::fs;
use std::time::{Duration, Instant};

use super::node::{CommandResult, Node};

const GPU: &str = "  - {board: A100_40GB}\n";
const RULES: &str = "  - {devices: all, mig-enabled: true, mig-devices: {3g.20gb: 2}}\n";

/// Each step logs its name and its environment to `log`.
fn logging(node: &Node) -> String {
    let directory = node.machine.path().display();
    let moments = ["apply-start", "pre-apply-mode", "pre-apply-config", "apply-exit"];
    let hooks = moments.map(|moment| {
        format!(
            "  {moment}:\n  - command: /bin/sh\n    workdir: {directory}\n    envs: {{PATH: '/usr/bin:/bin', MINE: {moment}, MIG_PARTED_HOOKS_FILE: overlaid}}\n    args: [-c, 'echo \"== $MINE\" >> log; env | grep -v -e PWD -e SHLVL -e ^_= | sort >> log']\n"
        )
    });
    let text = format!("version: v1\nhooks:\n{}", hooks.concat());
    node.file("hooks.yaml", &text)
}

fn moments(node: &Node) -> Vec<String> {
    let log = fs::read_to_string(node.path("log")).unwrap_or_default();
    let names = log.lines().filter_map(|line| line.strip_prefix("== "));
    names.map(str::to_owned).collect()
}

#[test]
fn hooks_run_in_order_and_environment_of_nvidia_mig_parted() {
    for (gpus, verb, flags, expected) in [
        (
            GPU,
            "apply",
            &[][..],
            &["apply-start", "pre-apply-mode", "pre-apply-config", "apply-exit"][..],
        ),
        (GPU, "apply", &["-m"], &["apply-start", "pre-apply-mode", "apply-exit"]),
        (
            "  - {board: A100_40GB, mig: enabled}\n",
            "apply",
            &["-s"],
            &["apply-start", "pre-apply-config", "apply-exit"],
        ),
        (
            "  - {board: A100_40GB, mig: enabled, instances: [{profile: 3g.20gb, count: 2}]}\n",
            "apply",
            &["--selected-config", "wanted"],
            &["apply-start", "apply-exit"],
        ),
    ] {
        let node = Node::new(gpus);
        let (config, hooks) = (node.config(RULES), logging(&node));
        let arguments = [&[verb, "-f", &config, "-k", &hooks], flags].concat();
        let logs = [Node::theirs, Node::ours].map(|who| {
            let node = &node;
            let _not_there_yet = fs::remove_file(node.path("log"));
            // The second program starts from the same state.
            let before = node.machine.world();
            who(node, &arguments).expect_code(0);
            let seen = moments(node);
            assert_eq!(seen, expected);
            node.machine.change(|world| {
                world.gpus.clone_from(&before.gpus);
                Ok(())
            });
            fs::read_to_string(node.path("log")).unwrap()
        });
        assert_eq!(logs[0], logs[1]);
        assert!(logs[1].contains("\nMIG_PARTED_SELECTED_CONFIG=wanted\n"));
        assert!(logs[1].contains(&format!("\nMIG_PARTED_HOOKS_FILE={hooks}\n")));
    }
}

fn with(node: &Node, hooks: &str, flags: &[&str]) -> CommandResult {
    let hooks = node.file("hooks.yaml", &format!("version: v1\nhooks:\n{hooks}"));
    let config = node.config(RULES);
    node.ours(&[&["apply", "-f", &config, "-k", &hooks], flags].concat())
}

const EXIT: &str = "  apply-exit: [{command: /bin/touch, args: [ended]}]\n";

#[test]
fn failing_hook_ends_run_with_its_output_and_exit_hook_still_runs() {
    for moment in ["apply-start", "pre-apply-mode"] {
        let node = Node::new(GPU);
        let failing = format!(
            "  {moment}: [{{command: sh, args: [-c, 'echo to one; echo to other >&2; exit 7']}}, {{command: /bin/touch, args: [went-on]}}]\n{EXIT}"
        );
        with(&node, &failing, &[])
            .expect_code(1)
            .expect_output(&format!("the {moment} hook sh failed: exit status: 7"))
            .expect_output("to one")
            .expect_output("to other");
        assert!(!node.path("went-on").exists());
        assert!(node.path("ended").exists());
        assert!(!node.geometry()[0].mode);
    }
}

#[test]
fn failing_hook_before_partitioning_leaves_partitions_unchanged() {
    let node = Node::new("  - {board: A100_40GB, mig: enabled, instances: [{profile: 1g.5gb}]}\n");
    let before = node.serials(0);
    let failing = format!("  pre-apply-config: [{{command: /bin/false}}]\n{EXIT}");
    with(&node, &failing, &[]).expect_code(1);
    assert_eq!(node.serials(0), before);
    assert!(node.path("ended").exists());
}

#[test]
fn failing_exit_hook_fails_the_run_after_the_change() {
    let node = Node::new(GPU);
    let ran = with(&node, "  apply-exit: [{command: /bin/false}]\n", &[]).expect_code(1);
    assert_eq!(ran.out, "");
    assert_eq!(node.serials(0).len(), 2);
}

#[test]
fn hanging_hook_is_killed_with_its_children() {
    let node = Node::new(GPU);
    let hanging =
        format!("  apply-start: [{{command: /bin/sh, args: [-c, 'sleep 600 & wait']}}]\n{EXIT}");
    let began = Instant::now();
    with(&node, &hanging, &["--hook-timeout", "300ms"])
        .expect_code(1)
        .expect_output("did not exit within")
        .expect_output("--hook-timeout");
    assert!(began.elapsed() < Duration::from_mins(2));
    assert!(node.path("ended").exists());
    assert!(!node.geometry()[0].mode);
}

#[test]
fn output_of_hooks_is_shown_only_with_debug() {
    let node = Node::new(GPU);
    let talking = "  apply-start: [{command: /bin/echo, args: [hello there]}]\n";
    let ran = with(&node, talking, &[]).expect_code(0);
    assert!(!ran.out.contains("hello") && !ran.err.contains("hello"), "{ran:?}");
    with(&node, talking, &["-d"])
        .expect_code(0)
        .expect_output("hello there\n")
        .expect_output("Running apply-start hook");
}

#[test]
fn hook_that_would_never_run_is_an_error_and_nothing_changes() {
    for hooks in ["  pre-aply-mode: []\n", "  apply-exit: [{comand: x}]\n"] {
        let node = Node::new(GPU);
        with(&node, hooks, &[]).expect_code(1).expect_output("cannot use the hooks in");
        assert!(!node.geometry()[0].mode);
    }
}
