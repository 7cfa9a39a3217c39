//! State of the fleet after a start of the aggregator.
//!
//! Nothing is stored on disk, so right after a restart only some agents have reported again, and their nodes must not
//! be shown as the whole fleet. A watched cluster determines how many nodes to expect: those with Octavo's labels.
//! Without it, an agent that has reported to an aggregator before shows that others may still reconnect. In either case
//! the state ends after a while: agents retry within half a minute, and an installation without agents must become
//! ready.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use octavo_fleet::startup::StartupProgress;
use octavo_kube::cluster::WatchedCluster;
use octavo_model::id::NodeName;
use tokio::sync::watch;
use tokio::time::sleep;

use super::clock::Moment;
use super::cluster_nodes::expects_agent;
use super::fleet::Fleet;
use super::view::FleetView;

/// Tracks the start until all nodes have reported or a timeout expires.
#[derive(Debug)]
pub struct Startup {
    view: FleetView,
    cluster: Option<watch::Receiver<Arc<WatchedCluster>>>,
    progress: watch::Sender<Option<StartupProgress>>,
}

/// End of the start without a cluster: the maximum backoff of agents, and time to connect.
const SETTLED_AFTER: Duration = Duration::from_secs(35);
/// Maximum time to wait for nodes of the cluster, whose agents may be broken.
const TIMEOUT: Duration = Duration::from_mins(1);

impl Startup {
    /// Reports the state of the fleet in `view` to `progress`, with expectations from the cluster if one is watched.
    pub fn new(
        view: FleetView,
        cluster: Option<watch::Receiver<Arc<WatchedCluster>>>,
        progress: watch::Sender<Option<StartupProgress>>,
    ) -> Self {
        Self { view, cluster, progress }
    }

    /// Runs until the start is over.
    pub async fn run(mut self) {
        let since = Moment::default().age(self.view.clock().now());
        let mut settled = pin!(sleep(SETTLED_AFTER.saturating_sub(since)));
        let mut timeout = pin!(sleep(TIMEOUT.saturating_sub(since)));
        let mut is_settled = false;
        loop {
            let expected = self.expected();
            let fleet = self.view.fleet();
            let now = progress(&fleet, expected.as_deref(), is_settled);
            self.report(now);
            // Without a cluster, agents that reconnect later can still show that this is a restart.
            if now.is_none() && (expected.is_some() || is_settled) {
                return;
            }
            tokio::select! {
                () = timeout.as_mut() => break,
                () = settled.as_mut(), if !is_settled => is_settled = true,
                changed = self.view.changed() => if changed.is_none() { break },
                () = changed(&mut self.cluster) => {}
            }
        }
        self.report(None);
    }

    fn report(&self, now: Option<StartupProgress>) {
        self.progress.send_if_modified(|before| {
            let is_other = *before != now;
            *before = now;
            is_other
        });
    }

    /// Ready nodes with Octavo's labels; `None` without a watched cluster.
    fn expected(&self) -> Option<Vec<NodeName>> {
        let watched = self.cluster.as_ref()?.borrow();
        watched.current_at?;
        let nodes = watched.snapshot.nodes.values();
        let expected: Vec<NodeName> = nodes
            .filter(|node| expects_agent(node))
            .filter_map(|node| node.name.parse().ok())
            .collect();
        // Nodes of agents that do not write labels cannot be recognized.
        (!expected.is_empty()).then_some(expected)
    }
}

/// Progress of the start; `None` once it is over.
fn progress(
    fleet: &Fleet,
    expected: Option<&[NodeName]>,
    is_settled: bool,
) -> Option<StartupProgress> {
    let (nodes, is_over) = if let Some(expected) = expected {
        let reported = |name: &&NodeName| fleet.nodes.get(name).is_some_and(|node| node.is_local());
        let nodes = expected.iter().filter(reported).count();
        (nodes, nodes == expected.len())
    } else {
        let nodes = fleet.local_nodes().count();
        let is_over = is_settled || (nodes > 0 && !fleet.saw_returning_agent);
        (nodes, is_over)
    };
    let expected = expected.map(<[NodeName]>::len);
    (!is_over).then(|| StartupProgress::new(nodes, expected))
}

/// Waits for a change of the cluster; never returns without a watched cluster.
async fn changed(cluster: &mut Option<watch::Receiver<Arc<WatchedCluster>>>) {
    if let Some(watched) = cluster
        && watched.changed().await.is_ok()
    {
        return;
    }
    std::future::pending::<()>().await;
}

#[cfg(test)]
mod tests {
    use octavo_fleet::cluster::{ClusterNode, ClusterSnapshot, Readiness};
    use octavo_fleet::type_labels::TYPE_LABEL;
    use octavo_model::inventory::Inventory;
    use octavo_stream::protocol::{Parts, Run};
    use tokio::time::{Instant, timeout};

