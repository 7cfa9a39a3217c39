//! Pods that block a layout, on a node with a real kubelet: which are evicted, which stay, and that nothing is left
//! behind.
//!
//! node-1 has two A100 in halves. One pod has a partition of the first, one of the second, and one has none; a device
//! plugin advertises them to the kubelet, and each pod has a controller.

mod api_requests;

use std::time::{Duration, Instant};

use jiff::Timestamp;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use octavo_kubelet::pod_resources;
use serde_json::{Value, json};

use super::super::plugin::{Plugin, partitions};
use super::site::{A100, NAMESPACE, Site, figure};
use super::{HALVES, SMALL, is_applied, last_received, ours, received, writes};
use api_requests::{evictions, taints};

const RESOURCE: &str = "nvidia.com/mig-3g.40gb";
const TAINT: &str = "octavo.dev/repartitioning";
/// The pods with a partition of the first GPU, of the second, and without one.
const FIRST: &str = "on-the-first";
const SECOND: &str = "on-the-second";
const UNRELATED: &str = "without";

/// A budget protects the second pod, so only the first can be evicted.
pub(super) async fn only_blockers_are_evicted(site: &Site) {
    let began = Instant::now();
    let since = last_received(&site.api().audit());
    let scenario = DrainScenario::new(site).await;
    scenario.only_blocking_pods_are_evicted(since).await;
    scenario.killed_agent_leaves_no_taint();
    scenario.unsatisfied_budget_ends_in_blocked();
    scenario.no_other_pod_and_no_cordon_was_touched(since);
    scenario.end();
    figure(&format!("the story of draining: {:?}", began.elapsed()));
}

struct DrainScenario<'a> {
    site: &'a Site,
    namespace: String,
    plugin: Plugin,
    /// Pods that must not change: those of [`SECOND`] and [`UNRELATED`].
    unchanged: [Value; 2],
}

impl<'a> DrainScenario<'a> {
    async fn new(site: &'a Site) -> Self {
        let api = site.api();
        let namespace = api.namespace();
        api.await_account(&namespace);
        let kubelet = site.kubelet(A100);
        let plugin = Plugin::offer(&kubelet, RESOURCE, site.machine.store(), |world| {
            partitions(world, "3g.40gb")
        });
        let resource = RESOURCE.replace('.', "\\.");
        let four = format!("--for=jsonpath={{.status.allocatable.{resource}}}=4");
        api.kubectl(&["wait", "node", A100, &four, "--timeout=120s"]);
        let mut scenario = Self { site, namespace, plugin, unchanged: [Value::Null, Value::Null] };
        // One after the other, because the plugin prefers the GPU with most free devices.
        for (app, devices) in [(FIRST, 1), (SECOND, 1), (UNRELATED, 0)] {
            api.apply(&scenario.replica_set(app, devices));
            scenario.ready(app);
        }
        api.apply(&scenario.budget(SECOND));
        let counted = "--for=jsonpath={.status.currentHealthy}=1";
        scenario.kubectl(&["wait", "pdb", SECOND, counted, "--timeout=120s"]);
        scenario.unchanged = [SECOND, UNRELATED].map(|app| identity(&scenario.pod(app)));
        assert_eq!(scenario.gpu_of(FIRST).await, Some(0));
        assert_eq!(scenario.gpu_of(SECOND).await, Some(1));
        assert_eq!(scenario.gpu_of(UNRELATED).await, None);
        scenario
    }

    async fn only_blocking_pods_are_evicted(&self, since: Timestamp) {
        let site = self.site;
        let evicted = name(&self.pod(FIRST));
        let began = Instant::now();
        self.choose("first-small");
        site.node(A100, |node| is_applied(node, "first-small") && !is_tainted(node));
        figure(&format!("from the label to applied, one pod evicted: {:?}", began.elapsed()));
        assert_eq!(site.geometry(0), SMALL);
        assert_eq!(site.geometry(1), HALVES);
        self.check_other_pods_unchanged();
        self.event("DrainBegan", &evicted);
        self.event("DrainEnded", "");

        // Its successor waited for the removal of the taint and has the remaining partition.
        self.ready(FIRST);
        assert_eq!(self.gpu_of(FIRST).await, Some(1));
        let successor = name(&self.pod(FIRST));
        assert_ne!(successor, evicted);
        let log = site.api().audit();
        let taints = taints(&log, since);
        let [(tainted, true), .., (freed, false)] = taints[..] else {
            panic!("{taints:?}");
        };
        let evictions = evictions(&log, since);
        assert!(!evictions.is_empty());
        for (at, pod, code) in evictions {
            assert_eq!((pod, code), (&*evicted, 201));
            assert!(tainted < at && at < freed, "{tainted} {at} {freed}");
        }
        let bound = log.iter().find(|event| {
            let of = &event["objectRef"];
            of["subresource"] == "binding" && of["name"] == *successor
        });
        assert!(received(bound.unwrap()) > freed);
        // It would be evicted as well when the second GPU changes.
        self.kubectl(&["delete", "replicaset", FIRST, "--cascade=foreground"]);
    }

