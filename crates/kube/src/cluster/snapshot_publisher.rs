//! Collects changes of the cluster and publishes snapshots a few times per second at most.
//!
//! Changes arrive one at a time and in bursts of thousands, and every subscriber processes the whole cluster. Changes
//! are therefore batched, and subscribers are notified only if something differs.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use octavo_fleet::cluster::{ClusterNode, ClusterPod, ClusterSnapshot, Phase, PodKey};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};
use tracing::{debug, info, warn};

use super::extract::Extracted;
use super::list_watcher::{WatchUpdate, WatchedKind};
use super::{NOT_READ_YET, WatchedCluster, object};

/// Minimum interval between two snapshots.
const MIN_INTERVAL: Duration = Duration::from_millis(300);

/// The current state and its subscribers.
#[derive(Debug)]
pub(super) struct SnapshotPublisher {
    publisher: watch::Sender<Arc<WatchedCluster>>,
    snapshot: Arc<ClusterSnapshot>,
    invalid_nodes: BTreeSet<String>,
    invalid_pods: BTreeSet<PodKey>,
    nodes: WatchState,
    pods: WatchState,
}

/// Watch state of one kind of object.
#[derive(Debug)]
struct WatchState {
    name: &'static str,
    current_at: Option<Instant>,
    error: Option<String>,
}

impl SnapshotPublisher {
    pub(super) fn new(publisher: watch::Sender<Arc<WatchedCluster>>) -> Self {
        Self {
            publisher,
            snapshot: Arc::default(),
            invalid_nodes: BTreeSet::new(),
            invalid_pods: BTreeSet::new(),
            nodes: WatchState::new(object::Node::NAME),
            pods: WatchState::new(object::Pod::NAME),
        }
    }

    /// Processes updates until a sender is gone.
    pub(super) async fn run(
        mut self,
        mut nodes: mpsc::Receiver<WatchUpdate<ClusterNode>>,
        mut pods: mpsc::Receiver<WatchUpdate<ClusterPod>>,
    ) {
        let mut due = None;
        let mut published_at = Instant::now();
        loop {
            let at = due.unwrap_or(published_at);
            tokio::select! {
                // Publish when due, even during a continuous stream of updates.
                biased;
                () = sleep_until(at), if due.is_some() => {
                    self.publish();
                    published_at = Instant::now();
                    due = None;
                    continue;
                }
                update = nodes.recv() => match update {
                    Some(update) => self.apply_node(update, Instant::now()),
                    None => return,
                },
                update = pods.recv() => match update {
                    Some(update) => self.apply_pod(update, Instant::now()),
                    None => return,
                },
            }
            due = due.or_else(|| published_at.checked_add(MIN_INTERVAL));
        }
    }

    fn apply_node(&mut self, update: WatchUpdate<ClusterNode>, now: Instant) {
        self.nodes.record(&update, now);
        let is_invalid =
            |one: &Extracted<ClusterNode>| one.is_invalid.then(|| one.object.name.clone());
        match update {
            WatchUpdate::Reset(all) => {
                self.invalid_nodes = all.iter().filter_map(is_invalid).collect();
                let names: BTreeSet<&String> = all.iter().map(|one| &one.object.name).collect();
                let known = self.snapshot.nodes.keys();
                let gone: Vec<String> =
                    known.filter(|name| !names.contains(name)).cloned().collect();
                for name in &gone {
                    self.remove_node(name);
                }
                for one in all {
                    self.set_node(one.object);
                }
            }
            WatchUpdate::Upserted(one) => {
                mark(&mut self.invalid_nodes, one.object.name.clone(), one.is_invalid);
                self.set_node(one.object);
            }
            WatchUpdate::Deleted(node) => {
                self.invalid_nodes.remove(&node.name);
                self.remove_node(&node.name);
            }
            WatchUpdate::Bookmark | WatchUpdate::Failed(_) => {}
        }
    }

