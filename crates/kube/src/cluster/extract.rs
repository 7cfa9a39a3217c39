//! Extracts the fields of Nodes and Pods that the scheduler uses.
//!
//! Called for each object as it arrives. Invalid fields are skipped and the object is marked as odd: a pod with invalid
//! fields still uses its resources.

use std::collections::BTreeMap;

use octavo_fleet::cluster::{
    Affinity, ClusterNode, ClusterPod, LayoutReport, Phase, PodKey, PodOwner, PodRequirements,
    Readiness, Taint, TaintOperator, Toleration,
};
use octavo_model::text::truncated_word;

use super::object;
use super::pod_requests::RequestCalculator;

/// An object with its relevant fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Extracted<T> {
    pub(super) object: T,
    /// Whether an invalid field was skipped.
    pub(super) is_invalid: bool,
}

/// Maximum number of labels, and of taints, stored per node. The API server only limits the object's size, to 1.5 MiB;
/// no node has nearly as many.
const MAX_NODE_ENTRIES: usize = 2048;
/// Maximum number of labels stored per pod. Any user may create pods with any number.
const MAX_POD_LABELS: usize = 128;
/// Maximum length of a policy's record. The controller writes at most 32 labels and 16 taints.
const MAX_RECORD_BYTES: usize = 64 << 10;
/// Maximum length of the annotation `octavo.dev/drain`, in characters: more than a policy writes.
const MAX_DRAIN_CHARS: usize = 64;
/// Maximum length of the explanation of a layout's state, in characters.
const MAX_REPORT_CHARS: usize = 300;
/// Limit of selector terms, tolerations and values of a pod. Any user may create pods of any size; a pod with more than
/// this is stored as one that fits nowhere.
const MAX_SELECTION_SIZE: usize = 1024;

/// Extracts the relevant fields of a node.
pub(super) fn node(node: object::Node) -> Extracted<ClusterNode> {
    let mut calculator = RequestCalculator::default();
    let (spec, status) = (node.spec.unwrap_or_default(), node.status.unwrap_or_default());
    let taints = spec.taints.unwrap_or_default();
    let labels = node.metadata.labels.unwrap_or_default();
    let too_many = labels.len().max(taints.len()) > MAX_NODE_ENTRIES;
    let (taints, has_invalid_taints) = parse_all(taints.into_iter().take(MAX_NODE_ENTRIES), taint);
    let annotations = node.metadata.annotations.unwrap_or_default();
    let object = ClusterNode {
        name: node.metadata.name,
        uid: node.metadata.uid.unwrap_or_default(),
        provider_id: truncated_word(&spec.provider_id.unwrap_or_default()),
        labels: labels.into_iter().take(MAX_NODE_ENTRIES).collect(),
        taints,
        is_cordoned: spec.unschedulable.unwrap_or_default(),
        readiness: readiness(&status.conditions.unwrap_or_default()),
        capacity: calculator.amounts(status.capacity.as_ref()),
        allocatable: calculator.amounts(status.allocatable.as_ref()),
        layout_report: annotations.status.as_deref().and_then(layout_report),
        policy_record: annotations.policy.filter(|record| record.len() <= MAX_RECORD_BYTES),
        drain: annotations.drain.map(|drain| drain.chars().take(MAX_DRAIN_CHARS).collect()),
    };
    let is_invalid = calculator.found_invalid || has_invalid_taints || too_many;
    Extracted { object, is_invalid }
}

/// Parses the layout status that an agent writes; `None` if it is invalid.
fn layout_report(annotation: &str) -> Option<LayoutReport> {
    let status: object::LayoutStatus = serde_json::from_str(annotation).ok()?;
    let word = status.state.unwrap_or_default();
    let mut devices = status.devices.iter();
    let worst = devices.find(|device| device.state == word && !device.message.is_empty());
    let message = match (worst, status.message) {
        (Some(device), _) => format!("{}: {}", device.name, device.message),
        (None, message) => message.unwrap_or_default(),
    };
    let message = message.chars().take(MAX_REPORT_CHARS).collect();
    Some(LayoutReport { layout: status.layout, state: word.parse().ok(), message })
}

