//! An API server with nothing beside it but etcd, who the agents are to it, and a watch that sees what they write.

use std::collections::BTreeMap;
use std::fs;
use std::pin::pin;
use std::process::Command;
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

/// What no agent writes.
pub(crate) const BASELINE: &str = "example.com/baseline";
/// Who the agents are; in requests with a prefix.
const ACCOUNT: &str = "octavo-agent";
/// A Node that never comes to be as it is waited for.
const TIME_LIMIT: Duration = Duration::from_mins(2);

/// The server, and the way in that agents have.
pub(crate) struct Bed {
    pub(crate) api: Api,
    pub(crate) agents: TokenKubeconfig,
    /// An administrator's.
    pub(crate) client: Client,
}

/// What the server and its store have and have used.
#[derive(Clone, Copy)]
pub(crate) struct Usage {
    pub(crate) mib: f64,
    pub(crate) cpu_s: f64,
    pub(crate) etcd_mib: f64,
    pub(crate) at: Instant,
}

/// Requests of agents by verb, and the last moment that was looked at.
pub(crate) type Requests = BTreeMap<String, usize>;

/// A watch on one Node.
pub(crate) struct NodeObserver {
    seen: mpsc::UnboundedReceiver<(Instant, Labels)>,
    pub(crate) labels: Labels,
    task: JoinHandle<()>,
}

/// Labels of a Node, without the one of the baseline.
pub(crate) type Labels = BTreeMap<String, String>;

impl Bed {
    /// Agents are an ordinary service account, so that the server's priorities hold for them.
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

    /// A Node as large as they are: kubelet names fifty images in it.
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
                "conditions": [{"type": "Ready", "status": "True", "reason": "Bench", "message": "there is no machine"}],
                "images": images,
            },
        });
        let node: Node = serde_json::from_value(node).unwrap();
        let done = self.nodes().create(&PostParams::default(), &node).await;
        done.unwrap();
    }

    /// A label of a person's, by the same means that agents have.
    pub(crate) async fn label(&self, node: &str, manager: &str, key: &str, value: &str) {
        let body =
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"labels": {key: value}}});
        let params = PatchParams::apply(manager);
        let done = self.nodes().patch(node, &params, &Patch::Apply(body)).await;
        done.unwrap();
    }

    pub(crate) fn usage(&self) -> Usage {
        let run = self.api.kubeconfig().parent().and_then(|pki| pki.parent());
        let run = run.unwrap().join("run");
        let pid = |program: &str| {
            let text = fs::read_to_string(run.join(format!("{program}.pid"))).unwrap();
            text.trim().to_owned()
        };
        Usage {
            mib: resident_mib(&pid("kube-apiserver")),
            cpu_s: cpu_s(&pid("kube-apiserver")),
            etcd_mib: resident_mib(&pid("etcd")),
            at: Instant::now(),
        }
    }

    /// All requests of agents that were answered until now. A watch counts when it has ended.
    pub(crate) fn requests(&self) -> Requests {
        let mut requests = Requests::new();
        for event in self.api.audit() {
            let user = event["user"]["username"].as_str().unwrap_or_default();
            if user.ends_with(ACCOUNT) {
                let code = event["responseStatus"]["code"].as_u64().unwrap_or_default();
                let verb = event["verb"].as_str().unwrap();
                let what =
                    if code < 400 { verb.to_owned() } else { format!("{verb} answered {code}") };
                *requests.entry(what).or_default() += 1;
            }
        }
        requests
    }

    /// Watches of Nodes that are open now, ours and any other.
    pub(crate) fn watches(&self) -> f64 {
        let metrics = self.api.kubectl(&["get", "--raw", "/metrics"]);
        let lines = metrics.lines().filter(|line| {
            line.starts_with("apiserver_longrunning_requests{")
                && line.contains("resource=\"nodes\"")
                && line.contains("verb=\"WATCH\"")
        });
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
    }

    pub(crate) async fn observer(&self, node: &str) -> NodeObserver {
        let (tell, seen) = mpsc::unbounded_channel();
        let only = watcher::Config::default().fields(&format!("metadata.name={node}"));
        let nodes = self.nodes();
        let task = tokio::spawn(async move {
            let mut events = pin!(watcher(nodes, only).default_backoff());
            while let Some(event) = events.next().await {
                let at = Instant::now();
                if let Ok(Event::Apply(node) | Event::InitApply(node)) = event {
                    let labels = node.metadata.labels.unwrap_or_default();
                    let _no_listener = tell.send((at, labels));
                }
            }
        });
        let mut observer = NodeObserver { seen, labels: Labels::new(), task };
        observer.until(|_| true).await;
        observer
    }
}

impl NodeObserver {
    /// When the Node's labels came to be so, and how often the Node has changed until then.
    pub(crate) async fn until(&mut self, wanted: impl Fn(&Labels) -> bool) -> (Instant, usize) {
        let mut count = 0;
        loop {
            let next = tokio::time::timeout(TIME_LIMIT, self.seen.recv()).await;
            let Ok(Some((at, labels))) = next else {
                panic!("this never came to be; the labels are {:#?}", self.labels);
            };
            self.labels = labels;
            count += 1;
            if wanted(&self.labels) {
                return (at, count);
            }
        }
    }

    /// How often the Node changes within a time.
    pub(crate) async fn quiet(&mut self, span: Duration) -> usize {
        let mut count = 0;
        let mut over = pin!(tokio::time::sleep(span));
        loop {
            tokio::select! {
                Some((_, labels)) = self.seen.recv() => {
                    self.labels = labels;
                    count += 1;
                }
                () = &mut over => return count,
            }
        }
    }
}

impl Drop for NodeObserver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What was asked since.
pub(crate) fn since(before: &Requests, now: &Requests) -> Requests {
    let mut requests = now.clone();
    for (what, count) in before {
        *requests.entry(what.clone()).or_default() -= count;
    }
    requests.retain(|_, count| *count > 0);
    requests
}

pub(crate) fn words(requests: &Requests) -> String {
    let words: Vec<String> =
        requests.iter().map(|(what, count)| format!("{count} {what}")).collect();
    if words.is_empty() { "none".to_owned() } else { words.join(", ") }
}

fn resident_mib(pid: &str) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().nth(1));
    kibibytes.unwrap().parse::<f64>().unwrap() / 1024.0
}

/// User and system time, threads that have ended included. Source: `proc_pid_stat(5)`, fields 14 and 15.
fn cpu_s(pid: &str) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields = stat.rsplit(") ").next().unwrap();
    let ticks = fields.split(' ').skip(11).take(2);
    let ticks: f64 = ticks.map(|field| field.parse::<f64>().unwrap()).sum();
    ticks / ticks_per_s()
}

fn ticks_per_s() -> f64 {
    let output = Command::new("getconf").arg("CLK_TCK").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.trim().parse().unwrap()
}

/// What this process has.
pub(crate) fn own_mib() -> f64 {
    resident_mib("self")
}

/// Sockets of this process.
pub(crate) fn own_sockets() -> f64 {
    let files = fs::read_dir("/proc/self/fd").unwrap();
    let targets = files.filter_map(|file| fs::read_link(file.unwrap().path()).ok());
    let sockets = targets.filter(|target| target.to_string_lossy().starts_with("socket:"));
    f64::from(u32::try_from(sockets.count()).unwrap())
}
