//! A Kubernetes API server with etcd, the service account of the agents, and a watch that observes the labels of a Node.

use std::collections::BTreeMap;
use std::fs;
use std::pin::pin;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::StreamExt;

use crate::cluster::{Api, TokenKubeconfig};
use crate::process;

/// Label that no agent writes.
pub(crate) const BASELINE: &str = "example.com/baseline";
/// Service account of the agents. The user name in the audit log ends with it.
const ACCOUNT: &str = "octavo-agent";
/// Maximum time for a change of a Node.
const TIME_LIMIT: Duration = Duration::from_mins(2);

/// An API server and its clients.
pub(crate) struct TestCluster {
    pub(crate) api: Api,
    /// Kubeconfig of the agents.
    pub(crate) agents: TokenKubeconfig,
    /// Client with all permissions.
    pub(crate) client: Client,
}

/// Resident memory of the API server and of etcd, and CPU time of the API server.
#[derive(Clone, Copy)]
pub(crate) struct Usage {
    pub(crate) mib: f64,
    pub(crate) cpu_s: f64,
    pub(crate) etcd_mib: f64,
    pub(crate) at: Instant,
}

/// Numbers of requests by agents, by verb and error status.
pub(crate) type Requests = BTreeMap<String, usize>;

/// A watch on the labels of one Node.
pub(crate) struct NodeObserver {
    changes: mpsc::UnboundedReceiver<(Instant, Labels)>,
    pub(crate) labels: Labels,
    task: JoinHandle<()>,
}

/// Labels of a Node.
pub(crate) type Labels = BTreeMap<String, String>;

impl TestCluster {
    /// Starts the API server. The agents use an ordinary service account, so that API priority and fairness applies to them.
    pub(crate) fn start() -> Self {
        let api = Api::fresh();
        api.apply(&format!(
            r"
apiVersion: v1
kind: ServiceAccount
metadata: {{name: {ACCOUNT}, namespace: kube-system}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: {ACCOUNT}}}
rules:
- {{apiGroups: [''], resources: [nodes], verbs: [get, list, watch, patch]}}
- {{apiGroups: [''], resources: [events], verbs: [create]}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: {ACCOUNT}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {ACCOUNT}}}
subjects: [{{kind: ServiceAccount, name: {ACCOUNT}, namespace: kube-system}}]
"
        ));
        let token = api.kubectl(&["create", "token", ACCOUNT, "-n", "kube-system"]);
        let agents = api.kubeconfig_with_token(token.trim_end());
        let client = api.client();
        Self { api, agents, client }
    }

    pub(crate) fn nodes(&self) -> kube::Api<Node> {
        kube::Api::all(self.client.clone())
    }

    /// Creates a Node of realistic size, with fifty images.
    pub(crate) async fn create(&self, name: &str) {
        let images: Vec<Value> = (0..50)
            .map(|number| {
                let image = format!("registry.example.com/team-{number}/some-program");
                let digest = format!("{image}@sha256:{number:064x}");
                json!({"names": [digest, format!("{image}:v1.{number}.0")], "sizeBytes": 123_456_789})
            })
            .collect();
        let node = json!({
            "metadata": {"name": name, "labels": {
                "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
                "node.kubernetes.io/instance-type": "gpu-8", "topology.kubernetes.io/zone": "a",
            }},
            "status": {
                "capacity": {"cpu": "64", "memory": "512Gi", "pods": "500"},
                "conditions": [{"type": "Ready", "status": "True", "reason": "Bench", "message": "no machine"}],
                "images": images,
            },
        });
        let node: Node = serde_json::from_value(node).unwrap();
        self.nodes().create(&PostParams::default(), &node).await.unwrap();
    }

    /// Sets a label with server-side apply, like an agent.
    pub(crate) async fn label(&self, node: &str, manager: &str, key: &str, value: &str) {
        let body =
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"labels": {key: value}}});
        let params = PatchParams::apply(manager);
        self.nodes().patch(node, &params, &Patch::Apply(body)).await.unwrap();
    }

    pub(crate) fn usage(&self) -> Usage {
        let directory = self.api.kubeconfig().parent().and_then(|pki| pki.parent());
        let run = directory.unwrap().join("run");
        let pid = |program: &str| {
            let text = fs::read_to_string(run.join(format!("{program}.pid"))).unwrap();
            text.trim().parse::<u32>().unwrap()
        };
        let server = pid("kube-apiserver");
        Usage {
            mib: process::resident_mib(server),
            cpu_s: process::cpu_time(server).as_secs_f64(),
            etcd_mib: process::resident_mib(pid("etcd")),
            at: Instant::now(),
        }
    }

    /// Counts all completed requests of agents in the audit log. A watch counts when it ends.
    pub(crate) fn requests(&self) -> Requests {
        let mut requests = Requests::new();
        for event in self.api.audit() {
            let user = event["user"]["username"].as_str().unwrap_or_default();
            if user.ends_with(ACCOUNT) {
                let code = event["responseStatus"]["code"].as_u64().unwrap_or_default();
                let verb = event["verb"].as_str().unwrap();
                let kind =
                    if code < 400 { verb.to_owned() } else { format!("{verb} with status {code}") };
                *requests.entry(kind).or_default() += 1;
            }
        }
        requests
    }

    /// Returns the number of open watches of Nodes, of all clients.
    pub(crate) fn watches(&self) -> f64 {
        let metrics = self.api.kubectl(&["get", "--raw", "/metrics"]);
        let lines = metrics.lines().filter(|line| {
            line.starts_with("apiserver_longrunning_requests{")
                && line.contains("resource=\"nodes\"")
                && line.contains("verb=\"WATCH\"")
        });
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
    }

    /// Watches a Node. The observer has its current labels.
    pub(crate) async fn observer(&self, node: &str) -> NodeObserver {
        let (sender, changes) = mpsc::unbounded_channel();
        let only = watcher::Config::default().fields(&format!("metadata.name={node}"));
        let nodes = self.nodes();
        let task = tokio::spawn(async move {
            let mut events = pin!(watcher(nodes, only).default_backoff());
            while let Some(event) = events.next().await {
                let at = Instant::now();
                if let Ok(Event::Apply(node) | Event::InitApply(node)) = event {
                    let labels = node.metadata.labels.unwrap_or_default();
                    let _no_receiver = sender.send((at, labels));
                }
            }
        });
        let mut observer = NodeObserver { changes, labels: Labels::new(), task };
        observer.until(|_| true).await;
        observer
    }
}