/// Extracts the relevant fields of a pod.
pub(super) fn pod(pod: object::Pod) -> Extracted<ClusterPod> {
    let mut calculator = RequestCalculator::default();
    let (metadata, status) = (pod.metadata, pod.status.unwrap_or_default());
    let spec = pod.spec.unwrap_or_default();
    let amounts = calculator.pod(&spec);
    // Most pods request no devices, and their labels are not needed.
    let has_devices = amounts.devices().next().is_some()
        || spec.resource_claims.is_some_and(|claims| !claims.is_empty());
    let labels = metadata.labels.filter(|_| has_devices).unwrap_or_default();
    let labels: BTreeMap<_, _> = labels.into_iter().take(MAX_POD_LABELS).collect();
    let owners = metadata.owner_references.filter(|_| has_devices).unwrap_or_default();
    let owner = owner(owners, &labels);
    let node = spec.node_name.filter(|name| !name.is_empty());
    let is_gated = spec.scheduling_gates.is_some_and(|gates| !gates.is_empty());
    let is_going = metadata.deletion_timestamp.is_some();
    let phase = match (status.phase.as_deref(), &node) {
        (Some("Succeeded" | "Failed"), _) => Phase::Finished,
        (_, Some(_)) => Phase::Bound,
        // A pod that is being deleted is not scheduled.
        (_, None) if is_going => Phase::Finished,
        (_, None) if is_gated => Phase::Gated,
        (_, None) => Phase::Pending,
    };
    let created = metadata.creation_timestamp.as_deref().filter(|_| has_devices);
    let created = created.and_then(parse_timestamp);
    let began = status.start_time.as_deref().and_then(parse_timestamp);
    let since =
        status.start_time.or_else(|| metadata.creation_timestamp.filter(|_| node.is_some()));
    let until = since.zip(spec.active_deadline_seconds);
    let ends = until.map(|(since, seconds)| Some(parse_timestamp(&since)?.saturating_add(seconds)));
    let selector = spec.node_selector.unwrap_or_default();
    let affinity = spec.affinity.and_then(|all| all.node_affinity?.required);
    let tolerations = spec.tolerations.unwrap_or_default();
    let size = selector.len() + tolerations.len() + affinity.as_ref().map_or(0, affinity_size);
    let (requirements, has_invalid_selection) = if size > MAX_SELECTION_SIZE {
        let affinity = Some(Affinity::default());
        (PodRequirements { amounts, affinity, ..PodRequirements::default() }, true)
    } else {
        let (tolerations, is_invalid) = parse_all(tolerations.into_iter(), toleration);
        (PodRequirements { amounts, selector, affinity, tolerations }, is_invalid)
    };
    let object = ClusterPod {
        key: PodKey { namespace: metadata.namespace.unwrap_or_default(), name: metadata.name },
        uid: metadata.uid.filter(|_| has_devices),
        node,
        phase,
        requirements,
        created_at: created,
        started_at: began,
        until: ends.flatten(),
        owner,
        labels,
        priority: spec.priority.unwrap_or_default(),
        is_terminating: is_going,
    };
    let is_invalid = calculator.found_invalid || has_invalid_selection || ends == Some(None);
    Extracted { object, is_invalid }
}

/// The controller of a pod; the Deployment of a `ReplicaSet`, whose name is that of the Deployment and the label
/// `pod-template-hash`. Source: Kubernetes, `pkg/controller/deployment/sync.go`.
fn owner(
    owners: Vec<object::OwnerReference>,
    labels: &BTreeMap<String, String>,
) -> Option<PodOwner> {
    let owner = owners.into_iter().find(|owner| owner.controller == Some(true))?;
    let hash = labels.get("pod-template-hash").filter(|_| owner.kind == "ReplicaSet");
    let deployment =
        hash.and_then(|hash| owner.name.strip_suffix(hash.as_str())?.strip_suffix('-'));
    Some(match deployment {
        Some(name) => PodOwner { kind: "Deployment".to_owned(), name: name.to_owned() },
        None => PodOwner { kind: owner.kind, name: owner.name },
    })
}

