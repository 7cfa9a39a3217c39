//! Many agents in one process, with real connections, the agent's protocol code and simulated nodes.
//!
//! Each agent is a task with its own connection. It sends its status, changes and heartbeats. If the connection ends, it reconnects
//! with the agent's backoff.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use octavo_stream::messages::{encode_from_agent, parse_to_agent};
use octavo_stream::proto::v1::fleet_client::FleetClient;
use octavo_stream::protocol::{AggregatorMessage, Backoff, Identity, Parts, Run, Sender};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint, Uri};

const HEARTBEAT: Duration = Duration::from_secs(10);

/// Address and TLS configuration of the aggregator.
#[derive(Clone)]
pub(crate) struct Connect {
    pub(crate) address: std::net::SocketAddr,
    pub(crate) tls: Option<Arc<rustls::ClientConfig>>,
}

/// Counters of all agents together.
#[derive(Default)]
pub(crate) struct Counters {
    /// Statuses that the aggregator acknowledged.
    pub(crate) acknowledged: AtomicUsize,
    /// Agents whose latest status the aggregator has.
    pub(crate) in_sync: AtomicUsize,
}

/// The agents; aborted when dropped.
pub(crate) struct SimulatedAgents {
    pub(crate) counters: Arc<Counters>,
    latest: Vec<watch::Sender<Parts>>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl SimulatedAgents {
    /// Starts `count` agents with the status `parts`.
    pub(crate) fn start(count: usize, connect: &Connect, parts: &Parts) -> Self {
        Self::start_numbers(0..count, connect, parts)
    }

    /// Starts the agents with these numbers.
    pub(crate) fn start_numbers(numbers: Range<usize>, connect: &Connect, parts: &Parts) -> Self {
        let counters = Arc::new(Counters::default());
        let mut latest = Vec::with_capacity(numbers.len());
        let mut tasks = Vec::with_capacity(numbers.len());
        for number in numbers {
            let (sender, receiver) = watch::channel(parts.clone());
            latest.push(sender);
            let agent = Agent {
                connect: connect.clone(),
                latest: receiver,
                counters: Arc::clone(&counters),
                sender: Sender::new(
                    Identity {
                        node: name(number).parse().unwrap(),
                        agent_version: "0.0.0".to_owned(),
                    },
                    Run { epoch: 1, boot_id: "3f0a7c0e-0000-4000-8000-000000000000".to_owned() },
                ),
                is_counted: false,
                number: u64::try_from(number).unwrap(),
            };
            tasks.push(tokio::spawn(agent.run()));
        }
        Self { counters, latest, tasks }
    }

    /// Changes the status of one agent.
    pub(crate) fn report(&self, number: usize, parts: Parts) {
        self.latest[number].send_replace(parts);
    }

    /// Waits until the aggregator has acknowledged the latest status of all agents.
    pub(crate) fn wait_until_in_sync(&self) {
        while self.counters.in_sync.load(Ordering::Relaxed) < self.latest.len() {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Changes the status of all agents, and waits for as many acknowledgements. Those of heartbeats count as well, so a few statuses can still
    /// be in flight.
    pub(crate) fn report_all(&self, parts: &Parts) {
        let acknowledged = || self.counters.acknowledged.load(Ordering::Relaxed);
        let expected = acknowledged() + self.latest.len();
        (0..self.latest.len()).for_each(|number| self.report(number, parts.clone()));
        while acknowledged() < expected {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Returns the number of agents.
    pub(crate) fn len(&self) -> usize {
        self.latest.len()
    }

    /// Waits until every agent has detected the end of its connection.
    pub(crate) fn wait_until_disconnected(&self) {
        while self.counters.in_sync.load(Ordering::Relaxed) > 0 {
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

impl Drop for SimulatedAgents {
    fn drop(&mut self) {
        self.tasks.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

/// Returns the name of an agent's node.
pub(crate) fn name(number: usize) -> String {
    format!("node-{number:06}.bench")
}

struct Agent {
    connect: Connect,
    latest: watch::Receiver<Parts>,
    counters: Arc<Counters>,
    sender: Sender,
    is_counted: bool,
    number: u64,
}

impl Agent {
    async fn run(mut self) {
        let mut backoff = Backoff::default();
        // Pseudorandom: different for each agent and each attempt.
        let mut random = self.number;
        let first = self.latest.borrow_and_update().clone();
        let _not_connected = self.sender.set_status(first);
        loop {
            if self.session().await.is_some() {
                backoff.reset();
            }
            self.sender.disconnected();
            self.count();
            random = random.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            tokio::time::sleep(backoff.next_delay(random)).await;
        }
    }

    /// Runs one connection until it ends.
    async fn session(&mut self) -> Option<()> {
        let (sender, outbox) = mpsc::channel(2);
        let mut client = FleetClient::new(self.channel().await.ok()?);
        let hello = self.sender.connected();
        sender.send(encode_from_agent(&hello)).await.ok()?;
        let mut messages = client.report(ReceiverStream::new(outbox)).await.ok()?.into_inner();
        let mut heartbeat = tokio::time::interval(HEARTBEAT);
        loop {
            let next = tokio::select! {
                message = messages.message() => {
                    let message = parse_to_agent(message.ok()??).ok()?;
                    if matches!(message, AggregatorMessage::Ack { .. }) {
                        self.counters.acknowledged.fetch_add(1, Ordering::Relaxed);
                    }
                    self.sender.handle_message(&message)
                }
                _ = heartbeat.tick() => self.sender.heartbeat(),
                changed = self.latest.changed() => {
                    changed.ok()?;
                    let parts = self.latest.borrow_and_update().clone();
                    self.sender.set_status(parts)
                }
            };
            self.count();
            if let Some(next) = next {
                sender.send(encode_from_agent(&next)).await.ok()?;
            }
        }
    }

    /// Updates the number of agents in sync.
    fn count(&mut self) {
        let is_in_sync = self.sender.is_in_sync();
        match (self.is_counted, is_in_sync) {
            (false, true) => drop(self.counters.in_sync.fetch_add(1, Ordering::Relaxed)),
            (true, false) => drop(self.counters.in_sync.fetch_sub(1, Ordering::Relaxed)),
            (true, true) | (false, false) => {}
        }
        self.is_counted = is_in_sync;
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