impl NodeObserver {
    /// Waits until the labels fulfill `condition`. Returns the time of that change and the number of changes up to it.
    pub(crate) async fn until(&mut self, condition: impl Fn(&Labels) -> bool) -> (Instant, usize) {
        let mut count = 0;
        loop {
            let next = tokio::time::timeout(TIME_LIMIT, self.changes.recv()).await;
            let Ok(Some((at, labels))) = next else {
                panic!("the expected labels are missing after {TIME_LIMIT:?}: {:#?}", self.labels);
            };
            self.labels = labels;
            count += 1;
            if condition(&self.labels) {
                return (at, count);
            }
        }
    }

    /// Counts the changes of the Node during `span`.
    pub(crate) async fn count_changes(&mut self, span: Duration) -> usize {
        let mut count = 0;
        let mut end = pin!(tokio::time::sleep(span));
        loop {
            tokio::select! {
                Some((_, labels)) = self.changes.recv() => {
                    self.labels = labels;
                    count += 1;
                }
                () = &mut end => return count,
            }
        }
    }
}

impl Drop for NodeObserver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Returns the requests in `now` that are not in `before`.
pub(crate) fn requests_since(before: &Requests, now: &Requests) -> Requests {
    let mut requests = now.clone();
    for (kind, count) in before {
        *requests.entry(kind.clone()).or_default() -= count;
    }
    requests.retain(|_, count| *count > 0);
    requests
}

pub(crate) fn request_list(requests: &Requests) -> String {
    let list: Vec<String> =
        requests.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    if list.is_empty() { "none".to_owned() } else { list.join(", ") }
}

/// Returns the number of sockets of this process.
pub(crate) fn own_sockets() -> f64 {
    let files = fs::read_dir("/proc/self/fd").unwrap();
    let targets = files.filter_map(|file| fs::read_link(file.unwrap().path()).ok());
    let sockets = targets.filter(|target| target.to_string_lossy().starts_with("socket:"));
    f64::from(u32::try_from(sockets.count()).unwrap())
}
