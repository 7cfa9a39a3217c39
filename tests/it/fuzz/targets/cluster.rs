//! Texts of the API server's objects and of requests to the aggregator: policies, annotations, tokens.

use octavo_access::trusted_proxies::Network;
use octavo_fleet::cluster::{Amounts, ClusterNode, ClusterPod, free_slots, placement_obstacle};
use octavo_fleet::credential::{
    AcceptanceRule, Audience, Caller, NODE_CLAIM, ServiceAccount, Token, TokenReview,
};
use octavo_kube::cluster::{parse_node, parse_pod};
use octavo_node::node_object::{check_instances, demand_layout};
use octavo_policy::record::Record;
use octavo_policy::validation::problems;
use octavo_policy::{PolicyNode, PolicySpec, release_orphan};

use super::files::{check_targets, checkpoints};
use crate::fuzz::fuzzer::{Outcome, Target};

const NODE: &str = r#"{"metadata":{"name":"node","uid":"u","labels":{"octavo.dev/type":"nvidia-h100-80gb","zone":"7"},
"annotations":{"octavo.dev/status":"{\"layout\":\"a\",\"state\":\"blocked\",\"devices\":[{\"name\":\"GPU 1\",\"state\":\"blocked\",\"message\":\"pod\"}]}",
"octavo.dev/policy":"{}","octavo.dev/drain":"affected,10m"}},
"spec":{"providerID":"aws:///a/i-1","unschedulable":false,"taints":[{"key":"nvidia.com/gpu","value":"v","effect":"NoSchedule"}]},
"status":{"conditions":[{"type":"Ready","status":"True"}],"capacity":{"cpu":"64","nvidia.com/gpu":"8","pods":"110"},
"allocatable":{"cpu":"63500m","memory":"2Ti","nvidia.com/gpu":"7","nvidia.com/mig-1g.10gb":"7","pods":"110"}}}"#;

const POD: &str = r#"{"metadata":{"name":"p","namespace":"team","labels":{"a":"b"},"creationTimestamp":"2026-01-01T00:00:00Z",
"ownerReferences":[{"kind":"ReplicaSet","name":"job-7f9","controller":true,"apiVersion":"apps/v1","uid":"u"}]},
"spec":{"activeDeadlineSeconds":3600,"nodeSelector":{"zone":"7"},"tolerations":[{"key":"nvidia.com/gpu","operator":"Exists"},{"operator":"Equal","key":"a","value":"b"}],
"initContainers":[{"restartPolicy":"Always","resources":{"requests":{"cpu":"1500m"}}}],"overhead":{"cpu":"10m"},
"containers":[{"name":"main","resources":{"requests":{"cpu":"2","memory":"1.5Gi"},"limits":{"nvidia.com/gpu":"1"}}}],
"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[
{"key":"zone","operator":"Gt","values":["3"]},{"key":"zone","operator":"In","values":["7"]}],"matchFields":[{"key":"metadata.name","operator":"In","values":["node"]}]}]}}}},
"status":{"phase":"Pending","startTime":"2026-01-01T00:00:00Z"}}"#;

/// Pods, which any user may create with any content.
pub(super) fn pods() -> Target {
    let node = parse_node(NODE).unwrap();
    Target::text([POD], move |text| {
        let pod = parse_pod(text);
        if let Ok(pod) = &pod {
            place(pod, &node);
        }
        Outcome::from_result(&pod)
    })
}

/// Nodes.
pub(super) fn nodes() -> Target {
    let pod = parse_pod(POD).unwrap();
    Target::text([NODE], move |text| {
        let node = parse_node(text);
        if let Ok(node) = &node {
            place(&pod, node);
        }
        Outcome::from_result(&node)
    })
}

/// A pod that fits has no obstacle, and one with an obstacle has no slots.
fn place(pod: &ClusterPod, node: &ClusterNode) {
    let held = Amounts::default().with("cpu", 500).with("pods", 3);
    let slots = free_slots(&pod.requirements, node, &held);
    let obstacle = placement_obstacle(&pod.requirements, node);
    assert!(slots == 0 || obstacle.is_none(), "{slots} slots, {obstacle:?}");
    let mut sum = held;
    sum.add(&pod.requirements.amounts);
    sum.raise_to(&pod.requirements.amounts);
    let names = sum.iter().map(|(name, _)| (name, sum.quantity(name)));
    assert!(names.map(|(name, text)| name.len() + text.len()).sum::<usize>() < 64 * 1024);
}

/// The spec of a policy.
pub(super) fn policy() -> Target {
    let seeds = [
        r#"{"nodeSelector":{"matchLabels":{"pool":"a"},"matchExpressions":[{"key":"octavo.dev/type","operator":"In","values":["nvidia-h100-80gb"]}]},
"layout":"serving","nodeLabels":{"workload":"x"},"taints":[{"key":"a","value":"b","effect":"NoSchedule"}],
"rollout":{"maxUnavailable":"25%","pause":"10m","windows":[{"days":["Mon"],"start":"22:00","duration":"6h","timeZone":"Europe/Berlin"}],
"maxFailures":1,"onFailure":"RollBack","nodeDeadline":"30m","paused":true},"drain":{"scope":"affected","timeout":"10m"},"revisionHistoryLimit":3}"#,
        r#"{"nodeSelector":{"matchLabels":{"pool":"b"}},"demand":{"mode":"Propose","hold":"2m","changesPerHour":2,"cooldown":"30m"}}"#,
        r#"{"nodeSelector":{"matchLabels":{"pool":"b"}},"demand":{"mode":"Apply"}}"#,
    ];
    Target::text(seeds, |text| {
        let parsed = serde_json::from_str::<PolicySpec>(text);
        if let Ok(spec) = &parsed {
            assert!(
                problems(spec).iter().all(|problem| problem.field.starts_with("spec")),
                "{spec:?}"
            );
            let written = serde_json::to_string(spec).unwrap();
            assert_eq!(serde_json::from_str::<PolicySpec>(&written).unwrap(), *spec, "{written}");
        }
        Outcome::from_result(&parsed)
    })
}

