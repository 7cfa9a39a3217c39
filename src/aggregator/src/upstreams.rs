//! The fleets of other clusters, which their aggregators stream.
//!
//! ```text
//!  upstream aggregator --Watch--> session: hello, snapshots and heartbeats for each node --> store
//! ```
//!
//! For the store, each node of an upstream aggregator has an agent of its own, without a connection. A node whose real agent is disconnected or
//! silent is disconnected here too. While an aggregator is not connected, its nodes are not confirmed, so that they become stale.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use octavo_client::endpoint::{AggregatorEndpoint, bearer, describe_status, sanitize_reason};
use octavo_model::digest::Digest;
use octavo_model::id::{NodeName, ParseError};
use octavo_model::label::{LabelKey, LabelValue};
use octavo_node::label_set::LabelSet;
use octavo_store::stats::Stats;
use octavo_store::store::shared_store::SharedStore;
use octavo_store::store::{ReportPermit, StoreError};
use octavo_stream::messages::{
    MAX_PARTS, MAX_STATUS_BYTES, WatchedEvent, WatchedNode, parse_watch_event,
};
use octavo_stream::proto::v1;
use octavo_stream::proto::v1::fleet_client::FleetClient;
use octavo_stream::proto::v1::watch_event::Event;
use octavo_stream::protocol::{Backoff, Change, FromAgent, Hello, Identity, PartKey, Parts, Run};
use octavo_stream::status::{StatusError, decode_labels, encode_labels};
use octavo_toolkit::error::chain;
use octavo_toolkit::random::random;
use octavo_toolkit::tasks::first_panic;
use prometheus_client::metrics::gauge::Gauge;
use thiserror::Error;
use tokio::task::{JoinSet, yield_now};
use tokio::time::{Instant, sleep, timeout};
use tonic::{Request, Streaming};
use tracing::{debug, info, warn};

/// Interval at which an upstream aggregator confirms its nodes.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// Time without an event after which a connection ends.
const MAX_SILENCE: Duration = Duration::from_secs(30);
/// A connection that lasted this long was successful and resets the backoff.
const BACKOFF_RESET_AFTER: Duration = Duration::from_secs(30);
/// Maximum size of an event: a status, the encoding of its parts, and the fields of its node.
const MAX_EVENT_BYTES: usize = MAX_STATUS_BYTES + 16 * MAX_PARTS + 4096;
/// Number of nodes that are confirmed before other tasks of the thread run.
const CONFIRMED_TOGETHER: usize = 500;
/// Label with the name of the cluster.
const CLUSTER_LABEL: &str = "octavo.dev/cluster";

/// The aggregator of another cluster.
#[derive(Debug)]
pub struct Upstream {
    cluster: Arc<str>,
    endpoint: AggregatorEndpoint,
    store: Arc<SharedStore>,
    connected: Gauge,
    /// Nodes that the store accepted, by their names in the other cluster.
    nodes: BTreeMap<NodeName, UpstreamNode>,
    /// Number of the current connection.
    session: u64,
    /// Start time of the last run, which increases with each one.
    last_epoch: u64,
    /// Last logged reason for a lost connection.
    logged_reason: Option<String>,
    /// Kinds of errors of nodes that were logged during this connection.
    logged_kinds: BTreeSet<&'static str>,
}

/// A node, and the protocol state of its stream to the store.
#[derive(Debug)]
struct UpstreamNode {
    identity: Identity,
    run: Run,
    seq: u64,
    hash: Digest,
    /// `None` while the node has no stream.
    permit: Option<ReportPermit>,
    /// Number of the last connection that sent it.
    session: u64,
}

