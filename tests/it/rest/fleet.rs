//! A fleet of inventories of simulated machines, without network.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use octavo_access::guard::Guard;
use octavo_aggregator::access::guarded;
use octavo_aggregator::rest;
use octavo_files::config_files::LayoutFile;
use octavo_fleet::changes::Baseline;
use octavo_fleet::summary::{SharingSummary, UsageRank};
use octavo_kube::cluster::WatchedCluster;
use octavo_model::inventory::Inventory;
use octavo_model::sharing_status::SharingStatus;
use octavo_node::labels::{self, Options};
use octavo_node::sharing::usage::Usage;
use octavo_store::availability::Counter;
use octavo_store::clock::{Clock, Moment};
use octavo_store::fleet::{Fleet, Freshness, Node, ReportingAgent, StatusSummary};
use octavo_store::profiles::Profiles;
use octavo_store::stats::Stats;
use octavo_store::view::FleetView;
use octavo_stream::protocol::{Change, Run};
use octavo_stream::status;
use prometheus_client::registry::Registry;
use tokio::sync::watch;

use crate::machine::Machine;

const L4: &str = "machine: l4\nmachine_type: PowerEdge\ngpus: [{board: L4}]\n";
const MIXED: &str = "machine: mixed
machine_type: DGXH100
gpus:
- {board: H100_80GB_SXM, count: 2}
- {board: H100_80GB_SXM, mig: enabled, instances: [{profile: 3g.40gb}, {profile: 1g.10gb}]}
- {board: H100_80GB_SXM, mig: enabled, instances: [{profile: 7g.80gb}]}
processes: [{pid: 99, gpu: 3, gi: 0, ci: 0, memory_mib: 1000}]
";
const BARE: &str = "machine: bare\nmachine_type: PowerEdge\ngpus: []\n";

/// Inventories by the name of their node.
#[derive(Default)]
pub(crate) struct Machines(BTreeMap<String, Inventory>);

/// A router over a fleet that tests change.
pub(crate) struct Aggregator {
    pub(crate) router: Router,
    /// The same without the access gate: requests carry a visibility.
    pub(crate) ungated: Router,
    pub(crate) ready: watch::Sender<bool>,
    fleet: Mutex<watch::Sender<Fleet>>,
    clock: Clock,
}

impl Machines {
    /// Reads four machines: two equal ones, one with partitions, one without devices.
    pub(crate) async fn read() -> Self {
        let mut machines = BTreeMap::new();
        let l4 = Machine::new(L4).observe().await;
        for (name, scenario) in [("mixed-1", MIXED), ("bare-1", BARE)] {
            machines.insert(name.to_owned(), Machine::new(scenario).observe().await);
        }
        machines.insert("gpu-1".to_owned(), l4.clone());
        machines.insert("gpu-2".to_owned(), l4);
        Self(machines)
    }

    pub(crate) fn inventory(&self, name: &str) -> &Inventory {
        &self.0[name]
    }
}

impl Aggregator {
    pub(crate) fn of(machines: &Machines) -> Self {
        Self::with_streams(machines, 8)
    }

    /// With this limit of event streams.
    pub(crate) fn with_streams(machines: &Machines, max_streams: usize) -> Self {
        Self::made(machines, |view| view, max_streams, None)
    }

    /// With layouts for plans.
    pub(crate) fn with_layouts(machines: &Machines, book: LayoutFile) -> Self {
        Self::viewed(machines, |view| view.with_layouts(book))
    }

    /// With additional sources.
    pub(crate) fn viewed(machines: &Machines, more: impl FnOnce(FleetView) -> FleetView) -> Self {
        Self::made(machines, more, 8, None)
    }

    /// With hardware profiles.
    pub(crate) fn with_profiles(machines: &Machines, profiles: Profiles) -> Self {
        Self::viewed(machines, |view| view.with_profiles(profiles))
    }

    /// With hardware profiles and a cluster of nodes and pods.
    pub(crate) fn following(
        machines: &Machines,
        profiles: Profiles,
        cluster: watch::Receiver<Arc<WatchedCluster>>,
    ) -> Self {
        let followed = cluster.clone();
        let more = |view: FleetView| view.with_profiles(profiles).with_cluster(Some(followed));
        Self::made(machines, more, 8, Some(cluster))
    }

