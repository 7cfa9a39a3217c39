//! What the API server knows about an installation: the state of a Node, Octavo's pods, and their logs. For `octavo
//! doctor NODE` and `octavo support-bundle`.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ContainerStatus, Node, Pod};
use kube::api::{ListParams, LogParams};
use kube::{Api, Client};
use serde::Serialize;

use crate::aggregator_access::{AccessError, DEFAULT_NAMESPACE, Step, find_service};
use crate::client::{ClusterSelection, request, user_client};

/// Label of every object of Octavo, as the chart sets it.
const OCTAVO_PODS: &str = "app.kubernetes.io/part-of=octavo";
const COMPONENT_LABEL: &str = "app.kubernetes.io/component";
const AGENT: &str = "agent";

/// Maximum number of lines of one container's log. The API server returns the newest ones.
const MAX_LOG_LINES: i64 = 10_000;
/// Maximum size of one container's log. The limit of the API server is not used: it removes the newest lines.
const MAX_LOG_BYTES: usize = 8 << 20;

/// Reads an installation through the API server.
pub struct ClusterDiagnostics {
    client: Client,
    namespace: String,
}

/// State of a pod of Octavo.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OctavoPod {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// `agent` or `aggregator`.
    pub component: String,
    /// Node that it runs on.
    pub node: Option<String>,
    /// Phase, such as `Running`.
    pub phase: String,
    /// True if the pod is ready.
    pub ready: bool,
    /// Reason why it does not start, or its last exit.
    pub reasons: Vec<String>,
    /// Number of restarts of its containers.
    pub restarts: i32,
    /// Names of its containers.
    pub containers: Vec<String>,
    /// Images of its containers.
    pub images: Vec<String>,
}

/// State of a Node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterNode {
    /// Readiness, cordon and taints of the Node, for example `Ready, SchedulingDisabled`.
    pub conditions: Vec<String>,
    /// Allocatable units of resources of device plugins.
    pub allocatable: BTreeMap<String, usize>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
}

impl ClusterDiagnostics {
    /// Finds the namespace of the aggregator. If there is none, assumes `namespace`, or the default namespace.
    pub async fn connect(
        cluster: &ClusterSelection,
        namespace: Option<&str>,
    ) -> Result<Self, AccessError> {
        let client = user_client(cluster).await?.client;
        let namespace = match find_service(&client, namespace).await {
            Ok(service) => service.namespace,
            Err(AccessError::NotFound { .. } | AccessError::NoPort { .. }) => {
                namespace.unwrap_or(DEFAULT_NAMESPACE).to_owned()
            }
            Err(error) => return Err(error),
        };
        Ok(Self { client, namespace })
    }

    /// Returns the namespace of Octavo.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Lists Octavo's pods; with a node, only the agents on it.
    pub async fn pods(&self, node: Option<&str>) -> Result<Vec<OctavoPod>, AccessError> {
        let namespace = &self.namespace;
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let mut wanted = ListParams::default().labels(OCTAVO_PODS);
        if let Some(node) = node {
            wanted = wanted.fields(&format!("spec.nodeName={node}"));
        }
        let found = request(pods.list(&wanted)).await;
        let found = found.map_err(AccessError::api(Step::Diagnose, || {
            format!("list pods in the namespace {namespace}")
        }))?;
        let pods = found.items.into_iter().filter_map(OctavoPod::from_object);
        Ok(pods.filter(|pod| node.is_none() || pod.is_agent()).collect())
    }

    /// Reads a Node; `None` if it does not exist.
    pub async fn node(&self, name: &str) -> Result<Option<ClusterNode>, AccessError> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let found = request(nodes.get_opt(name)).await;
        let found =
            found.map_err(AccessError::api(Step::Diagnose, || format!("get Node {name}")))?;
        Ok(found.map(ClusterNode::from_object))
    }

    /// Reads the log of a container, or of its previous run.
    pub async fn log(
        &self,
        pod: &OctavoPod,
        container: &str,
        previous: bool,
    ) -> Result<String, AccessError> {
        let OctavoPod { namespace, name, .. } = pod;
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let wanted = LogParams {
            container: Some(container.to_owned()),
            previous,
            tail_lines: Some(MAX_LOG_LINES),
            timestamps: true,
            ..LogParams::default()
        };
        let log = request(pods.logs(name, &wanted)).await;
        let log = log.map_err(AccessError::api(Step::Diagnose, || {
            format!("read the log of the pod {namespace}/{name}")
        }));
        log.map(|log| newest_lines(log, MAX_LOG_BYTES))
    }
}

/// Returns the last lines of a log that fit into `size` bytes.
fn newest_lines(mut log: String, size: usize) -> String {
    let excess = log.len().saturating_sub(size);
    if excess == 0 {
        return log;
    }
    let mut bytes = log.bytes().enumerate().skip(excess.saturating_sub(1));
    let end = bytes.find(|(_, byte)| *byte == b'\n').map(|(at, _)| at.saturating_add(1));
    log.split_off(end.unwrap_or(log.len()))
}

