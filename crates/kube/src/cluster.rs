//! Watches all Nodes and Pods of the cluster, with the fields that scheduling depends on.
//!
//! ```text
//!  API server --> list_watcher --> extract (relevant fields) --> snapshot_publisher (batched changes) --> receivers
//! ```
//!
//! A [`ClusterWatcher`] runs in the aggregator and never writes to the cluster. Its snapshots are immutable and report their
//! age; a cluster without changes is not stale.

mod extract;
mod list_watcher;
mod object;
mod pod_requests;
mod snapshot_publisher;

use std::sync::Arc;

use hyper::Request;
use kube::Client;
use kube::api::ListParams;
use octavo_fleet::cluster::{ClusterNode, ClusterPod, ClusterSnapshot};
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use self::extract::Extracted;
use self::list_watcher::{ListWatcher, WatchedKind};
use self::snapshot_publisher::SnapshotPublisher;
use crate::client::RequestError;

/// A snapshot of the cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct WatchedCluster {
    /// Nodes and pods, without terminated pods.
    pub snapshot: Arc<ClusterSnapshot>,
    /// When both were last known to be complete and current; `None` before the first list.
    pub current_at: Option<Instant>,
    /// Why the cluster is currently not watched; `None` if it is.
    pub error: Option<String>,
    /// Number of nodes and pods with unparsable fields. Their other fields count.
    pub invalid_objects: usize,
}

/// Channel capacity, half a page of objects, so that reading a page rarely waits.
const CHANNEL_CAPACITY: usize = 256;
/// The error before the first snapshot.
const NOT_READ_YET: &str = "the nodes and pods of the cluster have not been read yet";

impl Default for WatchedCluster {
    fn default() -> Self {
        Self {
            snapshot: Arc::default(),
            current_at: None,
            error: Some(NOT_READ_YET.to_owned()),
            invalid_objects: 0,
        }
    }
}

/// Watches a cluster.
pub struct ClusterWatcher {
    client: Client,
    watched: watch::Sender<Arc<WatchedCluster>>,
}

impl std::fmt::Debug for ClusterWatcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ClusterWatcher").field(&self.watched.borrow().current_at).finish()
    }
}

impl ClusterWatcher {
    /// Creates a watcher. Sends no request before it runs.
    pub fn new(client: Client) -> Self {
        Self { client, watched: watch::Sender::default() }
    }

    /// Subscribes to snapshots, which are published a few times per second at most.
    pub fn subscribe(&self) -> watch::Receiver<Arc<WatchedCluster>> {
        self.watched.subscribe()
    }

    /// Runs forever.
    pub async fn run(self) {
        let (nodes, node_updates) = mpsc::channel(CHANNEL_CAPACITY);
        let (pods, pod_updates) = mpsc::channel(CHANNEL_CAPACITY);
        let nodes: ListWatcher<object::Node> = ListWatcher::new(self.client.clone(), nodes);
        let pods: ListWatcher<object::Pod> = ListWatcher::new(self.client, pods);
        let publisher = SnapshotPublisher::new(self.watched);
        tokio::join!(nodes.run(), pods.run(), publisher.run(node_updates, pod_updates));
    }
}

/// Version of a node, for a patch of it.
#[derive(Debug, Clone, Default)]
pub struct NodeVersion {
    pub(crate) resource_version: String,
    /// Its taints with all their fields.
    pub(crate) taints: Vec<Value>,
}

/// Parses a node as the API server returns it.
pub fn parse_node(json: &str) -> serde_json::Result<ClusterNode> {
    serde_json::from_str::<object::Node>(json).map(|node| extract::node(node).object)
}

/// Parses a pod as the API server returns it. Any user may create pods with any content.
pub fn parse_pod(json: &str) -> serde_json::Result<ClusterPod> {
    serde_json::from_str::<object::Pod>(json).map(|pod| extract::pod(pod).object)
}

/// Lists the nodes that `params` select.
pub(crate) async fn list_nodes(
    client: &Client,
    params: ListParams,
) -> Result<Vec<ClusterNode>, RequestError> {
    list_watcher::list::<object::Node>(client, params).await
}

/// Lists the pods on a node that hold resources.
pub(crate) async fn list_pods_of(
    client: &Client,
    node: &str,
) -> Result<Vec<ClusterPod>, RequestError> {
    let unfinished = <object::Pod as WatchedKind>::FIELD_SELECTOR.unwrap_or_default();
    let params = ListParams::default().fields(&format!("spec.nodeName={node},{unfinished}"));
    list_watcher::list::<object::Pod>(client, params).await
}

/// Sends a request whose response is a node. Returns the relevant fields and the version.
pub(crate) async fn read_node(
    client: &Client,
    request: Request<Vec<u8>>,
) -> kube::Result<(ClusterNode, NodeVersion)> {
    let node: Value = client.request(request).await?;
    let taints =
        node.pointer("/spec/taints").and_then(Value::as_array).cloned().unwrap_or_default();
    let node: object::Node = serde_json::from_value(node).map_err(kube::Error::SerdeError)?;
    let resource_version = node.metadata.resource_version.clone().unwrap_or_default();
    Ok((extract::node(node).object, NodeVersion { resource_version, taints }))
}

impl WatchedKind for object::Node {
    const PATH: &str = "/api/v1/nodes";
    const NAME: &str = "nodes";
    const FIELD_SELECTOR: Option<&str> = None;
    type Extract = ClusterNode;

    fn version(&self) -> Option<String> {
        self.metadata.resource_version.clone()
    }

    fn read(self) -> Extracted<ClusterNode> {
        extract::node(self)
    }
}

impl WatchedKind for object::Pod {
    const PATH: &str = "/api/v1/pods";
    const NAME: &str = "pods";
    // Terminated pods use no resources, and there can be many. They are removed as if deleted. Source: the scheduler's
    // informer.
    const FIELD_SELECTOR: Option<&str> = Some("status.phase!=Succeeded,status.phase!=Failed");
    type Extract = ClusterPod;

    fn version(&self) -> Option<String> {
        self.metadata.resource_version.clone()
    }

    fn read(self) -> Extracted<ClusterPod> {
        extract::pod(self)
    }
}
