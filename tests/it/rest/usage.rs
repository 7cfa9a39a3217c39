//! Usage of a node and of the fleet.

use std::fs;
use std::path::Path;

use axum::http::StatusCode;
use octavo_model::quantity::Mebibytes;
use octavo_model::reading::{MemoryUse, Percent};
use octavo_model::reason::Reason;
use octavo_model::resource::{ResourceName, ShareId};
use octavo_model::sharing_status::{
    DeviceProvider, HandOffConfig, Health, ResourceStatus, SharingStatus, UnitStatus,
};
use octavo_node::sharing::usage::{DeviceUsage, Tenant, UnitUsage, Usage};
use serde_json::{Value, json};

use super::fleet::{Aggregator, Machines};
use crate::estimating::run_beside;

const GPU: &str = "GPU-5fd4087b-86f3-7a43-b711-4771313afc50";

fn tenant(pod: &str, number: u32, memory: u64, is_over: bool) -> Tenant {
    Tenant {
        namespace: Some("team-a".to_owned()),
        pod: Some(pod.to_owned()),
        uid: Some("7d1c5a3e-1111-2222-3333-444455556666".to_owned()),
        container: Some("main".to_owned()),
        ids: vec![ShareId::replica(GPU, number)],
        memory: Some(Mebibytes::new(memory)),
        utilization: Some(Percent(35)),
        processes: vec![4711],
        is_over_share: is_over,
        ..Tenant::default()
    }
}

/// Two pods share a device of `node`; one of them exceeds its share.
pub(crate) fn give(aggregator: &Aggregator, node: &str) {
    let unit = UnitUsage {
        uuid: GPU.to_owned(),
        resource: Some(ResourceName::gpu()),
        replicas: Some(2),
        fair_share: Some(Mebibytes::new(12_288)),
        memory: Some(MemoryUse {
            total: Mebibytes::new(24_576),
            used: Mebibytes::new(18_432),
            reserved: Mebibytes::new(512),
        }),
        tenants: vec![tenant("greedy", 0, 16_384, true), tenant("modest", 1, 2048, false)],
        unattributed: Some(Mebibytes::new(0)),
        ..UnitUsage::default()
    };
    let usage = Usage {
        devices: vec![DeviceUsage {
            pci: "0000:07:00.0".parse().unwrap(),
            name: "GPU 0".to_owned(),
            memory: unit.memory,
            utilization: Some(Percent(40)),
            power_watts: None,
            temperature_celsius: None,
            units: vec![unit],
        }],
        missing: vec!["no processes".to_owned()],
        ..Usage::default()
    };
    let report = SharingStatus {
        mode: DeviceProvider::HandOff.into(),
        state: Reason::SharingInForce.into(),
        message: None,
        resources: vec![ResourceStatus {
            name: ResourceName::gpu(),
            wanted: 2,
            allocatable: Some(2),
            units: vec![UnitStatus {
                uuid: GPU.to_owned(),
                replicas: Some(2),
                health: Health::Healthy,
            }],
        }],
        retained: Vec::new(),
        hand_off: Some(HandOffConfig {
            key: "shared".to_owned(),
            config: "version: v1\n".to_owned(),
        }),
        ..SharingStatus::default()
    };
    aggregator.share(node, &report, &usage);
}

fn pods(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().unwrap_or_else(|| panic!("{list}"));
    let name = |row: &Value| {
        let text = |field: &str| row[field].as_str().unwrap().to_owned();
        format!("{}/{}", text("node"), text("pod"))
    };
    items.iter().map(name).collect()
}

