//! The whole cluster followed: every Node and every Pod, as far as they decide what may still be placed where.
//!
//! ```text
//!  API server --> chase (list, watch) --> read (what is kept) --> sight (changes gathered) --> whoever has a receiver
//! ```
//!
//! A [`Follower`] runs in the aggregator beside whoever counts what is free. It never writes. What it gives out never changes under
//! its readers, and says how old it may be: a cluster on which nothing happens is not an old one.

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

/// A cluster as it was known at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Followed {
    /// Its nodes and pods. Pods that have ended are not among them.
    pub sights: Arc<Sights>,
    /// When both were last known to be complete and current; `None` before they were listed once.
    pub heard: Option<Instant>,
    /// Why it is not followed now, in words; `None` where it is.
    pub trouble: Option<String>,
    /// Nodes and pods of which something could not be understood. They count with the rest of what they say.
    pub odd: usize,
}

/// Words that wait to be taken: enough for the objects of half a page, so that reading one does not wait for each.
const WAITING: usize = 256;
/// What is said before anything is known.
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

/// Follows a cluster, to be run.
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
    /// Of the cluster of `kubeconfig`, or of the one whose pod this is. Nothing is asked yet.
    pub async fn connect(kubeconfig: Option<&Path>) -> Result<Self, ConnectError> {
        Ok(Self::new(connect(kubeconfig, Program::Aggregator).await?))
    }

    /// The same with a client that is there.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            followed: watch::Sender::default(),
        }
    }

    /// What is known, from now on. It changes a few times a second at most, however much happens.
    pub fn followed(&self) -> watch::Receiver<Arc<Followed>> {
        self.followed.subscribe()
    }

    /// Follows it for ever.
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
    // Those that have ended take nothing any more, and there can be many: they go as if deleted. Source: the scheduler's informer.
    const FIELDS: Option<&str> = Some("status.phase!=Succeeded,status.phase!=Failed");
    type Kept = ClusterPod;

    fn version(&self) -> Option<String> {
        self.metadata.resource_version.clone()
    }

    fn read(self) -> Read<ClusterPod> {
        read::pod(self)
    }
}
