//! Availability of a fleet without a cluster.

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::fleet::{Aggregator, Machines};
use crate::time_limits::until_async;

const GPU: &str = "nvidia.com/gpu";

fn row<'a>(list: &'a Value, type_name: &str, resource: &str) -> &'a Value {
    let items = list["items"].as_array().unwrap();
    let found = items.iter().find(|row| row["type"] == type_name && row["resource"] == resource);
    found.unwrap_or_else(|| panic!("no {type_name} {resource} in {list:#}"))
}

fn figures(row: &Value) -> Value {
    json!([row["capacity"], row["allocatable"], row["inUse"], row["free"]])
}

#[tokio::test]
async fn availability_without_cluster_counts_idle_devices_and_reports_basis() {
    let aggregator = Aggregator::of(&Machines::read().await);
    let list = aggregator.get("/api/v1/availability").await.json();
    assert_eq!(
        (&list["basis"], &list["stale"], &list["error"]),
        (&json!("agents"), &json!(false), &Value::Null)
    );
    let l4 = row(&list, "nvidia-l4-24gb", GPU);
    assert_eq!(figures(l4), json!([2, 2, 0, 2]));
    assert_eq!(
        (&l4["title"], &l4["nodes"], &l4["requested"]),
        (&json!("NVIDIA L4 24GB"), &json!(2), &Value::Null)
    );
    assert_eq!(l4["wait"], json!({"basis": "free"}));
    let h100 = "nvidia-h100-80gb";
    for (resource, expected) in [
        (GPU, json!([2, 2, 0, 2])),
        ("nvidia.com/mig-3g.40gb", json!([1, 1, 0, 1])),
        ("nvidia.com/mig-7g.80gb", json!([1, 1, 1, 0])),
    ] {
        assert_eq!(figures(row(&list, h100, resource)), expected, "{resource}");
    }
    let taken = row(&list, h100, "nvidia.com/mig-7g.80gb");
    assert_eq!(taken["wait"]["basis"], "unknown");
    assert!(taken["wait"]["reason"].as_str().unwrap().contains("not watched"));
}

#[tokio::test]
async fn possible_partitions_of_idle_devices_match_planner_capacity() {
    let aggregator = Aggregator::of(&Machines::read().await);
    let list = aggregator.get("/api/v1/availability").await.json();
    // Two whole devices and one with two idle partitions; the fourth is in use.
    for (resource, more) in [
        (GPU, 1),
        ("nvidia.com/mig-1g.10gb", 7 + 7 + 6),
        ("nvidia.com/mig-2g.20gb", 3 + 3 + 3),
        ("nvidia.com/mig-3g.40gb", 2 + 2 + 1),
        ("nvidia.com/mig-7g.80gb", 3),
    ] {
        let row = row(&list, "nvidia-h100-80gb", resource);
        assert_eq!(row["couldBecome"], more, "{resource}");
    }
    assert_eq!(row(&list, "nvidia-l4-24gb", GPU)["couldBecome"], 0);
    // Beside the two idle partitions, without enabling MIG mode of the whole devices.
    for (resource, more) in [
        (GPU, 0),
        ("nvidia.com/mig-1g.10gb", 3),
        ("nvidia.com/mig-2g.20gb", 1),
        ("nvidia.com/mig-3g.40gb", 0),
        ("nvidia.com/mig-7g.80gb", 0),
    ] {
        assert_eq!(row(&list, "nvidia-h100-80gb", resource)["couldAdd"], more, "{resource}");
    }
}

#[tokio::test]
async fn stale_node_is_unavailable() {
    let aggregator = Aggregator::of(&Machines::read().await);
    aggregator.silence("gpu-2");
    let list = aggregator.get("/api/v1/availability").await.json();
    let l4 = row(&list, "nvidia-l4-24gb", GPU);
    assert_eq!(figures(l4), json!([2, 1, 0, 1]));
    assert_eq!(
        (&l4["unusable"][0]["reason"], &l4["unusable"][0]["count"]),
        (&json!("stale"), &json!(1))
    );
}

#[tokio::test]
async fn rows_are_filtered_and_invalid_parameters_are_problems() {
    let aggregator = Aggregator::of(&Machines::read().await);
    let count = async |query: &str| {
        let path = format!("/api/v1/availability?{query}");
        let list = aggregator.get(&path).await.json();
        list["items"].as_array().unwrap().len()
    };
    assert_eq!(count("type=nvidia-l4-24gb").await, 1);
    assert_eq!(count("resource=nvidia.com/gpu").await, 2);
    assert_eq!(count("resource=nvidia.com/gpu&minFree=3").await, 0);
    assert_eq!(count("type=unknown").await, 0);
    for (query, kind) in
        [("minFree=few", "/problems/invalid-parameter"), ("size=1", "/problems/unknown-parameter")]
    {
        let path = format!("/api/v1/availability?{query}");
        let answer = aggregator.get(&path).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{query}");
        assert_eq!(answer.json()["type"], kind, "{query}");
    }
}

#[tokio::test]
async fn prometheus_metrics_have_the_same_figures() {
    let aggregator = Aggregator::of(&Machines::read().await);
    let lines = [
        r#"octavo_aggregator_availability{type="nvidia-l4-24gb",resource="nvidia.com/gpu",state="free"} 2"#,
        r#"octavo_aggregator_availability{type="nvidia-h100-80gb",resource="nvidia.com/mig-7g.80gb",state="requested"} 1"#,
    ];
    // A scrape of a busy aggregator may omit the figures; the next one has them.
    let scrape = async || aggregator.get("/metrics").await.body;
    until_async("figures of availability", scrape, |metrics: &String| {
        lines.iter().all(|line| metrics.contains(line))
    })
    .await;
}