    fn killed_agent_leaves_no_taint(&self) {
        let site = self.site;
        let api = site.api();
        self.choose("second-small");
        let held = format!("{}/{}", self.namespace, name(&self.pod(SECOND)));
        site.node(A100, |node| is_tainted(node) && waits_for(node, &held));
        let agent = site.pod(A100);
        let of_agent = ["-n", NAMESPACE, "pod", &agent];

        // The next agent continues, because the layout is still selected.
        signal(site, &agent, Signal::SIGKILL);
        let status = || site.get(&of_agent)["status"]["containerStatuses"][0].clone();
        site.until("the agent is restarted", || status()["restartCount"] == 1);
        let restarted = last_received(&api.audit());
        site.until("the next agent asks for an eviction", || {
            !evictions(&api.audit(), restarted).is_empty()
        });
        let status = status();
        assert_eq!(status["restartCount"], 1, "{status}");
        assert_eq!(status["lastState"]["terminated"]["exitCode"], 137);
        site.node(A100, is_tainted);

        // This one is stopped during the drain and killed without a successor: its taint stays.
        signal(site, &agent, Signal::SIGSTOP);
        api.kubectl(&["label", "node", A100, "nvidia.com/gpu.present-"]);
        let killing = format!("--field-selector=involvedObject.name={agent},reason=Killing");
        let killing = ["get", "events", "-n", NAMESPACE, "-o", "name", &killing];
        site.until("the kubelet ends it", || !api.kubectl(&killing).is_empty());
        signal(site, &agent, Signal::SIGKILL);
        api.kubectl(&[&["wait", "--for=delete", "--timeout=120s"], &of_agent[..]].concat());
        assert!(is_tainted(&site.get(&["node", A100])));
        // The layout was changed back meanwhile, so the next agent has nothing to drain.
        self.choose("first-small");
        let killed = last_received(&api.audit());
        api.kubectl(&["label", "node", A100, "nvidia.com/gpu.present=true"]);
        let node = site.node(A100, |node| !is_tainted(node) && is_applied(node, "first-small"));
        assert_eq!(node["spec"]["unschedulable"], Value::Null);
        assert_eq!(evictions(&api.audit(), killed), []);
        self.check_other_pods_unchanged();
        site.rolled_out("daemonset/octavo-agent");
    }

    fn unsatisfied_budget_ends_in_blocked(&self) {
        let site = self.site;
        let api = site.api();
        // A cordon by a user is unrelated.
        api.kubectl(&["cordon", A100]);
        site.reader.run_commands(
            "helm upgrade octavo deploy/chart/octavo --namespace octavo-system --reset-then-reuse-values \
             --set agent.drain.deadline=10s --wait",
            A100,
        );
        site.rolled_out("daemonset/octavo-agent");
        let since = last_received(&api.audit());
        let held = format!("{}/{}", self.namespace, name(&self.pod(SECOND)));
        let began = Instant::now();
        self.choose("second-small");
        self.event("DrainGaveUp", &held);
        let node = site.node(A100, |node| {
            let state = ours(node).get("octavo.dev/layout-state").cloned();
            !is_tainted(node) && state.as_deref() == Some("blocked")
        });
        figure(&format!("from the label to giving up after 10 s: {:?}", began.elapsed()));
        let status = &ours(&node)["octavo.dev/status"];
        assert!(status.contains(&held), "{status}");
        assert_eq!(node["spec"]["unschedulable"], true);
        let log = api.audit();
        let taints: Vec<bool> = taints(&log, since).iter().map(|(_, on)| *on).collect();
        assert_eq!(taints, [true, false]);
        let codes = evictions(&log, since);
        assert!(!codes.is_empty() && codes.iter().all(|(_, _, code)| *code == 429));
        self.check_other_pods_unchanged();
    }

    /// Checks all requests of agents.
    fn no_other_pod_and_no_cordon_was_touched(&self, since: Timestamp) {
        let log = self.site.api().audit();
        let held = name(&self.pod(SECOND));
        let mut went = Vec::new();
        for (_, pod, code) in evictions(&log, since) {
            if code == 429 {
                assert_eq!(pod, held);
            } else {
                went.push((pod.to_owned(), code));
            }
        }
        assert_eq!(went.len(), 1, "{went:?}");
        for write in writes(&log, since) {
            if write["objectRef"]["resource"] != "nodes" {
                continue;
            }
            let body = &write["requestObject"];
            assert!(body["metadata"].is_object(), "not in the log: {write}");
            let mut fields = body["spec"].as_object().into_iter().flatten();
            assert!(fields.all(|(field, _)| field == "taints"), "{body}");
        }
    }

