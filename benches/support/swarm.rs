//! Many agents in one process: real connections and the real protocol, with made-up nodes.
//!
//! Each agent is a task with a connection of its own. It greets, tells its status, says what it is ordered to, sends
//! heartbeats, and comes back with the agent's own back-off when the aggregator goes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use octavo_stream::messages::{encode_from_agent, parse_to_agent};
use octavo_stream::proto::v1::fleet_client::FleetClient;
use octavo_stream::protocol::{Backoff, Identity, Parts, Run, Sender};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint, Uri};

const HEARTBEAT: Duration = Duration::from_secs(10);

/// How the aggregator is reached.
#[derive(Clone)]
pub(crate) struct Connect {
    pub(crate) address: std::net::SocketAddr,
    pub(crate) tls: Option<Arc<rustls::ClientConfig>>,
}

/// What all agents of a swarm count together.
#[derive(Default)]
pub(crate) struct Tally {
    /// Statuses that the aggregator acknowledged.
    pub(crate) acknowledged: AtomicUsize,
    /// Agents whose latest status the aggregator has.
    pub(crate) in_sync: AtomicUsize,
}

/// The agents; they end when this is dropped.
pub(crate) struct Swarm {
    pub(crate) tally: Arc<Tally>,
    latest: Vec<watch::Sender<Parts>>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Swarm {
    /// Starts `count` agents that all have `parts`. Not all at one instant: as many connect at once as a listener queues.
    pub(crate) fn start(count: usize, connect: &Connect, parts: &Parts) -> Self {
        let tally = Arc::new(Tally::default());
        let mut latest = Vec::with_capacity(count);
        let mut tasks = Vec::with_capacity(count);
        for number in 0..count {
            let (sender, receiver) = watch::channel(parts.clone());
            latest.push(sender);
            let agent = Agent {
                connect: connect.clone(),
                latest: receiver,
                tally: Arc::clone(&tally),
                sender: Sender::new(
                    Identity {
                        node: name(number).parse().unwrap(),
                        agent_version: "0.0.0".to_owned(),
                    },
                    Run { epoch: 1, boot_id: "3f0a7c0e-0000-4000-8000-000000000000".to_owned() },
                ),
                counted: false,
                number: u64::try_from(number).unwrap(),
            };
            tasks.push(tokio::spawn(agent.live()));
        }
        Self { tally, latest, tasks }
    }

    /// One agent has another status from now on.
    pub(crate) fn say(&self, number: usize, parts: Parts) {
        self.latest[number].send_replace(parts);
    }

    /// Waits until the aggregator has the latest status of all.
    pub(crate) fn in_sync(&self) {
        while self.tally.in_sync.load(Ordering::Relaxed) < self.latest.len() {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Swarm {
    /// How many agents.
    pub(crate) fn len(&self) -> usize {
        self.latest.len()
    }

    /// Waits until every agent has noticed that its aggregator is gone.
    pub(crate) fn none_in_sync(&self) {
        while self.tally.in_sync.load(Ordering::Relaxed) > 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Connect {
    /// Without TLS.
    pub(crate) fn plain(address: std::net::SocketAddr) -> Self {
        Self { address, tls: None }
    }
}

impl Drop for Swarm {
    fn drop(&mut self) {
        self.tasks.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

/// The name of an agent's node.
pub(crate) fn name(number: usize) -> String {
    format!("node-{number:06}.bench")
}

struct Agent {
    connect: Connect,
    latest: watch::Receiver<Parts>,
    tally: Arc<Tally>,
    sender: Sender,
    counted: bool,
    number: u64,
}

impl Agent {
    async fn live(mut self) {
        let mut backoff = Backoff::default();
        // As good as chance: spread over all numbers, and another one for each agent and each attempt.
        let mut chance = self.number;
        let first = self.latest.borrow_and_update().clone();
        let _not_connected = self.sender.set_status(first);
        loop {
            if self.session().await.is_some() {
                backoff.reset();
            }
            self.sender.disconnected();
            self.count();
            chance = chance.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            tokio::time::sleep(backoff.next_delay(chance)).await;
        }
    }

    /// One connection, until it ends; `None` where it never came to be.
    async fn session(&mut self) -> Option<()> {
        let (to, outbox) = mpsc::channel(2);
        let mut client = FleetClient::new(self.channel().await.ok()?);
        let hello = self.sender.connected();
        to.send(encode_from_agent(&hello)).await.ok()?;
        let mut answers = client.report(ReceiverStream::new(outbox)).await.ok()?.into_inner();
        let mut beat = tokio::time::interval(HEARTBEAT);
        loop {
            let next = tokio::select! {
                answer = answers.message() => {
                    let answer = parse_to_agent(answer.ok()??).ok()?;
                    if matches!(answer, octavo_stream::protocol::AggregatorMessage::Ack { .. }) {
                        self.tally.acknowledged.fetch_add(1, Ordering::Relaxed);
                    }
                    self.sender.handle_message(&answer)
                }
                _ = beat.tick() => self.sender.heartbeat(),
                changed = self.latest.changed() => {
                    changed.ok()?;
                    let parts = self.latest.borrow_and_update().clone();
                    self.sender.set_status(parts)
                }
            };
            self.count();
            if let Some(next) = next {
                to.send(encode_from_agent(&next)).await.ok()?;
            }
        }
    }

    /// Keeps the number of agents in sync.
    fn count(&mut self) {
        let now = self.sender.is_in_sync();
        match (self.counted, now) {
            (false, true) => drop(self.tally.in_sync.fetch_add(1, Ordering::Relaxed)),
            (true, false) => drop(self.tally.in_sync.fetch_sub(1, Ordering::Relaxed)),
            (true, true) | (false, false) => {}
        }
        self.counted = now;
    }

    async fn channel(&self) -> Result<Channel, tonic::transport::Error> {
        let Connect { address, tls } = self.connect.clone();
        let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
        let endpoint = endpoint
            .buffer_size(4)
            .initial_stream_window_size(16_384)
            .initial_connection_window_size(16_384);
        endpoint
            .connect_with_connector(tower::service_fn(move |_: Uri| {
                let tls = tls.clone();
                async move {
                    let stream = TcpStream::connect(address).await?;
                    stream.set_nodelay(true)?;
                    let io: Box<dyn Io> = match tls {
                        None => Box::new(stream),
                        Some(config) => {
                            let name =
                                rustls::pki_types::ServerName::try_from("localhost").unwrap();
                            Box::new(
                                tokio_rustls::TlsConnector::from(config)
                                    .connect(name, stream)
                                    .await?,
                            )
                        }
                    };
                    Ok::<_, std::io::Error>(TokioIo::new(io))
                }
            }))
            .await
    }
}

trait Io: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin {}
impl<T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin> Io for T {}
