//! Watch streams over gRPC: the whole fleet, followed by changes.
//!
//! A stream sends the difference between the last sent fleet and the current one, so a slow reader receives fewer
//! changes rather than outdated ones. A reader that does not read at all would retain that last fleet forever, and is
//! disconnected.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::{sleep, timeout};
use tokio_stream::Stream;
use tonic::Status;

use super::access::Following;
use super::feed::Feed;
use super::fleet::{Fleet, Node};
use super::peer::Peer;
use super::stats::Stats;
use super::view::View;
use crate::domain::id::NodeName;
use crate::proto::v1;
use crate::proto::v1::watch_event::Event;
use crate::wire::stream::part;

/// Dependencies of a watch stream.
pub(super) struct Watching {
    pub(super) peer: Peer,
    pub(super) view: View,
    pub(super) stats: Stats,
    /// Time limit for the peer to read a message.
    pub(super) patience: Duration,
}

/// Events of a watch stream.
#[derive(Debug)]
pub struct Events(Feed<Result<v1::WatchEvent, Status>>);

type Sender = mpsc::Sender<Result<v1::WatchEvent, Status>>;

/// Minimum interval between two comparisons, which run on the agents' thread, possibly for many watchers.
const PACE: Duration = Duration::from_millis(100);
/// Maximum number of node names in a request.
const MOST_NAMES: usize = 1024;

/// Names of the selected nodes; empty selects all.
struct Filter(BTreeSet<NodeName>);

/// Counts a watcher until dropped.
struct Counted(Gauge);

/// The watcher disconnected or must be disconnected.
struct Ended;

impl Watching {
    /// Starts the stream, which ends with the `right` to it. Its slot `place` is released at the end.
    pub(super) fn start(
        self,
        (place, right): (OwnedSemaphorePermit, Following),
        request: &v1::WatchRequest,
    ) -> Result<Events, Status> {
        let filter = Filter::read(&request.nodes)?;
        // Buffers one message while another is being sent.
        let events = Feed::start(1, |sender| async move {
            self.stats.watchers.inc();
            let _counted = Counted(self.stats.watchers.clone());
            let _live = self.peer.stream();
            let patience = self.patience;
            // A disconnected client needs no message; one that lost its permission receives the reason.
            tokio::select! {
                _ended = self.follow(&filter, &sender) => {}
                refused = right.ended() => {
                    let _read = timeout(patience, sender.send(Err(refused.status()))).await;
                }
            }
            drop(place);
        });
        Ok(Events(events))
    }

    async fn follow(mut self, filter: &Filter, to: &Sender) -> Result<Infallible, Ended> {
        let mut sent = Fleet::default();
        let mut fleet = self.view.fleet();
        let mut synced = false;
        loop {
            let (changed, gone) = filter.apply(&fleet, &sent);
            // Releases the previous fleet.
            sent = fleet;
            for name in gone {
                self.send(to, Event::Removed(name.to_string())).await?;
            }
            for node in changed {
                let status = self.status(&node);
                drop(node);
                self.send(to, Event::Node(status)).await?;
            }
            if !synced {
                synced = true;
                let revision = sent.revision;
                self.send(to, Event::Synced(v1::Synced { revision }))
                    .await?;
            }
            tokio::select! {
                () = sleep(PACE) => {}
                () = to.closed() => return Err(Ended),
            }
            fleet = tokio::select! {
                next = self.view.changed() => next.ok_or(Ended)?,
                () = to.closed() => return Err(Ended),
            };
        }
    }

    async fn send(&self, to: &Sender, event: Event) -> Result<(), Ended> {
        let event = v1::WatchEvent { event: Some(event) };
        if let Ok(sent) = timeout(self.patience, to.send(Ok(event))).await {
            return sent.map_err(|_gone| Ended);
        }
        self.stats.cut("not_reading");
        self.peer.end();
        Err(Ended)
    }

    fn status(&self, node: &Node) -> v1::NodeStatus {
        let clock = self.view.clock();
        let confirmed = clock.wall(node.freshness.confirmed()).as_millisecond();
        v1::NodeStatus {
            name: node.name.to_string(),
            boot_id: node.run.boot_id.clone(),
            agent_version: node.agent_version.clone(),
            connected: node.connected,
            stale: node.freshness.is_stale(clock.now()),
            confirmed_ms: u64::try_from(confirmed).unwrap_or_default(),
            parts: node.parts.iter().map(part).collect(),
        }
    }
}