    fn apply_pod(&mut self, update: WatchUpdate<ClusterPod>, now: Instant) {
        self.pods.record(&update, now);
        let is_invalid =
            |one: &Extracted<ClusterPod>| one.is_invalid.then(|| one.object.key.clone());
        match update {
            WatchUpdate::Reset(mut all) => {
                all.retain(|one| is_relevant(&one.object));
                self.invalid_pods = all.iter().filter_map(is_invalid).collect();
                let keys: BTreeSet<&PodKey> = all.iter().map(|one| &one.object.key).collect();
                let known = self.snapshot.pods().keys().map(Arc::as_ref);
                let gone: Vec<PodKey> = known.filter(|key| !keys.contains(key)).cloned().collect();
                for key in &gone {
                    self.remove_pod(key);
                }
                for one in all {
                    self.set_pod(one.object);
                }
            }
            WatchUpdate::Upserted(one) if is_relevant(&one.object) => {
                mark(&mut self.invalid_pods, one.object.key.clone(), one.is_invalid);
                self.set_pod(one.object);
            }
            WatchUpdate::Upserted(Extracted { object: pod, .. }) | WatchUpdate::Deleted(pod) => {
                self.invalid_pods.remove(&pod.key);
                self.remove_pod(&pod.key);
            }
            WatchUpdate::Bookmark | WatchUpdate::Failed(_) => {}
        }
    }

    // Consumers recount only what is not shared with the previous snapshot, so an equal object leaves the snapshot as it is. This applies to a
    // complete list too, which follows each interruption of a watch.

    fn set_node(&mut self, node: ClusterNode) {
        if self.snapshot.nodes.get(&node.name).is_none_or(|known| **known != node) {
            let snapshot = Arc::make_mut(&mut self.snapshot);
            snapshot.nodes.insert(node.name.clone(), Arc::new(node));
        }
    }

    fn remove_node(&mut self, name: &str) {
        if self.snapshot.nodes.contains_key(name) {
            Arc::make_mut(&mut self.snapshot).nodes.remove(name);
        }
    }

    fn set_pod(&mut self, pod: ClusterPod) {
        if self.snapshot.pods().get(&pod.key).is_none_or(|known| **known != pod) {
            Arc::make_mut(&mut self.snapshot).insert_pod(Arc::new(pod));
        }
    }

    fn remove_pod(&mut self, key: &PodKey) {
        if self.snapshot.pods().contains_key(key) {
            Arc::make_mut(&mut self.snapshot).remove_pod(key);
        }
    }

    fn publish(&self) {
        let now = WatchedCluster {
            snapshot: Arc::clone(&self.snapshot),
            current_at: self.nodes.current_at.zip(self.pods.current_at).map(|(a, b)| a.min(b)),
            error: self.error(),
            invalid_objects: self.invalid_nodes.len().saturating_add(self.invalid_pods.len()),
        };
        self.publisher.send_if_modified(|published| {
            // Unchanged snapshots are the same allocation, so no deep comparison is needed.
            let is_same = Arc::ptr_eq(&published.snapshot, &now.snapshot)
                && (published.current_at, &published.error, published.invalid_objects)
                    == (now.current_at, &now.error, now.invalid_objects);
            if !is_same {
                *published = Arc::new(now);
            }
            !is_same
        });
    }

    fn error(&self) -> Option<String> {
        match (&self.nodes.error, &self.pods.error) {
            (Some(nodes), Some(pods)) if nodes == pods => {
                Some(format!("cannot watch nodes and pods: {nodes}"))
            }
            (Some(nodes), Some(pods)) => {
                Some(format!("cannot watch nodes: {nodes}; cannot watch pods: {pods}"))
            }
            (Some(nodes), None) => Some(format!("cannot watch nodes: {nodes}")),
            (None, Some(pods)) => Some(format!("cannot watch pods: {pods}")),
            (None, None) if self.nodes.current_at.and(self.pods.current_at).is_none() => {
                Some(NOT_READ_YET.to_owned())
            }
            (None, None) => None,
        }
    }
}

/// Returns whether the pod uses or requests resources.
fn is_relevant(pod: &ClusterPod) -> bool {
    pod.phase != Phase::Finished
}

fn mark<K: Ord>(invalid: &mut BTreeSet<K>, key: K, is_invalid: bool) {
    if is_invalid {
        invalid.insert(key);
    } else {
        invalid.remove(&key);
    }
}

impl WatchState {
    fn new(name: &'static str) -> Self {
        Self { name, current_at: None, error: None }
    }

