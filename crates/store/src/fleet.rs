//! Read-only model of the fleet.

mod node_index;
mod type_totals;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use octavo_fleet::changes::{AgentRun, Change, ChangeLog, Report};
use octavo_fleet::summary::{
    DeviceCounts, DeviceSummary, LayoutSummary, NodeProblem, NodeState, NodeSummary,
    SharingSummary, TypeCounts, UsageRank,
};
use octavo_fleet::type_source::TypeSource;
use octavo_history::DeviceSample;
use octavo_model::id::NodeName;
use octavo_model::inventory::Inventory;
use octavo_model::reason::Reason;
use octavo_model::text::shorten;
use octavo_node::label_set::LabelSet;
use octavo_node::sharing::usage::{PastUsage, Usage};
use octavo_planner::reconcile::NodeLayoutStatus;
use octavo_stream::protocol::{PartKey, Parts, Run};
use octavo_stream::status::{self, NodeStatus, StatusError};

use super::clock::Moment;
use super::persistent_map::{Difference, Keyed, PersistentMap};
pub use node_index::NodeIndex;
pub(crate) use node_index::{IndexedNode, NodeClass};
pub use type_totals::TypeTotals;

/// Immutable snapshot of all nodes. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Fleet {
    /// Increases with each change.
    pub revision: u64,
    /// Nodes ordered by name.
    pub nodes: PersistentMap<Node>,
    /// Whether an agent connected that had reported to an earlier run of the aggregator; shows that the aggregator was
    /// restarted.
    pub saw_returning_agent: bool,
}

/// Last reported state of a node.
#[derive(Debug, Clone)]
pub struct Node {
    /// Name of the node.
    pub name: NodeName,
    /// Its agent, or the label that names its type if no agent reports it.
    pub source: TypeSource,
    /// Cluster whose aggregator sends the node; `None` for a node that reports here.
    pub upstream: Option<Arc<str>>,
    /// Run of the agent that reports the node.
    pub run: Run,
    /// Version of that agent.
    pub agent_version: String,
    /// Reported parts, from which the other fields are derived.
    pub parts: Parts,
    /// Labels of the node; shared between nodes with equal labels.
    pub labels: Arc<LabelSet>,
    /// Devices ordered by PCI address.
    pub devices: Vec<DeviceSummary>,
    /// Summary of all devices.
    pub summary: NodeSummary,
    /// Summary of the usage by pod.
    pub usage: UsageRank,
    /// Samples of the devices for the history.
    pub samples: Arc<[DeviceSample]>,
    /// Latest changes of the node.
    pub changes: Arc<ChangeLog>,
    /// Whether the agent is connected.
    pub connected: bool,
    /// Time of the last change of the status.
    pub changed: Moment,
    /// Time of the agent's last confirmation, and whether the writer last found it too old.
    pub freshness: Freshness,
}

/// Agent that reports a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportingAgent {
    /// Name of the node.
    pub name: NodeName,
    /// Run of the agent.
    pub run: Run,
    /// Version of the agent.
    pub agent_version: String,
}

/// Summary of a status, stored with its parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusSummary {
    /// Labels of the node.
    pub labels: Arc<LabelSet>,
    /// Devices ordered by PCI address.
    pub devices: Vec<DeviceSummary>,
    /// Summary of all devices.
    pub summary: NodeSummary,
    /// Summary of the usage by pod.
    pub usage: UsageRank,
    /// Samples of the devices for the history.
    pub samples: Arc<[DeviceSample]>,
}

/// Age of a node's status and its bound. The time is shared by all versions of a node with the same report, so a heartbeat creates no new
/// version.
#[derive(Debug, Clone)]
pub struct Freshness {
    confirmed_ms: Arc<AtomicU64>,
    bound: Duration,
    /// Set by the writer, so that becoming stale is a change like any other.
    found_stale: bool,
}

impl Fleet {
    /// Devices of all nodes by type, ordered by the type's name with untyped devices last, and the number of nodes that
    /// have each. Devices of stale nodes count as unknown.
    pub fn types(&self, now: Moment) -> Vec<TypeTotals> {
        self.totals_by_type(now).into_list()
    }

    /// Number of nodes in each state at `now`, ordered by severity.
    pub fn states(&self, now: Moment) -> BTreeMap<NodeState, usize> {
        let mut states: BTreeMap<NodeState, usize> = NodeState::ALL.map(|state| (state, 0)).into();
        for one in self.nodes.chunks().flat_map(|chunk| chunk.nodes(now)) {
            let count = states.entry(one.state(now)).or_default();
            *count = count.saturating_add(1);
        }
        states
    }

