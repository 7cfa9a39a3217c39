//! The fleets of other clusters, which their aggregators stream.
//!
//! ```text
//!  upstream aggregator --Watch--> session: hello, snapshots and heartbeats for each node --> store
//! ```
//!
//! For the store, each node of an upstream aggregator is one more agent. A node whose own agent is disconnected or silent, and every node of an
//! aggregator that is not connected, has no stream here either, so that it becomes stale.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use octavo_client::endpoint::{AggregatorEndpoint, bearer, describe_status};
use octavo_model::digest::Digest;
use octavo_model::id::NodeName;
use octavo_model::label::{LabelKey, LabelValue};
use octavo_store::clock::Moment;
use octavo_store::peer::Peer;
use octavo_store::stats::Stats;
use octavo_store::store::shared_store::SharedStore;
use octavo_store::store::{HelloOutcome, ReportPermit, Store};
use octavo_stream::messages::{MAX_STATUS_BYTES, WatchedEvent, WatchedNode, parse_watch_event};
use octavo_stream::proto::v1;
use octavo_stream::proto::v1::fleet_client::FleetClient;
use octavo_stream::protocol::{Backoff, FromAgent, Hello, Identity, PartKey, Parts, Run};
use octavo_stream::status::{decode_labels, encode_labels};
use octavo_toolkit::error::chain;
use octavo_toolkit::random::random;
use octavo_toolkit::tasks::first_panic;
use prometheus_client::metrics::gauge::Gauge;
use tokio::task::{JoinSet, yield_now};
use tokio::time::{Instant, sleep, timeout};
use tonic::{Request, Streaming};
use tracing::{info, warn};

/// Interval at which an upstream aggregator confirms its nodes.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// Time without an event after which a connection ends.
const MAX_SILENCE: Duration = Duration::from_secs(30);
/// A connection that lasted this long was successful and resets the backoff.
const BACKOFF_RESET_AFTER: Duration = Duration::from_secs(30);
/// Maximum size of an event: a status, and the fields of its node.
const MAX_EVENT_BYTES: usize = MAX_STATUS_BYTES + 4096;
/// Number of nodes that are confirmed before other tasks of the thread run.
const CONFIRMED_TOGETHER: usize = 500;
/// Maximum number of remembered errors. An aggregator chooses some of them, so their number is otherwise unlimited.
const MAX_LOGGED_ERRORS: usize = 16;
const OTHER_CONNECTION: &str = "another connection reports a node with the same name";
/// Label with the name of the cluster.
const CLUSTER_LABEL: &str = "octavo.dev/cluster";

