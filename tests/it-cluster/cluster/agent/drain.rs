//! Eviction of pods that block a layout: the Node is tainted before it, and the taint is always removed afterwards.

mod site;

use octavo_kube::evict::Evictor;
use octavo_node::node_object::drain::{EvictionResult, PodId, PodRequests};
use serde_json::{Value, json};

use self::site::Site;
use crate::cluster::Api;
use crate::cluster::policies::rig::{aggregator, install, policy};
use crate::node::names;
use crate::process::Program;
use crate::time_limits::{Finish, until};

const LAYOUT: &str = "octavo.dev/layout=all-7g.40gb";
const AFFECTED: &str = "--drain=affected";

/// A drain that waits for a disruption budget, with its agent.
fn held_up(arguments: &[&str]) -> (Site<'static>, Program) {
    let site = Site::new();
    site.pod("notebook-7");
    site.holds("notebook-7", 1);
    site.protect("notebook-7");
    site.rig.label(&[LAYOUT]);
    let arguments = [&[AFFECTED], arguments].concat();
    let mut agent = site.rig.start(&arguments);
    site.await_taint(&mut agent, true);
    (site, agent)
}

#[test]
fn only_blocking_pods_are_evicted_after_taint_and_cordon_stays() {
    let site = Site::new();
    site.rig.api.kubectl(&["cordon", site.rig.name()]);
    site.pod("notebook-7");
    site.pod("other");
    site.holds("notebook-7", 1);
    site.rig.label(&[LAYOUT]);
    let mut agent = site.rig.start(&[AFFECTED]);
    let name = site.full("notebook-7");
    agent.expect_log(&format!("pod evicted pod={name}"));
    let waits = json!([{"pod": name, "reason": "is terminating"}]);
    let drain = json!({"policy": "affected", "phase": "emptying", "waitsFor": waits});
    site.await_drain(&mut agent, &drain);
    assert!(site.is_tainted());
    // Unused devices are changed meanwhile.
    site.rig.machine.await_geometry(0, &["7g.40gb"]);
    assert_eq!(names(&site.rig.machine.geometry(1)), ["3g.20gb", "3g.20gb"]);
    site.end("notebook-7");
    agent.expect_log("GPU 1: applied");
    site.await_taint(&mut agent, false);
    assert_eq!(names(&site.rig.machine.geometry(1)), ["7g.40gb"]);
    assert!(site.stays("other"));
    assert_eq!(site.rig.get()["spec"]["unschedulable"], true);
    assert_eq!(site.evictions(), [("notebook-7".to_owned(), 201)]);
    assert_eq!(site.rig.status()["drain"], Value::Null);
    let events = site.rig.api.audit();
    let first = |what: &dyn Fn(&str) -> bool| {
        let uri = |event: &Value| event["requestURI"].as_str().unwrap_or_default().to_owned();
        events.iter().position(|event| what(&uri(event))).unwrap()
    };
    // Requests of this form write only taints if the agent pauses no operand.
    let node = format!("/nodes/{}?", site.rig.name());
    let tainted = first(&|uri| uri.contains(&node) && uri.contains("octavo-agent-operands"));
    let evicted = first(&|uri| uri.contains(&site.namespace) && uri.contains("/eviction"));
    assert!(tainted < evicted);
    site.rig.await_event("DrainBegan");
    site.rig.await_event("DrainEnded");
}

#[test]
fn node_drain_evicts_every_evictable_pod_if_one_blocks() {
    let site = Site::new();
    site.pod("notebook-7");
    site.pod("other");
    site.make("alone", &json!([]));
    site.holds("notebook-7", 1);
    site.rig.label(&[LAYOUT]);
    let mut agent = site.rig.start(&["--drain=node"]);
    agent.expect_log(&format!("pod evicted pod={}", site.full("notebook-7")));
    agent.expect_log(&format!("pod evicted pod={}", site.full("other")));
    assert!(site.stays("alone"));
    site.end("notebook-7");
    agent.expect_log("GPU 1: applied");
    site.await_taint(&mut agent, false);
    assert!(site.stays("alone"));
    let mut evicted: Vec<String> = site.evictions().into_iter().map(|(pod, _)| pod).collect();
    evicted.sort();
    assert_eq!(evicted, ["notebook-7", "other"]);
}

#[test]
fn default_policy_evicts_no_pod_and_writes_no_taint() {
    let site = Site::new();
    site.pod("notebook-7");
    site.holds("notebook-7", 1);
    site.rig.label(&[LAYOUT]);
    let _agent = site.rig.start(&[]);
    site.rig.await_event("LayoutBlocked");
    assert!(!site.is_tainted() && site.evictions().is_empty());
}

