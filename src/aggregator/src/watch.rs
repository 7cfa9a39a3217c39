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

use octavo_access::guard::WatchPermission;
use octavo_model::id::NodeName;
use octavo_store::fleet::{Fleet, Node};
use octavo_store::peer::Peer;
use octavo_store::stats::Stats;
use octavo_store::task_stream::TaskStream;
use octavo_store::view::FleetView;
use octavo_stream::messages::part;
use octavo_stream::proto::v1;
use octavo_stream::proto::v1::watch_event::Event;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_stream::Stream;
use tonic::Status;

/// Dependencies of a watch stream.
pub(super) struct WatchSession {
    pub(super) peer: Peer,
    pub(super) view: FleetView,
    pub(super) stats: Stats,
    /// Time limit for the peer to read a message.
    pub(super) read_timeout: Duration,
}

/// Events of a watch stream.
#[derive(Debug)]
pub struct WatchEvents(TaskStream<Result<v1::WatchEvent, Status>>);

type Sender = mpsc::Sender<Result<v1::WatchEvent, Status>>;

/// Minimum interval between two comparisons, which run on the agents' thread, possibly for many watchers.
const MIN_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum number of node names in a request.
const MAX_NAMES: usize = 1024;

/// Names of the selected nodes; empty selects all.
struct Filter(BTreeSet<NodeName>);

/// Counts a watcher until dropped.
struct WatcherGuard(Gauge);

/// The watcher disconnected or must be disconnected.
struct StreamEnded;

impl WatchSession {
    /// Starts the stream, which ends with the `right` to it. Its slot `place` is released at the end.
    pub(super) fn start(
        self,
        (place, right): (OwnedSemaphorePermit, WatchPermission),
        request: &v1::WatchRequest,
    ) -> Result<WatchEvents, Status> {
        let filter = Filter::read(&request.nodes)?;
        let heartbeat = Duration::from_millis(request.heartbeat_ms).max(MIN_INTERVAL);
        let heartbeat = (request.heartbeat_ms > 0).then_some(heartbeat);
        // Buffers one message while another is being sent.
        let events = TaskStream::start(1, |sender| async move {
            self.stats.watchers.inc();
            let _counted = WatcherGuard(self.stats.watchers.clone());
            let _live = self.peer.open_stream();
            let limit = self.read_timeout;
            // A disconnected client needs no message; one that lost its permission receives the reason.
            tokio::select! {
                _ended = self.run(&filter, heartbeat, &sender) => {}
                refused = right.ended() => {
                    let _read = timeout(limit, sender.send(Err(refused.status()))).await;
                }
            }
            drop(place);
        });
        Ok(WatchEvents(events))
    }

    async fn run(
        mut self,
        filter: &Filter,
        heartbeat: Option<Duration>,
        to: &Sender,
    ) -> Result<Infallible, StreamEnded> {
        let mut sent = Fleet::default();
        let mut fleet = self.view.fleet();
        // Time at which the next `Synced` is due.
        let mut due = Some(Instant::now());
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
            if due.is_some_and(|due| due <= Instant::now()) {
                let revision = sent.revision;
                self.send(to, Event::Synced(v1::Synced { revision })).await?;
                due = heartbeat.and_then(|interval| Instant::now().checked_add(interval));
            }
            tokio::select! {
                () = sleep(MIN_INTERVAL) => {}
                () = to.closed() => return Err(StreamEnded),
            }
            fleet = tokio::select! {
                next = self.view.changed() => next.ok_or(StreamEnded)?,
                () = until(due) => sent.clone(),
                () = to.closed() => return Err(StreamEnded),
            };
        }
    }

    async fn send(&self, to: &Sender, event: Event) -> Result<(), StreamEnded> {
        let event = v1::WatchEvent { event: Some(event) };
        if let Ok(sent) = timeout(self.read_timeout, to.send(Ok(event))).await {
            return sent.map_err(|_gone| StreamEnded);
        }
        self.stats.count_closed_connection("not_reading");
        self.peer.close();
        Err(StreamEnded)
    }

    fn status(&self, node: &Node) -> v1::NodeStatus {
        let clock = self.view.clock();
        let confirmed = clock.wall(node.freshness.confirmed()).as_millisecond();
        v1::NodeStatus {
            name: node.name.to_string(),
            boot_id: node.run.boot_id.clone(),
            agent_version: node.agent_version.clone(),
            connected: node.connected,
            // A change of this value is a change of the node.
            stale: node.freshness.found_stale(),
            confirmed_ms: u64::try_from(confirmed).unwrap_or_default(),
            parts: node.parts.iter().map(part).collect(),
        }
    }
}

