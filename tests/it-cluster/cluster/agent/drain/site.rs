//! A node whose pods hold partitions, with a real API server and the socket of a kubelet.

use serde_json::{Value, json};

use crate::cluster::Api;
use crate::cluster::agent::{NODE_WRITTEN, Rig};
use crate::pod_resources::Kubelet;
use crate::process::Program;
use crate::time_limits::until;

const GPUS: &str = "- {board: A100_40GB, count: 2, mig: enabled, instances: [{profile: 3g.20gb, start: 0}, {profile: 3g.20gb, start: 4}]}\n";

/// A node with pods, some of which hold partitions.
pub(super) struct Site<'a> {
    pub(super) rig: Rig<'a>,
    kubelet: Kubelet,
    pub(super) namespace: String,
}

impl Site<'static> {
    pub(super) fn new() -> Self {
        let site = Self::at(Api::shared());
        site.rig.api.await_account(&site.namespace);
        site
    }
}

impl<'a> Site<'a> {
    pub(super) fn at(api: &'a Api) -> Self {
        let rig = Rig::new(api, GPUS);
        let namespace = api.namespace();
        // An owner that no controller of the cluster manages.
        let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner", "namespace": namespace}});
        api.create(&owner);
        Self { kubelet: Kubelet::start(&rig.machine), rig, namespace }
    }

    /// A running pod with an owner.
    pub(super) fn pod(&self, name: &str) {
        let owner = self.get("configmap", "owner");
        let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "controller": true,
            "uid": owner["metadata"]["uid"]}]);
        self.make(name, &owner);
    }

    pub(super) fn make(&self, name: &str, owners: &Value) {
        self.rig.api.create(&json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": self.namespace, "labels": {"app": name}, "ownerReferences": owners},
            "spec": {"nodeName": self.rig.name(), "containers": [{"name": "main", "image": "test.invalid/none:1"}]},
        }));
        self.patch_status(
            "pod",
            name,
            &json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}),
        );
    }

    pub(super) fn patch_status(&self, kind: &str, name: &str, status: &Value) {
        let patch = json!({"status": status}).to_string();
        let object = ["patch", kind, name, "-n", &self.namespace];
        let how = ["--subresource=status", "--type=merge", "-p", &patch];
        self.rig.api.kubectl(&[&object[..], &how[..]].concat());
    }

    /// Allocates the first partition of a GPU to a pod.
    pub(super) fn holds(&self, pod: &str, gpu: usize) {
        let world = self.rig.machine.machine.world();
        let mig = world.gpus[gpu].mig.as_ref().unwrap();
        let device = mig.instances[0].compute[0].uuid.clone();
        self.kubelet.give(&self.namespace, pod, &device);
    }

    /// A disruption budget that prevents the eviction of this pod.
    pub(super) fn protect(&self, pod: &str) {
        self.rig.api.create(&json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": pod, "namespace": self.namespace},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": pod}}},
        }));
        let budget = format!("pdb/{pod}");
        let counted = "--for=jsonpath={.status.currentHealthy}=1";
        let wait = ["wait", "-n", &self.namespace, &budget, counted, "--timeout=100s"];
        self.rig.api.kubectl(&wait);
    }

    pub(super) fn get(&self, kind: &str, name: &str) -> Value {
        let arguments = ["get", kind, name, "-n", &self.namespace, "-o", "json"];
        serde_json::from_str(&self.rig.api.kubectl(&arguments)).unwrap()
    }

    /// True if the pod is not terminating.
    pub(super) fn stays(&self, pod: &str) -> bool {
        self.get("pod", pod)["metadata"]["deletionTimestamp"].is_null()
    }

    /// Completes the deletion of a terminating pod, as kubelet does.
    pub(super) fn end(&self, pod: &str) {
        let arguments =
            ["delete", "pod", pod, "-n", &self.namespace, "--force", "--grace-period=0"];
        self.rig.api.kubectl(&arguments);
        self.kubelet.ended(pod);
    }

    pub(super) fn is_tainted(&self) -> bool {
        let node = self.rig.get();
        let taints = node["spec"]["taints"].as_array();
        let ours = |taint: &Value| {
            taint["key"] == "octavo.dev/repartitioning" && taint["effect"] == "NoSchedule"
        };
        taints.is_some_and(|taints| taints.iter().any(ours))
    }

    /// Waits for the taint to be present or absent; checks after each write of the agent.
    #[track_caller]
    pub(super) fn await_taint(&self, agent: &mut Program, wanted: bool) {
        let read = || {
            let tainted = self.is_tainted();
            if tainted != wanted {
                agent.expect_log(NODE_WRITTEN);
            }
            tainted
        };
        until("the taint", read, |tainted| *tainted == wanted);
    }

    /// Waits for this drain status in the annotation.
    #[track_caller]
    pub(super) fn await_drain(&self, agent: &mut Program, drain: &Value) {
        self.await_status(agent, "drain", drain);
    }

    #[track_caller]
    pub(super) fn await_status(&self, agent: &mut Program, field: &str, wanted: &Value) {
        let read = || {
            let status = self.rig.get()["metadata"]["annotations"]["octavo.dev/status"].clone();
            let status: Value = serde_json::from_str(status.as_str().unwrap_or("null")).unwrap();
            if status[field] != *wanted {
                agent.expect_log(NODE_WRITTEN);
            }
            status
        };
        until(field, read, |status| status[field] == *wanted);
    }

    pub(super) fn full(&self, pod: &str) -> String {
        format!("{}/{pod}", self.namespace)
    }

    /// Evictions requested in this namespace: pod and status code.
    pub(super) fn evictions(&self) -> Vec<(String, u64)> {
        let before = format!("/api/v1/namespaces/{}/pods/", self.namespace);
        let events = self.rig.api.audit();
        let requested = events.iter().filter_map(|event| {
            let uri = event["requestURI"].as_str()?.strip_prefix(&before)?;
            let (pod, _) = uri.split_once("/eviction")?;
            Some((pod.to_owned(), event["responseStatus"]["code"].as_u64()?))
        });
        requested.collect()
    }
}