    fn made(
        machines: &Machines,
        more: impl FnOnce(FleetView) -> FleetView,
        max_streams: usize,
        cluster: Option<watch::Receiver<Arc<WatchedCluster>>>,
    ) -> Self {
        let clock = Clock::start();
        let (fleet, receiver) = watch::channel(Fleet::default());
        let (ready, is_ready) = watch::channel(true);
        let view = more(FleetView::new(receiver, clock));
        let mut registry = Registry::default();
        rest::metrics::register(&mut registry, view.clone());
        let availability = Counter::new(view.clone(), cluster);
        rest::availability::register(&mut registry, availability.clone());
        let context = rest::ApiContext {
            view,
            availability,
            registry: Arc::new(registry),
            ready: is_ready,
            max_streams,
        };
        let gate = Guard::open(Stats::default());
        let ungated = rest::router(context);
        let aggregator = Self {
            router: guarded(ungated.clone(), gate),
            ungated,
            ready,
            fleet: Mutex::new(fleet),
            clock,
        };
        for (name, inventory) in &machines.0 {
            aggregator.put(name, inventory);
        }
        aggregator
    }

    /// Reports this inventory as the agent of `name`.
    pub(crate) fn put(&self, name: &str, inventory: &Inventory) {
        let labels = labels::compile(inventory, &Options::default(), None).labels;
        let origin = ReportingAgent {
            name: name.parse().unwrap(),
            run: Run { epoch: 1, boot_id: format!("boot-{name}") },
            agent_version: "0.1.0".to_owned(),
        };
        let parts = status::encode(inventory, &labels, None);
        let freshness = Freshness::new(self.clock.now(), Duration::from_hours(1));
        self.store(Node::new(
            origin,
            parts,
            StatusSummary::new(inventory, Arc::new(labels), None),
            freshness,
        ));
    }

    /// Reports this sharing status and usage as the agent of `name`.
    pub(crate) fn share(&self, name: &str, report: &SharingStatus, usage: &Usage) {
        let mut node = Node::clone(&self.node(name));
        node.parts = node.parts.apply(&Change {
            changed: vec![status::encode_sharing(report), status::encode_usage(usage)],
            removed: Vec::new(),
        });
        node.usage = UsageRank::from_usage(usage);
        let given = SharingSummary::of(report);
        node.summary = node.summary.with_sharing(Some(given)).with_usage(&node.usage);
        self.store(node);
    }

    /// Makes the agent of `name` silent, and the node stale.
    pub(crate) fn silence(&self, name: &str) {
        let mut node = Node::clone(&self.node(name));
        let long_ago = Moment::from_millis(0);
        node.freshness = Freshness::new(long_ago, Duration::ZERO).with_found_stale(true);
        self.store(node);
    }

    /// Reports no change as the agent of `name`.
    pub(crate) fn confirm(&self, name: &str) {
        self.node(name).freshness.confirm(self.clock.now());
    }

    pub(crate) fn remove(&self, name: &str) {
        self.change(|fleet| {
            fleet.nodes.remove(&name.parse().unwrap());
        });
    }

    /// Inserts a node with the record of its changes.
    fn store(&self, node: Node) {
        let now = self.clock.now();
        self.change(|fleet| {
            let node = match fleet.nodes.get(&node.name) {
                None => node,
                Some(known) => {
                    let mut baseline = Baseline::default();
                    baseline.update(&known.report());
                    let changes = baseline.update(&node.report());
                    node.with_changes(known.changes_with(changes, now))
                }
            };
            fleet.nodes.insert(Arc::new(node));
        });
    }

    fn change(&self, what: impl FnOnce(&mut Fleet)) {
        self.fleet.lock().unwrap().send_modify(|fleet| {
            what(fleet);
            fleet.revision += 1;
        });
    }

    fn node(&self, name: &str) -> Arc<Node> {
        let sender = self.fleet.lock().unwrap();
        let fleet = sender.borrow();
        Arc::clone(fleet.nodes.get(&name.parse().unwrap()).unwrap())
    }
}