    /// Nodes of this cluster.
    pub fn local_nodes(&self) -> impl Iterator<Item = &Arc<Node>> {
        self.nodes.iter().filter(|node| node.is_local())
    }

    /// Changes since `old`.
    pub fn since<'a>(&'a self, old: &'a Self) -> Difference<'a, Node> {
        self.nodes.since(&old.nodes)
    }
}

impl StatusSummary {
    /// Summarizes a node with this inventory, labels and layout status.
    pub fn new(
        inventory: &Inventory,
        labels: Arc<LabelSet>,
        layout: Option<&NodeLayoutStatus>,
    ) -> Self {
        let nvml = &inventory.nvml;
        let devices = DeviceSummary::all(inventory);
        let summary = NodeSummary::new(&devices, nvml, layout.map(LayoutSummary::of));
        Self {
            labels,
            summary: summary.with_neuron(inventory.neuron.as_ref()),
            devices,
            usage: UsageRank::default(),
            samples: Arc::default(),
        }
    }

    /// Adds the sharing status.
    #[must_use]
    pub fn with_sharing(self, given: Option<SharingSummary>) -> Self {
        Self { summary: self.summary.with_sharing(given), ..self }
    }

    /// Adds the usage by pod. Call this after [`with_sharing`](Self::with_sharing).
    #[must_use]
    pub fn with_usage(self, usage: Option<&Usage>) -> Self {
        self.with_usage_rank(usage.map(UsageRank::from_usage).unwrap_or_default())
    }

    /// Adds the samples of the devices.
    #[must_use]
    pub(super) fn with_samples(self, samples: Arc<[DeviceSample]>) -> Self {
        Self { samples, ..self }
    }

    /// Adds the index of the usage by pod.
    #[must_use]
    pub(super) fn with_usage_rank(self, usage: UsageRank) -> Self {
        Self { summary: self.summary.with_usage(&usage), usage, ..self }
    }
}

impl Node {
    /// Creates a node whose connected agent has just confirmed its state.
    pub fn new(
        origin: ReportingAgent,
        parts: Parts,
        status: StatusSummary,
        freshness: Freshness,
    ) -> Self {
        Self {
            name: origin.name,
            source: TypeSource::Agent,
            upstream: None,
            run: origin.run,
            agent_version: origin.agent_version,
            parts,
            labels: status.labels,
            summary: status.summary,
            usage: status.usage,
            samples: status.samples,
            devices: status.devices,
            changes: Arc::new(ChangeLog::new(freshness.confirmed().since_start())),
            connected: true,
            changed: freshness.confirmed(),
            freshness,
        }
    }

    /// Creates a node of the cluster without an agent, as described by its labels.
    pub fn without_agent(
        name: NodeName,
        (summary, source): (NodeSummary, TypeSource),
        labels: Arc<LabelSet>,
        freshness: Freshness,
    ) -> Self {
        Self {
            name,
            source,
            upstream: None,
            run: Run { epoch: 0, boot_id: String::new() },
            agent_version: String::new(),
            parts: Parts::default(),
            labels,
            devices: Vec::new(),
            summary,
            usage: UsageRank::default(),
            samples: Arc::default(),
            changes: Arc::default(),
            connected: false,
            changed: freshness.confirmed(),
            freshness,
        }
    }

    /// Replaces the record of the latest changes.
    #[must_use]
    pub fn with_changes(self, changes: Arc<ChangeLog>) -> Self {
        Self { changes, ..self }
    }

    /// The record of the latest changes with these, observed at `now`.
    pub fn changes_with(&self, changes: Vec<Change>, now: Moment) -> Arc<ChangeLog> {
        if changes.is_empty() {
            return Arc::clone(&self.changes);
        }
        Arc::new(self.changes.with(changes, now.since_start()))
    }