impl Site<'_> {
    /// A pod of a real `DaemonSet` on the node.
    pub(super) fn daemon(&self) -> String {
        self.rig.api.create(&json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": {"name": "monitor", "namespace": self.namespace},
            "spec": {
                "selector": {"matchLabels": {"app": "monitor"}},
                "template": {
                    "metadata": {"labels": {"app": "monitor"}},
                    "spec": {
                        "nodeSelector": {"kubernetes.io/hostname": self.rig.name()},
                        "containers": [{"name": "main", "image": "test.invalid/none:1"}],
                    },
                },
            },
        }));
        let wait = ["wait", "-n", &self.namespace, "pod", "--selector=app=monitor"];
        let api = self.rig.api;
        api.kubectl(&[&wait[..], &["--for=create", "--timeout=100s"]].concat());
        let on = format!("--for=jsonpath={{.spec.nodeName}}={}", self.rig.name());
        api.kubectl(&[&wait[..], &[&on, "--timeout=100s"]].concat());
        let pods = ["get", "pod", "-n", &self.namespace, "--selector=app=monitor"];
        let name = ["-o", "jsonpath={.items[0].metadata.name}"];
        api.kubectl(&[&pods[..], &name[..]].concat())
    }

    /// A token of an account with the permissions of an agent, but none on pods.
    pub(super) fn token(&self) -> String {
        let (namespace, node) = (&self.namespace, self.rig.name());
        let group = "rbac.authorization.k8s.io";
        let name = format!("agent-{namespace}");
        let nodes = json!({"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch", "patch"]});
        let events = json!({"apiGroups": [""], "resources": ["events"], "verbs": ["create"]});
        self.rig.api.apply(&json!({"apiVersion": "v1", "kind": "List", "items": [
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "agent", "namespace": namespace}},
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "agent", "namespace": namespace}, "spec": {
                "nodeName": node, "serviceAccountName": "agent",
                "containers": [{"name": "agent", "image": "test.invalid/none:1"}]}},
            {"apiVersion": format!("{group}/v1"), "kind": "ClusterRole", "metadata": {"name": name}, "rules": [nodes, events]},
            {"apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": name},
             "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
             "subjects": [{"kind": "ServiceAccount", "name": "agent", "namespace": namespace}]},
        ]}).to_string());
        self.rig.api.token(namespace, "agent", "agent", &[])
    }
}