    use super::*;
    use crate::clock::Clock;
    use crate::fleet::{Freshness, Node, ReportingAgent, StatusSummary};

    fn fleet(names: &[&str], has_returned: bool) -> Fleet {
        let mut fleet = Fleet { saw_returning_agent: has_returned, ..Fleet::default() };
        for name in names {
            let origin = ReportingAgent {
                name: name.parse().unwrap(),
                run: Run { epoch: 1, boot_id: "b".to_owned() },
                agent_version: String::new(),
            };
            let inventory = Inventory::default();
            let summary = StatusSummary::new(&inventory, Arc::default(), None);
            let fresh = Freshness::new(Moment::default(), Duration::from_hours(1));
            let node = Node::new(origin, Parts::default(), summary, fresh);
            fleet.nodes.insert(Arc::new(node));
        }
        fleet
    }

    fn cluster(names: &[&str]) -> Arc<WatchedCluster> {
        let node = |name: &&str| ClusterNode {
            name: (*name).to_owned(),
            labels: [(TYPE_LABEL.to_owned(), "nvidia-l4-24gb".to_owned())].into(),
            readiness: Readiness::Ready,
            ..ClusterNode::default()
        };
        let plain = ClusterNode {
            name: "without-agent".to_owned(),
            readiness: Readiness::Ready,
            ..ClusterNode::default()
        };
        let nodes = names.iter().map(node).chain([plain]);
        Arc::new(WatchedCluster {
            snapshot: Arc::new(ClusterSnapshot::new(nodes, [])),
            current_at: Some(Instant::now()),
            error: None,
            invalid_objects: 0,
        })
    }

    fn seen(nodes: usize, expected: Option<usize>) -> StartupProgress {
        StartupProgress::new(nodes, expected)
    }

    struct Site {
        fleet: watch::Sender<Fleet>,
        cluster: watch::Sender<Arc<WatchedCluster>>,
        progress: watch::Receiver<Option<StartupProgress>>,
    }

    impl Site {
        /// Creates the site and a `Startup` that runs within the test's own future.
        fn new(is_followed: bool) -> (Self, Startup) {
            let (fleet, receiver) = watch::channel(Fleet::default());
            let (cluster, watched) = watch::channel(Arc::default());
            let (sender, progress) = watch::channel(Some(StartupProgress::new(0, None)));
            let view = FleetView::new(receiver, Clock::start());
            let startup = Startup::new(view, is_followed.then_some(watched), sender);
            let site = Self { fleet, cluster, progress };
            (site, startup)
        }

        async fn reports(&mut self, wanted: Option<StartupProgress>) {
            let seen = self.progress.wait_for(|seen| *seen == wanted);
            timeout(Duration::from_secs(30), seen).await.unwrap().unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn start_ends_when_all_expected_nodes_have_reported() {
        let (mut site, startup) = Site::new(true);
        let check = async {
            site.cluster.send_replace(cluster(&["a", "b"]));
            site.reports(Some(seen(0, Some(2)))).await;
            // A node that is not expected does not count.
            site.fleet.send_replace(fleet(&["a", "x", "y"], true));
            site.reports(Some(seen(1, Some(2)))).await;
            site.fleet.send_replace(fleet(&["a", "b", "x"], true));
            site.reports(None).await;
        };
        tokio::join!(startup.run(), check);
    }

    #[tokio::test(start_paused = true)]
    async fn returning_agent_indicates_a_restart() {
        let (mut site, startup) = Site::new(false);
        let begun = Instant::now();
        let check = async {
            // Only an agent that has reported before is a sign of a restart.
            site.fleet.send_replace(fleet(&["a"], false));
            site.reports(None).await;
            site.fleet.send_replace(fleet(&["a", "b"], true));
            site.reports(Some(seen(2, None))).await;
        };
        tokio::join!(startup.run(), check);
        assert_eq!(*site.progress.borrow(), None);
        assert_eq!(begun.elapsed().as_secs(), SETTLED_AFTER.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn start_ends_after_its_timeout() {
        let begun = Instant::now();
        let (site, startup) = Site::new(false);
        startup.run().await;
        assert_eq!(begun.elapsed().as_secs(), SETTLED_AFTER.as_secs());
        assert_eq!(*site.progress.borrow(), None);
        let begun = Instant::now();
        let (site, startup) = Site::new(true);
        site.cluster.send_replace(cluster(&["a"]));
        startup.run().await;
        assert_eq!(begun.elapsed().as_secs(), TIMEOUT.as_secs());
        assert_eq!(*site.progress.borrow(), None);
    }
}