/// Reason why a node is not shown.
#[derive(Debug, Error)]
enum NodeError {
    #[error("the name is too long together with that of the cluster")]
    Name(#[source] ParseError),
    #[error("invalid labels")]
    Labels(#[source] Box<StatusError>),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Receives the fleets of these aggregators. Returns only if a task panics.
pub async fn run(upstreams: Vec<Upstream>) {
    let mut tasks = JoinSet::new();
    for upstream in upstreams {
        tasks.spawn(upstream.run());
    }
    let _panic = first_panic(&mut tasks).await;
}

impl Upstream {
    /// Creates the receiver of an upstream aggregator's fleet.
    pub fn new(
        cluster: &str,
        endpoint: AggregatorEndpoint,
        store: Arc<SharedStore>,
        stats: &Stats,
    ) -> Self {
        Self {
            cluster: cluster.into(),
            endpoint,
            store,
            connected: stats.upstream(cluster),
            nodes: BTreeMap::new(),
            session: 0,
            last_epoch: 0,
            logged_reason: None,
            logged_kinds: BTreeSet::new(),
        }
    }

    /// Receives the fleet. Connects again whenever a connection ends, and never returns.
    pub async fn run(mut self) {
        let mut backoff = Backoff::default();
        loop {
            let started = Instant::now();
            let Err(reason) = self.session().await;
            let reason = sanitize_reason(&reason);
            // An aggregator ends every connection after about an hour, which is no failure.
            let was_received = self.connected.set(0) == 1;
            if started.elapsed() >= BACKOFF_RESET_AFTER {
                backoff.reset();
            }
            let wait = backoff.next_delay(random());
            if was_received {
                debug!(cluster = %self.cluster, error = %reason, "the connection to another cluster ended");
            } else if self.logged_reason.as_ref() != Some(&reason) {
                let seconds = wait.as_secs_f32();
                warn!(cluster = %self.cluster, aggregator = %self.endpoint.name(), retry_in = %format_args!("{seconds:.1} s"), error = %reason, "cannot receive the fleet of another cluster; retrying");
                self.logged_reason = Some(reason);
            }
            sleep(wait).await;
        }
    }

    /// Receives events until the connection ends. Returns the reason.
    async fn session(&mut self) -> Result<Infallible, String> {
        self.session = self.session.saturating_add(1);
        self.logged_kinds.clear();
        let stale_after = self.store.with(|store, _| store.limits().stale_after);
        // Nodes must not become stale between two confirmations.
        let heartbeat = HEARTBEAT.min(stale_after / 3);
        let opened = timeout(MAX_SILENCE, self.open(heartbeat)).await;
        let mut events = opened.map_err(|_| "the aggregator does not respond".to_owned())??;
        let started = Instant::now();
        let mut confirmed = started;
        loop {
            let event = timeout(MAX_SILENCE, events.message()).await;
            let event = event.map_err(|_| format!("no event for {MAX_SILENCE:?}"))?;
            let event = event.map_err(|status| describe_status(&status))?;
            let event = event.ok_or_else(|| "the aggregator closed the stream".to_owned())?;
            let name = match &event.event {
                Some(Event::Node(node)) => node.name.parse().ok(),
                Some(Event::Removed(_) | Event::Synced(_)) | None => None,
            };
            match parse_watch_event(event) {
                Ok(WatchedEvent::Node(node)) => self.report(&node),
                Ok(WatchedEvent::Removed(name)) => self.remove(&name),
                Ok(WatchedEvent::Synced) => {
                    self.synced();
                    // After a restart of the aggregator, its agents reconnect within this time.
                    if started.elapsed() >= stale_after.saturating_mul(2) {
                        self.remove_missing();
                    }
                    self.confirm().await;
                    confirmed = Instant::now();
                }
                Err(error) => self.reject(name.as_ref(), "invalid", &chain(&error)),
            }
            // The first transfer of a large fleet takes longer than nodes remain current.
            if confirmed.elapsed() >= heartbeat {
                self.confirm().await;
                confirmed = Instant::now();
            }
            // The agents of this cluster share the thread.
            yield_now().await;
        }
    }

    async fn open(&self, heartbeat: Duration) -> Result<Streaming<v1::WatchEvent>, String> {
        let token = self.endpoint.token().map_err(|error| chain(&error))?;
        let channel = self.endpoint.connect().await.map_err(|error| chain(&error))?;
        let heartbeat_ms = u64::try_from(heartbeat.as_millis()).unwrap_or(u64::MAX).max(1);
        let mut request = Request::new(v1::WatchRequest { nodes: Vec::new(), heartbeat_ms });
        if let Some(token) = token {
            let value = bearer(&token).map_err(|error| chain(&error))?;
            request.metadata_mut().insert("authorization", value);
        }
        let mut client = FleetClient::new(channel).max_decoding_message_size(MAX_EVENT_BYTES);
        let response = client.watch(request).await.map_err(|status| describe_status(&status))?;
        Ok(response.into_inner())
    }

    /// Handles the end of the first transfer, and later confirmations.
    fn synced(&mut self) {
        if self.connected.set(1) == 1 {
            return;
        }
        self.logged_reason = None;
        info!(cluster = %self.cluster, aggregator = %self.endpoint.name(), nodes = self.nodes.len(), "receiving the fleet of another cluster");
    }

    /// Removes the nodes that this connection has not sent: the aggregator removed them while there was no connection.
    fn remove_missing(&mut self) {
        let missing = self.nodes.iter().filter(|(_, node)| node.session != self.session);
        let missing: Vec<NodeName> = missing.map(|(name, _)| name.clone()).collect();
        for name in &missing {
            self.remove(name);
        }
    }

    /// Reports a node to the store. An error concerns this node only, which becomes stale.
    fn report(&mut self, node: &WatchedNode) {
        if let Err(error) = self.try_report(node) {
            let kind = match &error {
                NodeError::Name(_) => "name",
                NodeError::Labels(_) => "labels",
                NodeError::Store(error) => error.label(),
            };
            self.reject(Some(&node.identity.node), kind, &chain(&error));
        }
    }

    /// Ends the stream of a node whose new status cannot be shown, so that the earlier one becomes stale. Logs the error, unless one of
    /// the same kind was logged during this connection.
    fn reject(&mut self, node: Option<&NodeName>, kind: &'static str, error: &str) {
        if let Some(known) = node.and_then(|node| self.nodes.get_mut(node)) {
            known.end(&self.store);
            known.session = self.session;
        }
        if self.logged_kinds.insert(kind) {
            warn!(cluster = %self.cluster, %error, "cannot show a node of another cluster; further errors of this kind are not logged");
        }
    }

    fn try_report(&mut self, node: &WatchedNode) -> Result<(), NodeError> {
        let name = &node.identity.node;
        let labels = node.parts.get(PartKey::LABELS).map(decode_labels).transpose();
        let labels = labels.map_err(|error| NodeError::Labels(Box::new(error)))?;
        let labels = labels.unwrap_or_default();
        if labels.get(CLUSTER_LABEL).is_some() {
            // It belongs to a third cluster. Two aggregators that show each other would repeat every node forever.
            self.remove(name);
            return Ok(());
        }
        let parts = with_cluster(&node.parts, labels, &self.cluster);
        let local_name = format!("{name}.{}", self.cluster).parse().map_err(NodeError::Name)?;
        let identity = Identity { node: local_name, ..node.identity.clone() };
        let mut known = match self.nodes.remove(name) {
            Some(known) if known.identity == identity && known.run.boot_id == node.boot_id => known,
            other => {
                if let Some(mut other) = other {
                    other.end(&self.store);
                }
                // The store accepts another run of the same node only if it started later.
                let now = u64::try_from(Timestamp::now().as_microsecond()).unwrap_or_default();
                self.last_epoch = now.max(self.last_epoch.saturating_add(1));
                let run = Run { epoch: self.last_epoch, boot_id: node.boot_id.clone() };
                UpstreamNode::new(identity, run)
            }
        };
        known.session = self.session;
        if let Err(error) = known.send(parts, node, (&self.store, &self.cluster)) {
            known.end(&self.store);
            return Err(error.into());
        }
        self.nodes.insert(name.clone(), known);
        Ok(())
    }

    fn remove(&mut self, name: &NodeName) {
        if let Some(node) = self.nodes.remove(name) {
            let name = &node.identity.node;
            self.store.with(|store, now| store.remove_upstream(&self.cluster, name, now));
        }
    }

    /// Confirms the status of the nodes that this connection sent and that have a stream.
    async fn confirm(&mut self) {
        let session = self.session;
        let mut nodes = self.nodes.values_mut().peekable();
        while nodes.peek().is_some() {
            self.store.with(|store, now| {
                for node in nodes.by_ref().take(CONFIRMED_TOGETHER) {
                    let Some(permit) = node.permit.as_ref().filter(|_| node.session == session)
                    else {
                        continue;
                    };
                    let heartbeat = FromAgent::Heartbeat { seq: node.seq, hash: node.hash };
                    // The next event of the node begins another stream.
                    if !matches!(store.handle_message(permit, heartbeat, now), Ok(Some(_))) {
                        node.permit = None;
                    }
                }
            });
            yield_now().await;
        }
    }
}

impl UpstreamNode {
    fn new(identity: Identity, run: Run) -> Self {
        Self { identity, run, seq: 0, hash: Digest::default(), permit: None, session: 0 }
    }

    /// Sends the status to the store, with a stream that begins if there is none.
    fn send(
        &mut self,
        parts: Parts,
        node: &WatchedNode,
        (store, cluster): (&SharedStore, &Arc<str>),
    ) -> Result<(), StoreError> {
        let is_current = node.is_connected && !node.is_stale;
        let hash = parts.hash();
        if self.permit.is_none() && !is_current && self.seq > 0 && self.hash == hash {
            // It is known already.
            return Ok(());
        }
        store.with(|store, now| {
            // A stale status was confirmed too long ago.
            let bound = store.limits().stale_after;
            let confirmed = if node.is_stale { now.before(bound.saturating_mul(2)) } else { now };
            let snapshot = FromAgent::Snapshot { seq: self.seq.saturating_add(1), parts };
            // The store ended the stream if it was not confirmed for long.
            let permit = match self.permit.take().filter(|permit| store.has_stream(permit)) {
                Some(permit) => permit,
                None => store.accept_upstream(cluster, &self.hello(), confirmed)?,
            };
            let answer = store.handle_message(&permit, snapshot, confirmed);
            self.permit = Some(permit);
            answer?;
            self.seq = self.seq.saturating_add(1);
            self.hash = hash;
            Ok(())
        })?;
        if !is_current {
            self.end(store);
        }
        Ok(())
    }

    fn hello(&self) -> Hello {
        Hello {
            identity: self.identity.clone(),
            run: self.run.clone(),
            seq: self.seq,
            hash: self.hash,
        }
    }

    /// Ends the stream to the store, if there is one.
    fn end(&mut self, store: &SharedStore) {
        if let Some(permit) = self.permit.take() {
            store.with(|store, now| store.disconnected(&permit, now));
        }
    }
}

/// Adds the label of the cluster to a status with these labels.
fn with_cluster(parts: &Parts, labels: LabelSet, cluster: &str) -> Parts {
    let key: Result<LabelKey, _> = CLUSTER_LABEL.parse();
    // The name of a cluster is a valid label value.
    let label = key.ok().zip(cluster.parse::<LabelValue>().ok());
    let labels = match label {
        Some((key, value)) => labels.with(key, value),
        None => labels,
    };
    parts.apply(&Change { changed: vec![encode_labels(&labels)], removed: Vec::new() })
}