/// Parses a timestamp to seconds since 1970.
fn parse_timestamp(text: &str) -> Option<i64> {
    let time: jiff::Timestamp = text.parse().ok()?;
    Some(time.as_second())
}

/// Number of terms, requirements and values.
fn affinity_size(affinity: &Affinity) -> usize {
    let terms = affinity.terms.iter().map(|term| {
        let all = term.labels.iter().chain(&term.fields);
        all.map(|one| one.values.len() + 1).sum::<usize>() + 1
    });
    terms.sum()
}

/// Returns the valid elements, and whether any is invalid.
fn parse_all<A, B>(all: impl Iterator<Item = A>, read: fn(A) -> Option<B>) -> (Vec<B>, bool) {
    let mut is_invalid = false;
    let known = all.filter_map(|one| {
        let one = read(one);
        is_invalid |= one.is_none();
        one
    });
    let known = known.collect();
    (known, is_invalid)
}

fn taint(taint: object::Taint) -> Option<Taint> {
    let effect = taint.effect.parse().ok()?;
    let (key, value) = (taint.key, taint.value.unwrap_or_default());
    Some(Taint { key, value, effect })
}

fn toleration(toleration: object::Toleration) -> Option<Toleration> {
    let effect = match toleration.effect.as_deref() {
        None | Some("") => None,
        Some(word) => Some(word.parse().ok()?),
    };
    let operator = match toleration.operator.as_deref() {
        None | Some("" | "Equal") => TaintOperator::Equal,
        Some("Exists") => TaintOperator::Exists,
        Some(_) => TaintOperator::Other,
    };
    Some(Toleration {
        key: toleration.key.unwrap_or_default(),
        operator,
        value: toleration.value.unwrap_or_default(),
        effect,
    })
}