#[test]
fn unsatisfied_disruption_budget_ends_drain_with_pod_name_and_no_taint() {
    let (site, mut agent) = held_up(&["--drain-deadline=10s"]);
    let because =
        format!("pod {}: its PodDisruptionBudget allows no eviction", site.full("notebook-7"));
    let shown = site.rig.await_event("DrainGaveUp");
    assert!(shown.contains(&because), "{shown}");
    site.await_taint(&mut agent, false);
    let waits = json!([{"pod": site.full("notebook-7"), "reason": "its PodDisruptionBudget allows no eviction"}]);
    let drain = json!({"policy": "affected", "phase": "gave-up", "waitsFor": waits});
    site.await_drain(&mut agent, &drain);
    site.rig.await_label("octavo.dev/layout-state", "blocked");
    let status = site.rig.status();
    let message = status["devices"][1]["message"].as_str().unwrap();
    assert!(message.contains(&site.full("notebook-7")), "{message}");
    assert!(site.stays("notebook-7"));
    assert!(site.evictions().iter().all(|(_, code)| *code == 429));
    // The budget is deleted, and the same layout is selected again.
    site.rig.api.kubectl(&["delete", "pdb", "notebook-7", "-n", &site.namespace]);
    site.rig.label(&["octavo.dev/layout-"]);
    site.await_status(&mut agent, "layout", &Value::Null);
    site.rig.label(&[LAYOUT]);
    agent.expect_log(&format!("pod evicted pod={}", site.full("notebook-7")));
    site.end("notebook-7");
    agent.expect_log("GPU 1: applied");
    site.await_taint(&mut agent, false);
}

#[test]
fn drain_continues_when_disruption_budget_allows_eviction() {
    let (site, mut agent) = held_up(&[]);
    let waits = json!([{"pod": site.full("notebook-7"), "reason": "its PodDisruptionBudget allows no eviction"}]);
    let drain = json!({"policy": "affected", "phase": "emptying", "waitsFor": waits});
    site.await_drain(&mut agent, &drain);
    site.rig.api.kubectl(&["delete", "pdb", "notebook-7", "-n", &site.namespace]);
    agent.expect_log(&format!("pod evicted pod={}", site.full("notebook-7")));
    site.end("notebook-7");
    agent.expect_log("GPU 1: applied");
    site.await_taint(&mut agent, false);
}

#[test]
fn withdrawn_layout_removes_drain_taint() {
    let (site, mut agent) = held_up(&[]);
    site.rig.label(&["octavo.dev/layout-"]);
    site.await_taint(&mut agent, false);
    assert!(site.stays("notebook-7"));
}

#[test]
fn i11_next_agent_removes_drain_taint_of_killed_agent() {
    let (site, mut agent) = held_up(&[]);
    agent.kill();
    assert!(site.is_tainted());
    let mut agent = site.rig.start(&[]);
    site.await_taint(&mut agent, false);
    assert!(site.stays("notebook-7"));
}

#[test]
fn i11_cleanup_removes_drain_taint() {
    let (site, mut agent) = held_up(&[]);
    agent.kill();
    assert!(site.is_tainted());
    let arguments = ["--label-sink=node", "--cleanup"];
    let output = site.rig.agent(&arguments).finish();
    assert!(output.status.success(), "{output:?}");
    assert!(!site.is_tainted());
}

#[test]
fn i11_agent_terminated_during_drain_leaves_no_taint() {
    let (site, agent) = held_up(&[]);
    assert!(agent.stop().success());
    assert!(!site.is_tainted());
    assert!(site.stays("notebook-7"));
}

#[test]
fn drain_is_refused_and_names_the_blocker_that_cannot_be_evicted() {
    for daemon in [true, false] {
        let site = Site::new();
        site.pod("notebook-7");
        site.holds("notebook-7", 1);
        let (staying, reason) = if daemon {
            (site.daemon(), "it belongs to a DaemonSet")
        } else {
            site.make("alone", &json!([]));
            ("alone".to_owned(), "it has no controller")
        };
        site.holds(&staying, 1);
        site.rig.label(&[LAYOUT]);
        let _agent = site.rig.start(&["--drain=node"]);
        let shown = site.rig.await_event("DrainRefused");
        let named = format!("pod {}: {reason}", site.full(&staying));
        assert!(shown.contains(&named), "{shown}");
        assert!(!site.is_tainted() && site.evictions().is_empty());
    }
}

