//! Watches all Nodes and Pods of the cluster, with the fields that scheduling depends on.
//!
//! ```text
//!  API server --> chase (list, watch) --> read (relevant fields) --> sight (batched changes) --> receivers
//! ```
//!
//! A [`Follower`] runs in the aggregator and never writes to the cluster. Its snapshots are immutable and report their
//! age; a cluster without changes is not stale.

mod chase;
mod object;
mod read;
mod reckon;
mod sight;

use std::path::Path;
use std::sync::Arc;

use kube::Client;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use self::chase::{Chase, Kind};
use self::read::Read;
use self::sight::Sight;
use super::client::{ConnectError, Program, connect};
use crate::domain::cluster::{ClusterNode, ClusterPod, Sights};

/// A snapshot of the cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct Followed {
    /// Nodes and pods, without terminated pods.
    pub sights: Arc<Sights>,
    /// When both were last known to be complete and current; `None` before the first list.
    pub heard: Option<Instant>,
    /// Why the cluster is currently not watched; `None` if it is.
    pub trouble: Option<String>,
    /// Number of nodes and pods with unparsable fields. Their other fields count.
    pub odd: usize,
}

/// Channel capacity, half a page of objects, so that reading a page rarely waits.
const WAITING: usize = 256;
/// The error before the first snapshot.
const NOT_YET: &str = "the nodes and pods of the cluster have not been read yet";

impl Default for Followed {
    fn default() -> Self {
        Self {
            sights: Arc::default(),
            heard: None,
            trouble: Some(NOT_YET.to_owned()),
            odd: 0,
        }
    }
}

/// Watches a cluster.
pub struct Follower {
    client: Client,
    followed: watch::Sender<Arc<Followed>>,
}

impl std::fmt::Debug for Follower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Follower")
            .field(&self.followed.borrow().heard)
            .finish()
    }
}

impl Follower {
    /// Connects to the cluster of `kubeconfig`, or to the one of the current pod. Sends no request yet.
    pub async fn connect(kubeconfig: Option<&Path>) -> Result<Self, ConnectError> {
        Ok(Self::new(connect(kubeconfig, Program::Aggregator).await?))
    }

    /// Creates a watcher with an existing client.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            followed: watch::Sender::default(),
        }
    }

    /// Subscribes to snapshots, which are published a few times per second at most.
    pub fn followed(&self) -> watch::Receiver<Arc<Followed>> {
        self.followed.subscribe()
    }

    /// Runs forever.
    pub async fn run(self) {
        let (nodes, of_nodes) = mpsc::channel(WAITING);
        let (pods, of_pods) = mpsc::channel(WAITING);
        let nodes: Chase<object::Node> = Chase::new(self.client.clone(), nodes);
        let pods: Chase<object::Pod> = Chase::new(self.client, pods);
        let sight = Sight::new(self.followed);
        tokio::join!(nodes.run(), pods.run(), sight.run(of_nodes, of_pods));
    }
}

impl Kind for object::Node {
    const PATH: &str = "/api/v1/nodes";
    const NAME: &str = "nodes";
    const FIELDS: Option<&str> = None;
    type Kept = ClusterNode;

    fn version(&self) -> Option<String> {
        self.metadata.resource_version.clone()
    }

    fn read(self) -> Read<ClusterNode> {
        read::node(self)
    }
}

impl Kind for object::Pod {
    const PATH: &str = "/api/v1/pods";
    const NAME: &str = "pods";
    // Terminated pods use no resources, and there can be many. They are removed as if deleted. Source: the scheduler's
    // informer.
    const FIELDS: Option<&str> = Some("status.phase!=Succeeded,status.phase!=Failed");
    type Kept = ClusterPod;

    fn version(&self) -> Option<String> {
        self.metadata.resource_version.clone()
    }

    fn read(self) -> Read<ClusterPod> {
        read::pod(self)
    }
}