/// Waits until this time; forever without one.
async fn until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

impl Filter {
    fn read(names: &[String]) -> Result<Self, Status> {
        if names.len() > MAX_NAMES {
            let message = format!("nodes: {} names exceed the limit of {MAX_NAMES}", names.len());
            return Err(Status::invalid_argument(message));
        }
        let names = names.iter().enumerate().map(|(at, name)| {
            let wrong =
                "is not a valid node name: use at most 253 lowercase letters, digits, '-' and '.'";
            name.parse().map_err(|_| Status::invalid_argument(format!("nodes[{at}] {wrong}")))
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
        let gone = difference.removed.into_iter();
        (
            changed.filter(|node| self.has(node)).map(Arc::clone).collect(),
            gone.filter(|node| self.has(node)).map(|node| node.name.clone()).collect(),
        )
    }
}

impl Stream for WatchEvents {
    type Item = Result<v1::WatchEvent, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Pin::new(&mut self.0).poll_next(cx)
    }
}

impl Drop for WatcherGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests {
    use octavo_model::inventory::{Inventory, NvmlState};
    use octavo_store::clock::{Clock, Moment};
    use octavo_store::fleet::{Freshness, ReportingAgent, StatusSummary};
    use octavo_stream::protocol::{Parts, Run};
    use tokio::sync::{Semaphore, watch};
    use tokio_stream::StreamExt;

    use super::*;

    /// A fleet of one node, with an agent of this version.
    fn fleet(version: &str) -> Fleet {
        let inventory = Inventory {
            nvml: NvmlState::Absent { reason: "test".to_owned() },
            ..Inventory::default()
        };
        let origin = ReportingAgent {
            name: "n".parse().unwrap(),
            run: Run { epoch: 1, boot_id: "b".to_owned() },
            agent_version: version.to_owned(),
        };
        let summary = StatusSummary::new(&inventory, Arc::default(), None);
        let freshness = Freshness::new(Moment::from_millis(0), Duration::from_hours(1));
        let mut fleet = Fleet::default();
        let node = Node::new(origin, Parts::default(), summary, freshness);
        fleet.nodes.insert(Arc::new(node));
        fleet
    }

    async fn version(events: &mut WatchEvents) -> String {
        match events.next().await.unwrap().unwrap().event {
            Some(Event::Node(node)) => node.agent_version,
            other => panic!("a node, and not {other:?}"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn first_change_is_sent_immediately_and_later_ones_are_coalesced() {
        let (fleets, readers) = watch::channel(Fleet::default());
        let watching = WatchSession {
            peer: Peer::new("127.0.0.1:1".parse().unwrap()),
            view: FleetView::new(readers, Clock::start()),
            stats: Stats::default(),
            read_timeout: Duration::from_secs(30),
        };
        let place = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        let request = v1::WatchRequest::default();
        let mut events =
            watching.start((place, WatchPermission::default()), &request).ok().unwrap();
        let synced = events.next().await.unwrap().unwrap().event;
        assert!(matches!(synced, Some(Event::Synced(_))));
        // Nothing changes for a while.
        assert!(timeout(10 * MIN_INTERVAL, events.next()).await.is_err());
        let start = Instant::now();
        fleets.send_replace(fleet("1"));
        assert_eq!(version(&mut events).await, "1");
        assert_eq!(start.elapsed(), Duration::ZERO);
        for next in ["2", "3"] {
            fleets.send_replace(fleet(next));
            assert!(timeout(MIN_INTERVAL / 4, events.next()).await.is_err());
        }
        assert_eq!(version(&mut events).await, "3");
        let waited = start.elapsed();
        assert!(MIN_INTERVAL <= waited && waited < MIN_INTERVAL + MIN_INTERVAL / 4, "{waited:?}");
    }
}
