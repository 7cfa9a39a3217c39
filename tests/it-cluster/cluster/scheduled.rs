//! Free capacity compared with the real scheduler: for random fleets and pods, exactly [`free_slots`] more of such pods
//! are bound.
//!
//! Nodes are objects without a machine, which is all that a scheduler sees. Each fleet has its own label and resource,
//! so tests do not affect each other.

mod fleet;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api as Objects;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use octavo_fleet::cluster::{Amounts, ClusterSnapshot, PodKey, free_slots};
use octavo_kube::client::{Program, connect};
use octavo_kube::cluster::{ClusterWatcher, WatchedCluster};
use serde_json::{Value, json};
use tokio::sync::watch;

use self::fleet::{LABEL, RandomNumbers};
use super::Api;
use super::followed::await_cluster;

const SEED: u64 = 11;
/// Number of fleets; each gets several kinds of pods in sequence.
const FLEETS: u64 = 6;
const KINDS: u64 = 8;
const NODES: u64 = 5;

/// A fleet in the cluster; its nodes are deleted when dropped.
struct Fleet<'a> {
    api: &'a Api,
    nodes: Objects<Node>,
    pods: Objects<Pod>,
    namespace: String,
    name: String,
    snapshots: watch::Receiver<Arc<WatchedCluster>>,
}

impl Drop for Fleet<'_> {
    fn drop(&mut self) {
        let of = format!("--selector={LABEL}={}", self.name);
        let _gone_already = self.api.try_kubectl(&["delete", "nodes", &of, "--wait=false"]);
    }
}

#[tokio::test]
async fn free_devices_equal_those_that_scheduler_binds() {
    let api = Api::shared();
    let client = connect(Some(api.kubeconfig()), Program::Aggregator).await.unwrap();
    let watcher = ClusterWatcher::new(client);
    let snapshots = watcher.subscribe();
    tokio::spawn(watcher.run());
    let namespace = api.namespace();
    api.await_account(&namespace);
    let mut bound = Vec::new();
    for number in 0..FLEETS {
        let mut random = RandomNumbers::new(SEED + number);
        let client = api.client();
        let fleet = Fleet {
            api,
            nodes: Objects::all(client.clone()),
            pods: Objects::namespaced(client, &namespace),
            namespace: namespace.clone(),
            name: format!("{namespace}-{number}"),
            snapshots: snapshots.clone(),
        };
        fleet.make(&mut random).await;
        for kind in 0..KINDS {
            let spec = random.pod(&fleet.name);
            bound.push(fleet.check_capacity(kind, &spec).await);
        }
    }
    // Some pods must fit and some not, or the test proves nothing.
    let fitting = bound.iter().filter(|count| **count > 0).count();
    let all: usize = bound.iter().sum();
    assert!(bound.contains(&0) && fitting >= 16 && all >= 80, "{bound:?}");
}

fn read<K: serde::de::DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).unwrap()
}

