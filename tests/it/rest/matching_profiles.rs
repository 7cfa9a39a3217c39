//! `POST /api/v1/match` with a watched cluster and hardware profiles.

use std::collections::{BTreeMap, BTreeSet};

use axum::http::StatusCode;
use octavo_fleet::access::{Visibility, VisibleTypes};
use octavo_fleet::cluster::{
    Amounts, ClusterNode, ClusterPod, Phase, PodKey, PodRequirements, Readiness,
};
use octavo_store::profiles::Profiles;
use serde_json::{Value, json};

use super::fleet::{Aggregator, Machines};
use super::profiles::{ProfileFixture, profile};

const MATCH: &str = "/api/v1/match";
const TYPE: &str = "octavo.dev/type";
const L4: &str = "nvidia-l4-24gb";
const H100: &str = "nvidia-h100-80gb";
const GPU: &str = "nvidia.com/gpu";

fn node(name: &str, kind: &str, resources: &[(&str, u64)]) -> ClusterNode {
    let all = resources.iter();
    let all = all.fold(Amounts::default(), |all, (name, count)| all.with(name, *count));
    let all = all.with("pods", 110);
    ClusterNode {
        name: name.to_owned(),
        labels: BTreeMap::from([(TYPE.to_owned(), kind.to_owned())]),
        readiness: Readiness::Ready,
        capacity: all.clone(),
        allocatable: all,
        ..ClusterNode::default()
    }
}

fn pod(name: &str, on: &str) -> ClusterPod {
    ClusterPod {
        key: PodKey { namespace: "team".to_owned(), name: name.to_owned() },
        node: Some(on.to_owned()),
        phase: Phase::Bound,
        requirements: PodRequirements {
            amounts: Amounts::default().with(GPU, 1),
            ..PodRequirements::default()
        },
        ..ClusterPod::default()
    }
}

/// Two nodes with an L4 each, one of them allocated; and one with H100s, one of which is allocated and some are
/// partitioned.
async fn aggregator(profiles: &[Value]) -> (ProfileFixture, Aggregator) {
    let h100 = [
        (GPU, 2),
        ("nvidia.com/mig-3g.40gb", 1),
        ("nvidia.com/mig-1g.10gb", 1),
        ("nvidia.com/mig-7g.80gb", 1),
    ];
    let nodes = vec![
        node("gpu-1", L4, &[(GPU, 1)]),
        node("gpu-2", L4, &[(GPU, 1)]),
        node("mixed-1", H100, &h100),
    ];
    let pods = vec![pod("one", "gpu-2"), pod("two", "mixed-1")];
    let (fixture, profiles, seen) = ProfileFixture::of(nodes, pods, profiles);
    let aggregator = Aggregator::following(&Machines::read().await, profiles, seen);
    (fixture, aggregator)
}

fn two() -> Vec<Value> {
    let mut large = profile("a", "large", TYPE, H100);
    large["spec"]["identifiers"][0]["maxCount"] = json!(1);
    vec![large, profile("a", "small", TYPE, L4)]
}

async fn requested(aggregator: &Aggregator, request: Value) -> Value {
    let answer = aggregator.post(MATCH, &request.to_string()).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
    answer.json()
}

#[track_caller]
fn names(answer: &Value) -> Vec<String> {
    let matches = answer["matches"].as_array().unwrap();
    let shown = matches.iter().map(|one| {
        let (count, name) = (&one["count"], one["name"].as_str().unwrap());
        format!("{count} {name} {}", one["availability"].as_str().unwrap())
    });
    shown.collect()
}

fn texts(of: &Value) -> String {
    let texts = of.as_array().into_iter().flatten();
    let texts: Vec<&str> = texts.map(|text| text.as_str().unwrap()).collect();
    texts.join("; ")
}