/// The aggregator of another cluster.
#[derive(Debug)]
pub struct Upstream {
    cluster: String,
    endpoint: AggregatorEndpoint,
    store: Arc<SharedStore>,
    connected: Gauge,
    nodes: BTreeMap<NodeName, UpstreamNode>,
    /// Start time of the last run, which increases with each one.
    last_epoch: u64,
    /// Errors that were logged since the last connection.
    logged: BTreeSet<String>,
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
        cluster: String,
        endpoint: AggregatorEndpoint,
        store: Arc<SharedStore>,
        stats: &Stats,
    ) -> Self {
        let connected = stats.upstream(&cluster);
        Self {
            cluster,
            endpoint,
            store,
            connected,
            nodes: BTreeMap::new(),
            last_epoch: 0,
            logged: BTreeSet::new(),
        }
    }

    /// Receives the fleet. Connects again whenever a connection ends, and never returns.
    pub async fn run(mut self) {
        let mut backoff = Backoff::default();
        loop {
            let started = Instant::now();
            let Err(reason) = self.session().await;
            self.connected.set(0);
            for node in self.nodes.values_mut() {
                node.end(&self.store);
            }
            if started.elapsed() >= BACKOFF_RESET_AFTER {
                backoff.reset();
            }
            let wait = backoff.next_delay(random());
            if self.is_new(&reason) {
                let seconds = wait.as_secs_f32();
                warn!(cluster = %self.cluster, aggregator = %self.endpoint.name(), retry_in = %format_args!("{seconds:.1} s"), error = %reason, "cannot receive the fleet of another cluster; retrying");
            }
            sleep(wait).await;
        }
    }

    /// Receives events until the connection ends. Returns the reason.
    async fn session(&mut self) -> Result<Infallible, String> {
        let opened = timeout(MAX_SILENCE, self.open()).await;
        let mut events = opened.map_err(|_| "the aggregator does not respond".to_owned())??;
        // The store ends the connection through it if it must.
        let peer = Arc::new(Peer::new(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))));
        loop {
            let next = timeout(MAX_SILENCE, events.message());
            let event = tokio::select! {
                event = next => event.map_err(|_| format!("no event for {MAX_SILENCE:?}"))?,
                () = peer.ended() => return Err("the store ended the connection".to_owned()),
            };
            let event = event.map_err(|status| describe_status(&status))?;
            let event = event.ok_or_else(|| "the aggregator closed the stream".to_owned())?;
            match parse_watch_event(event).map_err(|error| chain(&error))? {
                WatchedEvent::Node(node) => self.report(&node, &peer),
                WatchedEvent::Removed(name) => self.remove(&name),
                WatchedEvent::Synced => {
                    if self.connected.set(1) == 0 {
                        self.logged.clear();
                        info!(cluster = %self.cluster, aggregator = %self.endpoint.name(), nodes = self.nodes.len(), "receiving the fleet of another cluster");
                    }
                    self.confirm().await;
                }
            }
        }
    }

    async fn open(&self) -> Result<Streaming<v1::WatchEvent>, String> {
        let token = self.endpoint.token().map_err(|error| chain(&error))?;
        let channel = self.endpoint.connect().await.map_err(|error| chain(&error))?;
        let heartbeat_ms = u64::try_from(HEARTBEAT.as_millis()).unwrap_or(u64::MAX);
        let mut request = Request::new(v1::WatchRequest { nodes: Vec::new(), heartbeat_ms });
        if let Some(token) = token {
            let value = bearer(&token).map_err(|error| chain(&error))?;
            request.metadata_mut().insert("authorization", value);
        }
        let mut client = FleetClient::new(channel).max_decoding_message_size(MAX_EVENT_BYTES);
        let response = client.watch(request).await.map_err(|status| describe_status(&status))?;
        Ok(response.into_inner())
    }

    /// Reports a node to the store. An error concerns this node only, which becomes stale.
    fn report(&mut self, node: &WatchedNode, peer: &Arc<Peer>) {
        if let Err(error) = self.try_report(node, peer) {
            let name = &node.identity.node;
            self.log_node(name, &error);
            if let Some(known) = self.nodes.get_mut(name) {
                known.end(&self.store);
            }
        }
    }

    fn try_report(&mut self, node: &WatchedNode, peer: &Arc<Peer>) -> Result<(), String> {
        let upstream_name = node.identity.node.clone();
        let local_name = format!("{upstream_name}.{}", self.cluster).parse();
        let identity =
            Identity { node: local_name.map_err(|error| chain(&error))?, ..node.identity.clone() };
        let known = self.nodes.get(&upstream_name);
        if !known.is_some_and(|one| one.identity == identity && one.run.boot_id == node.boot_id) {
            // The store accepts another run of the same node only if it started later.
            let now = u64::try_from(Timestamp::now().as_microsecond()).unwrap_or_default();
            self.last_epoch = now.max(self.last_epoch.saturating_add(1));
            let run = Run { epoch: self.last_epoch, boot_id: node.boot_id.clone() };
            let new = UpstreamNode::new(identity, run);
            if let Some(mut old) = self.nodes.insert(upstream_name.clone(), new) {
                old.end(&self.store);
            }
        }
        let parts = with_cluster(&node.parts, &self.cluster)?;
        let Some(known) = self.nodes.get_mut(&upstream_name) else { return Ok(()) };
        let sent = known.send(parts, node.is_stale, (&self.store, peer));
        if node.is_stale || !node.is_connected {
            known.end(&self.store);
        }
        sent
    }

    fn remove(&mut self, name: &NodeName) {
        if let Some(mut node) = self.nodes.remove(name) {
            node.end(&self.store);
            self.store.with(|store, now| store.remove(&node.identity.node, now));
        }
    }

    /// Confirms the status of all nodes with a stream.
    async fn confirm(&mut self) {
        let mut lost = Vec::new();
        let mut nodes = self.nodes.iter_mut().peekable();
        while nodes.peek().is_some() {
            self.store.with(|store, now| {
                for (name, node) in nodes.by_ref().take(CONFIRMED_TOGETHER) {
                    let Some(permit) = &node.permit else { continue };
                    let heartbeat = FromAgent::Heartbeat { seq: node.seq, hash: node.hash };
                    if !matches!(store.handle_message(permit, heartbeat, now), Ok(Some(_))) {
                        node.permit = None;
                        lost.push(name.clone());
                    }
                }
            });
            yield_now().await;
        }
        for name in lost {
            self.log_node(&name, OTHER_CONNECTION);
        }
    }

    fn log_node(&mut self, node: &NodeName, error: &str) {
        if self.is_new(error) {
            warn!(cluster = %self.cluster, %node, %error, "cannot show a node of another cluster");
        }
    }

    /// Returns whether an error was not logged yet.
    fn is_new(&mut self, error: &str) -> bool {
        if self.logged.contains(error) {
            return false;
        }
        if self.logged.len() >= MAX_LOGGED_ERRORS {
            self.logged.clear();
        }
        self.logged.insert(error.to_owned())
    }
}