impl OctavoPod {
    fn from_object(pod: Pod) -> Option<Self> {
        let (spec, status) = (pod.spec?, pod.status.unwrap_or_default());
        let component =
            pod.metadata.labels.and_then(|mut labels| labels.remove(COMPONENT_LABEL))?;
        let conditions = status.conditions.unwrap_or_default();
        let runs = status.container_statuses.unwrap_or_default();
        let is_deleted = pod.metadata.deletion_timestamp.is_some();
        Some(Self {
            namespace: pod.metadata.namespace?,
            name: pod.metadata.name?,
            component,
            node: spec.node_name,
            phase: match status.phase {
                _ if is_deleted => "Terminating".to_owned(),
                phase => phase.unwrap_or_else(|| "Unknown".to_owned()),
            },
            ready: conditions.iter().any(|one| one.type_ == "Ready" && one.status == "True"),
            reasons: runs.iter().filter_map(reason).collect(),
            restarts: runs.iter().map(|one| one.restart_count).sum(),
            images: spec.containers.iter().filter_map(|one| one.image.clone()).collect(),
            containers: spec.containers.into_iter().map(|one| one.name).collect(),
        })
    }

    /// Returns whether this is an agent.
    pub fn is_agent(&self) -> bool {
        self.component == AGENT
    }
}

/// Returns why a container does not run, or why its previous run ended.
fn reason(status: &ContainerStatus) -> Option<String> {
    let state = status.state.as_ref();
    let waiting = state.and_then(|state| state.waiting.as_ref()?.reason.clone());
    let last = status.last_state.as_ref().and_then(|state| state.terminated.as_ref());
    let last = last.map(|ended| {
        let reason = ended.reason.as_deref().unwrap_or("exited");
        format!("last exit: {reason}, code {}", ended.exit_code)
    });
    let reasons: Vec<String> = waiting.into_iter().chain(last).collect();
    (!reasons.is_empty()).then(|| format!("{}: {}", status.name, reasons.join(", ")))
}

impl ClusterNode {
    fn from_object(node: Node) -> Self {
        let status = node.status.unwrap_or_default();
        let spec = node.spec.unwrap_or_default();
        let ready = status.conditions.unwrap_or_default();
        let ready = ready.into_iter().find(|one| one.type_ == "Ready");
        let ready = match ready {
            Some(one) if one.status == "True" => "Ready".to_owned(),
            Some(one) => format!("NotReady ({})", one.reason.unwrap_or(one.status)),
            None => "Ready is not reported".to_owned(),
        };
        let cordoned = spec.unschedulable == Some(true);
        let taints = spec.taints.unwrap_or_default().into_iter().map(|taint| {
            let value = taint.value.filter(|value| !value.is_empty());
            let value = value.map_or_else(String::new, |value| format!("={value}"));
            format!("taint {}{value}:{}", taint.key, taint.effect)
        });
        let conditions = [ready].into_iter();
        let conditions = conditions.chain(cordoned.then(|| "SchedulingDisabled".to_owned()));
        let allocatable = status.allocatable.unwrap_or_default().into_iter();
        // Resources of device plugins have a domain and a whole number of units.
        let allocatable =
            allocatable.filter(|(name, _)| name.contains('/')).filter_map(|(name, units)| {
                let units = units.0.parse().ok()?;
                Some((name, units))
            });
        Self {
            conditions: conditions.chain(taints).collect(),
            allocatable: allocatable.collect(),
            labels: node.metadata.labels.unwrap_or_default(),
        }
    }
}

impl std::fmt::Debug for ClusterDiagnostics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = f.debug_struct("ClusterDiagnostics");
        debug.field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    #[test]
    fn newest_lines_of_a_long_log_remain() {
        for (log, size, expected) in [
            ("a\nbb\nccc\n", 100, "a\nbb\nccc\n"),
            ("a\nbb\nccc\n", 7, "bb\nccc\n"),
            ("a\nbb\nccc\n", 6, "ccc\n"),
            ("a\nbb\nccc\n", 2, ""),
            ("", 0, ""),
        ] {
            assert_eq!(newest_lines(log.to_owned(), size), expected);
        }
    }

    #[test]
    fn pod_state_has_restarts_and_reasons() {
        let pod = from_value(json!({
            "metadata": {"namespace": "a", "name": "agent-1", "labels": {COMPONENT_LABEL: "agent"}},
            "spec": {"nodeName": "n1", "containers": [{"name": "agent", "image": "octavo/agent:1"}]},
            "status": {
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": "False"}],
                "containerStatuses": [{
                    "name": "agent", "image": "", "imageID": "", "ready": false, "restartCount": 3,
                    "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                    "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
                }],
            },
        }));
        let pod = OctavoPod::from_object(pod.unwrap()).unwrap();
        assert!(pod.is_agent() && !pod.ready);
        assert_eq!((pod.node.as_deref(), pod.restarts), (Some("n1"), 3));
        assert_eq!(pod.reasons, ["agent: CrashLoopBackOff, last exit: OOMKilled, code 137"]);
        let other = from_value(
            json!({"metadata": {"namespace": "a", "name": "b"}, "spec": {"containers": []}}),
        );
        assert_eq!(OctavoPod::from_object(other.unwrap()), None);
    }

    #[test]
    fn node_state_has_conditions_and_device_resources() {
        let node = from_value(json!({
            "metadata": {"name": "n1", "labels": {"a": "b"}},
            "spec": {"unschedulable": true, "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]},
            "status": {
                "conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}],
                "allocatable": {"cpu": "8", "memory": "16Gi", "nvidia.com/gpu": "2", "x.y/z": "1Ki"},
            },
        }));
        let state = ClusterNode::from_object(node.unwrap());
        assert_eq!(
            state.conditions,
            ["NotReady (NodeStatusUnknown)", "SchedulingDisabled", "taint k=v:NoSchedule"]
        );
        assert_eq!(state.allocatable, BTreeMap::from([("nvidia.com/gpu".to_owned(), 2)]));
    }
}
