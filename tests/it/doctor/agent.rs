//! A node with an agent: the layout according to the agent, the last layout after its exit, and a lost GPU.

use std::fs;
use std::process::Output;

use octavo_node::doctor::CheckResult::{Failing, NotApplicable, Ok as Fine, Warning};

use super::{Diagnosis, octavo};
use crate::node::Node;
use crate::time_limits::Finish;

const TWO: &str = "- {board: A100_40GB, count: 2, mig: enabled}\n";

fn doctor(node: &Node, more: &[&str]) -> Output {
    let mut command = octavo(&["doctor"]);
    let path = node.machine.path();
    command.arg("--nvml-library").arg(node.machine.library());
    for (flag, place) in [
        ("--sys-root", path.join("sys")),
        ("--proc-root", path.join("proc")),
        ("--kubelet-root", path.join("no-kubelet")),
        ("--state-dir", node.state()),
    ] {
        command.arg(flag).arg(place);
    }
    command.args(more).finish()
}

#[track_caller]
fn diagnosis(node: &Node) -> Diagnosis {
    Diagnosis::of(&doctor(node, &["-o", "json"]))
}

/// The agent writes its log before it answers queries, so a following query sees the state.
#[track_caller]
fn await_layout(node: &Node, text: &str) {
    let reported = || diagnosis(node).only("layout").evidence.clone();
    assert!((0..200).any(|_| reported().contains(text)), "{}", reported());
}

#[test]
fn doctor_reports_layout_from_agent_and_from_state_after_its_exit() {
    let node = Node::new(TWO);
    let untouched = diagnosis(&node);
    untouched.expect_finding("layout", NotApplicable, "no agent or command has changed devices");
    let mut agent = node.start(&["--layout", "all-3g.20gb"]);
    agent.expect_log("GPU 1: applied");
    await_layout(&node, "layout all-3g.20gb is applied");
    diagnosis(&node).expect_finding("layout", Fine, "layout all-3g.20gb is applied");
    agent.kill();
    let left = diagnosis(&node);
    left.expect_finding("layout", Fine, "no agent responds; result of the last change");
    fs::write(node.state().join("journal"), "{}").unwrap();
    diagnosis(&node).expect_finding("layout", Warning, "cannot read the journal");
}

#[test]
fn infeasible_layout_fails_with_reason() {
    let node = Node::new("- {board: A100_80GB, mig: enabled}\n");
    let layouts = node.layouts("[{devices: all, mig: {3g.40gb: 2, 1g.10gb: 1}}]");
    let mut agent = node.start(&["--layouts", &layouts, "--layout", "wanted"]);
    agent.expect_log("GPU 0: infeasible");
    await_layout(&node, "infeasible");
    let reported = diagnosis(&node);
    reported.expect_finding("layout", Failing, "the GPU has 8");
    assert_eq!(reported.code, Some(1));
}

#[test]
fn gpu_off_the_bus_fails_and_the_other_is_healthy() {
    let node = Node::new("- {board: A100_40GB, count: 2}\n");
    let before = diagnosis(&node);
    for finding in before.of_check("device-health") {
        assert_eq!(finding.verdict, Fine, "{finding:?}");
    }
    node.machine.change(|world| {
        world.gpus[0].lost = true;
        Ok(())
    });
    let reported = diagnosis(&node);
    assert_eq!(reported.code, Some(1));
    let health = reported.of_check("device-health");
    assert_eq!(health.len(), 2, "{health:#?}");
    let lost: Vec<_> = health.iter().filter(|one| one.verdict == Failing).collect();
    assert_eq!(lost.len(), 1, "{health:#?}");
    assert!(lost[0].evidence.contains("GPU is lost (15)"), "{lost:#?}");
    assert!(lost[0].remedy.as_ref().unwrap().contains("reboot"), "{lost:#?}");
    let bound = reported.of_check("kernel-driver");
    let bound = bound.iter().find(|one| one.subject == lost[0].subject);
    assert!(bound.unwrap().evidence.contains("lists it"), "{bound:?}");
    let table = doctor(&node, &[]);
    let table = String::from_utf8(table.stdout).unwrap();
    let table = table.split_whitespace().collect::<Vec<&str>>().join(" ");
    assert!(table.contains(" Start with device-health. "), "{table}");
}