impl UpstreamNode {
    fn new(identity: Identity, run: Run) -> Self {
        Self { identity, run, seq: 0, hash: Digest::default(), permit: None }
    }

    /// Sends the status to the store, with a stream that begins if there is none.
    fn send(
        &mut self,
        parts: Parts,
        is_stale: bool,
        (store, peer): (&SharedStore, &Arc<Peer>),
    ) -> Result<(), String> {
        store.with(|store, now| {
            // A stale status was confirmed too long ago.
            let bound = store.limits().stale_after;
            let confirmed = if is_stale { now.before(bound.saturating_mul(2)) } else { now };
            let permit = match self.permit.take() {
                Some(permit) => permit,
                None => self.begin(store, peer, confirmed)?,
            };
            let permit = &*self.permit.insert(permit);
            self.seq = self.seq.saturating_add(1);
            self.hash = parts.hash();
            let snapshot = FromAgent::Snapshot { seq: self.seq, parts };
            let answer = store.handle_message(permit, snapshot, confirmed);
            match answer.map_err(|error| chain(&error))? {
                Some(_) => Ok(()),
                None => Err(OTHER_CONNECTION.to_owned()),
            }
        })
    }

    fn begin(
        &self,
        store: &mut Store,
        peer: &Arc<Peer>,
        now: Moment,
    ) -> Result<ReportPermit, String> {
        let hello = Hello {
            identity: self.identity.clone(),
            run: self.run.clone(),
            seq: self.seq,
            hash: self.hash,
        };
        match store.accept_hello(&hello, peer, now).map_err(|error| chain(&error))? {
            HelloOutcome::Accepted(permit, _) => Ok(permit),
            HelloOutcome::HoldOff(_) => Err(OTHER_CONNECTION.to_owned()),
        }
    }

    /// Ends the stream to the store, if there is one.
    fn end(&mut self, store: &SharedStore) {
        if let Some(permit) = self.permit.take() {
            store.with(|store, now| store.disconnected(&permit, now));
        }
    }
}

/// Adds the label of the cluster to a status.
fn with_cluster(parts: &Parts, cluster: &str) -> Result<Parts, String> {
    let labels = parts.get(PartKey::labels().as_str());
    let labels = labels.map(decode_labels).transpose().map_err(|error| chain(&error))?;
    let key: LabelKey = CLUSTER_LABEL.parse().map_err(|error| chain(&error))?;
    let value: LabelValue = cluster.parse().map_err(|error| chain(&error))?;
    let labels = encode_labels(&labels.unwrap_or_default().with(key, value));
    let others = parts.iter().map(|(key, content)| (key.clone(), content.clone()));
    // Of two parts with the same key, the last one applies.
    Ok(others.chain([labels]).collect())
}