#[tokio::test]
async fn node_reports_its_sharing_and_usage() {
    let aggregator = Aggregator::of(&Machines::read().await);
    let plain = aggregator.get("/api/v1/nodes/gpu-1").await.json();
    assert_eq!((&plain["sharingStatus"], &plain["usage"]), (&Value::Null, &Value::Null));
    give(&aggregator, "gpu-1");
    let node = aggregator.get("/api/v1/nodes/gpu-1").await.json();
    assert_eq!(
        node["sharingStatus"],
        json!({
            "mode": "hand-off", "state": "sharing-in-force", "pluginConfigKey": "shared",
            "resources": [{
                "name": "nvidia.com/gpu", "wanted": 2, "allocatable": 2, "units": [{"uuid": GPU, "replicas": 2}],
            }],
        })
    );
    let memory = json!({"totalMiB": 24576, "usedMiB": 18432, "reservedMiB": 512});
    let tenant = |pod: &str, id: u32, memory: u64, over: bool| {
        json!({
            "namespace": "team-a", "pod": pod, "container": "main", "ids": [format!("{GPU}::{id}")],
            "memoryMiB": memory, "utilizationPercent": 35, "processes": [4711], "over": over,
        })
    };
    assert_eq!(
        node["usage"],
        json!({
            "devices": [{
                "pci": "0000:07:00.0", "name": "GPU 0", "memory": memory, "utilizationPercent": 40,
                "units": [{
                    "uuid": GPU, "resource": "nvidia.com/gpu", "replicas": 2, "fairShareMiB": 12288,
                    "memory": memory, "unattributedMiB": 0, "nearlyExhausted": false,
                    "tenants": [tenant("greedy", 0, 16384, true), tenant("modest", 1, 2048, false)],
                }],
            }],
            "missing": ["no processes"],
        })
    );
}

#[tokio::test]
async fn ac_010_usage_is_filtered_sorted_and_paged_over_the_fleet() {
    let aggregator = Aggregator::of(&Machines::read().await);
    give(&aggregator, "gpu-1");
    give(&aggregator, "mixed-1");
    let list = aggregator.get("/api/v1/usage").await;
    assert_eq!(list.status, StatusCode::OK);
    let list = list.json();
    assert_eq!(
        (&list["kind"], &list["apiVersion"], &list["continue"]),
        (&json!("UsageList"), &json!("octavo.dev/v1"), &Value::Null)
    );
    assert_eq!(list["items"][0]["totalMiB"], 24576);
    assert_eq!(list["items"][0]["stale"], false);
    for (requested, expected) in [
        ("", "gpu-1/greedy gpu-1/modest mixed-1/greedy mixed-1/modest"),
        ("?over=true", "gpu-1/greedy mixed-1/greedy"),
        ("?over=false&node=mixed-1", "mixed-1/modest"),
        ("?pod=modest&namespace=team-a", "gpu-1/modest mixed-1/modest"),
        ("?namespace=team-b", ""),
        ("?sort=memory&limit=3", "gpu-1/greedy mixed-1/greedy gpu-1/modest"),
    ] {
        let list = aggregator.get(&format!("/api/v1/usage{requested}")).await.json();
        assert_eq!(pods(&list).join(" "), expected, "{requested}");
    }
    let first = aggregator.get("/api/v1/usage?limit=3").await.json();
    let token = first["continue"].as_str().unwrap();
    let next = format!("/api/v1/usage?limit=3&continue={token}");
    let second = aggregator.get(&next).await.json();
    assert_eq!(pods(&second), ["mixed-1/modest"]);
    assert_eq!(second["continue"], Value::Null);

    let sliced = aggregator.get("/api/v1/nodes?sharing=time-slicing").await;
    let sliced = sliced.json();
    let names = sliced["items"].as_array().unwrap().iter();
    let names: Vec<&Value> = names.map(|node| &node["name"]).collect();
    assert_eq!(names, ["gpu-1", "mixed-1"]);

    aggregator.silence("gpu-1");
    let list = aggregator.get("/api/v1/usage?node=gpu-1").await.json();
    assert_eq!(list["items"][0]["stale"], true);
    for (requested, kind, parameter) in [
        ("?nodes=a", "/problems/unknown-parameter", "nodes"),
        ("?over=maybe", "/problems/invalid-parameter", "over"),
        ("?continue=x", "/problems/invalid-parameter", "continue"),
    ] {
        let answer = aggregator.get(&format!("/api/v1/usage{requested}")).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{requested}");
        let problem = answer.json();
        assert_eq!((&problem["type"], &problem["parameter"]), (&json!(kind), &json!(parameter)));
    }
}

#[tokio::test]
async fn i10_pod_usage_query_over_many_nodes_does_not_delay_others() {
    let aggregator = Aggregator::of(&Machines::read().await);
    for node in ["gpu-1", "gpu-2", "mixed-1"] {
        give_much(&aggregator, node);
    }
    // Namespaces have no index, so the usage of all nodes is read.
    let many = aggregator.get("/api/v1/usage?namespace=unknown");
    let alive = aggregator.get("/healthz");
    // The first request starts first and must yield to the other one.
    let first = tokio::select! {
        biased;
        _ = many => "the many",
        answer = alive => { assert_eq!(answer.status, StatusCode::OK); "the one" }
    };
    assert_eq!(first, "the one");
    let all = aggregator.get("/api/v1/usage?namespace=unknown").await.json();
    assert_eq!((&all["items"], &all["continue"]), (&json!([]), &Value::Null));
}

