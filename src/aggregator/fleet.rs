//! What the aggregator knows: the form in which readers get it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::clock::Moment;
use super::roster::{Difference, Keyed, Roster};
use crate::domain::availability::Source;
use crate::domain::fleet::{
    Counts, DeviceSummary, LayoutStatus, LayoutSummary, NodeState, NodeSummary, SharingSummary,
    TypeCounts, UsageRank,
};
use crate::domain::id::{NodeName, TypeName};
use crate::domain::inventory::Inventory;
use crate::domain::labels::LabelSet;
use crate::domain::sharing::usage::Usage;
use crate::domain::stream::{Parts, Run};

/// All nodes at one moment. Cheap to clone, and never changed once it was given out.
#[derive(Debug, Clone, Default)]
pub struct Fleet {
    /// Grows with each change.
    pub revision: u64,
    /// The nodes, ordered by name.
    pub nodes: Roster<Node>,
}

/// One node, as its agent described it last.
#[derive(Debug, Clone)]
pub struct Node {
    /// Its name.
    pub name: NodeName,
    /// Its agent, or the label that names its type where no agent reports it.
    pub source: Source,
    /// The run of the agent that speaks for it.
    pub run: Run,
    /// That agent's version.
    pub agent_version: String,
    /// What the agent said, of which the rest is made.
    pub parts: Parts,
    /// Its labels, shared with nodes that have the same.
    pub labels: Arc<LabelSet>,
    /// Its devices, ordered by PCI address.
    pub devices: Vec<DeviceSummary>,
    /// Its devices taken together.
    pub summary: NodeSummary,
    /// What is kept of who uses what of it.
    pub usage: UsageRank,
    /// Whether its agent is connected now.
    pub connected: bool,
    /// When its status last became another one.
    pub changed: Moment,
    /// When its agent last confirmed that all this is so, and whether that was too long ago when it was looked at last.
    pub freshness: Freshness,
}

/// Whose word a node's status is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The node.
    pub name: NodeName,
    /// The run of its agent.
    pub run: Run,
    /// That agent's version.
    pub agent_version: String,
}

/// What is kept of a status beside its parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gist {
    /// What the node tells the scheduler.
    pub labels: Arc<LabelSet>,
    /// Its devices, ordered by PCI address.
    pub devices: Vec<DeviceSummary>,
    /// Its devices taken together.
    pub summary: NodeSummary,
    /// What is kept of who uses what of them.
    pub usage: UsageRank,
}

/// How old what is known may be, and is. The time is shared by all versions of a node: a heartbeat makes no new version.
#[derive(Debug, Clone)]
pub struct Freshness {
    confirmed_ms: Arc<AtomicU64>,
    bound: Duration,
    /// Set when the writer found it stale, so that becoming stale is a change like any other.
    found_stale: bool,
}

impl Fleet {
    /// Devices of all nodes by type, ordered by the type's name, those without one last; and how many nodes have each. A
    /// stale node's devices count as unknown.
    pub fn types(&self, now: Moment) -> Vec<TypeOfFleet> {
        // A tree, because peers say what types there are: one that invents them shall not make this slow.
        let mut all: BTreeMap<Option<TypeName>, TypeOfFleet> = BTreeMap::new();
        for node in self.nodes.iter() {
            let without_agent = u32::from(!node.has_agent());
            for counts in node.types(now) {
                if let Some(known) = all.get_mut(&counts.type_name) {
                    known.counts.merge(&counts);
                    known.nodes = known.nodes.saturating_add(1);
                    known.without_agent = known.without_agent.saturating_add(without_agent);
                } else {
                    let counts = counts.into_owned();
                    let one = TypeOfFleet {
                        counts,
                        nodes: 1,
                        without_agent,
                    };
                    all.insert(one.counts.type_name.clone(), one);
                }
            }
        }
        let nameless = all.remove(&None);
        all.into_values().chain(nameless).collect()
    }

    /// What happened since `old`.
    pub fn since<'a>(&'a self, old: &'a Self) -> Difference<'a, Node> {
        self.nodes.since(&old.nodes)
    }
}

/// A type, over the whole fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeOfFleet {
    /// Its devices.
    pub counts: TypeCounts,
    /// Nodes that have at least one.
    pub nodes: u32,
    /// How many of these nodes no agent reports.
    pub without_agent: u32,
}

