//! Collects changes of the cluster and publishes snapshots a few times per second at most.
//!
//! Changes arrive one at a time and in bursts of thousands, and every subscriber processes the whole cluster. Changes
//! are therefore batched, and subscribers are notified only if something differs.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};
use tracing::{debug, info, warn};

use super::chase::{Kind, Word};
use super::object;
use super::read::Read;
use super::{Followed, NOT_YET};
use crate::domain::cluster::{ClusterNode, ClusterPod, Phase, PodKey, Sights};

/// Minimum interval between two snapshots.
const PACE: Duration = Duration::from_millis(300);

/// The current state and its subscribers.
#[derive(Debug)]
pub(super) struct Sight {
    told: watch::Sender<Arc<Followed>>,
    sights: Arc<Sights>,
    odd_nodes: BTreeSet<String>,
    odd_pods: BTreeSet<PodKey>,
    nodes: Track,
    pods: Track,
}

/// Watch state of one kind of object.
#[derive(Debug)]
struct Track {
    name: &'static str,
    heard: Option<Instant>,
    trouble: Option<String>,
}

impl Sight {
    pub(super) fn new(told: watch::Sender<Arc<Followed>>) -> Self {
        Self {
            told,
            sights: Arc::default(),
            odd_nodes: BTreeSet::new(),
            odd_pods: BTreeSet::new(),
            nodes: Track::new(object::Node::NAME),
            pods: Track::new(object::Pod::NAME),
        }
    }

    /// Processes updates until a sender is gone.
    pub(super) async fn run(
        mut self,
        mut nodes: mpsc::Receiver<Word<ClusterNode>>,
        mut pods: mpsc::Receiver<Word<ClusterPod>>,
    ) {
        let mut due = None;
        let mut told = Instant::now();
        loop {
            let at = due.unwrap_or(told);
            tokio::select! {
                // Publish when due, even during a continuous stream of updates.
                biased;
                () = sleep_until(at), if due.is_some() => {
                    self.tell();
                    told = Instant::now();
                    due = None;
                    continue;
                }
                word = nodes.recv() => match word {
                    Some(word) => self.take_node(word, Instant::now()),
                    None => return,
                },
                word = pods.recv() => match word {
                    Some(word) => self.take_pod(word, Instant::now()),
                    None => return,
                },
            }
            due = due.or_else(|| told.checked_add(PACE));
        }
    }

    fn take_node(&mut self, word: Word<ClusterNode>, now: Instant) {
        self.nodes.hear(&word, now);
        let is_odd = |one: &Read<ClusterNode>| one.is_odd.then(|| one.object.name.clone());
        match word {
            Word::All(all) => {
                self.odd_nodes = all.iter().filter_map(is_odd).collect();
                let all = all.into_iter().map(|one| one.object);
                let all = Sights::of(all, []).nodes;
                if self.sights.nodes != all {
                    Arc::make_mut(&mut self.sights).nodes = all;
                }
            }
            Word::Is(one) => {
                mark(&mut self.odd_nodes, one.object.name.clone(), one.is_odd);
                let node = Arc::new(one.object);
                if self.sights.nodes.get(&node.name) != Some(&node) {
                    let sights = Arc::make_mut(&mut self.sights);
                    sights.nodes.insert(node.name.clone(), node);
                }
            }
            Word::Gone(node) => {
                self.odd_nodes.remove(&node.name);
                if self.sights.nodes.contains_key(&node.name) {
                    Arc::make_mut(&mut self.sights).nodes.remove(&node.name);
                }
            }
            Word::Same | Word::Trouble(_) => {}
        }
    }

    fn take_pod(&mut self, word: Word<ClusterPod>, now: Instant) {
        self.pods.hear(&word, now);
        let is_odd = |one: &Read<ClusterPod>| one.is_odd.then(|| one.object.key.clone());
        match word {
            Word::All(mut all) => {
                all.retain(|one| counts(&one.object));
                self.odd_pods = all.iter().filter_map(is_odd).collect();
                let all = all.into_iter().map(|one| one.object);
                let all = Sights::of([], all).pods;
                if self.sights.pods != all {
                    Arc::make_mut(&mut self.sights).pods = all;
                }
            }
            Word::Is(one) if counts(&one.object) => {
                mark(&mut self.odd_pods, one.object.key.clone(), one.is_odd);
                let pod = Arc::new(one.object);
                if self.sights.pods.get(&pod.key) != Some(&pod) {
                    let sights = Arc::make_mut(&mut self.sights);
                    sights.pods.insert(Arc::new(pod.key.clone()), pod);
                }
            }
            Word::Is(Read { object: pod, .. }) | Word::Gone(pod) => {
                self.odd_pods.remove(&pod.key);
                if self.sights.pods.contains_key(&pod.key) {
                    Arc::make_mut(&mut self.sights).pods.remove(&pod.key);
                }
            }
            Word::Same | Word::Trouble(_) => {}
        }
    }

