//! Policies and real agents on simulated machines.

use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};

use super::rig::{install, is_applied, name};
use crate::cluster::Api;
use crate::cluster::agent::Rig;
use crate::node::names;
use crate::process::Aggregator;
use crate::time_limits::until;

const GPU: &str = "- {board: A100_40GB, count: 1, mig: enabled}\n";
/// Number of agents, and of the nodes that may be unavailable at the same time.
const AGENTS: usize = 20;
const BUDGET: usize = 2;

/// Waits until the roll-out of the first revision is complete. No more nodes than the budget are unavailable at any time.
fn await_roll_out(api: &Api) {
    let read = || {
        let get = |arguments: &[&str]| -> Value {
            let text = api.kubectl(&[&["get", "-o", "json"], arguments].concat());
            serde_json::from_str(&text).unwrap()
        };
        let nodes: Vec<Node> = serde_json::from_value(get(&["nodes"])["items"].take()).unwrap();
        let down: Vec<&str> = nodes.iter().filter(|node| !is_applied(node)).map(name).collect();
        assert!(down.len() <= BUDGET, "{down:?}");
        get(&["acceleratorpolicy", "a"])["status"].take()
    };
    // Each wave has its own limit of time.
    for applied in (0..=AGENTS).step_by(BUDGET) {
        until("the next wave", read, |status| {
            status["nodes"]["applied"].as_u64() >= Some(applied as u64)
        });
    }
    until("the end of the roll-out", read, |status| status["state"] == "Complete");
}

#[test]
fn p5_real_agents_apply_the_layouts_of_a_policy_and_an_infeasible_one_changes_nothing() {
    let api = Api::fresh();
    install(&api);
    api.kubectl(&["create", "namespace", "octavo-system"]);
    let rigs: Vec<Rig<'_>> = (0..AGENTS).map(|_| Rig::new(&api, GPU)).collect();
    let layouts = rigs[0].machine.layouts("[{devices: all, mig: {1g.5gb: 8}}]");
    let kubeconfig = format!("--kubeconfig={}", api.kubeconfig().display());
    let aggregator = Aggregator::start(&[
        "--plaintext",
        "--follow-cluster",
        "--policies",
        "--layouts",
        &layouts,
        &kubeconfig,
    ]);
    let url = format!("--aggregator=http://{}", aggregator.grpc);
    let mut agents = Vec::new();
    for rig in &rigs {
        rig.label(&["pool=a"]);
        agents.push(rig.start(&[&url, "--aggregator-plaintext"]));
    }
    let apply = |layout: &str, budget: &str| {
        let policy = json!({
            "apiVersion": "octavo.dev/v1alpha1", "kind": "AcceleratorPolicy", "metadata": {"name": "a"},
            "spec": {"nodeSelector": {"matchLabels": {"pool": "a"}}, "layout": layout, "rollout": {"maxUnavailable": budget}},
        });
        api.apply(&policy.to_string());
    };
    let state = || {
        let path =
            "-o=jsonpath={.status.state} {.metadata.generation} {.status.observedGeneration}";
        api.kubectl(&["get", "acceleratorpolicy", "a", path])
    };
    let await_state = |wanted: &str, generation: u32| {
        until(wanted, state, |text| *text == format!("{wanted} {generation} {generation}"));
    };
    apply("all-3g.20gb", "10%");
    await_roll_out(&api);
    for rig in &rigs {
        assert_eq!(names(&rig.machine.geometry(0)), ["3g.20gb", "3g.20gb"]);
    }
    apply("wanted", "10%");
    await_state("Refused", 2);
    let message = api.kubectl(&[
        "get",
        "acceleratorpolicy",
        "a",
        "-o=jsonpath={.status.conditions[?(@.type==\"Accepted\")].message}",
    ]);
    assert!(message.contains("layout wanted is infeasible on nvidia-a100-40gb"), "{message}");
    for rig in &rigs {
        assert_eq!(rig.labels("octavo.dev/layout")[0].1, "all-3g.20gb");
    }
    apply("all-1g.5gb", "100%");
    await_state("Complete", 3);
    for rig in &rigs {
        assert_eq!(names(&rig.machine.geometry(0)).len(), 7);
    }
    api.kubectl(&["delete", "acceleratorpolicy", "a"]);
    for rig in &rigs {
        until("a node without a layout", || rig.labels("octavo.dev/layout"), Vec::is_empty);
        assert_eq!(names(&rig.machine.geometry(0)).len(), 7);
    }
}
