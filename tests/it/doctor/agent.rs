//! A node with an agent: the layout as the agent says it, what one left that is gone, and a GPU that falls off the bus.

use std::fs;
use std::process::Output;

use octavo_documents::diagnosis::VerdictJson::{Failing, NotApplicable, Ok as Fine, Warning};

use super::{Diagnosis, octavo};
use crate::node::Node;
use crate::patience::Finish;

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

/// The agent says something in its log first, and then to whoever asks: the next time, or one soon after.
#[track_caller]
fn await_layout(node: &Node, text: &str) {
    let said = || diagnosis(node).only("layout").evidence.clone();
    assert!((0..200).any(|_| said().contains(text)), "{}", said());
}

#[test]
fn the_layout_stands_as_the_agent_says_and_as_it_was_left_when_that_is_gone() {
    let node = Node::new(TWO);
    let untouched = diagnosis(&node);
    untouched.says(
        "layout",
        NotApplicable,
        "no agent or command changed devices",
    );
    let mut agent = node.start(&["--layout", "all-3g.20gb"]);
    agent.says("GPU 1: applied");
    await_layout(&node, "layout all-3g.20gb is applied");
    diagnosis(&node).says("layout", Fine, "layout all-3g.20gb is applied");
    agent.kill();
    let left = diagnosis(&node);
    left.says("layout", Fine, "no agent answers; at the last change");
    fs::write(node.state().join("journal"), "{}").unwrap();
    diagnosis(&node).says("layout", Warning, "cannot read the journal");
}

#[test]
fn a_layout_that_can_never_be_fails_with_the_reason() {
    let node = Node::new("- {board: A100_80GB, mig: enabled}\n");
    let layouts = node.layouts("[{devices: all, mig: {3g.40gb: 2, 1g.10gb: 1}}]");
    let mut agent = node.start(&["--layouts", &layouts, "--layout", "wanted"]);
    agent.says("GPU 0: infeasible");
    await_layout(&node, "infeasible");
    let said = diagnosis(&node);
    said.says("layout", Failing, "the GPU has 8");
    assert_eq!(said.code, Some(1));
}

#[test]
fn a_gpu_that_fell_off_the_bus_fails_and_the_other_is_well() {
    let node = Node::new("- {board: A100_40GB, count: 2}\n");
    let before = diagnosis(&node);
    for finding in before.of_check("device-health") {
        assert_eq!(finding.verdict, Fine, "{finding:?}");
    }
    node.machine.change(|world| {
        world.gpus[0].lost = true;
        Ok(())
    });
    let said = diagnosis(&node);
    assert_eq!(said.code, Some(1));
    let health = said.of_check("device-health");
    assert_eq!(health.len(), 2, "{health:#?}");
    let lost: Vec<_> = health.iter().filter(|one| one.verdict == Failing).collect();
    assert_eq!(lost.len(), 1, "{health:#?}");
    assert!(lost[0].evidence.contains("GPU is lost (15)"), "{lost:#?}");
    assert!(
        lost[0].remedy.as_ref().unwrap().contains("reboot"),
        "{lost:#?}"
    );
    let bound = said.of_check("kernel-driver");
    let bound = bound.iter().find(|one| one.subject == lost[0].subject);
    assert!(bound.unwrap().evidence.contains("lists it"), "{bound:?}");
    let table = doctor(&node, &[]);
    let table = String::from_utf8(table.stdout).unwrap();
    let table = table.split_whitespace().collect::<Vec<&str>>().join(" ");
    assert!(table.ends_with("Begin with device-health."), "{table}");
}