fn readiness(conditions: &[object::Condition]) -> Readiness {
    let ready = conditions.iter().find(|one| one.kind == "Ready");
    match ready.map(|one| one.status.as_str()) {
        Some("True") => Readiness::Ready,
        Some("False") => Readiness::NotReady,
        Some(_) | None => Readiness::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use octavo_fleet::cluster::{Amounts, Effect, Operator, placement_obstacle};
    use octavo_model::reason::Reason;
    use serde_json::{Value, json};

    use super::*;

    fn read_pod(pod: Value) -> Extracted<ClusterPod> {
        super::pod(serde_json::from_value(pod).unwrap())
    }

    fn read_node(node: Value) -> Extracted<ClusterNode> {
        super::node(serde_json::from_value(node).unwrap())
    }

    #[test]
    fn node_is_read_as_by_the_scheduler() {
        let node = read_node(json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {
                "name": "node-a", "uid": "u", "resourceVersion": "7", "labels": {"a": "b"}, "annotations": {"c": "d"},
                "managedFields": [{"manager": "kubelet"}],
            },
            "spec": {
                "podCIDR": "10.0.0.0/24", "unschedulable": true, "providerID": "aws:///a/i-1",
                "taints": [{"key": "k", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}, {"key": "g", "value": "v", "effect": "NoSchedule"}],
            },
            "status": {
                "conditions": [{"type": "DiskPressure", "status": "False"}, {"type": "Ready", "status": "True"}],
                "capacity": {"cpu": "64", "nvidia.com/gpu": "8"}, "allocatable": {"cpu": "63500m", "nvidia.com/gpu": "7", "pods": "110"},
                "images": [{"names": ["a"], "sizeBytes": 1}],
            },
        }));
        let taint = |key: &str, value: &str, effect| Taint {
            key: key.to_owned(),
            value: value.to_owned(),
            effect,
        };
        let expected = ClusterNode {
            name: "node-a".to_owned(),
            uid: "u".to_owned(),
            provider_id: "aws:///a/i-1".to_owned(),
            labels: [("a".to_owned(), "b".to_owned())].into(),
            taints: vec![taint("k", "", Effect::NoExecute), taint("g", "v", Effect::NoSchedule)],
            is_cordoned: true,
            readiness: Readiness::Ready,
            capacity: Amounts::default().with("cpu", 64_000).with("nvidia.com/gpu", 8),
            allocatable: Amounts::default()
                .with("cpu", 63_500)
                .with("nvidia.com/gpu", 7)
                .with("pods", 110),
            layout_report: None,
            policy_record: None,
            drain: None,
        };
        assert_eq!((node.object, node.is_invalid), (expected, false));
    }

    #[test]
    fn annotations_of_agent_and_policies_are_read() {
        let status = json!({"layout": "serving", "state": "blocked", "devices": [
            {"name": "GPU 0", "state": "applied", "message": "-"},
            {"name": "GPU 1", "state": "blocked", "message": "pod team/train"},
        ]});
        let annotations = json!({"octavo.dev/status": status.to_string(), "octavo.dev/policy": "{}", "other": "x"});
        let node = read_node(json!({"metadata": {"name": "n", "annotations": annotations}})).object;
        let report = LayoutReport {
            layout: Some("serving".to_owned()),
            state: Some(Reason::Blocked),
            message: "GPU 1: pod team/train".to_owned(),
        };
        assert_eq!((node.layout_report, node.policy_record.as_deref()), (Some(report), Some("{}")));
        let annotations = json!({"octavo.dev/status": "{"});
        let node = read_node(json!({"metadata": {"name": "n", "annotations": annotations}})).object;
        assert_eq!(node.layout_report, None);
    }

    #[test]
    fn empty_node_is_not_ready_but_valid() {
        let node = read_node(json!({"metadata": {"name": "n", "labels": null}, "status": {}}));
        assert_eq!((node.object.readiness, node.is_invalid), (Readiness::Unknown, false));
        for (status, readiness) in [("False", Readiness::NotReady), ("Unknown", Readiness::Unknown)]
        {
            let conditions = json!([{"type": "Ready", "status": status}]);
            let node =
                read_node(json!({"metadata": {"name": "n"}, "status": {"conditions": conditions}}));
            assert_eq!(node.object.readiness, readiness);
        }
    }

    #[test]
    fn pod_phase_depends_on_phase_node_and_gates() {
        let node = json!({"nodeName": "node-a"});
        let gated = json!({"schedulingGates": [{"name": "quota"}]});
        let free = json!({"nodeName": "", "schedulingGates": []});
        let going = json!({"name": "p", "deletionTimestamp": "2026-01-01T00:00:00Z"});
        let is = json!({"name": "p"});
        for (metadata, spec, phase, expected) in [
            (&is, &free, "Pending", Phase::Pending),
            (&is, &gated, "Pending", Phase::Gated),
            (&is, &node, "Pending", Phase::Bound),
            (&is, &node, "Running", Phase::Bound),
            (&is, &node, "Unknown", Phase::Bound),
            (&is, &node, "Succeeded", Phase::Finished),
            (&is, &node, "Failed", Phase::Finished),
            (&is, &free, "Failed", Phase::Finished),
            (&going, &node, "Running", Phase::Bound),
            (&going, &free, "Pending", Phase::Finished),
        ] {
            let pod =
                read_pod(json!({"metadata": metadata, "spec": spec, "status": {"phase": phase}}));
            assert_eq!(pod.object.phase, expected, "{metadata} {spec} {phase}");
        }
    }

    #[test]
    fn active_deadline_counts_from_start() {
        let times = |metadata: Value, spec: Value, status: Value| {
            let pod = read_pod(json!({"metadata": metadata, "spec": spec, "status": status}));
            (pod.object.started_at, pod.object.until, pod.is_invalid)
        };
        let made = json!({"name": "p", "creationTimestamp": "2026-01-01T00:00:00Z"});
        let (bound, waiting) = (
            json!({"nodeName": "n", "activeDeadlineSeconds": 60}),
            json!({"activeDeadlineSeconds": 60}),
        );
        let began = json!({"startTime": "2026-01-01T00:01:00Z"});
        let new_year = 1_767_225_600;
        assert_eq!(
            times(made.clone(), bound.clone(), began.clone()),
            (Some(new_year + 60), Some(new_year + 120), false)
        );
        assert_eq!(
            times(made.clone(), bound.clone(), json!({})),
            (None, Some(new_year + 60), false)
        );
        assert_eq!(times(made.clone(), waiting, json!({})), (None, None, false));
        assert_eq!(
            times(made.clone(), json!({"nodeName": "n"}), began),
            (Some(new_year + 60), None, false)
        );
        assert_eq!(times(made, bound, json!({"startTime": "soon"})), (None, None, true));
    }

    #[test]
    fn node_selection_is_read() {
        let pod = read_pod(json!({
            "metadata": {"namespace": "team-a", "name": "p"},
            "spec": {
                "nodeSelector": {"zone": "a"},
                "affinity": {"podAffinity": {}, "nodeAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {}}],
                    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{
                        "matchExpressions": [{"key": "type", "operator": "In", "values": ["x"]}],
                        "matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["node-b"]}],
                    }]},
                }},
                "tolerations": [{"operator": "Exists"}, {"key": "k", "value": "v", "effect": "NoSchedule", "tolerationSeconds": 3}, {"key": "k", "operator": "Lt", "value": "3"}],
            },
        }));
        let requirements = pod.object.requirements;
        assert_eq!(requirements.selector["zone"], "a");
        let affinity = requirements.affinity.unwrap();
        assert_eq!(affinity.terms[0].labels[0].operator, Operator::In);
        assert_eq!(affinity.terms[0].fields[0].values, ["node-b"]);
        let operators: Vec<_> = requirements.tolerations.iter().map(|one| one.operator).collect();
        assert_eq!(operators, [TaintOperator::Exists, TaintOperator::Equal, TaintOperator::Other]);
        assert_eq!(requirements.tolerations[1].effect, Some(Effect::NoSchedule));
        assert!(!pod.is_invalid);
        let all = json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}});
        let none = read_pod(json!({"metadata": {"name": "p"}, "spec": all})).object;
        assert_eq!(none.requirements.affinity, Some(Affinity::default()));
    }

    #[test]
    fn i12_oversized_or_invalid_pod_is_stored_as_invalid() {
        let values: Vec<String> = (0..MAX_SELECTION_SIZE).map(|one| one.to_string()).collect();
        let required = json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": "type", "operator": "In", "values": values}]}]});
        let requests = json!({"resources": {"requests": {"nvidia.com/gpu": "2"}}});
        let pod = read_pod(json!({"metadata": {"name": "p", "uid": "u"}, "spec": {
            "nodeName": "node-a", "containers": [requests], "nodeSelector": {"a": "b"},
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}},
        }}));
        assert!(pod.is_invalid);
        assert_eq!(pod.object.holding_node(), Some("node-a"));
        assert_eq!(pod.object.uid.as_deref(), Some("u"));
        assert_eq!(pod.object.requirements.amounts.get("nvidia.com/gpu"), 2);
        assert!(placement_obstacle(&pod.object.requirements, &ClusterNode::default()).is_some());
        let strange = json!({"tolerations": [{"key": "k", "effect": "Sometimes"}, {"key": "k"}]});
        let pod = read_pod(json!({"metadata": {"name": "p"}, "spec": strange}));
        assert_eq!((pod.object.requirements.tolerations.len(), pod.is_invalid), (1, true));
    }
}