/// The annotation `octavo.dev/policy` of a Node.
pub(super) fn policy_record() -> Target {
    let seeds = [
        r#"{"policy":"a","uid":"u","revision":"r1","rollout":3,"since":"2026-11-29T12:00:00Z","layout":"serving","wasReported":true,
"labels":{"workload":"x"},"taints":[{"key":"a","value":"b","effect":"NoSchedule"}],"drain":"affected,10m","changes":["2026-11-29T11:00:00Z"],"withdrawn":"demand-0123456789"}"#,
        r#"{"policy":"a","uid":"u","revision":"r1","rollout":1,"since":"2026-11-29T12:00:00Z"}"#,
    ];
    Target::text(seeds, |text| {
        let record = Record::parse(Some(text));
        if let Some(valid) = record.valid() {
            let written = serde_json::to_string(valid).unwrap();
            assert_eq!(Record::parse(Some(&written)), record, "{written}");
        }
        let labels = [("octavo.dev/layout", "serving"), ("workload", "x"), ("other", "y")];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let node = ClusterNode {
            name: "node".to_owned(),
            labels: labels.into(),
            policy_record: Some(text.to_owned()),
            ..ClusterNode::default()
        };
        // Whatever the record names, only labels with the recorded values are removed.
        let patch = release_orphan(&PolicyNode::new(&node, None));
        for (key, value) in &patch.labels {
            assert_eq!(value, &None, "{patch:?}");
            let recorded = record.valid().and_then(|record| {
                record
                    .labels
                    .get(key)
                    .or_else(|| record.layout.as_ref().filter(|_| key == "octavo.dev/layout"))
            });
            assert_eq!(recorded, node.labels.get(key), "{patch:?}");
        }
        Outcome::from_result(&record.valid().ok_or("no record"))
    })
}

/// The annotation `octavo.dev/instances` of a Node.
pub(super) fn instances() -> Target {
    let (seeds, machines) = checkpoints();
    Target::text(seeds, move |text| {
        let layout = demand_layout(text);
        assert!(layout.parse::<octavo_model::label::LabelValue>().is_ok(), "{layout}");
        assert_eq!(check_instances(&layout, Some(text)), Ok(text));
        check_targets(text, &machines)
    })
}

/// Bearer tokens, and the names in their reviews.
pub(super) fn tokens() -> Target {
    let seeds = [
        "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2ln",
        "sha256~AbC-_123==",
        "octavo-system/octavo-agent",
        "system:serviceaccount:octavo-system:octavo-agent",
        "https://octavo.example.com/aggregator",
        "10.1.0.0/16",
        "::ffff:10.1.2.3",
        "fd00::/8",
        "gpu-node-07",
    ];
    Target::text(seeds, |text| {
        let signed = text.parse::<Token>();
        if let Ok(token) = &signed {
            assert_eq!(Token::parse_opaque(text).as_ref(), Ok(token));
            assert!(!format!("{token:?}").contains(text), "the token is printed");
        }
        let account = text.parse::<ServiceAccount>();
        if let Ok(account) = &account {
            assert_eq!(account.to_string().parse().as_ref(), Ok(account));
        }
        let network = text.parse::<Network>();
        if let Ok(network) = &network {
            let _ = network.contains([10, 1, 2, 3].into());
            let _ = network.contains([0; 16].into());
        }
        let is_opaque = Token::parse_opaque(text).is_ok();
        let is_named = account.is_ok() || network.is_ok() || text.parse::<Audience>().is_ok();
        let node = authenticate(text);
        if is_opaque || is_named || node.is_ok() {
            Outcome::Accepted
        } else {
            Outcome::from_result(&signed)
        }
    })
}

/// The node of a token whose review has this text as user, audience and node.
fn authenticate(text: &str) -> Result<(), String> {
    let rule = AcceptanceRule {
        account: "octavo-system/octavo-agent".parse().unwrap(),
        audience: "octavo".parse().unwrap(),
    };
    let review = |user: &str, node: &str| TokenReview {
        authenticated: true,
        error: text.to_owned(),
        audiences: vec!["octavo".to_owned(), text.to_owned()],
        caller: Caller {
            user: user.to_owned(),
            extra: [(NODE_CLAIM.to_owned(), vec![node.to_owned()])].into(),
            ..Caller::default()
        },
    };
    let ours = rule.account.username();
    let other = rule.authenticate(&review(text, "node"));
    assert_eq!(other.is_ok(), text == ours, "{text:?} authenticates as {ours}");
    let node = rule.authenticate(&review(&ours, text)).map_err(|error| error.to_string())?;
    assert_eq!(node.as_str(), text);
    Ok(())
}
