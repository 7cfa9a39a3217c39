//! The pod of a validation.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use octavo_fleet::cluster::ClusterNode;
use octavo_model::digest::Digest;
use serde_json::{Value, json};

use super::{NAME, NAME_LABEL, RUN_LABEL};

/// Time after the timeout of the command until the kubelet ends the pod of a command that was killed.
const GRACE: Duration = Duration::from_mins(1);
/// Name of the container.
pub(super) const CONTAINER: &str = "validate";
/// Memory limit: the command and the driver's library need about a quarter of it.
const MEMORY_LIMIT: &str = "256Mi";
/// Path of the termination message, which becomes part of the pod's status.
const TERMINATION_MESSAGE: &str = "/dev/termination-log";

/// Properties of an agent's pod that the pod of a validation adopts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AgentPod {
    /// Namespace.
    pub namespace: String,
    /// Image, which contains this program.
    pub image: String,
    /// Pull policy of the image.
    pub pull_policy: Option<String>,
    /// Names of the Secrets for the registry.
    pub pull_secrets: Vec<String>,
    /// `RuntimeClass`, for the access to NVIDIA's devices.
    pub runtime_class: Option<String>,
}

/// Options of all pods of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodOptions {
    /// Namespace.
    pub namespace: String,
    /// Image, instead of the agent's.
    pub image: Option<String>,
    /// `RuntimeClass`, instead of the agent's; empty for none.
    pub runtime_class: Option<String>,
    /// Time from the creation of a pod to its result.
    pub timeout: Duration,
}

impl AgentPod {
    /// Returns the node of an agent that runs, and its properties. A pod without a DaemonSet is not an agent: anyone can give it the labels.
    pub(super) fn from_object(pod: Pod) -> Option<(String, Self)> {
        let owners = pod.metadata.owner_references.iter().flatten();
        let mut controllers = owners.filter(|owner| owner.controller == Some(true));
        let is_daemon = |owner: &OwnerReference| {
            owner.kind == "DaemonSet" && owner.api_version.starts_with("apps/")
        };
        if !controllers.next().is_some_and(is_daemon) {
            return None;
        }
        let is_running =
            pod.status.is_some_and(|status| status.phase.as_deref() == Some("Running"));
        if !is_running || pod.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let spec = pod.spec?;
        let container = spec.containers.into_iter().next()?;
        let agent = Self {
            namespace: pod.metadata.namespace?,
            image: container.image?,
            pull_policy: container.image_pull_policy,
            pull_secrets: spec
                .image_pull_secrets
                .into_iter()
                .flatten()
                .map(|one| one.name)
                .collect(),
            runtime_class: spec.runtime_class_name,
        };
        Some((spec.node_name?, agent))
    }
}

/// Returns the pod that is allocated one unit of a resource of a node. The scheduler places it, so that its own view of
/// the node is validated too. It requests no CPU and no memory: they must not make the scheduler preempt other pods.
pub fn pod(
    options: &PodOptions,
    (node, resource): (&ClusterNode, &str),
    agent: &AgentPod,
    run: &str,
) -> Value {
    let is_nvidia = resource.starts_with("nvidia.com/");
    let tolerations: Vec<Value> = node
        .taints
        .iter()
        .map(|taint| json!({"key": taint.key, "operator": "Equal", "value": taint.value, "effect": taint.effect}))
        .collect();
    let on_node = json!({"key": "metadata.name", "operator": "In", "values": [node.name]});
    let deadline = options.timeout.saturating_add(GRACE).as_secs();
    let mut container = json!({
        "name": CONTAINER,
        "image": options.image.as_ref().unwrap_or(&agent.image),
        "command": ["octavo", "pod-devices", "--output-file", TERMINATION_MESSAGE],
        "resources": {
            "requests": {"cpu": "0", "memory": "0"},
            "limits": {"memory": MEMORY_LIMIT, resource: "1"},
        },
        "terminationMessagePath": TERMINATION_MESSAGE,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": {"drop": ["ALL"]},
        },
    });
    let mut spec = json!({
        "restartPolicy": "Never",
        "activeDeadlineSeconds": deadline,
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchFields": [on_node]}],
        }}},
        "tolerations": tolerations,
    });
    if is_nvidia {
        // The container runtime provides NVML for this capability only. Source: NVIDIA Container Toolkit.
        put(
            &mut container,
            "env",
            json!([{"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "utility"}]),
        );
    }
    if let (Some(policy), None) = (&agent.pull_policy, &options.image) {
        put(&mut container, "imagePullPolicy", json!(policy));
    }
    if agent.namespace == options.namespace && !agent.pull_secrets.is_empty() {
        let secrets: Vec<Value> =
            agent.pull_secrets.iter().map(|name| json!({"name": name})).collect();
        put(&mut spec, "imagePullSecrets", json!(secrets));
    }
    let class = match &options.runtime_class {
        Some(class) => Some(class).filter(|class| !class.is_empty()),
        None => agent.runtime_class.as_ref(),
    };
    if let (Some(class), true) = (class, is_nvidia) {
        put(&mut spec, "runtimeClassName", json!(class));
    }
    put(&mut spec, "containers", json!([container]));
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name((node, resource), run),
            "namespace": options.namespace,
            "labels": {NAME_LABEL: NAME, RUN_LABEL: run},
        },
        "spec": spec,
    })
}

