//! A pool of Node objects, whose agents the test plays, and the aggregator.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use k8s_openapi::api::core::v1::Node;
use kube::Api as Client;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::cluster::Api;
use crate::process::Aggregator;
use crate::time_limits::{until, until_async};

pub(super) const LAYOUT: &str = "octavo.dev/layout";
pub(super) const RECORD: &str = "octavo.dev/policy";
const STATUS: &str = "octavo.dev/status";
/// Number of simultaneous requests of the test.
const REQUESTS: usize = 20;

/// An API server with the custom resource definition and nodes with the label `pool=a`.
pub(super) struct Pool {
    pub(super) api: Api,
    nodes: Client<Node>,
    /// Nodes whose layout fails.
    pub(super) failing: BTreeSet<String>,
    /// Largest number of nodes seen with a layout that was not applied.
    pub(super) largest: usize,
}

/// Installs the definition and waits until it is served.
pub(in crate::cluster) fn install(api: &Api) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("deploy/chart/octavo/files/acceleratorpolicies.yaml");
    api.apply(&fs::read_to_string(path).unwrap());
    api.await_definitions();
}

impl Pool {
    pub(super) async fn new(count: usize) -> Self {
        let api = Api::fresh();
        install(&api);
        api.kubectl(&["create", "namespace", "octavo-system"]);
        let nodes: Client<Node> = Client::all(api.client());
        let numbers: Vec<usize> = (0..count).collect();
        for some in numbers.chunks(REQUESTS) {
            let mut creating = JoinSet::new();
            for number in some {
                let (nodes, node) = (nodes.clone(), node(*number));
                creating.spawn(async move {
                    let node: Node = serde_json::from_value(node).unwrap();
                    let created = nodes.create(&PostParams::default(), &node).await.unwrap();
                    // Every new node gets a taint until a controller removes it, and there is none.
                    let patch = Patch::Merge(json!({"spec": {"taints": null}}));
                    nodes.patch(name(&created), &PatchParams::default(), &patch).await.unwrap();
                });
            }
            creating.join_all().await;
        }
        Self { api, nodes, failing: BTreeSet::new(), largest: 0 }
    }

    pub(super) fn aggregator(&self) -> Aggregator {
        aggregator(self.api.kubeconfig(), &[])
    }

    /// An aggregator with a ledger in this directory.
    pub(super) fn aggregator_with_ledger(&self, directory: &Path) -> Aggregator {
        let ledger = format!("--ledger=sqlite://{}", directory.join("ledger.db").display());
        aggregator(self.api.kubeconfig(), &[&ledger])
    }

    /// Creates or changes a policy.
    pub(super) fn apply(&self, name: &str, spec: &Value) {
        self.api.apply(&policy(name, spec).to_string());
    }

    pub(super) fn status(&self, name: &str) -> Value {
        let get = ["get", "acceleratorpolicy", name, "-o", "json"];
        let policy: Value = serde_json::from_str(&self.api.kubectl(&get)).unwrap();
        policy["status"].clone()
    }

    /// Waits for the state of a policy, while the nodes apply their layouts within this budget.
    pub(super) async fn await_state(&mut self, name: &str, state: &str, budget: usize) -> Value {
        self.await_status(name, budget, |status| status["state"] == state).await
    }

    /// Waits for the status of a policy, while the nodes apply their layouts within this budget. A state that ends by itself can
    /// be missed, because the controller continues while the nodes report.
    pub(super) async fn await_status(
        &mut self,
        name: &str,
        budget: usize,
        is_reached: impl Fn(&Value) -> bool,
    ) -> Value {
        let policies = self.api.client();
        let path = format!("/apis/octavo.dev/v1alpha1/acceleratorpolicies/{name}");
        let read = async || {
            self.act(budget, usize::MAX).await;
            let request = axum::http::Request::get(&path).body(Vec::new()).unwrap();
            let policy: Value = policies.request(request).await.unwrap();
            policy
        };
        let what = format!("the status of policy {name}");
        let is_reached = |policy: &Value| {
            let (generation, status) = (&policy["metadata"]["generation"], &policy["status"]);
            status["observedGeneration"] == *generation && is_reached(status)
        };
        until_async(&what, read, is_reached).await["status"].clone()
    }

    /// Waits until this number of nodes have a layout that is not applied. No node applies its layout meanwhile.
    pub(super) async fn await_unavailable(&self, count: usize) {
        let read = async || self.nodes().await.iter().filter(|node| !is_applied(node)).count();
        until_async("unavailable nodes", read, |unavailable| *unavailable == count).await;
    }

    /// Waits until the policy has events with all these reasons. The controller creates them after it has written the status.
    pub(super) fn await_events(&self, policy: &str, reasons: &[&str]) {
        let selector = format!("--field-selector=involvedObject.name={policy}");
        let get = ["get", "events", &selector, "-o=jsonpath={.items[*].reason}"];
        until(
            "events",
            || self.api.kubectl(&get),
            |events| reasons.iter().all(|reason| events.split(' ').any(|one| one == *reason)),
        );
    }

    pub(super) async fn nodes(&self) -> Vec<Node> {
        self.nodes.list(&ListParams::default()).await.unwrap().items
    }

