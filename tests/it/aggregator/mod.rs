//! The aggregator over real sockets, with well-behaved and hostile peers.
//!
//! Servers run in the runtime of the test, so that limits and deadlines can be small; `program` tests the binary.
//! Nothing sleeps: a test waits for a message of its peer, or for the fleet that readers see.

mod program;
mod report;
mod serve;
mod upstreams;
mod watch;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Method, Request};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use octavo_aggregator::auth::Gate;
use octavo_aggregator::ingest::{IngestService, PeerTimeouts};
use octavo_aggregator::serve::{Limits, Protocol, Server};
use octavo_aggregator::tls::{Tls, TlsFiles};
use octavo_model::digest::Digest;
use octavo_store::fleet::{Fleet, Node};
use octavo_store::stats::Stats;
use octavo_store::store::StoreLimits;
use octavo_store::store::shared_store::SharedStore;
use octavo_stream::proto::v1::fleet_client::FleetClient;
use octavo_stream::protocol::{Content, FromAgent, Hello, Identity, Parts, Run};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::watch as channel;
use tokio::time::timeout;
use tonic::transport::{Channel, Endpoint};

use crate::agent_stream::{AgentStream, acknowledged, delta, hello, parts};
use crate::time_limits::TIME_LIMIT;

/// Parameters of a server.
struct Plan {
    protocol: Protocol,
    listen: SocketAddr,
    fleet: StoreLimits,
    limits: Limits,
    time_limits: PeerTimeouts,
    tls: Option<TlsFiles>,
    /// Responses on connections beyond the limit.
    reserve: Option<Router>,
}

/// A running server with its store.
struct Site {
    address: SocketAddr,
    store: Arc<SharedStore>,
    registry: Registry,
    /// Ends the server when dropped.
    _stop: channel::Sender<bool>,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            protocol: Protocol::Grpc,
            listen: ([127, 0, 0, 1], 0).into(),
            fleet: StoreLimits {
                stale_after: Duration::from_hours(1),
                forget_after: Duration::from_hours(1),
                max_nodes: 1000,
                history_bytes: 1 << 20,
            },
            limits: Limits::new(Protocol::Grpc, 1000),
            time_limits: PeerTimeouts::default(),
            tls: None,
            reserve: None,
        }
    }
}

impl Plan {
    async fn start(self) -> Site {
        let stats = Stats::default();
        let mut registry = Registry::default();
        stats.register(&mut registry);
        let store = Arc::new(SharedStore::new(self.fleet, stats.clone()));
        let router = match self.protocol {
            Protocol::Grpc => IngestService::new(
                Arc::clone(&store),
                Gate::without_auth(),
                stats.clone(),
                self.time_limits,
            )
            .into_router(),
            Protocol::Http => {
                let here = axum::routing::get(async || "here\n");
                Router::new().route("/", here.post(async |body: Bytes| body))
            }
        };
        let tls = self.tls.map(|files| Tls::load(files, self.protocol.alpn()).unwrap());
        let server = Server {
            protocol: self.protocol,
            router,
            reserve: self.reserve,
            tls,
            limits: self.limits,
            stats,
        };
        let listener = TcpListener::bind(self.listen).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = channel::channel(false);
        let maintained = Arc::clone(&store);
        tokio::spawn(async move {
            tokio::select! {
                () = server.run(listener, stopped) => {}
                () = maintained.run_maintenance() => {}
            }
        });
        Site { address, store, registry, _stop: stop }
    }
}

impl Site {
    fn endpoint(&self) -> Endpoint {
        Endpoint::from_shared(format!("http://{}", self.address)).unwrap()
    }

    async fn client(&self) -> FleetClient<Channel> {
        FleetClient::new(self.endpoint().connect().await.unwrap())
    }

    /// Waits until readers see a fleet that satisfies `wanted`.
    async fn until(&self, wanted: impl Fn(&Fleet) -> bool) -> Fleet {
        let mut view = self.store.view();
        let seen = async {
            let mut fleet = view.fleet();
            while !wanted(&fleet) {
                fleet = view.changed().await.unwrap();
            }
            fleet
        };
        timeout(TIME_LIMIT, seen).await.unwrap()
    }

    fn node(&self, name: &str) -> Option<Arc<Node>> {
        let fleet = self.store.view().fleet();
        fleet.nodes.get(&name.parse().unwrap()).cloned()
    }

    /// The value of a metric such as `octavo_aggregator_refusals_total{reason="no_hello"}`; 0 if it is absent.
    fn metric(&self, name: &str) -> u64 {
        let mut text = String::new();
        encode(&mut text, &self.registry).unwrap();
        let line =
            text.lines().find_map(|line| line.strip_prefix(&format!("octavo_aggregator_{name} ")));
        line.map_or(0, |value| value.parse().unwrap())
    }
}

impl AgentStream {
    /// Opens a stream, reports `parts` as the first status and waits until readers see the node.
    async fn with_visible_status(site: &Site, node: &str, parts: Parts) -> Self {
        let line = Self::with_first_status(&mut site.client().await, node, parts).await;
        let name = node.parse().unwrap();
        site.until(|fleet| fleet.nodes.get(&name).is_some()).await;
        line
    }
}

fn second_hello() -> FromAgent {
    FromAgent::Hello(Hello {
        identity: Identity { node: "n".parse().unwrap(), agent_version: "1.2.3".to_owned() },
        run: Run { epoch: 9, boot_id: "b".to_owned() },
        seq: 0,
        hash: Digest::default(),
    })
}

/// A status with a part of this size that no reader understands.
pub(crate) fn big_parts(number: u64, bytes: usize) -> Parts {
    let content = vec![u8::try_from(number % 256).unwrap(); bytes];
    let more = ("x/later".parse().unwrap(), Content::new(content));
    let parts = parts(number);
    let parts = parts.iter();
    let parts = parts.map(|(key, content)| (key.clone(), content.clone()));
    parts.chain([more]).collect()
}

/// Posts these bytes as the body of a report and returns the gRPC status.
pub(crate) async fn post(to: SocketAddr, body: &'static [u8]) -> (String, String) {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client =
        Client::builder(TokioExecutor::new()).http2_only(true).build::<_, Full<Bytes>>(connector);
    let request = Request::builder()
        .method(Method::POST)
        .uri(format!("http://{to}/octavo.v1.Fleet/Report"))
        .header("content-type", "application/grpc")
        .body(Full::new(Bytes::from_static(body)))
        .unwrap();
    let answer = client.request(request).await.unwrap();
    let head = answer.headers().clone();
    let body = timeout(TIME_LIMIT, answer.into_body().collect()).await;
    let body = body.unwrap().unwrap();
    let all = body.trailers().cloned().unwrap_or(head);
    let field = |name| all.get(name).unwrap().to_str().unwrap().to_owned();
    (field("grpc-status"), field("grpc-message"))
}
