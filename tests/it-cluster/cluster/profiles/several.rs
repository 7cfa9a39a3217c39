//! A profile annotated for several types: the scheduler uses nodes of each.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::made::{object, pod};
use super::{HARDWARE, Site, define, node, profile, words};
use crate::cluster::Api;
use crate::cluster::objects::TestNode;

const CLASS: &str = "octavo.test/class";
/// Types of which no other test has nodes in the shared API server: their pods would be placed here.
const TYPES: [&str; 3] = ["nvidia-b300-288gb", "nvidia-a30-24gb", "nvidia-l4-24gb"];

#[tokio::test]
async fn req_011_workloads_of_multi_type_profile_use_each_type_and_no_other() {
    let api = Api::shared();
    let nodes = TYPES.map(|one| node(api, one));
    define(api, HARDWARE);
    let namespace = api.namespace();
    api.await_account(&namespace);
    for node in &nodes[..2] {
        api.kubectl(&["label", "node", node.name(), &format!("{CLASS}={namespace}")]);
    }
    let site = Site::new(api);
    let mut any: Value =
        serde_json::from_str(&profile(&namespace, "any", (CLASS, &namespace))).unwrap();
    any["metadata"]["annotations"]["octavo.dev/type"] = json!(TYPES[..2].join(","));
    any["spec"]["identifiers"][0]["defaultCount"] = json!(8);
    api.apply(&any.to_string());
    let path = format!("{namespace}/any");
    let profile = site.profile(&path, |one| one["available"] == 2).await;
    assert_eq!(words(&profile), [] as [&str; 0]);
    let reached = profile["reach"]["types"].as_array().unwrap().iter();
    let reached: BTreeSet<&str> = reached.map(|one| one["type"].as_str().unwrap()).collect();
    assert_eq!(reached, TYPES[..2].iter().copied().collect());
    let list = site.readers.get("/api/hardware-profiles").await.json();
    let mut rows = list["items"].as_array().unwrap().iter();
    let row = rows.find(|row| row["namespace"] == namespace.as_str()).unwrap();
    assert_eq!(row["available"], 2, "{row}");

    let any = object(api, &namespace, "any").unwrap();
    for number in 0..3 {
        api.create(&pod(&any, &namespace, &format!("work-{number}")));
    }
    site.profile(&path, |one| one["available"] == 0).await;
    let pods = api.kubectl(&["get", "pods", "-n", &namespace, "-o", "json"]);
    let pods: Value = serde_json::from_str(&pods).unwrap();
    let pods = pods["items"].as_array().unwrap().iter();
    let on: BTreeSet<&str> = pods.filter_map(|pod| pod["spec"]["nodeName"].as_str()).collect();
    assert_eq!(on, nodes[..2].iter().map(TestNode::name).collect());
}
