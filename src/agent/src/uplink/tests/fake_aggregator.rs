//! A scripted aggregator: each stream is handed to the test.

use std::convert::Infallible;

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use octavo_client::endpoint::{ConnectError, tuned};
use octavo_fleet::credential::Token;
use octavo_stream::messages::{encode_to_agent, parse_from_agent};
use octavo_stream::proto::v1;
use octavo_stream::proto::v1::fleet_server::{Fleet, FleetServer};
use octavo_stream::protocol::{AggregatorMessage, FromAgent, Hello, Identity};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status, Streaming};

use crate::uplink::dial::Connector;

pub(super) fn identity() -> Identity {
    Identity { node: "node-7".parse().unwrap(), agent_version: "0.1.0".to_owned() }
}

/// Receiver of the streams.
pub(super) struct FakeAggregator {
    peers: mpsc::UnboundedReceiver<Peer>,
}

/// The gRPC service.
#[derive(Debug, Clone)]
pub(super) struct Service {
    peers: mpsc::UnboundedSender<Peer>,
    /// Status that every stream is rejected with, if it is set.
    closed: Option<Status>,
}

/// One stream. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Peer {
    /// The `authorization` header of the request.
    pub(super) shown: Option<String>,
    from: Streaming<v1::FromAgent>,
    to: mpsc::Sender<Result<v1::ToAgent, Status>>,
}

impl FakeAggregator {
    pub(super) fn new() -> (Self, Service) {
        let (sender, peers) = mpsc::unbounded_channel();
        let service = Service { peers: sender, closed: None };
        (Self { peers }, service)
    }

    /// Returns the next stream.
    pub(super) async fn peer(&mut self) -> Peer {
        self.peers.recv().await.unwrap()
    }
}

impl Peer {
    pub(super) async fn receive(&mut self) -> FromAgent {
        let message = self.from.message().await.unwrap();
        parse_from_agent(message.expect("the agent ended the stream")).unwrap()
    }

    /// Receives the greeting and checks that it is from the node of [`identity`].
    pub(super) async fn greeting(&mut self) -> Hello {
        let incoming = self.receive().await;
        let FromAgent::Hello(hello) = incoming else {
            panic!("{incoming:?} is not a greeting");
        };
        assert_eq!(hello.identity, identity());
        hello
    }

    pub(super) async fn send(&mut self, answer: &AggregatorMessage) {
        self.to.send(Ok(encode_to_agent(answer))).await.unwrap();
    }

    pub(super) async fn refuses(self, status: Status) {
        self.to.send(Err(status)).await.unwrap();
    }

    /// Returns whether the agent closed the stream properly, after any remaining messages.
    pub(super) async fn sees_the_end(&mut self) -> bool {
        loop {
            match self.from.message().await {
                Ok(Some(_)) => {}
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }

    /// Returns whether the stream ended in any way; `false` for a heartbeat.
    pub(super) async fn sees_the_end_or_a_heartbeat(&mut self) -> bool {
        match self.from.message().await {
            Ok(Some(message)) => {
                let incoming = parse_from_agent(message).unwrap();
                assert!(matches!(incoming, FromAgent::Heartbeat { .. }), "{incoming:?}");
                false
            }
            Ok(None) | Err(_) => true,
        }
    }
}

#[tonic::async_trait]
impl Fleet for Service {
    type ReportStream = ReceiverStream<Result<v1::ToAgent, Status>>;
    type WatchStream = ReceiverStream<Result<v1::WatchEvent, Status>>;

    async fn report(
        &self,
        request: Request<Streaming<v1::FromAgent>>,
    ) -> Result<Response<Self::ReportStream>, Status> {
        let (to, answers) = mpsc::channel(8);
        let shown = request.metadata().get("authorization");
        let shown = shown.map(|value| value.to_str().unwrap().to_owned());
        let from = request.into_inner();
        let peer = Peer { shown, from, to };
        self.peers.send(peer).map_err(|_| Status::unavailable("the test is over"))?;
        match &self.closed {
            Some(status) => Err(status.clone()),
            None => Ok(Response::new(ReceiverStream::new(answers))),
        }
    }

    async fn watch(
        &self,
        _request: Request<v1::WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        Err(Status::unimplemented("this server has no watchers"))
    }
}

impl Service {
    /// Makes the service reject every stream, which the test still receives.
    pub(super) fn closed(self, status: Status) -> Self {
        Self { closed: Some(status), ..self }
    }

    /// Serves one connection until it ends.
    pub(super) async fn serve(self, io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) {
        let service = TowerToHyperService::new(FleetServer::new(self));
        let server = auto::Builder::new(TokioExecutor::new()).http2_only();
        let _however_it_ended = server.serve_connection(TokioIo::new(io), service).await;
    }
}

/// Connects in memory.
pub(super) struct MemoryConnector(pub(super) Service);

impl Connector for MemoryConnector {
    async fn dial(&self) -> Result<Channel, ConnectError> {
        let service = self.0.clone();
        let connector = tower::service_fn(move |_| {
            let (ours, theirs) = tokio::io::duplex(64 * 1024);
            tokio::spawn(service.clone().serve(theirs));
            async move { Ok::<_, Infallible>(TokioIo::new(ours)) }
        });
        let endpoint = tuned(Endpoint::from_static("http://memory"), 65_536);
        Ok(endpoint.connect_with_connector(connector).await?)
    }

    fn token(&self) -> Result<Option<Token>, ConnectError> {
        Ok(None)
    }

    fn name(&self) -> String {
        "memory".to_owned()
    }
}