    fn tell(&self) {
        let now = Followed {
            sights: Arc::clone(&self.sights),
            heard: self.nodes.heard.zip(self.pods.heard).map(|(a, b)| a.min(b)),
            trouble: self.trouble(),
            odd: self.odd_nodes.len().saturating_add(self.odd_pods.len()),
        };
        self.told.send_if_modified(|told| {
            // Unchanged snapshots are the same allocation, so no deep comparison is needed.
            let is_same = Arc::ptr_eq(&told.sights, &now.sights)
                && (told.heard, &told.trouble, told.odd) == (now.heard, &now.trouble, now.odd);
            if !is_same {
                *told = Arc::new(now);
            }
            !is_same
        });
    }

    fn trouble(&self) -> Option<String> {
        match (&self.nodes.trouble, &self.pods.trouble) {
            (Some(nodes), Some(pods)) if nodes == pods => {
                Some(format!("nodes and pods cannot be followed: {nodes}"))
            }
            (Some(nodes), Some(pods)) => Some(format!(
                "nodes cannot be followed: {nodes}; nor can pods: {pods}"
            )),
            (Some(nodes), None) => Some(format!("nodes cannot be followed: {nodes}")),
            (None, Some(pods)) => Some(format!("pods cannot be followed: {pods}")),
            (None, None) if self.nodes.heard.and(self.pods.heard).is_none() => {
                Some(NOT_YET.to_owned())
            }
            (None, None) => None,
        }
    }
}

/// Returns whether the pod uses or requests resources.
fn counts(pod: &ClusterPod) -> bool {
    pod.phase != Phase::Finished
}

fn mark<K: Ord>(odd: &mut BTreeSet<K>, key: K, is_odd: bool) {
    if is_odd {
        odd.insert(key);
    } else {
        odd.remove(&key);
    }
}

impl Track {
    fn new(name: &'static str) -> Self {
        Self {
            name,
            heard: None,
            trouble: None,
        }
    }

