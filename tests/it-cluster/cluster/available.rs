//! Availability of a real cluster: the aggregator watches it, and its API agrees with the scheduler.
//!
//! Nodes are objects without a machine, with a type and label that no other test uses.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::Api;
use super::objects::TestNode;
use crate::fleet_api::{Api as Reader, TIME_LIMIT};
use crate::process::Aggregator;

const GPU: &str = "nvidia.com/gpu";
const PRODUCT: &str = "nvidia.com/gpu.product";
const LABEL: &str = "test.invalid/available";
/// Interval between two queries, because the API reports no changes of a cluster.
const PACE: Duration = Duration::from_millis(200);

/// Nodes of this test, and the aggregator that watches them.
struct AvailabilityFixture<'a> {
    api: &'a Api,
    nodes: Vec<TestNode>,
    reader: Reader,
    type_name: &'static str,
    _aggregator: Aggregator,
}

impl<'a> AvailabilityFixture<'a> {
    fn new(api: &'a Api, type_name: &'static str) -> Self {
        let config = format!("--kubeconfig={}", api.kubeconfig().display());
        let aggregator = Aggregator::start(&["--plaintext", "--follow-cluster", &config]);
        Self {
            api,
            nodes: Vec::new(),
            reader: Reader::at(aggregator.http),
            type_name,
            _aggregator: aggregator,
        }
    }

    /// A node with this many devices, this many of them allocatable, and this label with its type.
    fn node(&mut self, (capacity, allocatable): (u32, u32), (key, value): (&str, &str)) -> String {
        let node = self.api.node("available");
        let name = node.name().to_owned();
        let amounts = |count: u32| json!({GPU: count.to_string()});
        self.patch(
            &name,
            &["--subresource=status"],
            &json!({"status": {"capacity": amounts(capacity), "allocatable": amounts(allocatable)}}),
        );
        let labels = json!({key: value, LABEL: self.type_name});
        self.patch(&name, &[], &json!({"metadata": {"labels": labels}}));
        self.nodes.push(node);
        name
    }

    fn patch(&self, name: &str, options: &[&str], patch: &Value) {
        let patch = patch.to_string();
        let all = ["patch", "node", name, "--type=merge", "-p", &patch];
        self.api.kubectl(&[&all[..], options].concat());
    }

    /// The only row of the type, once it satisfies `wanted`.
    async fn until(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let path = format!("/api/v1/availability?type={}", self.type_name);
        let list = until(&self.reader, &path, what, |list| wanted(&list["items"][0])).await;
        assert_eq!(list["basis"], "cluster");
        assert_eq!(list["items"].as_array().unwrap().len(), 1, "{list:#}");
        list["items"][0].clone()
    }

    fn pod(&self, namespace: &str, name: &str) {
        self.api.create(&json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "nodeSelector": {LABEL: self.type_name},
                "tolerations": [{"key": GPU, "operator": "Exists"}],
                "activeDeadlineSeconds": 86_400, "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "one", "image": "test.invalid/none:1", "resources": {"limits": {GPU: "1"}}}],
            },
        }));
    }
}

/// The document at `path` when it satisfies `wanted`.
async fn until(reader: &Reader, path: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let began = Instant::now();
    let mut pace = interval(PACE);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        pace.tick().await;
        let list = reader.get(path).await.json();
        if wanted(&list) {
            return list;
        }
        assert!(began.elapsed() < TIME_LIMIT, "{what}: {list:#}");
    }
}

fn figures(row: &Value) -> [u64; 5] {
    let figure = |name: &str| row[name].as_u64().unwrap_or(0);
    let waiting = row["pending"]["units"].as_u64().unwrap_or(0);
    let [capacity, requested, free] = ["capacity", "requested", "free"].map(figure);
    [capacity, requested, free, capacity - requested - free, waiting]
}

#[tokio::test]
async fn ac_008_pods_that_the_scheduler_binds_fill_exactly_the_free_devices() {
    let api = Api::shared();
    let namespace = api.namespace();
    api.await_account(&namespace);
    let of_type = ("octavo.dev/type", "test-available-1gb");
    let mut place = AvailabilityFixture::new(api, "test-available-1gb");
    let tainted = place.node((4, 3), of_type);
    place.patch(
        &tainted,
        &[],
        &json!({"spec": {"taints": [{"key": GPU, "value": "present", "effect": "NoSchedule"}]}}),
    );
    place.node((2, 2), of_type);
    let cordoned = place.node((8, 8), of_type);
    api.kubectl(&["cordon", &cordoned]);

    let row = place.until("three nodes", |row| figures(row) == [14, 0, 5, 9, 0]).await;
    let reasons: Vec<(&str, u64)> = row["unusable"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["reason"].as_str().unwrap(), one["count"].as_u64().unwrap()))
        .collect();
    assert_eq!(reasons, [("cordoned", 8), ("unhealthy", 1)]);
    assert_eq!(row["wait"]["basis"], "free");

    for number in 0..6 {
        place.pod(&namespace, &format!("pod-{number}"));
    }
    let row =
        place.until("five are bound and one waits", |row| figures(row) == [14, 5, 0, 9, 1]).await;
    assert_eq!(
        (&row["wait"]["basis"], &row["wait"]["of"], &row["wait"]["holders"]),
        (&json!("deadlines"), &json!(5), &json!(5))
    );

    // Released devices are free or allocated to the pending pod.
    api.kubectl(&["uncordon", &cordoned]);
    place.until("the one that waited is bound", |row| figures(row) == [14, 6, 7, 1, 0]).await;
}

#[tokio::test]
async fn ac_003_without_agents_types_come_from_labels_of_other_tools() {
    let api = Api::shared();
    let mut place = AvailabilityFixture::new(api, "nvidia-gb200-186gb");
    // The format of gpu-feature-discovery for time-sliced devices.
    place.node((8, 8), (PRODUCT, "NVIDIA-GB200-SHARED"));
    let row = place.until("the node", |row| row["capacity"] == json!(8)).await;
    assert_eq!(
        (&row["sources"], &row["unit"], &row["exclusive"]),
        (&json!([PRODUCT]), &json!("time-slice"), &json!(false))
    );
}

#[tokio::test]
async fn nfr_002_unavailable_api_server_is_reported_and_known_data_stays() {
    let mut api = Api::fresh();
    let node = api.node("away");
    let devices = json!({"status": {"capacity": {GPU: "8"}, "allocatable": {GPU: "8"}}});
    let devices = devices.to_string();
    let all = ["patch", "node", node.name(), "--type=merge", "-p", &devices];
    api.kubectl(&[&all[..], &["--subresource=status"]].concat());
    let config = format!("--kubeconfig={}", api.kubeconfig().display());
    let aggregator = Aggregator::start(&["--plaintext", "--follow-cluster", &config]);
    let reader = Reader::at(aggregator.http);
    let path = "/api/v1/availability";
    let has_eight = |list: &Value| list["items"][0]["free"] == json!(8);
    let list = until(&reader, path, "the node", |list| {
        has_eight(list) && list["stale"] == json!(false) && list["error"].is_null()
    })
    .await;
    assert_eq!(list["items"][0]["type"], "unknown");
    api.stop();
    let list =
        until(&reader, path, "the API server is unavailable", |list| list["error"].is_string())
            .await;
    assert!(has_eight(&list), "{list:#}");
    api.start();
    until(&reader, path, "it answers again", |list| {
        list["error"].is_null() && has_eight(list) && list["stale"] == json!(false)
    })
    .await;
}
