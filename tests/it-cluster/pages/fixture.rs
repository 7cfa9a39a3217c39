//! A fleet of the demo's machines, and its pages on a socket.

use std::fs;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use octavo_access::guard::Guard;
use octavo_aggregator::access::guarded;
use octavo_fleet::changes::Baseline;
use octavo_fleet::cluster::ClusterSnapshot;
use octavo_fleet::hardware_profile::{HardwareProfile, ProfileKind};
use octavo_fleet::summary::{SharingSummary, UsageRank};
use octavo_kube::cluster::WatchedCluster;
use octavo_kube::hardware_profiles::{Presence, Profiles as Known};
use octavo_model::inventory::Inventory;
use octavo_model::sharing_status::SharingStatus;
use octavo_node::labels;
use octavo_node::sharing::usage::Usage;
use octavo_pages as pages;
use octavo_planner::reconcile::NodeLayoutStatus;
use octavo_store::availability::Counter;
use octavo_store::clock::{Clock, Moment};
use octavo_store::fleet::{Fleet, Freshness, Node, ReportingAgent, StatusSummary};
use octavo_store::profiles::Profiles;
use octavo_store::stats::Stats;
use octavo_store::view::FleetView;
use octavo_stream::protocol::{Change, Run};
use octavo_stream::status;
use tokio::sync::{oneshot, watch};

use crate::machine::Machine;

/// Longer than any test.
const FRESH: Duration = Duration::from_hours(1);

/// The demo's machines, each with a node of the same name.
pub(super) const MACHINES: [&str; 7] = [
    "cpu-only",
    "dgx-h100",
    "driver-comes-late",
    "h200",
    "hgx-a100",
    "mixed-l40s-a100",
    "rtx-pro-6000",
];

/// The inventory of a demo machine.
pub(super) async fn inventory(machine: &str) -> Inventory {
    let path = format!("demo/machines/{machine}.yaml");
    let scenario = fs::read_to_string(path).unwrap();
    Machine::new(&scenario).observe().await
}