#[tokio::test]
async fn ac_006_profiles_are_ranked_by_what_scheduler_would_place() {
    let (_fixture, aggregator) = aggregator(&two()).await;
    let answer = requested(&aggregator, json!({"memoryPerDeviceAtLeast": "20GB"})).await;
    assert_eq!(names(&answer), ["1 a/large free", "1 a/small free"]);
    assert_eq!((&answer["freeBy"], &answer["verdict"]), (&json!("cluster"), &json!("fits-now")));
    let best = &answer["matches"][0];
    // Agents report two without a process; one of them is allocated to a pod.
    assert_eq!(best["free"], json!({"total": 1, "onOneNode": 1}));
    assert_eq!((&best["resource"], &best["type"]), (&json!(GPU), &json!(H100)));
    assert_eq!(
        best["profile"],
        json!({"namespace": "a", "name": "large", "displayName": "Premium GPU", "min": 1, "max": 1})
    );
    let answer =
        requested(&aggregator, json!({"memoryPerDeviceAtLeast": "80GB", "count": 2})).await;
    assert_eq!(names(&answer), ["2 nvidia-h100-80gb could-become"]);
    assert_eq!(
        answer["summary"],
        "2 x nvidia-h100-80gb fits, none is free, could become free by repartitioning mixed-1; no matching profile offers it; see the reasons of the rejected profiles"
    );
    let refused = &answer["refused"];
    assert_eq!(
        (&refused[0]["name"], texts(&refused[0]["why"])),
        (&json!("a/large"), "needs 2; the profile allows at most 1".to_owned())
    );
    assert!(
        texts(&refused[1]["why"]).starts_with("needs 74.5 GiB or more per device; it has 22.4 GiB"),
        "{refused}"
    );
}

#[tokio::test]
async fn type_without_profile_is_last_with_command_that_creates_one() {
    let (fixture, aggregator) = aggregator(&two()[1..]).await;
    let request = json!({"memoryPerDeviceAtLeast": "20GB", "isolation": "mig"});
    let answer = requested(&aggregator, request).await;
    let all = names(&answer);
    assert_eq!(all[0], "1 a/small free");
    assert!(all.contains(&"1 nvidia-h100-80gb free".to_owned()), "{all:?}");
    let matches = answer["matches"].as_array().unwrap();
    let part = matches.iter().find(|one| one["name"] == "nvidia-h100-80gb/3g.40gb");
    assert_eq!(
        part.unwrap()["warnings"][0],
        "no profile offers it: octavo profiles create --type nvidia-h100-80gb --resource nvidia.com/mig-3g.40gb"
    );
    // Without a cluster watcher, agents report what is free, and profiles determine where.
    let book =
        octavo_files::config_files::profiles::HardwareProfileFile::open(&fixture.path()).unwrap();
    let profiles = Profiles::new(None, None, Some(book));
    let alone = Aggregator::with_profiles(&Machines::read().await, profiles);
    let answer = requested(&alone, json!({"memoryPerDeviceAtLeast": "20GB"})).await;
    assert_eq!(names(&answer), ["1 a/small free", "1 nvidia-h100-80gb free"]);
    assert_eq!(answer["freeBy"], "agents");
    let best = &answer["matches"][0];
    assert_eq!(best["free"], json!({"total": 2, "onOneNode": 1}));
    assert!(texts(&best["warnings"]).contains("the cluster is not watched"), "{best}");
}

