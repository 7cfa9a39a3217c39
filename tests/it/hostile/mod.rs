//! Attacks on the aggregator as a process, over real sockets.
//!
//! During each attack, a healthy agent changes its status again and again, and each change must become visible in the
//! API. An attack ends when enough changes are visible and the aggregator has counted the attack in its metrics. The
//! memory of the aggregator is limited all the time. `docs/operations/aggregator.md` lists the attacks.
//!
//! `fleet::hostile` tests peers that are refused one after the other, and that nothing leaks.

mod connections;
mod frames;
mod messages;
mod requests;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use hyper::Uri;
use hyper_util::rt::TokioIo;
use octavo_stream::proto::v1::fleet_client::FleetClient;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio::time::{Instant, interval};
use tokio_rustls::TlsConnector;
use tonic::transport::{Channel, Endpoint};

use crate::agent_stream::{AgentStream, acknowledged, delta, parts};
use crate::fleet_api::{Api, TIME_LIMIT, pace};
use crate::process::{Aggregator, resident};

/// Changes of the healthy agent that must become visible during an attack.
const CHANGES: usize = 20;
/// Maximum growth of the aggregator's resident memory.
const MAX_GROWTH_KIB: u64 = 64 * 1024;
/// Between two reads of the API.
const READ_INTERVAL: Duration = Duration::from_millis(2);

/// Addresses of the aggregator's servers.
#[derive(Clone, Copy)]
struct Target {
    grpc: SocketAddr,
    http: SocketAddr,
}

/// An aggregator with a healthy agent.
struct Site {
    aggregator: Aggregator,
    api: Api,
    agent: AgentStream,
    /// The number of the last change.
    changes: u64,
    /// Resident memory before the attack, and its maximum since, in KiB.
    memory: (u64, u64),
    /// Holds the certificate.
    _directory: Option<TempDir>,
}

impl Site {
    async fn start(arguments: &[&str]) -> Self {
        let aggregator = Aggregator::start(&[&["--plaintext"], arguments].concat());
        let api = Api::at(aggregator.http);
        let endpoint = Endpoint::from_shared(format!("http://{}", aggregator.grpc)).unwrap();
        let channel = endpoint.connect().await.unwrap();
        Self::with_agent(aggregator, api, channel, None).await
    }

    async fn start_with_tls() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let pair = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let write = |name: &str, text: &str| -> PathBuf {
            let path = directory.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let certificate = write("tls.crt", &pair.cert.pem());
        let key = write("tls.key", &pair.signing_key.serialize_pem());
        let aggregator = Aggregator::start(&[
            "--http-auth=none",
            &format!("--tls-cert={}", certificate.display()),
            &format!("--tls-key={}", key.display()),
        ]);
        let api = Api::trusting(aggregator.http, &certificate);
        let trusted = CertificateDer::from_pem_file(&certificate).unwrap();
        let channel = connect_tls(aggregator.grpc, trusted).await;
        Self::with_agent(aggregator, api, channel, Some(directory)).await
    }

    async fn with_agent(
        aggregator: Aggregator,
        api: Api,
        channel: Channel,
        directory: Option<TempDir>,
    ) -> Self {
        let mut client = FleetClient::new(channel);
        let agent = AgentStream::with_first_status(&mut client, "healthy", parts(1)).await;
        let mut site =
            Self { aggregator, api, agent, changes: 1, memory: (0, 0), _directory: directory };
        // Code and buffers of the first requests are not part of the growth.
        for _ in 0..CHANGES {
            site.change().await;
            site.api.get("/metrics").await;
        }
        let before = resident(site.aggregator.id());
        site.memory = (before, before);
        site
    }

    fn target(&self) -> Target {
        Target { grpc: self.aggregator.grpc, http: self.aggregator.http }
    }

    /// Changes the status of the healthy agent, and returns the time until the change is visible.
    async fn change(&mut self) -> Duration {
        let (from, to) = (parts(self.changes), parts(self.changes + 1));
        self.changes += 1;
        let began = Instant::now();
        let answer = self.agent.send(&delta(self.changes, &from, &to)).await;
        assert_eq!(answer.unwrap(), acknowledged(self.changes), "the healthy agent is cut off");
        let reason = format!("\"reason {}\"", self.changes);
        let mut pace = interval(READ_INTERVAL);
        loop {
            pace.tick().await;
            let node = self.api.get("/api/v1/nodes/healthy").await;
            assert_eq!(node.status, 200, "{}", node.body);
            if node.body.contains(&reason) {
                return began.elapsed();
            }
            assert!(began.elapsed() < TIME_LIMIT, "change {} is not visible", self.changes);
        }
    }