#[test]
fn missing_permission_to_list_pods_is_reported_with_remedy() {
    for is_flag in [true, false] {
        let site = Site::new();
        site.pod("notebook-7");
        site.holds("notebook-7", 1);
        site.rig.label(&[LAYOUT]);
        let bearer = site.rig.api.kubeconfig_with_token(&site.token());
        let kubeconfig = bearer.path().display().to_string();
        let mut command = site.rig.machine.agent(&["--label-sink=node", "--interval=200ms"]);
        command.args(["--kubeconfig", &kubeconfig, "--node-name", site.rig.name()]);
        if is_flag {
            command.arg(AFFECTED);
        } else {
            let annotation = "octavo.dev/drain=affected";
            site.rig.api.kubectl(&["annotate", "node", site.rig.name(), annotation]);
        }
        let _agent = Program::start(&mut command);
        let shown = site.rig.await_event("DrainRefused");
        assert!(shown.contains("kubectl apply -k deploy/options/drain"), "{shown}");
        assert!(!site.is_tainted() && site.evictions().is_empty());
    }
}

#[test]
fn p5_drain_of_a_policy_replaces_the_settings_of_the_agent() {
    let api = Api::fresh();
    install(&api);
    api.kubectl(&["create", "namespace", "octavo-system"]);
    let site = Site::at(&api);
    // Without a controller of accounts, pods have none.
    api.kubectl(&["create", "serviceaccount", "default", "-n", &site.namespace]);
    site.pod("notebook-7");
    site.holds("notebook-7", 1);
    site.rig.label(&["pool=a"]);
    let mut agent = site.rig.start(&[]);
    let _aggregator = aggregator(api.kubeconfig(), &[]);
    let spec = json!({
        "nodeSelector": {"matchLabels": {"pool": "a"}},
        "layout": "all-7g.40gb",
        "drain": {"scope": "affected"},
    });
    api.apply(&policy("a", &spec).to_string());
    agent.expect_log(&format!("pod evicted pod={}", site.full("notebook-7")));
    let drain = || site.rig.get()["metadata"]["annotations"]["octavo.dev/drain"].clone();
    assert_eq!(drain(), "affected,10m");
    site.end("notebook-7");
    agent.expect_log("GPU 1: applied");
    site.await_taint(&mut agent, false);
    api.kubectl(&["delete", "acceleratorpolicy", "a"]);
    until("a node without the annotation", drain, Value::is_null);
    // An administrator's value is invalid: the agent's own settings apply again.
    api.kubectl(&["annotate", "node", site.rig.name(), "octavo.dev/drain=all"]);
    site.rig.label(&["octavo.dev/layout=all-3g.20gb"]);
    let shown = site.rig.await_event("DrainRefused");
    assert!(shown.contains(r#"octavo.dev/drain="all" is ignored"#), "{shown}");
}

/// The API server's response to the eviction of exactly this pod.
async fn requested(site: &Site<'_>, id: PodId) -> EvictionResult {
    let node = site.rig.name().parse().unwrap();
    let (handle, evictor) = Evictor::new(site.rig.api.client(), &node);
    let evictor = tokio::spawn(evictor.run());
    handle.set(PodRequests { list: None, evict: vec![id.clone()] });
    let mut received = handle.observed.clone();
    let received = received.wait_for(|received| received.answers.contains_key(&id));
    let answer = received.await.unwrap().answers[&id].clone();
    drop(handle);
    evictor.await.unwrap();
    answer
}

#[tokio::test]
async fn recreated_pod_is_not_evicted_and_two_budgets_are_reported() {
    let site = Site::new();
    site.pod("notebook-7");
    let id = |uid: &str| PodId {
        namespace: site.namespace.clone(),
        name: "notebook-7".to_owned(),
        uid: uid.to_owned(),
    };
    let before = id("another-one");
    assert_eq!(requested(&site, before).await, EvictionResult::Gone);
    assert!(site.stays("notebook-7"));
    let missing = PodId { name: "nobody".to_owned(), ..id("x") };
    assert_eq!(requested(&site, missing).await, EvictionResult::Gone);
    let uid = site.get("pod", "notebook-7")["metadata"]["uid"].clone();
    let this = id(uid.as_str().unwrap());
    for budget in ["one", "another"] {
        site.rig.api.create(&json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": budget, "namespace": site.namespace},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "notebook-7"}}},
        }));
    }
    let EvictionResult::Refused(why) = requested(&site, this).await else {
        panic!("the eviction is allowed despite two budgets");
    };
    assert!(why.contains("more than one PodDisruptionBudget"), "{why}");
    assert!(site.stays("notebook-7"));
}
