//! Events in the order of their virtual time.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::time::Duration;

use octavo_model::id::PciAddress;

use super::messages::{Answer, Request, WatchEvent};

/// Something that happens at a point in time.
#[derive(Debug)]
pub(crate) enum Event {
    /// A task of the agent of a node. Tasks of an earlier run have no effect.
    Agent { node: usize, run: u32, task: AgentTask },
    /// The machine of a node boots, or its agent is started.
    StartAgent { node: usize, run: u32 },
    /// The next message of a connection reaches this end.
    Deliver { connection: u64, to: End },
    /// This end notices that its connection has ended.
    Disconnected { connection: u64, end: End },
    /// Periodic maintenance of the aggregator.
    Sweep { run: u32 },
    /// A publication of the fleet is due.
    Publish { run: u32 },
    /// The aggregator is started.
    StartAggregator,
    /// A request reaches the API server.
    Request(Box<Request>),
    /// An answer reaches its client.
    Answer(Box<Answer>),
    /// A watch reports an object.
    Watch(Box<WatchEvent>),
    /// A task of a controller.
    Controller { index: usize, run: u32, task: ControllerTask },
    /// A controller is started.
    StartController { index: usize, run: u32 },
    /// Pods and other processes of a node start and end.
    Workload { node: usize },
    /// A pod or process ends, or the process of a pod starts.
    Pod { node: usize, pid: u32, change: PodChange },
    /// Users change layouts and policies.
    User,
    /// The next fault occurs.
    Fault,
    /// The faults end.
    Calm,
    /// The fleet must have converged.
    Converged,
    /// The simulation ends.
    End,
}

/// A task of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AgentTask {
    /// Read the hardware, and reconcile.
    Scan,
    /// Perform the action that the transaction of this device requested.
    Step(PciAddress),
    /// Connect to the aggregator.
    Dial,
    /// Send a heartbeat on this connection.
    Heartbeat(u64),
    /// Compare the Node with its desired state, and write the difference.
    WriteNode,
    /// List the pods of the node.
    ListPods,
    /// Read the Node again, because its watch has ended.
    Relist,
    /// The request has had no answer for too long.
    Expired(u64),
}

/// A task of a controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ControllerTask {
    /// Take the next step of the leader election.
    Elect,
    /// Decide about the policies.
    Work,
    /// List policies and nodes again, because the watch has ended.
    Relist,
    /// The request has had no answer for too long.
    Expired(u64),
}

/// A change of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PodChange {
    /// Its process opens the partition.
    Process,
    /// It ends.
    End,
}

/// An end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum End {
    /// The agent.
    Agent,
    /// The aggregator.
    Aggregator,
}

#[derive(Debug)]
struct Entry {
    at: Duration,
    /// Order of insertion: events at the same time happen in this order.
    order: u64,
    event: Event,
}

/// The events that have not happened yet.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    entries: BinaryHeap<Entry>,
    inserted: u64,
}

impl Queue {
    /// Adds an event.
    pub(crate) fn push(&mut self, at: Duration, event: Event) {
        self.inserted += 1;
        self.entries.push(Entry { at, order: self.inserted, event });
    }

    /// Removes the earliest event.
    pub(crate) fn pop(&mut self) -> Option<(Duration, Event)> {
        self.entries.pop().map(|entry| (entry.at, entry.event))
    }
}

impl Event {
    /// Numbers that identify the event, for the digest.
    pub(crate) fn identity(&self) -> [u64; 3] {
        match self {
            Self::Agent { node, run, task } => {
                let [kind, subject] = task.identity();
                [(*node as u64) << 8 | kind, u64::from(*run), subject]
            }
            Self::StartAgent { node, run } => [32, *node as u64, u64::from(*run)],
            Self::Deliver { connection, to } => [33, *connection, *to as u64],
            Self::Disconnected { connection, end } => [34, *connection, *end as u64],
            Self::Sweep { run } => [35, u64::from(*run), 0],
            Self::Publish { run } => [36, u64::from(*run), 0],
            Self::StartAggregator => [37, 0, 0],
            Self::Request(request) => [38, request.id, 0],
            Self::Answer(answer) => [39, answer.id, 0],
            Self::Watch(event) => [40, event.version, event.watcher],
            Self::Controller { index, run, task } => {
                let [kind, subject] = task.identity();
                [kind + 1024, (*index as u64) << 32 | u64::from(*run), subject]
            }
            Self::StartController { index, run } => [42, *index as u64, u64::from(*run)],
            Self::Workload { node } => [43, *node as u64, 0],
            Self::Pod { node, pid, change } => [*change as u64 + 2048, *node as u64, (*pid).into()],
            Self::User => [45, 0, 0],
            Self::Fault => [46, 0, 0],
            Self::Calm => [47, 0, 0],
            Self::Converged => [48, 0, 0],
            Self::End => [49, 0, 0],
        }
    }
}

impl AgentTask {
    fn identity(self) -> [u64; 2] {
        match self {
            Self::Scan => [0, 0],
            Self::Step(pci) => [1, pci.to_string().bytes().map(u64::from).sum()],
            Self::Dial => [2, 0],
            Self::Heartbeat(connection) => [3, connection],
            Self::WriteNode => [4, 0],
            Self::ListPods => [5, 0],
            Self::Relist => [6, 0],
            Self::Expired(request) => [7, request],
        }
    }
}

impl ControllerTask {
    fn identity(self) -> [u64; 2] {
        match self {
            Self::Elect => [0, 0],
            Self::Work => [1, 0],
            Self::Relist => [2, 0],
            Self::Expired(request) => [3, request],
        }
    }
}

impl Ord for Entry {
    /// The earliest entry is the greatest, because the heap returns the greatest first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}