    /// Lets at most this many agents report the chosen layout. Checks that no more nodes than the budget have a layout that is not
    /// applied: only this function applies layouts, so it sees every such node.
    pub(super) async fn act(&mut self, budget: usize, most: usize) {
        let all = self.nodes().await;
        let down: Vec<&Node> = all.iter().filter(|node| !is_applied(node)).collect();
        let names: Vec<&str> = down.iter().map(|node| name(node)).collect();
        assert!(down.len() <= budget, "{names:?} are unavailable, the budget is {budget}");
        self.largest = self.largest.max(down.len());
        let outdated = |node: &&Node| {
            let is_failed = report(node)["state"] == "failed" && !self.failing.contains(name(node));
            is_failed || report(node)["layout"].as_str() != label(node, LAYOUT)
        };
        let outdated: Vec<&Node> = all.iter().filter(outdated).take(most).collect();
        for some in outdated.chunks(REQUESTS) {
            let mut reporting = JoinSet::new();
            for node in some {
                let word = if self.failing.contains(name(node)) { "failed" } else { "applied" };
                let status = json!({"layout": label(node, LAYOUT), "state": word, "devices": []});
                let patch = json!({"metadata": {"annotations": {STATUS: status.to_string()}}});
                let (nodes, name) = (self.nodes.clone(), name(node).to_owned());
                reporting.spawn(async move {
                    nodes
                        .patch(&name, &PatchParams::default(), &Patch::Merge(patch))
                        .await
                        .unwrap();
                });
            }
            reporting.join_all().await;
        }
    }

    /// Names of the nodes with this layout.
    pub(super) async fn with_layout(&self, layout: &str) -> Vec<String> {
        let all = self.nodes().await;
        all.iter()
            .filter(|node| label(node, LAYOUT) == Some(layout))
            .map(|node| name(node).to_owned())
            .collect()
    }

    /// Labels, taints and record of every node are complete or absent.
    pub(super) async fn check_records(&self) {
        for node in self.nodes().await {
            let record = node.metadata.annotations.as_ref().and_then(|all| all.get(RECORD));
            let record: Value =
                record.map_or(Value::Null, |text| serde_json::from_str(text).unwrap());
            assert_eq!(record["layout"].as_str(), label(&node, LAYOUT), "{}", name(&node));
            assert_eq!(
                record["labels"]["workload-type"].as_str(),
                label(&node, "workload-type"),
                "{}",
                name(&node)
            );
            let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
            assert_eq!(record["taints"].as_array().map_or(0, Vec::len), taints.len());
        }
    }

    /// No node has a record.
    pub(super) async fn check_record_of_none(&self) {
        for node in self.nodes().await {
            let annotations = node.metadata.annotations.unwrap_or_default();
            assert_eq!(annotations.get(RECORD), None);
        }
    }

    /// Requests of the aggregator by verb and resource, from the audit log.
    pub(super) fn requests(&self, verb: &str, resource: &str) -> usize {
        let log = self.api.audit();
        let of = |event: &&Value| {
            let agent = event["userAgent"].as_str().unwrap_or_default();
            event["verb"] == verb
                && event["objectRef"]["resource"] == resource
                && agent.starts_with("octavo-aggregator")
        };
        log.iter().filter(of).count()
    }
}

/// An aggregator with this kubeconfig and more arguments.
pub(in crate::cluster) fn aggregator(kubeconfig: &Path, more: &[&str]) -> Aggregator {
    let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
    let arguments =
        ["--plaintext", "--follow-cluster", "--policies", "--log-level=debug", &kubeconfig];
    Aggregator::start(&[&arguments, more].concat())
}

pub(in crate::cluster) fn policy(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "octavo.dev/v1alpha1", "kind": "AcceleratorPolicy", "metadata": {"name": name}, "spec": spec})
}

/// A spec for all nodes of the pool.
pub(super) fn spec(layout: &str, rollout: &Value) -> Value {
    json!({
        "nodeSelector": {"matchLabels": {"pool": "a"}},
        "layout": layout,
        "nodeLabels": {"workload-type": layout},
        "taints": [{"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}],
        "rollout": rollout,
    })
}

fn node(number: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": format!("gpu-{number:03}"), "labels": {"pool": "a"}},
        "status": {"conditions": [{
            "type": "Ready", "status": "True", "reason": "Test", "message": "there is no machine",
            "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]},
    })
}

pub(super) fn name(node: &Node) -> &str {
    node.metadata.name.as_deref().unwrap()
}

pub(super) fn label<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    node.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

fn report(node: &Node) -> Value {
    let text = node.metadata.annotations.as_ref().and_then(|all| all.get(STATUS));
    text.map_or(Value::Null, |text| serde_json::from_str(text).unwrap())
}

pub(super) fn is_applied(node: &Node) -> bool {
    label(node, LAYOUT)
        .is_none_or(|layout| report(node)["layout"] == layout && report(node)["state"] == "applied")
}

/// Waits until no policy exists.
pub(super) fn await_deletion(api: &Api) {
    let list = || api.kubectl(&["get", "acceleratorpolicies", "-o", "name"]);
    until("no policy exists", list, |names| names.trim().is_empty());
}