/// The pages on their own socket, until dropped.
pub(super) struct Site {
    pub(super) url: String,
    fleet: watch::Sender<Fleet>,
    clock: Clock,
    known: watch::Sender<Arc<Known>>,
    followed: watch::Sender<Arc<WatchedCluster>>,
    /// True if availability comes from the cluster.
    counts: bool,
    server: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl Site {
    /// Without nodes.
    pub(super) fn empty() -> Self {
        Self::made(false, |view| view)
    }

    /// Without nodes; availability is what the scheduler would place in the watched cluster.
    pub(super) fn of_a_cluster() -> Self {
        Self::made(true, |view| view)
    }

    /// Without nodes, and with additional sources.
    pub(super) fn viewed(more: impl FnOnce(FleetView) -> FleetView) -> Self {
        Self::made(false, more)
    }

    fn made(counts: bool, more: impl FnOnce(FleetView) -> FleetView) -> Self {
        let clock = Clock::start();
        let (fleet, view) = watch::channel(Fleet::default());
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let mut site = Self {
            url,
            fleet,
            clock,
            known: watch::Sender::new(Arc::default()),
            followed: watch::Sender::new(Arc::default()),
            counts,
            server: None,
        };
        site.serve(listener, more(FleetView::new(view, clock)));
        site
    }

    /// Watches a cluster with these nodes and profiles.
    pub(super) fn follow(&self, snapshot: ClusterSnapshot, profiles: Vec<HardwareProfile>) {
        self.followed.send_replace(Arc::new(WatchedCluster {
            snapshot: Arc::new(snapshot),
            current_at: Some(tokio::time::Instant::now()),
            error: None,
            invalid_objects: 0,
        }));
        let all = profiles.into_iter();
        self.known.send_replace(Arc::new(Known {
            all: all.map(|one| ((one.kind, one.key.clone()), Arc::new(one))).collect(),
            kinds: ProfileKind::ALL.into_iter().map(|kind| (kind, Presence::Present)).collect(),
            ..Known::default()
        }));
    }

    /// With all machines of the demo.
    pub(super) async fn of_the_demo() -> Self {
        let site = Self::empty();
        for machine in MACHINES {
            site.put(machine, &inventory(machine).await);
        }
        site
    }

    /// On its own thread, so that stopping it closes every connection like a killed process.
    fn serve(&mut self, listener: std::net::TcpListener, view: FleetView) {
        let (known, followed) = (self.known.subscribe(), self.followed.subscribe());
        let counted = self.counts.then(|| followed.clone());
        let view = view.with_profiles(Profiles::new(Some(known), Some(followed), None));
        let view = view.with_cluster(counted.clone());
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = { runtime }.enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                let pages = pages::router(Counter::new(view, counted));
                let pages = guarded(pages, Guard::open(Stats::default()));
                let serving = axum::serve(listener, pages).into_future();
                tokio::select! {
                    done = serving => done.unwrap(),
                    _ = stopped => {}
                }
            });
        });
        self.server = Some((stop, thread));
    }

    /// Stops the aggregator.
    pub(super) fn stop(&mut self) {
        if let Some((stop, thread)) = self.server.take() {
            let _ = stop.send(());
            thread.join().unwrap();
        }
    }

    /// Restarts it at the same address.
    pub(super) fn start_again(&mut self) {
        let address = self.url.strip_prefix("http://").unwrap();
        let listener = std::net::TcpListener::bind(address).unwrap();
        listener.set_nonblocking(true).unwrap();
        self.serve(listener, FleetView::new(self.fleet.subscribe(), self.clock));
    }

    /// Reports the inventory of a node, for the first time or again.
    pub(super) fn put(&self, name: &str, inventory: &Inventory) {
        let now = self.clock.now();
        self.insert(node(name, inventory, Freshness::new(now, FRESH)));
    }

    /// The same with its layout status.
    pub(super) fn set_layout_state(
        &self,
        name: &str,
        inventory: &Inventory,
        layout: &NodeLayoutStatus,
    ) {
        let now = self.clock.now();
        let fresh = Freshness::new(now, FRESH);
        self.insert(layout_status(name, inventory, Some(layout), fresh));
    }

    /// The same with its sharing status and usage.
    pub(super) fn put_sharing(
        &self,
        name: &str,
        inventory: &Inventory,
        report: &SharingStatus,
        usage: &Usage,
    ) {
        let now = self.clock.now();
        let mut node = node(name, inventory, Freshness::new(now, FRESH));
        node.parts = node.parts.apply(&Change {
            changed: vec![status::encode_sharing(report), status::encode_usage(usage)],
            removed: Vec::new(),
        });
        let given = SharingSummary::of(report);
        node.usage = UsageRank::from_usage(usage);
        node.summary = node.summary.with_sharing(Some(given)).with_usage(&node.usage);
        self.insert(node);
    }

    /// A node without a report since the start.
    pub(super) fn put_stale(&self, name: &str, inventory: &Inventory) {
        let freshness = Freshness::new(Moment::from_millis(0), Duration::ZERO);
        let mut node = node(name, inventory, freshness.with_found_stale(true));
        node.connected = false;
        self.insert(node);
    }

    /// Inserts a node with the record of its changes, as the aggregator does.
    fn insert(&self, node: Node) {
        let now = self.clock.now();
        self.fleet.send_modify(|fleet| {
            let node = match fleet.nodes.get(&node.name) {
                None => node,
                Some(known) => {
                    let mut baseline = Baseline::default();
                    baseline.update(&known.report());
                    let changes = baseline.update(&node.report());
                    node.with_changes(known.changes_with(changes, now))
                }
            };
            fleet.revision += 1;
            fleet.nodes.insert(Arc::new(node));
        });
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.stop();
    }
}

fn node(name: &str, inventory: &Inventory, freshness: Freshness) -> Node {
    layout_status(name, inventory, None, freshness)
}

fn layout_status(
    name: &str,
    inventory: &Inventory,
    layout: Option<&NodeLayoutStatus>,
    freshness: Freshness,
) -> Node {
    let compiled = labels::compile(inventory, &labels::Options::default(), None);
    let labels = compiled.labels;
    let origin = ReportingAgent {
        name: name.parse().unwrap(),
        run: Run { epoch: 1, boot_id: "1b4e28ba-2fa1-4d3b-a3f5-ef19b5a7633b".to_owned() },
        agent_version: "0.1.0".to_owned(),
    };
    let parts = status::encode(inventory, &labels, layout);
    Node::new(origin, parts, StatusSummary::new(inventory, Arc::new(labels), layout), freshness)
}