#[tokio::test]
async fn profile_with_no_nodes_or_with_a_queue_is_reported() {
    let mut queued = profile("a", "queued", TYPE, L4);
    queued["spec"]["scheduling"] = json!({"type": "Queue", "kueue": {"localQueueName": "gpu"}});
    queued["metadata"]["annotations"][TYPE] = json!(L4);
    let mut mute = queued.clone();
    mute["metadata"] = json!({"name": "mute", "namespace": "a"});
    let nowhere = profile("a", "nowhere", TYPE, "nvidia-h200-141gb");
    let (_fixture, aggregator) = aggregator(&[queued, mute, nowhere]).await;
    let answer = requested(&aggregator, json!({"preferred": [L4]})).await;
    assert_eq!(names(&answer)[0], "1 a/queued unknown", "{answer:#}");
    assert!(texts(&answer["matches"][0]["warnings"]).contains("its queue gpu decides"));
    // Nodes have free devices that no profile makes available as soon.
    assert_eq!(names(&answer)[1], "1 nvidia-l4-24gb free");
    let why = |name: &str| {
        let refused = answer["refused"].as_array().unwrap().iter();
        let mut found = refused.filter(|one| one["name"] == name);
        texts(&found.next().unwrap_or_else(|| panic!("{answer:#}"))["why"])
    };
    assert!(why("a/mute").contains("set its type with the annotation"), "{answer:#}");
    assert!(why("a/nowhere").contains("matches no node"), "{answer:#}");
}

#[tokio::test]
async fn reader_of_some_types_sees_those_and_profiles_limited_to_them() {
    let mut both = profile("a", "both", "kubernetes.io/os", "linux");
    both["spec"]["scheduling"]["node"]["nodeSelector"] = json!({});
    let (_fixture, aggregator) = aggregator(&[two().remove(0), both, two().remove(1)]).await;
    let request = json!({"count": 2}).to_string();
    let of = |profiles| Visibility {
        types: VisibleTypes::Only(BTreeSet::from([H100.parse().unwrap()])),
        nodes: false,
        profiles,
        pods: false,
    };
    let answer = aggregator.post_as(of(true), MATCH, &request).await;
    for hidden in ["mixed-1", L4, "a/both", "a/small"] {
        assert!(!answer.body.contains(hidden), "{hidden}: {}", answer.body);
    }
    let answer = answer.json();
    assert_eq!(names(&answer), ["2 nvidia-h100-80gb could-become"]);
    assert_eq!(answer["refused"][0]["name"], "a/large");
    assert!(answer["summary"].as_str().unwrap().contains("by repartitioning a node"));
    assert!(texts(&answer["notices"]).contains("only types that you have access to"));
    let answer = aggregator.post_as(of(false), MATCH, &request).await;
    assert!(!answer.body.contains("a/") && !answer.body.contains("profile"), "{}", answer.body);
    let answer = aggregator.post_as(Visibility::none(), MATCH, "{}").await.json();
    assert_eq!(answer["verdict"], "nothing-fits");
    assert_eq!((&answer["matches"], &answer["refused"]), (&json!([]), &json!([])));
}

#[tokio::test]
async fn performance_rows_add_expectations_and_invalid_row_is_a_problem() {
    let (_fixture, aggregator) = aggregator(&two()).await;
    let row = |hardware: &str, speed: Value| json!({"hardware_type": hardware, "hardware_count": 1, "tps_mean": speed});
    let request = |rows: Value| json!({"preferred": ["H200"], "memoryPerDeviceAtLeast": "80GB", "performance": rows});
    let rows = json!([row("H200", json!(120)), row("H100", json!(75)), row("X9", json!(1))]);
    let answer = requested(&aggregator, request(rows)).await;
    let best = &answer["matches"][0];
    assert_eq!(best["tokensPerSecond"], json!({"low": 75.0, "high": 75.0, "rows": ["H100"]}));
    assert_eq!(
        best["warnings"][0],
        "nvidia-h100-80gb instead of the preferred nvidia-h200-141gb, which is not in this fleet: expect 75 instead of 120 tokens/s (benchmark results: H100, H200)"
    );
    assert!(texts(&answer["notices"]).contains("\"X9\""), "{answer:#}");
    let wrong = request(json!([row("H200", json!("fast"))])).to_string();
    let answer = aggregator.post(MATCH, &wrong).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{}", answer.body);
    assert_eq!(answer.json()["parameter"], "performance");
}