    /// Restores the node for the next test.
    fn end(self) {
        let api = self.site.api();
        api.kubectl(&["uncordon", A100]);
        self.kubectl(&["delete", "replicasets", "--all", "--cascade=foreground"]);
        api.kubectl(&["delete", "namespace", &self.namespace, "--wait=false"]);
        self.choose("halves");
        let site = self.site;
        site.node(A100, |node| is_applied(node, "halves") && !is_tainted(node));
        drop(self.plugin);
    }

    fn kubectl(&self, arguments: &[&str]) -> String {
        let arguments = [&["-n", &self.namespace], arguments].concat();
        self.site.api().kubectl(&arguments)
    }

    fn choose(&self, layout: &str) {
        let layout = format!("octavo.dev/layout={layout}");
        let change = ["label", "node", A100, "--overwrite", &layout];
        self.site.api().kubectl(&change);
    }

    /// A pod on node-1 that is recreated when deleted.
    fn replica_set(&self, app: &str, devices: u8) -> String {
        let labels = json!({"app": app});
        let mut container =
            json!({"name": "main", "image": "test.invalid/pause:1", "imagePullPolicy": "Never"});
        if devices > 0 {
            container["resources"] = json!({"limits": {RESOURCE: devices.to_string()}});
        }
        json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet",
            "metadata": {"name": app, "namespace": self.namespace},
            "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": {
                "metadata": {"labels": labels},
                "spec": {"nodeSelector": {"kubernetes.io/hostname": A100}, "containers": [container]},
            }},
        })
        .to_string()
    }

    fn budget(&self, app: &str) -> String {
        json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": app, "namespace": self.namespace},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": app}}},
        })
        .to_string()
    }

    /// Waits until the pod of a `ReplicaSet` is ready.
    fn ready(&self, app: &str) {
        let ready = "--for=jsonpath={.status.readyReplicas}=1";
        self.kubectl(&["wait", "replicaset", app, ready, "--timeout=180s"]);
    }

    /// The pod of a `ReplicaSet`.
    fn pod(&self, app: &str) -> Value {
        let of = format!("--selector=app={app}");
        let mut pods = self.site.get(&["pods", "-n", &self.namespace, &of]);
        let pods = pods["items"].as_array_mut().unwrap();
        pods.retain(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        assert_eq!(pods.len(), 1, "{pods:?}");
        pods.remove(0)
    }

    /// The GPU of a pod's partition according to its kubelet.
    async fn gpu_of(&self, app: &str) -> Option<usize> {
        let socket = self.site.kubelet(A100).join("pod-resources/kubelet.sock");
        let given = pod_resources::list(&socket, Duration::from_mins(1)).await;
        let pod = name(&self.pod(app));
        let given = given.unwrap().into_iter();
        let mut given = given.filter(|one| one.namespace == self.namespace && one.pod == pod);
        let one = given.next()?;
        assert_eq!(given.next(), None);
        let world = self.site.machine.world();
        let all = partitions(&world, "3g.40gb");
        let device = all.iter().find(|device| device.id == one.device_id);
        Some(device.unwrap().gpu)
    }

    /// Waits for an event about node-1 whose message contains this text.
    fn event(&self, reason: &str, part: &str) {
        let of = format!("--field-selector=involvedObject.name={A100},reason={reason}");
        self.site.until(&format!("the event {reason}"), || {
            let events = self.site.get(&["events", "-n", "default", &of]);
            let events = events["items"].as_array().unwrap();
            let mut messages = events.iter().filter_map(|event| event["message"].as_str());
            messages.any(|message| message.contains(part))
        });
    }

    fn check_other_pods_unchanged(&self) {
        let now = [SECOND, UNRELATED].map(|app| identity(&self.pod(app)));
        assert_eq!(now, self.unchanged);
    }
}

/// Fields that differ if the pod or one of its containers is recreated.
fn identity(pod: &Value) -> Value {
    let container = &pod["status"]["containerStatuses"][0];
    json!([
        pod["metadata"]["uid"],
        container["containerID"],
        container["restartCount"],
        pod["spec"]["nodeName"],
    ])
}

fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap().to_owned()
}

fn is_tainted(node: &Value) -> bool {
    let taints = node["spec"]["taints"].as_array();
    taints.is_some_and(|taints| taints.iter().any(|taint| taint["key"] == TAINT))
}

/// True if the Node reports that its drain waits for a pod because of a budget.
fn waits_for(node: &Value, pod: &str) -> bool {
    let ours = ours(node);
    let Some(status) = ours.get("octavo.dev/status") else {
        return false;
    };
    let status: Value = serde_json::from_str(status).unwrap();
    let waits = status["drain"]["waitsFor"].as_array();
    let mut waits = waits.into_iter().flatten();
    waits.any(|one| {
        let reason = one["reason"].as_str().unwrap_or_default();
        one["pod"] == pod && reason.contains("PodDisruptionBudget")
    })
}

fn signal(site: &Site, pod: &str, signal: Signal) {
    let processes = site.processes(NAMESPACE, pod, "octavo-agent");
    assert_eq!(processes.len(), 1, "{processes:?}");
    kill(Pid::from_raw(processes[0]), signal).unwrap();
}