    fn hear<T>(&mut self, word: &Word<T>, now: Instant) {
        let name = self.name;
        match word {
            Word::Trouble(why) if self.trouble.as_ref() == Some(why) => {
                debug!("the cluster's {name} still cannot be followed: {why}");
            }
            Word::Trouble(why) => {
                warn!("the cluster's {name} cannot be followed: {why}; it is tried again");
                self.trouble = Some(why.clone());
            }
            Word::All(_) | Word::Is(_) | Word::Gone(_) | Word::Same => {
                if self.trouble.take().is_some() {
                    info!("the cluster's {name} are followed again");
                }
                self.heard = Some(now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::cluster::{Amounts, Wants};

    /// Senders of updates, and the receiver of snapshots.
    struct Ends {
        nodes: mpsc::Sender<Word<ClusterNode>>,
        pods: mpsc::Sender<Word<ClusterPod>>,
        told: watch::Receiver<Arc<Followed>>,
    }

    fn sight() -> Ends {
        let (told, receiver) = watch::channel(Arc::default());
        let (nodes, of_nodes) = mpsc::channel(8);
        let (pods, of_pods) = mpsc::channel(8);
        tokio::spawn(Sight::new(told).run(of_nodes, of_pods));
        Ends {
            nodes,
            pods,
            told: receiver,
        }
    }

    impl Ends {
        async fn next(&mut self) -> Arc<Followed> {
            self.told.changed().await.unwrap();
            Arc::clone(&self.told.borrow_and_update())
        }

        async fn node(&self, word: Word<ClusterNode>) {
            self.nodes.send(word).await.unwrap();
        }

        async fn pod(&self, word: Word<ClusterPod>) {
            self.pods.send(word).await.unwrap();
        }
    }

    fn node(name: &str) -> Read<ClusterNode> {
        let name = name.to_owned();
        let object = ClusterNode {
            name,
            ..ClusterNode::default()
        };
        Read {
            object,
            is_odd: false,
        }
    }

    fn pod(name: &str, phase: Phase) -> Read<ClusterPod> {
        let object = ClusterPod {
            key: PodKey {
                namespace: "team-a".to_owned(),
                name: name.to_owned(),
            },
            phase,
            ..ClusterPod::default()
        };
        Read {
            object,
            is_odd: false,
        }
    }

    fn names(followed: &Followed) -> (Vec<&str>, Vec<&str>) {
        let pods = followed.sights.pods.keys();
        (
            followed.sights.nodes.keys().map(String::as_str).collect(),
            pods.map(|key| key.name.as_str()).collect(),
        )
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_known_before_both_lists_came() {
        let mut ends = sight();
        assert_eq!(ends.told.borrow().trouble.as_deref(), Some(NOT_YET));
        ends.node(Word::All(vec![node("node-a")])).await;
        let followed = ends.next().await;
        assert_eq!(
            (followed.heard, followed.trouble.as_deref()),
            (None, Some(NOT_YET))
        );
        let began = Instant::now();
        ends.pod(Word::All(vec![
            pod("one", Phase::Pending),
            pod("ended", Phase::Finished),
        ]))
        .await;
        let followed = ends.next().await;
        assert_eq!(followed.trouble, None);
        assert_eq!(names(&followed), (vec!["node-a"], vec!["one"]));
        // The older time of both lists.
        assert!(followed.heard.unwrap() < began, "{followed:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_goes_and_ends_is_followed_and_what_did_not_change_is_the_same_object() {
        let mut ends = sight();
        ends.node(Word::All(vec![node("node-a"), node("node-b")]))
            .await;
        ends.pod(Word::All(vec![pod("one", Phase::Pending)])).await;
        let first = ends.next().await;
        ends.node(Word::Gone(node("node-a").object)).await;
        ends.node(Word::Is(node("node-c"))).await;
        ends.pod(Word::Is(pod("one", Phase::Finished))).await;
        ends.pod(Word::Is(pod("two", Phase::Bound))).await;
        let second = ends.next().await;
        assert_eq!(names(&first), (vec!["node-a", "node-b"], vec!["one"]));
        assert_eq!(names(&second), (vec!["node-b", "node-c"], vec!["two"]));
        ends.pod(Word::Is(pod("two", Phase::Bound))).await;
        ends.node(Word::Same).await;
        let third = ends.next().await;
        assert!(
            Arc::ptr_eq(&second.sights, &third.sights),
            "nothing changed"
        );
        assert!(third.heard > second.heard, "and that was heard");
        ends.node(Word::All(vec![node("node-c")])).await;
        ends.pod(Word::All(Vec::new())).await;
        assert_eq!(names(&*ends.next().await), (vec!["node-c"], vec![]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_told_once() {
        let mut ends = sight();
        ends.node(Word::All(Vec::new())).await;
        ends.pod(Word::All(Vec::new())).await;
        ends.next().await;
        for number in 0..1000 {
            ends.pod(Word::Is(pod(&format!("pod-{number}"), Phase::Pending)))
                .await;
        }
        assert_eq!(ends.next().await.sights.pods.len(), 1000);
        assert!(!ends.told.has_changed().unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn trouble_is_told_with_whose_it_is_until_something_is_heard_and_what_was_known_stays() {
        let mut ends = sight();
        ends.node(Word::All(vec![node("node-a")])).await;
        ends.pod(Word::All(vec![])).await;
        let before = ends.next().await;
        let away = || "it is away".to_owned();
        for (nodes, pods, said) in [
            (Some("no"), None, "nodes cannot be followed: no"),
            (
                Some("no"),
                Some("never"),
                "nodes cannot be followed: no; nor can pods: never",
            ),
            (
                Some("it is away"),
                Some("it is away"),
                "nodes and pods cannot be followed: it is away",
            ),
        ] {
            if let Some(why) = nodes {
                ends.node(Word::Trouble(why.to_owned())).await;
            }
            if let Some(why) = pods {
                ends.pod(Word::Trouble(why.to_owned())).await;
            }
            assert_eq!(ends.next().await.trouble.as_deref(), Some(said));
        }
        ends.node(Word::Same).await;
        let followed = ends.next().await;
        let said = format!("pods cannot be followed: {}", away());
        assert_eq!(followed.trouble, Some(said));
        assert_eq!(
            (followed.heard, names(&followed)),
            (before.heard, (vec!["node-a"], vec![]))
        );
        ends.pod(Word::Same).await;
        let followed = ends.next().await;
        assert!(followed.trouble.is_none() && followed.heard > before.heard);
    }

    #[tokio::test(start_paused = true)]
    async fn i12_odd_objects_are_counted_as_long_as_they_are_there() {
        let odd_pod = |name| {
            let mut one = pod(name, Phase::Pending);
            one.is_odd = true;
            one.object.wants = Wants {
                amounts: Amounts::default().with("cpu", 1),
                ..Wants::default()
            };
            one
        };
        let mut odd_node = node("node-a");
        odd_node.is_odd = true;
        let mut ends = sight();
        ends.node(Word::All(vec![odd_node])).await;
        ends.pod(Word::All(vec![odd_pod("one"), pod("two", Phase::Pending)]))
            .await;
        assert_eq!(ends.next().await.odd, 2);
        ends.pod(Word::Is(odd_pod("two"))).await;
        ends.node(Word::Is(node("node-a"))).await;
        ends.pod(Word::Gone(pod("one", Phase::Pending).object))
            .await;
        assert_eq!(ends.next().await.odd, 1);
    }
}