    /// Repeats the attack until enough changes are visible and each of the counters `counted` has increased,
    /// such as `refusals_total{reason="claimed"}`.
    #[expect(clippy::print_stdout, reason = "the figures of docs/performance.md")]
    async fn withstand<F>(
        &mut self,
        name: &str,
        counted: &[&str],
        attack: impl Fn(Target) -> F + Send + 'static,
    ) where
        F: Future<Output = ()>,
    {
        let target = self.target();
        let earlier = self.api.get("/metrics").await.body;
        let attacker = Attacker::start(move || attack(target));
        let began = Instant::now();
        let (mut delays, mut pace) = (Vec::new(), pace());
        let mut missing = counted.to_vec();
        while delays.len() < CHANGES || !missing.is_empty() {
            pace.tick().await;
            delays.push(self.change().await);
            self.memory.1 = self.memory.1.max(resident(self.aggregator.id()));
            let metrics = self.api.get("/metrics").await.body;
            missing.retain(|metric| count(&metrics, metric) == count(&earlier, metric));
            assert!(began.elapsed() < TIME_LIMIT, "{name}: {missing:?} in\n{metrics}");
            assert!(!attacker.0.is_finished(), "{name}: the attacker has failed");
        }
        attacker.stop();
        self.change().await;
        let (before, most) = self.memory;
        let grown = most.saturating_sub(before);
        delays.sort_unstable();
        let millis = |at: usize| delays[at].as_secs_f64() * 1000.0;
        let (half, last) = (delays.len() / 2, delays.len() - 1);
        println!(
            "{name}: {} changes, p50 {:.0} ms, max {:.0} ms, memory {before} KiB + {grown} KiB, {:.1} s",
            delays.len(),
            millis(half),
            millis(last),
            began.elapsed().as_secs_f64(),
        );
        assert!(grown <= MAX_GROWTH_KIB, "{name}: {grown} KiB more than before");
    }

    /// Ends the aggregator and checks its log and its invariants.
    async fn finish(mut self) {
        let metrics = self.api.get("/metrics").await.body;
        assert!(!metrics.contains("invariant_violations_total{"), "{metrics}");
        let log = self.aggregator.kill();
        assert!(!log.iter().any(|line| line.contains("panicked")), "{log:#?}");
    }
}

/// A thread that repeats an attack, so that it does not delay the healthy agent, until it is stopped.
struct Attacker(JoinHandle<()>, oneshot::Sender<()>);

impl Attacker {
    fn start<F: Future<Output = ()>>(attack: impl Fn() -> F + Send + 'static) -> Self {
        let (stop, mut stopped) = oneshot::channel();
        let thread = thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                loop {
                    tokio::select! {
                        _stop = &mut stopped => return,
                        () = attack() => {}
                    }
                }
            });
        });
        Self(thread, stop)
    }

    fn stop(self) {
        let Self(thread, stop) = self;
        let _finished = stop.send(());
        thread.join().unwrap();
    }
}

/// The value of a counter of the aggregator; 0 if it is absent.
fn count(metrics: &str, name: &str) -> u64 {
    let name = format!("octavo_aggregator_{name} ");
    let value = metrics.lines().find_map(|line| line.strip_prefix(&name));
    value.map_or(0, |value| value.parse().unwrap())
}

/// A gRPC channel over TLS.
async fn connect_tls(address: SocketAddr, trusted: CertificateDer<'static>) -> Channel {
    let mut roots = RootCertStore::empty();
    roots.add(trusted).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let connector = TlsConnector::from(Arc::new(config));
    let connector = tower::service_fn(move |_: Uri| {
        let connector = connector.clone();
        async move {
            let socket = TcpStream::connect(address).await?;
            let name = ServerName::try_from("localhost").unwrap();
            io::Result::Ok(TokioIo::new(connector.connect(name, socket).await?))
        }
    });
    Endpoint::from_static("http://localhost").connect_with_connector(connector).await.unwrap()
}
