//! Requests to the API server, its answers, and the events of its watches.

use octavo_node::lease::ObservedLease;
use octavo_node::node_object::drain::{EvictionResult, Pod, PodId};
use octavo_node::node_object::{NodeWrite, ObservedNode};
use octavo_policy::{NodePatch, Policy, PolicyStatus};

/// A client of the API server. A restarted program is another client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Client {
    /// The agent of a node.
    Agent { node: usize, run: u32 },
    /// A controller.
    Controller { index: usize, run: u32 },
}

/// A request.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) id: u64,
    pub(crate) client: Client,
    pub(crate) call: Call,
}

/// The content of a request.
#[derive(Debug, Clone)]
pub(crate) enum Call {
    /// Read a Node, and watch it from then on.
    WatchNode { node: usize },
    /// Write fields of a Node that was read with this UID and version.
    WriteNode { node: usize, version: u64, write: NodeWrite },
    /// List the pods of a node.
    ListPods { node: usize },
    /// Evict a pod.
    Evict { node: usize, pod: PodId },
    /// Read the Lease.
    ReadLease,
    /// Write the Lease if it has this version; create it without one.
    WriteLease { holder: String, version: Option<String> },
    /// List policies and nodes, and watch them from then on.
    WatchAll,
    /// Read a Node.
    ReadNode { node: usize },
    /// Change a Node that has this version.
    PatchNode { node: usize, version: u64, patch: Box<NodePatch> },
    /// Write the status of a policy that has this version.
    WriteStatus { version: String, status: Box<PolicyStatus> },
    /// Add the finalizer to a policy that has this version.
    AddFinalizer { version: String },
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) id: u64,
    pub(crate) client: Client,
    pub(crate) reply: Reply,
}

/// The content of an answer.
#[derive(Debug)]
pub(crate) enum Reply {
    /// A Node.
    Node(usize, Box<ObservedNode>),
    /// The pods of a node.
    Pods(Vec<Pod>),
    /// The result of an eviction.
    Evicted(PodId, EvictionResult),
    /// The Lease.
    Lease(Option<ObservedLease>),
    /// The new version of the Lease.
    LeaseWritten(String),
    /// A policy.
    Policy(Box<Policy>),
    /// The policy and all nodes.
    All(Box<Policy>, Vec<ObservedNode>),
    /// The object was changed since it was read, or another writer owns the field.
    Conflict,
}

/// An event of a watch.
#[derive(Debug)]
pub(crate) struct WatchEvent {
    pub(crate) client: Client,
    /// The watch; an earlier one of the same client has another number.
    pub(crate) watcher: u64,
    pub(crate) version: u64,
    pub(crate) object: Object,
}

/// An object of the API server.
#[derive(Debug)]
pub(crate) enum Object {
    Node(usize, Box<ObservedNode>),
    Policy(Box<Policy>),
}
