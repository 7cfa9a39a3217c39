//! Proposals for pods of a real API server, from the shipped agent and aggregator.

use serde_json::{Value, json};

use super::Api;
use super::agent::Rig;
use crate::fleet_api::{Api as Reader, pace};
use crate::pod_resources::Kubelet;
use crate::process::Aggregator;
use crate::time_limits::within;

const GPU: &str = "- {board: A100_40GB, count: 1, mig: enabled}\n";

/// Instances of the only device of a node.
fn instances(node: &Value) -> Vec<&Value> {
    let instances = node["inventory"]["devices"][0]["mig"]["gpuInstances"].as_array();
    instances.into_iter().flatten().collect()
}

/// Waits until the proposal for a pod satisfies `wanted`.
async fn proposal(reader: &Reader, pod: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let reading = async {
        let mut pace = pace();
        loop {
            let answer = reader.get("/api/v1/demand").await;
            if answer.status == 200 {
                let items = answer.json()["items"].as_array().unwrap().clone();
                let found = items.into_iter().find(|one| one["pod"] == pod && wanted(one));
                if let Some(found) = found {
                    return found;
                }
            }
            pace.tick().await;
        }
    };
    within(pod, reading).await
}

#[tokio::test]
async fn m21_pending_pod_is_proposed_an_instance_which_it_finds_after_the_layout() {
    let api = Api::shared();
    let rig = Rig::new(api, GPU);
    let kubelet = Kubelet::start(&rig.machine);
    let namespace = api.namespace();
    api.await_account(&namespace);
    let kubeconfig = format!("--kubeconfig={}", api.kubeconfig().display());
    let aggregator = Aggregator::start(&["--plaintext", "--follow-cluster", &kubeconfig]);
    let url = format!("--aggregator=http://{}", aggregator.grpc);
    let layouts = rig.machine.layouts("[{devices: all, mig: {1g.5gb: 4, 3g.20gb: 1}}]");
    rig.label(&["octavo.dev/layout=all-1g.5gb"]);
    let _agent = rig.start(&[
        &url,
        "--aggregator-plaintext",
        "--layouts",
        &layouts,
        "--usage-interval=1s",
        "--mig-strategy=mixed",
    ]);
    rig.await_label("octavo.dev/layout-state", "applied");

    let pod = format!("{namespace}-train");
    api.create(&json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod, "namespace": namespace},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": rig.name()},
            "containers": [{
                "name": "main", "image": "test.invalid/train:1",
                "resources": {"limits": {"nvidia.com/mig-3g.20gb": "1"}},
            }],
        },
    }));
    let reader = Reader::at(aggregator.http);
    // The kubelet has allocated an instance in each half of the device.
    let node = reader.node(rig.name(), |node| !instances(node).is_empty()).await;
    for (pod, start) in [("first", 0), ("second", 4)] {
        let of_half = instances(&node).into_iter().find(|one| one["placement"]["start"] == start);
        let uuid = of_half.unwrap()["computeInstances"][0]["uuid"].clone();
        kubelet.give(&namespace, pod, uuid.as_str().unwrap());
    }
    let is_occupied = |one: &Value| one["obstacles"][0]["reason"] == "occupied";
    let blocked = proposal(&reader, &pod, is_occupied).await;
    assert_eq!(blocked["outcome"], "blocked", "{blocked:#}");

    kubelet.ended("second");
    let replace = proposal(&reader, &pod, |one| one["outcome"] == "replace").await;
    assert_eq!(replace["node"], rig.name());
    let instance = &replace["instances"][0];
    assert_eq!(
        (&instance["profile"], &instance["placement"]["start"]),
        (&json!("3g.20gb"), &json!(4))
    );
    assert_eq!(instance["destroys"].as_array().unwrap().len(), 3, "{replace:#}");
    let report = reader.get("/api/v1/demand").await.json();
    let devices = report["devices"].as_array().unwrap().iter();
    let devices: Vec<&Value> = devices.filter(|one| one["node"] == rig.name()).collect();
    assert_eq!(devices[0]["after"], json!({"1g.5gb": 4, "3g.20gb": 1}), "{report:#}");

    rig.label(&["octavo.dev/layout=wanted"]);
    let available = proposal(&reader, &pod, |one| one["outcome"] == "available").await;
    assert_eq!(available["instances"][0]["exists"], true, "{available:#}");
    assert!(rig.machine.geometry(0).contains(&("1g.5gb".to_owned(), 0)));
}