impl Gist {
    /// Of a node that has and says this.
    pub fn of(inventory: &Inventory, labels: Arc<LabelSet>, layout: Option<&LayoutStatus>) -> Self {
        let nvml = &inventory.nvml;
        let devices = DeviceSummary::all(inventory);
        let summary = NodeSummary::of(&devices, nvml, layout.map(LayoutSummary::of));
        Self {
            labels,
            summary: summary.with_neuron(inventory.neuron.as_ref()),
            devices,
            usage: UsageRank::default(),
        }
    }

    /// The same of a node that says this of what it gives out.
    #[must_use]
    pub fn with_sharing(self, given: Option<SharingSummary>) -> Self {
        Self {
            summary: self.summary.with_sharing(given),
            ..self
        }
    }

    /// The same of a node that says this of who uses what.
    #[must_use]
    pub fn with_usage(self, usage: Option<&Usage>) -> Self {
        let usage = usage.map(UsageRank::of).unwrap_or_default();
        Self { usage, ..self }
    }
}

impl Node {
    /// A node of which its connected agent said just now that it is so.
    pub fn new(origin: Origin, parts: Parts, gist: Gist, freshness: Freshness) -> Self {
        Self {
            name: origin.name,
            source: Source::Agent,
            run: origin.run,
            agent_version: origin.agent_version,
            parts,
            labels: gist.labels,
            summary: gist.summary,
            usage: gist.usage,
            devices: gist.devices,
            connected: true,
            changed: freshness.confirmed(),
            freshness,
        }
    }

    /// A node of the cluster that no agent reports, as its labels describe it.
    pub fn without_agent(
        name: NodeName,
        (summary, source): (NodeSummary, Source),
        labels: Arc<LabelSet>,
        freshness: Freshness,
    ) -> Self {
        Self {
            name,
            source,
            run: Run {
                epoch: 0,
                boot_id: String::new(),
            },
            agent_version: String::new(),
            parts: Parts::default(),
            labels,
            devices: Vec::new(),
            summary,
            usage: UsageRank::default(),
            connected: false,
            changed: freshness.confirmed(),
            freshness,
        }
    }

    /// Whether an agent reports it, or did.
    pub fn has_agent(&self) -> bool {
        self.source == Source::Agent
    }

    /// How it is at `now`.
    pub fn state(&self, now: Moment) -> NodeState {
        if self.freshness.is_stale(now) {
            NodeState::Stale
        } else {
            self.summary.state
        }
    }

    /// Why it is not as it should be at `now`; of a stale node nobody knows.
    pub fn reason(&self, now: Moment) -> Option<&str> {
        let fresh = !self.freshness.is_stale(now);
        self.summary.reason.as_deref().filter(|_| fresh)
    }

    /// Its devices, as they may be counted at `now`.
    pub fn counts(&self, now: Moment) -> Counts {
        let counts = self.summary.counts();
        if self.freshness.is_stale(now) {
            counts.stale()
        } else {
            counts
        }
    }

    /// Its devices by type, as they may be counted at `now`.
    pub fn types(&self, now: Moment) -> impl Iterator<Item = Cow<'_, TypeCounts>> {
        let is_stale = self.freshness.is_stale(now);
        self.summary.types.iter().map(move |one| {
            let mut one = Cow::Borrowed(one);
            if is_stale {
                one.to_mut().counts = one.counts.stale();
            }
            one
        })
    }
}

impl Keyed for Node {
    type Key = NodeName;

    fn key(&self) -> &NodeName {
        &self.name
    }
}

impl Freshness {
    /// Confirmed at `now`; stale once that is longer ago than `bound`.
    pub fn new(now: Moment, bound: Duration) -> Self {
        Self {
            confirmed_ms: Arc::new(AtomicU64::new(now.as_millis())),
            bound,
            found_stale: false,
        }
    }

    /// The agent said just now that all is so: for every version of the node.
    pub fn confirm(&self, now: Moment) {
        self.confirmed_ms.store(now.as_millis(), Ordering::Relaxed);
    }

    /// When that was last.
    pub fn confirmed(&self) -> Moment {
        Moment::from_millis(self.confirmed_ms.load(Ordering::Relaxed))
    }

    /// How long ago that was.
    pub fn age(&self, now: Moment) -> Duration {
        self.confirmed().age(now)
    }

    /// Whether that is longer than the bound.
    pub fn is_stale(&self, now: Moment) -> bool {
        self.age(now) > self.bound
    }

    /// The bound.
    pub fn bound(&self) -> Duration {
        self.bound
    }

    /// As the writer found it last.
    pub fn found_stale(&self) -> bool {
        self.found_stale
    }

    /// The same, found stale or not.
    #[must_use]
    pub fn found(&self, stale: bool) -> Self {
        Self {
            found_stale: stale,
            ..self.clone()
        }
    }
}