    /// The report of the agent, for comparison with earlier ones.
    pub fn report(&self) -> Report<'_> {
        let Run { epoch, boot_id } = &self.run;
        Report {
            agent: AgentRun { boot_id, epoch: *epoch, version: &self.agent_version },
            summary: &self.summary,
            devices: &self.devices,
        }
    }

    /// Returns whether an agent reports the node, or has reported it.
    pub fn has_agent(&self) -> bool {
        self.source == TypeSource::Agent
    }

    /// Returns whether it is a node of this cluster. Only those are counted, billed and configured here.
    pub fn is_local(&self) -> bool {
        self.upstream.is_none()
    }

    /// Decodes the last reported status; empty without an agent. The fleet stores summaries only, because a complete status
    /// is large.
    pub fn status(&self) -> Result<NodeStatus, StatusError> {
        if self.has_agent() { status::decode(&self.parts) } else { Ok(NodeStatus::without_agent()) }
    }

    /// Decodes the last reported usage by pod; `None` if the agent reports none.
    pub fn usage_by_pod(&self) -> Option<Usage> {
        // The store accepts decodable parts only.
        status::decode_usage(self.parts.get(PartKey::USAGE)?).ok()
    }

    /// Decodes the past usage that the agent reports, in the order of its times.
    pub fn past_usage(&self) -> Vec<PastUsage> {
        let part = self.parts.get(PartKey::PAST_USAGE);
        part.and_then(|part| status::decode_past_usage(part).ok()).unwrap_or_default()
    }

    /// State of the node at `now`.
    pub fn state(&self, now: Moment) -> NodeState {
        if self.freshness.is_stale(now) { NodeState::Stale } else { self.summary.state }
    }

    /// Reason why the node needs attention at `now`; unknown for a stale node.
    pub fn reason(&self, now: Moment) -> Option<&str> {
        let fresh = !self.freshness.is_stale(now);
        self.summary.reason.as_deref().filter(|_| fresh)
    }

    /// Problems that need attention at `now`, each once. Nothing more is known of a stale node.
    pub fn problems(&self, now: Moment) -> Vec<NodeProblem> {
        if self.freshness.is_stale(now) {
            let tone = NodeState::Stale.tone();
            return vec![NodeProblem::of_node(tone, Reason::Stale, String::new())];
        }
        self.summary.problems(&self.devices)
    }

    /// The reason, shortened for lists.
    pub fn short_reason(&self, now: Moment) -> Option<String> {
        const MAX_CHARS: usize = 160;
        self.reason(now).map(|reason| shorten(reason, MAX_CHARS))
    }

    /// Device counts at `now`; unknown for a stale node.
    pub fn counts(&self, now: Moment) -> DeviceCounts {
        let counts = self.summary.counts();
        if self.freshness.is_stale(now) { DeviceCounts::all_unknown(counts.total) } else { counts }
    }

    /// Device counts by type at `now`; unknown for a stale node.
    pub fn types(&self, now: Moment) -> impl Iterator<Item = Cow<'_, TypeCounts>> {
        let is_stale = self.freshness.is_stale(now);
        self.summary.types.iter().map(move |one| {
            let mut one = Cow::Borrowed(one);
            if is_stale {
                one.to_mut().counts = DeviceCounts::all_unknown(one.counts.total);
            }
            one
        })
    }
}

impl Keyed for Node {
    type Key = NodeName;
    type Index = NodeIndex;

    fn key(&self) -> &NodeName {
        &self.name
    }
}

impl Freshness {
    /// Creates a status confirmed at `now`, which becomes stale after `bound`.
    pub fn new(now: Moment, bound: Duration) -> Self {
        Self { confirmed_ms: Arc::new(AtomicU64::new(now.as_millis())), bound, found_stale: false }
    }

    /// Records that the agent confirmed its state, for every version of the node with the same report. An earlier confirmation has no effect.
    pub fn confirm(&self, now: Moment) {
        self.confirmed_ms.fetch_max(now.as_millis(), Ordering::Relaxed);
    }

    /// Time of the last confirmation.
    pub fn confirmed(&self) -> Moment {
        Moment::from_millis(self.confirmed_ms.load(Ordering::Relaxed))
    }

    /// Time since the last confirmation.
    pub fn age(&self, now: Moment) -> Duration {
        self.confirmed().age(now)
    }

    /// Returns whether the last confirmation is older than the bound.
    pub fn is_stale(&self, now: Moment) -> bool {
        self.age(now) > self.bound
    }

    /// Time in milliseconds up to which the status is not stale, without further confirmations.
    fn fresh_until_ms(&self) -> u64 {
        let bound = u64::try_from(self.bound.as_millis()).unwrap_or(u64::MAX);
        self.confirmed_ms.load(Ordering::Relaxed).saturating_add(bound)
    }

    /// Age from which the status is stale.
    pub fn bound(&self) -> Duration {
        self.bound
    }

    /// Staleness as last found by the writer.
    pub fn found_stale(&self) -> bool {
        self.found_stale
    }

    /// Sets the staleness as found by the writer.
    #[must_use]
    pub fn with_found_stale(&self, stale: bool) -> Self {
        Self { found_stale: stale, ..self.clone() }
    }
}
