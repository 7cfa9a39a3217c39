//! The memory of an agent. It ends with the agent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use octavo_files::config_files::LayoutFileSnapshot;
use octavo_model::id::PciAddress;
use octavo_model::inventory::Inventory;
use octavo_node::label_set::LabelSet;
use octavo_node::node_object::drain::{Drain, PodId, PodObservations, Policy, Scope};
use octavo_node::node_object::write_backoff::WriteBackoff;
use octavo_node::node_object::{Debounced, DesiredNode, NodeWrite, ObservedNode, SelectedLayout};
use octavo_planner::layout::Targets;
use octavo_planner::reconcile::{
    ActionResult, ApplyRecord, ChangeOutcome, NextAction, NodeLayoutStatus, NodeReconciler,
    Transaction,
};
use octavo_stream::protocol::{Backoff, Identity, Run, Sender};

/// A running agent.
#[derive(Debug)]
pub(crate) struct Agent {
    pub(crate) began: Duration,
    // Partitions.
    pub(crate) reconciler: NodeReconciler,
    pub(crate) record: Option<ApplyRecord>,
    pub(crate) layouts: LayoutFileSnapshot,
    pub(crate) last_targets: Option<(String, Targets)>,
    /// The layout that the last round handled.
    pub(crate) handled: Option<String>,
    pub(crate) is_refused: bool,
    pub(crate) notice: Option<String>,
    pub(crate) inventory: Arc<Inventory>,
    /// Version of the hardware that the inventory describes.
    pub(crate) scanned: u64,
    pub(crate) next_scan: Option<Duration>,
    pub(crate) round: Option<Round>,
    pub(crate) rounds: u32,
    // The Node.
    pub(crate) view: Option<ObservedNode>,
    pub(crate) watcher: u64,
    pub(crate) selected: Debounced<Option<SelectedLayout>>,
    pub(crate) desired: DesiredNode,
    pub(crate) write_backoffs: BTreeMap<String, WriteBackoff<NodeWrite>>,
    pub(crate) next_write: Option<Duration>,
    pub(crate) drain: Drain,
    pub(crate) pods: PodObservations,
    pub(crate) next_list: Option<Duration>,
    pub(crate) evicting: BTreeSet<PodId>,
    /// Requests without an answer.
    pub(crate) requests: BTreeMap<u64, AgentRequest>,
    // Reports.
    pub(crate) status: NodeLayoutStatus,
    pub(crate) labels: LabelSet,
    pub(crate) uplink: AgentUplink,
}

/// A request of an agent without an answer.
#[derive(Debug, Clone)]
pub(crate) enum AgentRequest {
    /// Reads the Node.
    Watch,
    /// Writes the Node.
    Write(NodeWrite),
    /// Lists the pods.
    List,
    /// Evicts a pod.
    Evict(PodId),
}

/// Changes of devices in progress.
#[derive(Debug)]
pub(crate) struct Round {
    pub(crate) layout: String,
    pub(crate) running: BTreeMap<PciAddress, RunningChange>,
    pub(crate) outcomes: Vec<(PciAddress, ChangeOutcome)>,
}

/// A transaction and the action that it requested.
#[derive(Debug)]
pub(crate) struct RunningChange {
    pub(crate) transaction: Transaction,
    pub(crate) began: Duration,
    pub(crate) action: NextAction,
    /// Time of the last successful query of users.
    pub(crate) users_found: Duration,
    pub(crate) is_resumed: bool,
}

/// The agent's side of the status stream.
#[derive(Debug)]
pub(crate) struct AgentUplink {
    pub(crate) sender: Sender,
    pub(crate) backoff: Backoff,
    pub(crate) connection: Option<u64>,
    /// Start of the attempt to connect.
    pub(crate) dialed: Duration,
    pub(crate) is_accepted: bool,
    pub(crate) unanswered: u32,
    /// Time of the next heartbeat, or of the limit for the first answer.
    pub(crate) next_beat: Option<Duration>,
}

/// Time limit of a drain.
const DRAIN_DEADLINE: Duration = Duration::from_mins(3);

impl Agent {
    /// An agent that has just started, with the journal of its predecessor.
    pub(crate) fn new(
        began: Duration,
        layouts: LayoutFileSnapshot,
        record: Option<ApplyRecord>,
        (identity, run): (Identity, Run),
    ) -> Self {
        Self {
            began,
            reconciler: NodeReconciler::default(),
            record,
            layouts,
            last_targets: None,
            handled: None,
            is_refused: false,
            notice: None,
            inventory: Arc::default(),
            scanned: 0,
            next_scan: None,
            round: None,
            rounds: 0,
            view: None,
            watcher: 0,
            selected: Debounced::default(),
            desired: DesiredNode::default(),
            write_backoffs: BTreeMap::new(),
            next_write: None,
            drain: Drain::new(Policy { scope: Scope::Affected, deadline: DRAIN_DEADLINE }),
            pods: PodObservations::default(),
            next_list: None,
            evicting: BTreeSet::new(),
            requests: BTreeMap::new(),
            status: NodeLayoutStatus::default(),
            labels: LabelSet::default(),
            uplink: AgentUplink {
                sender: Sender::new(identity, run),
                backoff: Backoff::default(),
                connection: None,
                dialed: began,
                is_accepted: false,
                unanswered: 0,
                next_beat: None,
            },
        }
    }

    /// The layout that the Node selects; `None` without one, or before the Node was read.
    pub(crate) fn choice(&self) -> Option<&SelectedLayout> {
        self.view.as_ref()?;
        self.selected.get()?.as_ref()
    }

    /// Returns whether partitions of this device are being changed, so that it is closed to allocation.
    pub(crate) fn is_changing(&self, pci: PciAddress) -> bool {
        let round = self.round.as_ref();
        round.is_some_and(|round| {
            round.running.contains_key(&pci) || round.outcomes.iter().any(|(of, _)| *of == pci)
        })
    }
}

impl RunningChange {
    /// A transaction that has not taken an action yet.
    pub(crate) fn new(mut transaction: Transaction, now: Duration, is_resumed: bool) -> Self {
        let action = transaction.next(Duration::ZERO, ActionResult::Start);
        Self { transaction, began: now, action, users_found: Duration::ZERO, is_resumed }
    }
}