/// Name of the pod. A repeated request does not create a second one.
pub(super) fn pod_name((node, resource): (&ClusterNode, &str), run: &str) -> String {
    let unit = Digest::from_bytes(format!("{}/{resource}", node.name).as_bytes());
    format!("{NAME}-{run}-{unit:016x}")
}

fn put(object: &mut Value, key: &str, value: Value) {
    if let Value::Object(fields) = object {
        fields.insert(key.to_owned(), value);
    }
}

#[cfg(test)]
mod tests {
    use octavo_fleet::cluster::{Effect, Taint};

    use super::*;

    /// The pod of an agent with this owner.
    fn object(owner: &Value) -> Pod {
        let pod = json!({
            "metadata": {"namespace": "octavo-system", "name": "octavo-agent-x", "ownerReferences": [owner]},
            "spec": {
                "nodeName": "a", "runtimeClassName": "nvidia", "imagePullSecrets": [{"name": "registry"}],
                "containers": [{"name": "agent", "image": "octavo/agent:1", "imagePullPolicy": "Always"}],
            },
            "status": {"phase": "Running"},
        });
        serde_json::from_value(pod).unwrap()
    }

    fn owner(kind: &str, is_controller: bool) -> Value {
        json!({"apiVersion": "apps/v1", "kind": kind, "name": "octavo-agent", "uid": "u", "controller": is_controller})
    }

    fn agent() -> AgentPod {
        let (node, agent) = AgentPod::from_object(object(&owner("DaemonSet", true))).unwrap();
        assert_eq!(node, "a");
        agent
    }

    #[test]
    fn only_pods_of_a_daemon_set_are_agents() {
        for (kind, is_controller) in [("ReplicaSet", true), ("DaemonSet", false)] {
            assert_eq!(AgentPod::from_object(object(&owner(kind, is_controller))), None);
        }
        let mut alone = object(&owner("DaemonSet", true));
        alone.metadata.owner_references = None;
        assert_eq!(AgentPod::from_object(alone), None);
    }

    #[test]
    fn name_of_a_pod_depends_on_run_node_and_resource() {
        let name = |resource: &str, run: &str| pod_name((&node(), resource), run);
        let run = "0123456789abcdef";
        assert_eq!(name("nvidia.com/gpu", run), name("nvidia.com/gpu", run));
        assert_ne!(name("nvidia.com/gpu", run), name("amd.com/gpu", run));
        assert_ne!(name("nvidia.com/gpu", run), name("nvidia.com/gpu", "r"));
        assert!(name("nvidia.com/gpu", run).len() <= 63);
    }

    fn options(namespace: &str) -> PodOptions {
        PodOptions {
            namespace: namespace.to_owned(),
            image: None,
            runtime_class: None,
            timeout: Duration::from_mins(3),
        }
    }

    fn node() -> ClusterNode {
        let cordon = "node.kubernetes.io/unschedulable".to_owned();
        let taint = Taint { key: cordon, value: String::new(), effect: Effect::NoSchedule };
        ClusterNode { name: "a".to_owned(), taints: vec![taint], ..ClusterNode::default() }
    }

    #[test]
    fn pod_adopts_image_registry_and_runtime_class_of_the_agent_on_its_node() {
        let pod = pod(&options("octavo-system"), (&node(), "nvidia.com/gpu"), &agent(), "r");
        let spec = &pod["spec"];
        assert_eq!(spec["runtimeClassName"], "nvidia");
        assert_eq!(spec["imagePullSecrets"], json!([{"name": "registry"}]));
        let container = &spec["containers"][0];
        assert_eq!(
            (&container["image"], &container["imagePullPolicy"]),
            (&json!("octavo/agent:1"), &json!("Always"))
        );
        assert_eq!(container["resources"]["limits"]["nvidia.com/gpu"], "1");
        assert_eq!(spec["tolerations"][0]["key"], "node.kubernetes.io/unschedulable");
        assert_eq!(spec["activeDeadlineSeconds"], 240);
        let term =
            &spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
        assert_eq!(term["nodeSelectorTerms"][0]["matchFields"][0]["values"], json!(["a"]));
        assert_eq!(pod["metadata"]["labels"][RUN_LABEL], "r");
    }

    #[test]
    fn options_take_precedence_and_other_vendors_have_no_runtime_class() {
        let amd = pod(&options("other"), (&node(), "amd.com/gpu"), &agent(), "r");
        assert_eq!(amd["spec"]["runtimeClassName"], Value::Null);
        assert_eq!(amd["spec"]["imagePullSecrets"], Value::Null);
        assert_eq!(amd["spec"]["containers"][0]["env"], Value::Null);
        let own = PodOptions {
            image: Some("mine:1".to_owned()),
            runtime_class: Some(String::new()),
            ..options("octavo-system")
        };
        let own = pod(&own, (&node(), "nvidia.com/gpu"), &agent(), "r");
        assert_eq!(own["spec"]["runtimeClassName"], Value::Null);
        assert_eq!(own["spec"]["containers"][0]["image"], "mine:1");
        assert_eq!(own["spec"]["containers"][0]["imagePullPolicy"], Value::Null);
    }
}
