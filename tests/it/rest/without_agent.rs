//! Nodes of the cluster without agent: listed by their labels, filtered, sorted and paged like others, and used in
//! drafts.

use std::collections::BTreeSet;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use octavo_fleet::access::{Visibility, VisibleTypes};
use octavo_fleet::cluster::{Amounts, ClusterNode, Readiness};
use serde_json::{Value, json};
use tower::ServiceExt;

use super::events::Reader;
use super::fleet::{Aggregator, Machines};
use super::profiles::{ProfileFixture, followed, node};

const PRODUCT: &str = "nvidia.com/gpu.product";
const A100: &str = "nvidia-a100-40gb";
const VENDOR: (&str, &str) = (PRODUCT, "NVIDIA-A100-SXM4-40GB");

/// A node with NVIDIA's labels and four devices.
fn vendor(name: &str, (key, value): (&str, &str)) -> ClusterNode {
    let all = Amounts::default()
        .with("nvidia.com/gpu", 4)
        .with("cpu", 64_000)
        .with("memory", 512 << 30)
        .with("pods", 110);
    ClusterNode {
        name: name.to_owned(),
        labels: [(key.to_owned(), value.to_owned())].into(),
        readiness: Readiness::Ready,
        capacity: all.clone(),
        allocatable: all,
        ..ClusterNode::default()
    }
}

/// Four nodes with agents, two without, one without an accelerator; one of those with an agent is in the cluster too.
async fn aggregator() -> (Aggregator, ProfileFixture, Machines) {
    let machines = Machines::read().await;
    let cpu = ClusterNode { name: "cpu-1".to_owned(), ..ClusterNode::default() };
    let nodes = vec![
        vendor("vendor-a100", VENDOR),
        vendor("vendor-b100", VENDOR),
        node("gpu-1", &[("octavo.dev/type", "nvidia-l4-24gb")]),
        cpu,
    ];
    let (fixture, profiles, seen) = ProfileFixture::of(nodes, Vec::new(), &[]);
    let aggregator = Aggregator::following(&machines, profiles, seen);
    (aggregator, fixture, machines)
}

fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().unwrap().iter();
    items.map(|one| one["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn ac_001_nodes_without_agent_are_listed_by_labels_and_marked() {
    let (aggregator, _fixture, _) = aggregator().await;
    let list = aggregator.get("/api/v1/nodes").await.json();
    let listed = names(&list);
    assert_eq!(list["total"], listed.len());
    let each: BTreeSet<&&str> = listed.iter().collect();
    assert_eq!(each.len(), listed.len(), "{listed:?}");
    assert!(listed.contains(&"vendor-a100") && listed.contains(&"vendor-b100"), "{listed:?}");
    assert!(!listed.contains(&"cpu-1"), "{listed:?}");

    let few = aggregator.get("/api/v1/nodes?state=no-agent").await.json();
    assert_eq!(names(&few), ["vendor-a100", "vendor-b100"]);
    let one = &few["items"][0];
    assert_eq!(
        [&one["source"], &one["state"], &one["connected"], &one["agentVersion"]],
        [&json!(PRODUCT), &json!("no-agent"), &json!(false), &json!("")]
    );
    assert_eq!(one["types"][0]["type"], A100);
    assert_eq!(one["devices"]["total"], 4);
    assert_eq!(one["devices"]["unknown"], 4);
    let reason = one["reason"].as_str().unwrap();
    assert!(reason.contains(PRODUCT) && reason.contains("install octavo-agent"), "{reason}");
    let of_agent = aggregator.get("/api/v1/nodes/gpu-1").await.json();
    assert_eq!(of_agent["source"], "agent");

    let detail = aggregator.get("/api/v1/nodes/vendor-a100").await.json();
    assert_eq!(detail["labels"][PRODUCT], "NVIDIA-A100-SXM4-40GB");
    assert_eq!(detail["inventory"]["devices"], json!([]));
    let plan = aggregator.get("/api/v1/nodes/vendor-a100/layouts").await;
    assert_eq!(plan.status, StatusCode::NOT_FOUND);

    let types = aggregator.get("/api/v1/types").await.json();
    let items = types["items"].as_array().unwrap();
    let a100 = items.iter().find(|one| one["type"] == A100).unwrap();
    assert_eq!((&a100["nodes"], &a100["nodesWithoutAgent"]), (&json!(2), &json!(2)));
    assert_eq!(a100["devices"]["total"], 8);
    let l4 = items.iter().find(|one| one["type"] == "nvidia-l4-24gb").unwrap();
    assert_eq!(l4["nodesWithoutAgent"], 0);
    let metrics = aggregator.get("/metrics").await.body;
    assert!(metrics.contains("octavo_nodes{state=\"no-agent\"} 2"), "{metrics}");
}

#[tokio::test]
async fn p3_cluster_nodes_have_labels_and_resources_of_listed_nodes_only() {
    let (aggregator, _fixture, _) = aggregator().await;
    let list = aggregator.get("/api/v1/cluster-nodes").await.json();
    // Neither nodes without an accelerator nor nodes that only an agent reports.
    assert_eq!(names(&list), ["gpu-1", "vendor-a100", "vendor-b100"]);
    assert_eq!(list["kind"], "ClusterNodeList");
    let one = &list["items"][1];
    assert_eq!(one["labels"], json!({PRODUCT: "NVIDIA-A100-SXM4-40GB"}));
    assert_eq!(
        one["allocatable"],
        json!({"cpu": "64", "memory": "512Gi", "nvidia.com/gpu": "4", "pods": "110"})
    );
    assert_eq!([&one["readiness"], &one["cordoned"]], [&json!("ready"), &json!(false)]);
}

#[tokio::test]
async fn ac_001_filters_sort_selector_and_pages_include_nodes_without_agent() {
    let (aggregator, _fixture, _) = aggregator().await;
    for (query, wanted) in [
        (format!("type={A100}"), &["vendor-a100", "vendor-b100"][..]),
        ("search=endor-b".to_owned(), &["vendor-b100"]),
        (format!("selector={PRODUCT}%3DNVIDIA-A100-SXM4-40GB"), &["vendor-a100", "vendor-b100"]),
        ("state=no-agent&sort=-name".to_owned(), &["vendor-b100", "vendor-a100"]),
    ] {
        let list = aggregator.get(&format!("/api/v1/nodes?{query}")).await.json();
        assert_eq!(names(&list), wanted, "{query}");
    }
    let all = aggregator.get("/api/v1/nodes").await.json();
    for sort in ["name", "-devices", "memory", "-state", "type"] {
        let mut seen: Vec<String> = Vec::new();
        let mut next = String::new();
        loop {
            let path = format!("/api/v1/nodes?limit=1&sort={sort}{next}");
            let page = aggregator.get(&path).await.json();
            seen.extend(names(&page).into_iter().map(str::to_owned));
            match page["continue"].as_str() {
                Some(token) => next = format!("&continue={token}"),
                None => break,
            }
        }
        let each: BTreeSet<&str> = seen.iter().map(String::as_str).collect();
        assert_eq!(each, names(&all).into_iter().collect(), "{sort}");
        assert_eq!(seen.len(), each.len(), "{sort}: {seen:?}");
    }
}

#[tokio::test]
async fn ac_001_connecting_agent_replaces_the_entry_of_its_node() {
    let (aggregator, fixture, machines) = aggregator().await;
    let before = aggregator.get("/api/v1/nodes").await.json();
    aggregator.put("vendor-a100", machines.inventory("gpu-1"));
    let after = aggregator.get("/api/v1/nodes").await.json();
    assert_eq!(names(&before), names(&after));
    assert!(after["revision"].as_u64() > before["revision"].as_u64());
    let one = aggregator.get("/api/v1/nodes/vendor-a100").await.json();
    assert_eq!((&one["source"], &one["state"]), (&json!("agent"), &json!("ok")));
    let few = aggregator.get("/api/v1/nodes?state=no-agent").await.json();
    assert_eq!(names(&few), ["vendor-b100"]);

    // Nodes that leave the cluster are removed; nodes with an agent remain.
    fixture.cluster.send_replace(followed([]));
    let last = aggregator.get("/api/v1/nodes").await.json();
    assert!(names(&last).contains(&"vendor-a100") && !names(&last).contains(&"vendor-b100"));
    assert!(last["revision"].as_u64() > after["revision"].as_u64());
}

#[tokio::test]
async fn ac_003_profile_of_node_without_agent_selects_by_vendor_label() {
    let (aggregator, _fixture, _) = aggregator().await;
    for query in ["nodes=vendor-a100".to_owned(), format!("type={A100}")] {
        let draft = aggregator.get(&format!("/api/v1/profile-draft?{query}")).await;
        assert_eq!(draft.status, StatusCode::OK, "{}", draft.body);
        let draft = draft.json();
        assert_eq!(
            draft["profile"]["spec"]["scheduling"]["node"]["nodeSelector"],
            json!({PRODUCT: "NVIDIA-A100-SXM4-40GB"}),
            "{draft:#}"
        );
        let text = draft.to_string();
        assert!(text.contains("changes when devices are shared"), "{text}");
    }
}

#[tokio::test]
async fn ac_001_event_streams_include_nodes_without_agent_and_changes() {
    let (aggregator, fixture, machines) = aggregator().await;
    let request = Request::get("/api/v1/events").body(Body::empty()).unwrap();
    let response = aggregator.router.clone().oneshot(request).await.unwrap();
    let mut reader = Reader::of(response);
    let mut first: BTreeSet<String> = BTreeSet::new();
    loop {
        let shown = reader.next().await;
        match shown.data["node"]["name"].as_str() {
            Some(name) => assert!(first.insert(name.to_owned()), "{name} twice"),
            None => break,
        }
    }
    assert!(first.contains("vendor-a100") && first.contains("gpu-1"), "{first:?}");

    fixture.cluster.send_replace(followed([vendor("vendor-a100", VENDOR)]));
    let shown = reader.next().await;
    assert_eq!((shown.event.as_str(), &shown.data["name"]), ("removed", &json!("vendor-b100")));
    aggregator.put("vendor-a100", machines.inventory("gpu-1"));
    let shown = reader.next().await;
    let node = &shown.data["node"];
    assert_eq!((&node["name"], &node["source"]), (&json!("vendor-a100"), &json!("agent")));
}

#[tokio::test]
async fn nfr_003_types_of_nodes_without_agent_require_permission() {
    let (aggregator, _fixture, _) = aggregator().await;
    for (of, wanted) in [(A100, &[A100][..]), ("nvidia-h200-141gb", &[])] {
        let mut request = Request::get("/api/v1/types").body(Body::empty()).unwrap();
        request.extensions_mut().insert(Visibility {
            types: VisibleTypes::Only([of.parse().unwrap()].into()),
            nodes: false,
            profiles: false,
            pods: false,
        });
        let answer = Aggregator::of_router(&aggregator.ungated, request).await;
        let list = answer.json();
        let items = list["items"].as_array().unwrap().iter();
        let types: Vec<&str> = items.map(|one| one["type"].as_str().unwrap()).collect();
        assert_eq!(types, wanted);
        assert!(!answer.body.contains("vendor-"), "{}", answer.body);
    }
}
