//! A reader of the API, with TLS if the aggregator uses it.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Interval, MissedTickBehavior, interval, timeout};
use tokio_rustls::TlsConnector;

pub(crate) use crate::time_limits::TIME_LIMIT;
use crate::time_limits::within;

/// Address of the API.
#[derive(Clone)]
pub(crate) struct Api {
    address: SocketAddr,
    tls: Option<TlsConnector>,
    /// Additional header lines.
    pub(crate) headers: String,
}

/// A response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: String,
}

/// A reader of the event stream.
pub(crate) struct Events {
    stream: Box<dyn Stream>,
    bytes: Vec<u8>,
}

/// A connection with or without TLS.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

impl Answer {
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.body))
    }
}

impl Api {
    /// In plaintext.
    pub(crate) fn at(address: SocketAddr) -> Self {
        Self { address, tls: None, headers: String::new() }
    }

    /// Over TLS, trusting this certificate for localhost.
    pub(crate) fn trusting(address: SocketAddr, certificate: &Path) -> Self {
        let mut roots = RootCertStore::empty();
        let certificate = CertificateDer::from_pem_file(certificate).unwrap();
        roots.add(certificate).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let tls = Some(TlsConnector::from(Arc::new(config)));
        Self { address, tls, headers: String::new() }
    }

    pub(crate) async fn ask(&self, path: &str) -> Box<dyn Stream> {
        self.send("GET", path, "").await
    }

    async fn send(&self, method: &str, path: &str, body: &str) -> Box<dyn Stream> {
        let socket = TcpStream::connect(self.address).await.unwrap();
        let mut stream: Box<dyn Stream> = match &self.tls {
            None => Box::new(socket),
            Some(tls) => {
                let name = ServerName::try_from("localhost").unwrap();
                Box::new(tls.connect(name, socket).await.unwrap())
            }
        };
        // HTTP/1.0, so that the response is not chunked and ends with the connection.
        let headers = &self.headers;
        let about = match (method, body) {
            (_, "") => String::new(),
            ("PATCH", body) => {
                let kind = "application/merge-patch+json";
                format!("Content-Type: {kind}\r\nContent-Length: {}\r\n", body.len())
            }
            (_, body) => {
                format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len())
            }
        };
        let request =
            format!("{method} {path} HTTP/1.0\r\nHost: localhost\r\n{headers}{about}\r\n{body}");
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.whole("GET", path, "").await
    }

    pub(crate) async fn whole(&self, method: &str, path: &str, body: &str) -> Answer {
        let answer = async {
            let mut stream = self.send(method, path, body).await;
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes).await.unwrap();
            String::from_utf8(bytes).unwrap()
        };
        let answer = within(path, answer).await;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        Answer { status: head.split(' ').nth(1).unwrap().parse().unwrap(), body: body.to_owned() }
    }

    /// The nodes of the list, ordered by name.
    pub(crate) async fn nodes(&self) -> Vec<Value> {
        let list = self.get("/api/v1/nodes?limit=1000").await.json();
        list["items"].as_array().unwrap().clone()
    }

    /// The event stream after its snapshot.
    pub(crate) async fn events(&self) -> Events {
        let path = "/api/v1/events?changes=only";
        let mut events = Events { stream: within(path, self.ask(path)).await, bytes: Vec::new() };
        assert_eq!(events.next().await["kind"], "synced");
        events
    }

    /// The same without reading anything, and with the smallest receive buffer.
    pub(crate) async fn unread_events(&self) -> Events {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(2048).unwrap();
        let mut stream = socket.connect(self.address).await.unwrap();
        let request = "GET /api/v1/events HTTP/1.0\r\nHost: localhost\r\n\r\n";
        stream.write_all(request.as_bytes()).await.unwrap();
        Events { stream: Box::new(stream), bytes: Vec::new() }
    }

    /// Waits until the document at `path` satisfies `wanted` and returns it.
    pub(crate) async fn until(&self, path: &str, wanted: impl Fn(&Answer) -> bool) -> Answer {
        let mut last = None;
        let reading = async {
            let mut events = self.events().await;
            loop {
                let answer = self.get(path).await;
                if wanted(&answer) {
                    return answer;
                }
                last = Some(answer);
                events.next().await;
            }
        };
        let found = timeout(TIME_LIMIT, reading).await;
        found.unwrap_or_else(|_late| panic!("{path} stays {last:?}"))
    }

    /// Waits until the metrics have all these lines and returns them. No event reports a change of metrics.
    pub(crate) async fn metrics_with(&self, lines: &[&str]) -> String {
        let began = tokio::time::Instant::now();
        let mut pace = pace();
        loop {
            pace.tick().await;
            let text = self.get("/metrics").await.body;
            let missing = lines.iter().find(|line| !text.lines().any(|one| one == **line));
            let Some(missing) = missing else {
                return text;
            };
            assert!(began.elapsed() < TIME_LIMIT, "{missing}\n{text}");
        }
    }

    /// Waits until a node satisfies `wanted` and returns it.
    pub(crate) async fn node(&self, name: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let path = format!("/api/v1/nodes/{name}");
        let node = self.until(&path, |answer| answer.status == 200 && wanted(&answer.json()));
        node.await.json()
    }

    /// Waits until the list of nodes satisfies `wanted` and returns it.
    pub(crate) async fn list(&self, wanted: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        let nodes = |answer: &Answer| answer.json()["items"].as_array().unwrap().clone();
        let path = "/api/v1/nodes?limit=1000";
        nodes(&self.until(path, |answer| wanted(&nodes(answer))).await)
    }
}

impl Events {
    /// The data of the next event.
    pub(crate) async fn next(&mut self) -> Value {
        let data = async {
            loop {
                let end = self.bytes.iter().position(|&byte| byte == b'\n');
                if let Some(end) = end {
                    let line: Vec<u8> = self.bytes.drain(..=end).collect();
                    if let Some(data) = line.strip_prefix(b"data: ") {
                        return serde_json::from_slice(data).unwrap();
                    }
                    continue;
                }
                let read = self.stream.read_buf(&mut self.bytes).await.unwrap();
                assert!(read > 0, "the event stream ended");
            }
        };
        within("an event", data).await
    }
}

/// Poll interval for values without events, such as ages.
pub(crate) fn pace() -> Interval {
    let mut pace = interval(Duration::from_millis(20));
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    pace
}
