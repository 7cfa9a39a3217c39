//! Following the fleet: all of it, then what changes.
//!
//! What is sent is the way from the fleet that was sent last to the one that is now, so whoever reads slowly gets fewer
//! changes and not old ones. One that does not read at all would hold that last fleet for ever, and is disconnected.

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

use super::fleet::{Fleet, Node};
use super::peer::Peer;
use super::stats::Stats;
use super::view::View;
use crate::domain::id::NodeName;
use crate::proto::v1;
use crate::proto::v1::watch_event::Event;
use crate::wire::stream::part;

/// What one watcher needs.
pub(super) struct Watching {
    pub(super) peer: Peer,
    pub(super) view: View,
    pub(super) stats: Stats,
    /// How long the peer may take to read a message.
    pub(super) patience: Duration,
}

/// What one watcher is sent.
#[derive(Debug)]
pub struct Events(mpsc::Receiver<Result<v1::WatchEvent, Status>>);

type Sender = mpsc::Sender<Result<v1::WatchEvent, Status>>;

/// Two fleets are compared no more often: it is done on the agents' thread, and there may be many watchers.
const PACE: Duration = Duration::from_millis(100);
/// Nodes that can be named in a request.
const MOST_NAMES: usize = 1024;

/// Which nodes are of interest; all if none is named.
struct Filter(BTreeSet<NodeName>);

/// One more watcher, until it is gone.
struct Counted(Gauge);

/// The watcher is gone, or is to go.
struct Ended;

impl Watching {
    /// Starts to follow; `place`, its own among the watchers, is given back when it ends.
    pub(super) fn start(
        self,
        place: OwnedSemaphorePermit,
        request: &v1::WatchRequest,
    ) -> Result<Events, Status> {
        let filter = Filter::read(&request.nodes)?;
        // One message waits while another is being sent.
        let (sender, receiver) = mpsc::channel(1);
        tokio::spawn(async move {
            self.stats.watchers.inc();
            let _counted = Counted(self.stats.watchers.clone());
            let _live = self.peer.stream();
            // Whoever is gone need not be told.
            let _ended = self.follow(&filter, &sender).await;
            drop(place);
        });
        Ok(Events(receiver))
    }

    async fn follow(mut self, filter: &Filter, to: &Sender) -> Result<Infallible, Ended> {
        let mut sent = Fleet::default();
        let mut fleet = self.view.fleet();
        let mut synced = false;
        loop {
            let (changed, gone) = filter.apply(&fleet, &sent);
            // From here on the fleet before is not held any more.
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

    /// What leads from one fleet to another: nodes that are new or changed, and names of those that are no more.
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
        self.0.poll_recv(cx)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}