/// The maximum usage that a node may report.
fn give_much(aggregator: &Aggregator, node: &str) {
    let long = "x".repeat(230);
    let tenant = |number: u32| tenant(&format!("{long}-{number}"), number, 64, false);
    let unit = UnitUsage {
        uuid: GPU.to_owned(),
        tenants: (0..160).map(tenant).collect(),
        ..UnitUsage::default()
    };
    let usage = Usage {
        devices: vec![DeviceUsage {
            pci: "0000:07:00.0".parse().unwrap(),
            name: "GPU 0".to_owned(),
            memory: None,
            utilization: None,
            power_watts: None,
            temperature_celsius: None,
            units: vec![unit],
        }],
        missing: Vec::new(),
        ..Usage::default()
    };
    aggregator.share(node, &SharingStatus::default(), &usage);
}

async fn access_rules_hide_allowed_allocations(server: &str) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rules.yaml");
    let rules = |namespace: &str, types: &str| {
        write_rules(&path, &format!("{{{namespace}: [{types}]}}"));
    };
    let arguments = ["usage", "--no-headers", "--access-rules", path.to_str().unwrap()];
    rules("team-b", "");
    let (out, notes, code) = run_beside(server, &arguments).await;
    assert_eq!(
        (&*out, &*notes, code),
        ("", "note: no reported allocation violates the access rules\n", Some(0))
    );
    // The devices of team-a have no type, so no rule allows them.
    rules("team-a", "nvidia-a100-40gb");
    let (out, notes, code) = run_beside(server, &arguments).await;
    assert_eq!((&*out, &*notes, code), ("team-a  unknown  0  0  2  2\n", "", Some(3)));
    rules("team-a", "A100");
    let (out, notes, code) = run_beside(server, &arguments).await;
    assert!(out.is_empty() && notes.contains("rules.yaml") && code == Some(1), "{notes}");
}

fn write_rules(path: &Path, namespaces: &str) {
    let head = "apiVersion: octavo.dev/v1\nkind: AccessRules\n";
    fs::write(path, format!("{head}namespaces: {namespaces}\n")).unwrap();
}

async fn access_rules_need_reports(server: &str) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rules.yaml");
    write_rules(&path, "{}");
    let arguments = ["usage", "--access-rules", path.to_str().unwrap()];
    let (_, notes, code) = run_beside(server, &arguments).await;
    assert!(notes.contains("1 node stale") && code == Some(1), "{notes}");
}

#[tokio::test]
async fn octavo_usage_prints_usage_by_namespace_and_type() {
    let aggregator = Aggregator::of(&Machines::read().await);
    give(&aggregator, "gpu-1");
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    let router = aggregator.router.clone();
    tokio::spawn(async { axum::serve(listener, router).await });
    let (out, notes, code) = run_beside(&server, &["usage"]).await;
    assert_eq!((notes.as_str(), code), ("", Some(0)));
    assert_eq!(
        out,
        "\
NAMESPACE  TYPE     DEVICES  PARTITIONS  REPLICAS  PODS
team-a     unknown  0        0           2         2
"
    );
    let (out, _, _) = run_beside(&server, &["usage", "--by", "type", "--no-headers"]).await;
    assert_eq!(out, "unknown  0  0  2  2\n");
    let (out, _, _) = run_beside(&server, &["usage", "-n", "team-a", "-o", "json"]).await;
    let document: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (&document["kind"], &document["items"][0]["replicas"]),
        (&json!("UsageSummary"), &json!(2))
    );
    let (out, notes, _) = run_beside(&server, &["usage", "--type", "nvidia-l4-24gb"]).await;
    assert_eq!((out.as_str(), notes.as_str()), ("", "note: no matching allocations\n"));
    access_rules_hide_allowed_allocations(&server).await;
    aggregator.silence("gpu-1");
    let (_, notes, _) = run_beside(&server, &["usage"]).await;
    assert!(notes.contains("1 node stale"), "{notes}");
    access_rules_need_reports(&server).await;
}
