//! Pods that block a layout and are not evicted, or not in time.

use serde_json::{Value, json};

use crate::cluster::Api;
use crate::cluster::agent::Rig;
use crate::pod_resources::Kubelet;
use crate::problem::Problem;

const ONE: &str = "- {board: A100_40GB, mig: enabled, instances: [{profile: 3g.20gb, start: 0}]}\n";
const LAYOUT: &str = "octavo.dev/layout=all-7g.40gb";

/// A Node with one pod whose partition must be removed.
struct BlockedNode {
    rig: Rig<'static>,
    namespace: String,
    _kubelet: Kubelet,
}

impl BlockedNode {
    fn new(is_made_again: bool) -> Self {
        let api = Api::shared();
        let rig = Rig::new(api, ONE);
        let namespace = api.namespace();
        api.await_account(&namespace);
        let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner", "namespace": namespace}});
        api.create(&owner);
        let get = ["get", "configmap", "owner", "-n", &namespace, "-o", "json"];
        let owner: Value = serde_json::from_str(&api.kubectl(&get)).unwrap();
        let owners = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "controller": true,
            "uid": owner["metadata"]["uid"]}]);
        let owners = if is_made_again { owners } else { json!([]) };
        api.create(&json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "notebook-7", "namespace": namespace, "labels": {"app": "notebook"}, "ownerReferences": owners},
            "spec": {"nodeName": rig.name(), "containers": [{"name": "main", "image": "test.invalid/none:1"}]},
        }));
        let running = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        let running = running.to_string();
        let pod = ["patch", "pod", "notebook-7", "-n", &namespace];
        let how = ["--subresource=status", "--type=merge", "-p", &running];
        api.kubectl(&[&pod[..], &how].concat());
        let kubelet = Kubelet::start(&rig.machine);
        let world = rig.machine.machine.world();
        let device = &world.gpus[0].mig.as_ref().unwrap().instances[0].compute[0];
        kubelet.give(&namespace, "notebook-7", &device.uuid);
        rig.label(&[LAYOUT]);
        Self { rig, namespace, _kubelet: kubelet }
    }

    /// A budget that prevents evictions.
    fn protect(&self) {
        self.rig.api.create(&json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": "notebook", "namespace": self.namespace},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "notebook"}}},
        }));
        let counted = "--for=jsonpath={.status.currentHealthy}=1";
        let wait = ["wait", "pdb/notebook", counted, "--timeout=100s", "-n"];
        self.rig.api.kubectl(&[&wait[..], &[&self.namespace]].concat());
    }
}

#[test]
fn pod_without_controller_is_named_and_not_evicted() {
    let problem = Problem::documented("drain_refused");
    let node = BlockedNode::new(false);
    let _agent = node.rig.start(&["--drain=affected"]);
    let shown = node.rig.await_event("DrainRefused");
    problem.assert_quoted("event DrainRefused", &shown);
}

#[test]
fn drain_blocked_by_disruption_budget_ends_with_pod_name() {
    let problem = Problem::documented("drain_gave_up");
    let node = BlockedNode::new(true);
    node.protect();
    let arguments = ["--drain=affected", "--drain-deadline=10s"];
    let _agent = node.rig.start(&arguments);
    let shown = node.rig.await_event("DrainGaveUp");
    problem.assert_quoted("event DrainGaveUp", &shown);
}