    fn record<T>(&mut self, update: &WatchUpdate<T>, now: Instant) {
        let name = self.name;
        match update {
            WatchUpdate::Failed(why) if self.error.as_ref() == Some(why) => {
                debug!(objects = %name, error = %why, "still cannot watch the cluster");
            }
            WatchUpdate::Failed(why) => {
                warn!(objects = %name, error = %why, "cannot watch the cluster; retrying");
                self.error = Some(why.clone());
            }
            WatchUpdate::Reset(_)
            | WatchUpdate::Upserted(_)
            | WatchUpdate::Deleted(_)
            | WatchUpdate::Bookmark => {
                if self.error.take().is_some() {
                    info!(objects = %name, "watching the cluster again");
                }
                self.current_at = Some(now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use octavo_fleet::cluster::{Amounts, PodRequirements};

    use super::*;

    /// Senders of updates, and the receiver of snapshots.
    struct Channels {
        nodes: mpsc::Sender<WatchUpdate<ClusterNode>>,
        pods: mpsc::Sender<WatchUpdate<ClusterPod>>,
        snapshots: watch::Receiver<Arc<WatchedCluster>>,
    }

    fn start() -> Channels {
        let (snapshots, receiver) = watch::channel(Arc::default());
        let (nodes, of_nodes) = mpsc::channel(8);
        let (pods, of_pods) = mpsc::channel(8);
        tokio::spawn(SnapshotPublisher::new(snapshots).run(of_nodes, of_pods));
        Channels { nodes, pods, snapshots: receiver }
    }

    impl Channels {
        async fn next(&mut self) -> Arc<WatchedCluster> {
            self.snapshots.changed().await.unwrap();
            Arc::clone(&self.snapshots.borrow_and_update())
        }

        async fn node(&self, update: WatchUpdate<ClusterNode>) {
            self.nodes.send(update).await.unwrap();
        }

        async fn pod(&self, update: WatchUpdate<ClusterPod>) {
            self.pods.send(update).await.unwrap();
        }
    }

    fn node(name: &str) -> Extracted<ClusterNode> {
        let name = name.to_owned();
        let object = ClusterNode { name, ..ClusterNode::default() };
        Extracted { object, is_invalid: false }
    }

    fn pod(name: &str, phase: Phase) -> Extracted<ClusterPod> {
        let object = ClusterPod {
            key: PodKey { namespace: "team-a".to_owned(), name: name.to_owned() },
            phase,
            ..ClusterPod::default()
        };
        Extracted { object, is_invalid: false }
    }

    /// A pod on a node.
    fn bound(name: &str, node: &str) -> Extracted<ClusterPod> {
        let Extracted { object, is_invalid } = pod(name, Phase::Bound);
        Extracted { object: ClusterPod { node: Some(node.to_owned()), ..object }, is_invalid }
    }

    fn names(watched: &WatchedCluster) -> (Vec<&str>, Vec<&str>) {
        let pods = watched.snapshot.pods().keys();
        (
            watched.snapshot.nodes.keys().map(String::as_str).collect(),
            pods.map(|key| key.name.as_str()).collect(),
        )
    }

    #[tokio::test(start_paused = true)]
    async fn snapshot_requires_both_lists() {
        let mut ends = start();
        assert_eq!(ends.snapshots.borrow().error.as_deref(), Some(NOT_READ_YET));
        ends.node(WatchUpdate::Reset(vec![node("node-a")])).await;
        let watched = ends.next().await;
        assert_eq!((watched.current_at, watched.error.as_deref()), (None, Some(NOT_READ_YET)));
        let began = Instant::now();
        ends.pod(WatchUpdate::Reset(vec![
            pod("one", Phase::Pending),
            pod("ended", Phase::Finished),
        ]))
        .await;
        let watched = ends.next().await;
        assert_eq!(watched.error, None);
        assert_eq!(names(&watched), (vec!["node-a"], vec!["one"]));
        // The older time of both lists.
        assert!(watched.current_at.unwrap() < began, "{watched:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn changes_are_applied_and_unchanged_objects_are_shared() {
        let mut ends = start();
        ends.node(WatchUpdate::Reset(vec![node("node-a"), node("node-b")])).await;
        ends.pod(WatchUpdate::Reset(vec![pod("one", Phase::Pending)])).await;
        let first = ends.next().await;
        ends.node(WatchUpdate::Deleted(node("node-a").object)).await;
        ends.node(WatchUpdate::Upserted(node("node-c"))).await;
        ends.pod(WatchUpdate::Upserted(pod("one", Phase::Finished))).await;
        ends.pod(WatchUpdate::Upserted(pod("two", Phase::Bound))).await;
        let second = ends.next().await;
        assert_eq!(names(&first), (vec!["node-a", "node-b"], vec!["one"]));
        assert_eq!(names(&second), (vec!["node-b", "node-c"], vec!["two"]));
        ends.pod(WatchUpdate::Upserted(pod("two", Phase::Bound))).await;
        ends.node(WatchUpdate::Bookmark).await;
        let third = ends.next().await;
        assert!(Arc::ptr_eq(&second.snapshot, &third.snapshot), "nothing changed");
        assert!(third.current_at > second.current_at, "the bookmark does not confirm the snapshot");
        ends.node(WatchUpdate::Reset(vec![node("node-c"), node("node-d")])).await;
        ends.pod(WatchUpdate::Reset(vec![bound("two", "node-b"), bound("three", "node-c")])).await;
        let fourth = ends.next().await;
        assert_eq!(names(&fourth), (vec!["node-c", "node-d"], vec!["three", "two"]));
        ends.node(WatchUpdate::Reset(vec![node("node-c")])).await;
        ends.pod(WatchUpdate::Reset(vec![bound("four", "node-b"), bound("three", "node-c")])).await;
        let fifth = ends.next().await;
        assert_eq!(names(&fifth), (vec!["node-c"], vec!["four", "three"]));
        let node = |watched: &WatchedCluster| Arc::clone(&watched.snapshot.nodes["node-c"]);
        assert!(Arc::ptr_eq(&node(&fourth), &node(&fifth)));
        let pods = |name| [&fourth, &fifth].map(|watched| watched.snapshot.pods_on(name).unwrap());
        let [before, after] = pods("node-c");
        assert!(Arc::ptr_eq(before, after), "a node without changes is counted again");
        let [before, after] = pods("node-b");
        assert!(!Arc::ptr_eq(before, after));
    }

    #[tokio::test(start_paused = true)]
    async fn burst_is_published_once() {
        let mut ends = start();
        ends.node(WatchUpdate::Reset(Vec::new())).await;
        ends.pod(WatchUpdate::Reset(Vec::new())).await;
        ends.next().await;
        for number in 0..1000 {
            ends.pod(WatchUpdate::Upserted(pod(&format!("pod-{number}"), Phase::Pending))).await;
        }
        assert_eq!(ends.next().await.snapshot.pods().len(), 1000);
        assert!(!ends.snapshots.has_changed().unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn watch_error_is_reported_until_next_update() {
        let mut ends = start();
        ends.node(WatchUpdate::Reset(vec![node("node-a")])).await;
        ends.pod(WatchUpdate::Reset(vec![])).await;
        let before = ends.next().await;
        let away = || "it is away".to_owned();
        for (nodes, pods, error) in [
            (Some("no"), None, "cannot watch nodes: no"),
            (Some("no"), Some("never"), "cannot watch nodes: no; cannot watch pods: never"),
            (Some("it is away"), Some("it is away"), "cannot watch nodes and pods: it is away"),
        ] {
            if let Some(why) = nodes {
                ends.node(WatchUpdate::Failed(why.to_owned())).await;
            }
            if let Some(why) = pods {
                ends.pod(WatchUpdate::Failed(why.to_owned())).await;
            }
            assert_eq!(ends.next().await.error.as_deref(), Some(error));
        }
        ends.node(WatchUpdate::Bookmark).await;
        let watched = ends.next().await;
        let error = format!("cannot watch pods: {}", away());
        assert_eq!(watched.error, Some(error));
        assert_eq!(
            (watched.current_at, names(&watched)),
            (before.current_at, (vec!["node-a"], vec![]))
        );
        ends.pod(WatchUpdate::Bookmark).await;
        let watched = ends.next().await;
        assert!(watched.error.is_none() && watched.current_at > before.current_at);
    }

    #[tokio::test(start_paused = true)]
    async fn i12_invalid_objects_are_counted_while_they_exist() {
        let invalid_pod = |name| {
            let mut one = pod(name, Phase::Pending);
            one.is_invalid = true;
            one.object.requirements = PodRequirements {
                amounts: Amounts::default().with("cpu", 1),
                ..PodRequirements::default()
            };
            one
        };
        let mut invalid_node = node("node-a");
        invalid_node.is_invalid = true;
        let mut ends = start();
        ends.node(WatchUpdate::Reset(vec![invalid_node])).await;
        ends.pod(WatchUpdate::Reset(vec![invalid_pod("one"), pod("two", Phase::Pending)])).await;
        assert_eq!(ends.next().await.invalid_objects, 2);
        ends.pod(WatchUpdate::Upserted(invalid_pod("two"))).await;
        ends.node(WatchUpdate::Upserted(node("node-a"))).await;
        ends.pod(WatchUpdate::Deleted(pod("one", Phase::Pending).object)).await;
        assert_eq!(ends.next().await.invalid_objects, 1);
    }
}