impl Fleet<'_> {
    /// Creates nodes and waits until they have exactly their taints.
    async fn make(&self, random: &mut RandomNumbers) {
        let mut taints = BTreeMap::new();
        for number in 0..NODES {
            let node = random.node(&self.name, number);
            let name = node["metadata"]["name"].as_str().unwrap().to_owned();
            let params = PostParams::default();
            self.nodes.create(&params, &read(node.clone())).await.unwrap();
            // Every new node gets one more until a controller has seen it.
            let patch = Patch::Merge(json!({"spec": {"taints": node["spec"]["taints"]}}));
            let params = PatchParams::default();
            self.nodes.patch(&name, &params, &patch).await.unwrap();
            let count = node["spec"]["taints"].as_array().unwrap().len();
            taints.insert(name, count);
        }
        await_cluster(&mut self.snapshots.clone(), "the fleet is there", |all| {
            taints.iter().all(|(name, count)| {
                let node = all.snapshot.nodes.get(name);
                node.is_some_and(|node| {
                    let ours = |key: &str| !key.starts_with("node.kubernetes.io/");
                    let is_marked = node.taints.iter().any(|taint| !ours(&taint.key));
                    let ours = node.taints.iter().filter(|taint| ours(&taint.key)).count();
                    // A controller adds a taint for a cordon.
                    ours == *count && is_marked == node.is_cordoned
                })
            })
        })
        .await;
    }

    /// Checks the free capacity for this kind of pod: that many are bound, and the next one is not.
    async fn check_capacity(&self, kind: u64, spec: &Value) -> usize {
        let what = format!("seed {SEED}, {}, kind {kind}: {spec}", self.name);
        let call = |suffix: &str| format!("{}-{kind}-{suffix}", self.name);
        // A pod with a scheduling gate uses no capacity, and shows the defaults of the API server.
        let pattern = call("pattern");
        let mut gated = spec.clone();
        gated["schedulingGates"] = json!([{"name": "test.invalid/gate"}]);
        self.create(&pattern, gated).await;
        let key = |name: &str| PodKey { namespace: self.namespace.clone(), name: name.to_owned() };
        let first = key(&pattern);
        let mut snapshots = self.snapshots.clone();
        let is_there = |all: &WatchedCluster| all.snapshot.pods().contains_key(&first);
        let all = await_cluster(&mut snapshots, &what, is_there).await;
        let count = free(&all.snapshot, &first);
        assert!(count < 200, "{what}: {count} are too many to try");

        let names: Vec<String> = (0..count).map(|number| call(&number.to_string())).collect();
        for name in &names {
            self.create(name, spec.clone()).await;
        }
        let bound = format!("{what}: {count} are bound");
        let expected: Vec<PodKey> = names.iter().map(|name| key(name)).collect();
        await_cluster(&mut snapshots, &bound, |all| {
            let pod = |key| all.snapshot.pods().get(key);
            let is_bound = |key| pod(key).is_some_and(|pod| pod.holding_node().is_some());
            expected.iter().all(is_bound)
        })
        .await;

        let over = call("over");
        self.create(&over, spec.clone()).await;
        self.await_unschedulable(&over, &what).await;
        assert_eq!(free(&snapshots.borrow().snapshot, &first), 0, "{what}");
        names.len()
    }

    async fn create(&self, name: &str, spec: Value) {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec,
        });
        let params = PostParams::default();
        self.pods.create(&params, &read(pod)).await.unwrap();
    }

    /// Waits until the scheduler reports that the pod fits nowhere, then deletes it.
    async fn await_unschedulable(&self, name: &str, what: &str) {
        let left = "--for=condition=PodScheduled=False";
        let wait = ["wait", "-n", &self.namespace, "pod", name, left];
        let waited = self.api.try_kubectl(&[&wait[..], &["--timeout=120s"]].concat());
        let pod = self.pods.get(name).await.unwrap();
        let reported = String::from_utf8_lossy(&waited.stderr);
        assert!(waited.status.success(), "{what}: {reported}\n{:?}", pod.spec);
        let conditions = pod.status.unwrap().conditions.unwrap_or_default();
        let scheduled = conditions.iter().find(|one| one.type_ == "PodScheduled").unwrap();
        assert_eq!(scheduled.reason.as_deref(), Some("Unschedulable"), "{what}");
        assert_eq!(pod.spec.unwrap().node_name, None, "{what}");
        let params = DeleteParams::default().grace_period(0);
        self.pods.delete(name, &params).await.unwrap();
    }
}

/// The number of such pods that fit, over all nodes.
fn free(snapshot: &ClusterSnapshot, pattern: &PodKey) -> u64 {
    let held = snapshot.held();
    let wants = &snapshot.pods()[pattern].requirements;
    let of = snapshot.nodes.values().map(|node| {
        let none = Amounts::default();
        free_slots(wants, node, held.get(node.name.as_str()).unwrap_or(&none))
    });
    of.sum()
}