impl Filter {
    fn read(names: &[String]) -> Result<Self, Status> {
        if names.len() > MOST_NAMES {
            let said = format!("nodes: {} are more than {MOST_NAMES}", names.len());
            return Err(Status::invalid_argument(said));
        }
        let names = names.iter().enumerate().map(|(at, name)| {
            let wrong = "is not a node's name: lower-case letters, digits, '-' and '.', at most 253 of them";
            name.parse()
                .map_err(|_| Status::invalid_argument(format!("nodes[{at}] {wrong}")))
        });
        names.collect::<Result<_, _>>().map(Self)
    }

    fn has(&self, node: &Node) -> bool {
        self.0.is_empty() || self.0.contains(&node.name)
    }

    /// Difference between two fleets: new or changed nodes, and names of removed ones.
    fn apply(&self, fleet: &Fleet, before: &Fleet) -> (Vec<Arc<Node>>, Vec<NodeName>) {
        let difference = fleet.since(before);
        let changed = difference.changed.into_iter();
        let gone = difference.gone.into_iter();
        (
            changed
                .filter(|node| self.has(node))
                .map(Arc::clone)
                .collect(),
            gone.filter(|node| self.has(node))
                .map(|node| node.name.clone())
                .collect(),
        )
    }
}

impl Stream for Events {
    type Item = Result<v1::WatchEvent, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Pin::new(&mut self.0).poll_next(cx)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::{Semaphore, watch};
    use tokio::time::Instant;
    use tokio_stream::StreamExt;

    use super::*;
    use crate::aggregator::clock::{Clock, Moment};
    use crate::aggregator::fleet::{Freshness, Gist, Origin};
    use crate::domain::inventory::{Inventory, Machine, NvmlState};
    use crate::domain::labels::tests_support::label_set;
    use crate::domain::stream::{Parts, Run};

    /// A fleet of one node, with an agent of this version.
    fn fleet(version: &str) -> Fleet {
        let inventory = Inventory {
            neuron: None,
            machine: Machine::default(),
            nvml: NvmlState::Absent {
                reason: "test".to_owned(),
            },
            devices: Vec::new(),
        };
        let origin = Origin {
            name: "n".parse().unwrap(),
            run: Run {
                epoch: 1,
                boot_id: "b".to_owned(),
            },
            agent_version: version.to_owned(),
        };
        let gist = Gist::of(&inventory, Arc::new(label_set(&[])), None);
        let freshness = Freshness::new(Moment::from_millis(0), Duration::from_hours(1));
        let mut fleet = Fleet::default();
        let node = Node::new(origin, Parts::default(), gist, freshness);
        fleet.nodes.insert(Arc::new(node));
        fleet
    }

    async fn version(events: &mut Events) -> String {
        match events.next().await.unwrap().unwrap().event {
            Some(Event::Node(node)) => node.agent_version,
            other => panic!("a node, and not {other:?}"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_change_comes_at_once_and_of_those_that_follow_the_latest() {
        let (fleets, readers) = watch::channel(Fleet::default());
        let watching = Watching {
            peer: Peer::new("127.0.0.1:1".parse().unwrap()),
            view: View::new(readers, Clock::start()),
            stats: Stats::default(),
            patience: Duration::from_secs(30),
        };
        let place = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        let request = v1::WatchRequest::default();
        let mut events = watching
            .start((place, Following::default()), &request)
            .ok()
            .unwrap();
        let synced = events.next().await.unwrap().unwrap().event;
        assert!(matches!(synced, Some(Event::Synced(_))));
        // Nothing changes for a while.
        assert!(timeout(10 * PACE, events.next()).await.is_err());
        let start = Instant::now();
        fleets.send_replace(fleet("1"));
        assert_eq!(version(&mut events).await, "1");
        assert_eq!(start.elapsed(), Duration::ZERO);
        for next in ["2", "3"] {
            fleets.send_replace(fleet(next));
            assert!(timeout(PACE / 4, events.next()).await.is_err());
        }
        assert_eq!(version(&mut events).await, "3");
        let waited = start.elapsed();
        assert!(PACE <= waited && waited < PACE + PACE / 4, "{waited:?}");
    }
}
