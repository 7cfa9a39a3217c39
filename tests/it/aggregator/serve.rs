//! Connections: limits, timeouts and TLS.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::{Request, Response};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use octavo_aggregator::serve::{Limits, Pace, Protocol};
use octavo_aggregator::tls::{Tls, TlsFiles};
use octavo_stream::protocol::FromAgent;
use octavo_toolkit::error::chain;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{interval, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::Code;

use super::{AgentStream, Plan, Site, TIME_LIMIT, acknowledged, hello, parts};
use crate::time_limits::until_async;

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

/// A web server with a short timeout for the first request.
fn web() -> Plan {
    Plan {
        protocol: Protocol::Http,
        limits: Limits {
            first_request: Duration::from_secs(2),
            ..Limits::new(Protocol::Http, 1000)
        },
        ..Plan::default()
    }
}

async fn rest(stream: &mut (impl AsyncReadExt + Unpin)) -> String {
    let mut bytes = Vec::new();
    // It only matters that the connection ends.
    let _end = timeout(TIME_LIMIT, stream.read_to_end(&mut bytes)).await.unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A certificate for localhost in two files of a directory.
struct Authority {
    directory: TempDir,
}

impl Authority {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let authority = Self { directory };
        authority.renew();
        authority
    }

    fn files(&self) -> TlsFiles {
        TlsFiles { certificate: self.at("tls.crt"), key: self.at("tls.key") }
    }

    fn at(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    /// Replaces the pair by a new one and returns its certificate.
    fn renew(&self) -> CertificateDer<'static> {
        let pair = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        replace(&self.at("tls.key"), &pair.signing_key.serialize_pem());
        replace(&self.at("tls.crt"), &pair.cert.pem());
        pair.cert.der().clone()
    }
}

/// Replaces a file as a controller does: writes a new file and renames it.
fn replace(path: &Path, content: &str) {
    let new = path.with_extension("new");
    fs::write(&new, content).unwrap();
    fs::rename(new, path).unwrap();
}

async fn encrypted(
    site: &Site,
    trusted: &CertificateDer<'static>,
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let socket = TcpStream::connect(site.address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let connector = TlsConnector::from(Arc::new(config));
    timeout(TIME_LIMIT, connector.connect(name, socket)).await.unwrap()
}

/// Sends a request over TLS that trusts this certificate.
async fn ask(site: &Site, trusted: &CertificateDer<'static>) -> std::io::Result<String> {
    let mut stream = encrypted(site, trusted).await?;
    stream.write_all(REQUEST).await?;
    Ok(rest(&mut stream).await)
}

#[tokio::test]
async fn connection_over_limit_is_closed_and_capacity_is_released() {
    let plan =
        Plan { limits: Limits { connections: 2, ..Limits::new(Protocol::Http, 2) }, ..web() };
    let site = plan.start().await;
    let first = TcpStream::connect(site.address).await.unwrap();
    let _second = TcpStream::connect(site.address).await.unwrap();
    let mut third = TcpStream::connect(site.address).await.unwrap();
    assert_eq!(rest(&mut third).await, "");
    assert_eq!(site.metric("connections_refused_total{server=\"http\"}"), 1);
    assert_eq!(site.metric("connections{server=\"http\"}"), 2);
    drop(first);
    // Until the server notices that the first connection is closed, it refuses this one.
    let again = async || {
        let mut again = TcpStream::connect(site.address).await.unwrap();
        again.write_all(REQUEST).await.is_ok() && rest(&mut again).await.ends_with("here\n")
    };
    until_async("an answer", again, |answered| *answered).await;
}

#[tokio::test]
async fn incomplete_request_body_ends_its_connection() {
    let plan = Plan {
        limits: Limits {
            body: Pace { grace: Duration::from_millis(200), deadline: Duration::from_secs(1) },
            ..Limits::new(Protocol::Http, 1000)
        },
        ..web()
    };
    let site = plan.start().await;
    // One byte of two, and the first of several chunks.
    for rest_of_head in
        ["Content-Length: 2\r\n\r\nx", "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n"]
    {
        let mut slow = TcpStream::connect(site.address).await.unwrap();
        let head = format!("POST / HTTP/1.1\r\nHost: localhost\r\n{rest_of_head}");
        slow.write_all(head.as_bytes()).await.unwrap();
        let answer = rest(&mut slow).await;
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    }
    assert_eq!(site.metric("connections_cut_total{reason=\"slow_body\"}"), 2);
    let mut whole = TcpStream::connect(site.address).await.unwrap();
    let request =
        "POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok";
    whole.write_all(request.as_bytes()).await.unwrap();
    assert!(rest(&mut whole).await.ends_with("\r\n\r\nok"));
}

/// Sends this many bytes over HTTP/2, which the server returns.
fn echo(
    client: &Client<HttpConnector, Full<Bytes>>,
    site: &Site,
    (number, length): (u8, usize),
) -> impl Future<Output = Response<Incoming>> + use<> {
    let request = Request::post(format!("http://{}/", site.address));
    let request = request.body(Full::new(vec![number; length].into())).unwrap();
    let response = client.request(request);
    async { timeout(TIME_LIMIT, response).await.unwrap().unwrap() }
}

fn http2_client() -> Client<HttpConnector, Full<Bytes>> {
    let mut builder = Client::builder(TokioExecutor::new());
    builder.http2_only(true).http2_initial_stream_window_size(1024).build_http()
}

#[tokio::test]
async fn responses_beyond_the_limit_of_a_connection_wait() {
    let site = web().start().await;
    let client = http2_client();
    let mut responses = JoinSet::new();
    for number in 0..60 {
        let response = echo(&client, &site, (number, 100_000));
        responses.spawn(async move {
            let body = response.await.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(body, vec![number; 100_000]);
        });
    }
    while let Some(response) = responses.join_next().await {
        response.unwrap();
    }
    assert_eq!(site.metric("connections_accepted_total{server=\"http\"}"), 1);
}

#[tokio::test]
async fn client_that_reads_no_response_is_disconnected() {
    let plan = web();
    let limits = Limits { unread: Duration::from_secs(2), ..plan.limits };
    let site = Plan { limits, ..plan }.start().await;
    let client = http2_client();
    // As many responses as the server sends at the same time; the next one does not begin.
    let mut responses = JoinSet::new();
    for number in 0..4 {
        responses.spawn(echo(&client, &site, (number, 40_000)));
    }
    let _unread = responses.join_all().await;
    let next = client
        .request(Request::get(format!("http://{}/", site.address)).body(Full::default()).unwrap());
    assert!(timeout(TIME_LIMIT, next).await.unwrap().is_err());
    let cut = async || site.metric("connections_cut_total{reason=\"not_reading\"}");
    until_async("the counter", cut, |count| *count == 1).await;
}

#[tokio::test]
async fn probes_are_answered_while_all_connections_are_in_use() {
    let probes = Router::new()
        .route("/healthz", get(async || "alive\n"))
        .fallback(async || axum::http::StatusCode::SERVICE_UNAVAILABLE);
    let plan = Plan { limits: Limits::new(Protocol::Http, 2), reserve: Some(probes), ..web() };
    let site = plan.start().await;
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(TcpStream::connect(site.address).await.unwrap());
    }
    let ask = async |path: &str| {
        let mut stream = TcpStream::connect(site.address).await.unwrap();
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        rest(&mut stream).await
    };
    assert!(ask("/healthz").await.ends_with("alive\n"));
    assert!(ask("/").await.starts_with("HTTP/1.1 503 "));
    assert_eq!(site.metric("connections{server=\"http\"}"), 2);
    assert_eq!(site.metric("connections_refused_total{server=\"http\"}"), 100);
    assert!(site.metric("connections_cut_total{reason=\"reserve_full\"}") >= 66);
}

#[tokio::test]
async fn silent_client_is_disconnected_and_delays_no_other() {
    let authority = Authority::new();
    let certificate = authority.renew();
    let encrypted_site = Plan { tls: Some(authority.files()), ..web() };
    let encrypted_site = encrypted_site.start().await;
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(TcpStream::connect(encrypted_site.address).await.unwrap());
    }
    let answer = ask(&encrypted_site, &certificate).await.unwrap();
    assert!(answer.ends_with("here\n"), "{answer}");
    for stream in &mut silent {
        assert_eq!(rest(stream).await, "");
    }
    let failures = encrypted_site.metric("tls_handshake_failures_total{server=\"http\"}");
    assert_eq!(failures, 20);
    for protocol in [Protocol::Http, Protocol::Grpc] {
        let plan = Plan { protocol, ..web() };
        let site = plan.start().await;
        let mut stream = TcpStream::connect(site.address).await.unwrap();
        let _settings = rest(&mut stream).await;
        assert_eq!(site.metric("connections_cut_total{reason=\"no_request\"}"), 1);
    }
}

#[tokio::test]
async fn agent_connection_without_stream_is_released() {
    let plan = Plan {
        limits: Limits {
            first_request: Duration::from_secs(2),
            ..Limits::new(Protocol::Grpc, 1000)
        },
        ..Plan::default()
    };
    let site = plan.start().await;
    let mut reporting = AgentStream::with_visible_status(&site, "n", parts(1)).await;
    let mut refused = site.client().await;
    let wrong = AgentStream::open(&mut refused, hello("No Name", 1)).await;
    assert_eq!(wrong.err().unwrap().code(), Code::InvalidArgument);
    let cut = "connections_cut_total{reason=\"no_stream\"}";
    let mut looks = interval(Duration::from_millis(10));
    let gone = async {
        while site.metric(cut) == 0 {
            looks.tick().await;
        }
    };
    timeout(TIME_LIMIT, gone).await.unwrap();
    // The reporting connection was checked as often and stays open.
    let heartbeat = FromAgent::Heartbeat { seq: 1, hash: parts(1).hash() };
    assert_eq!(reporting.send(&heartbeat).await.unwrap(), acknowledged(1));
    assert_eq!(site.metric(cut), 1);
}

#[tokio::test]
async fn new_certificate_is_used_and_invalid_one_is_ignored() {
    let authority = Authority::new();
    let first = authority.renew();
    let plan = Plan { tls: Some(authority.files()), ..web() };
    let site = plan.start().await;
    assert!(ask(&site, &first).await.unwrap().ends_with("here\n"));
    let second = authority.renew();
    assert!(ask(&site, &second).await.unwrap().ends_with("here\n"));
    assert!(ask(&site, &first).await.is_err());
    assert_eq!(site.metric("tls_reloads_total{server=\"http\"}"), 1);
    replace(&authority.at("tls.crt"), "-----BEGIN CERTIFICATE-----\nAAAA");
    for _ in 0..3 {
        assert!(ask(&site, &second).await.unwrap().ends_with("here\n"));
    }
    // The key of another certificate, then no file.
    let _third = authority.renew();
    replace(&authority.at("tls.crt"), &fs::read_to_string(authority.at("tls.key")).unwrap());
    assert!(ask(&site, &second).await.unwrap().ends_with("here\n"));
    fs::remove_file(authority.at("tls.crt")).unwrap();
    assert!(ask(&site, &second).await.unwrap().ends_with("here\n"));
    assert_eq!(site.metric("tls_reload_failures_total{server=\"http\"}"), 3);
    let last = authority.renew();
    assert!(ask(&site, &last).await.unwrap().ends_with("here\n"));
}

#[test]
fn invalid_certificate_at_start_is_named() {
    let authority = Authority::new();
    let other = Authority::new();
    let load = |certificate: &str, key: std::path::PathBuf| {
        let files = TlsFiles { certificate: authority.at(certificate), key };
        let error = Tls::load(files, Protocol::Http.alpn()).unwrap_err();
        chain(&error)
    };
    let key = authority.at("tls.key");
    assert!(load("none", key.clone()).starts_with("cannot read "));
    fs::write(authority.at("empty"), "").unwrap();
    assert!(load("empty", key).ends_with("empty contains no certificate in PEM format"));
    let reported = load("tls.crt", authority.at("tls.crt"));
    assert!(reported.contains("tls.crt contains no private key in PEM"), "{reported}");
    let reported = load("tls.crt", other.at("tls.key"));
    assert!(reported.contains("do not match"), "{reported}");
}

#[tokio::test]
async fn plaintext_and_tls_mismatch_fails_and_service_continues() {
    let authority = Authority::new();
    let certificate = authority.renew();
    let encrypted_web = Plan { tls: Some(authority.files()), ..web() };
    let site = encrypted_web.start().await;
    let mut plain = TcpStream::connect(site.address).await.unwrap();
    plain.write_all(REQUEST).await.unwrap();
    assert!(!rest(&mut plain).await.contains("HTTP"));
    assert!(ask(&site, &certificate).await.is_ok());

    let site = web().start().await;
    assert!(ask(&site, &certificate).await.is_err());
    let mut plain = TcpStream::connect(site.address).await.unwrap();
    plain.write_all(REQUEST).await.unwrap();
    assert!(rest(&mut plain).await.ends_with("here\n"));
}

#[tokio::test]
async fn old_connection_is_closed_and_client_reconnects() {
    let limits = Limits::new(Protocol::Grpc, 10);
    let plan = Plan {
        limits: Limits {
            first_request: Duration::from_secs(1),
            age: Duration::from_secs(2),
            grace: Duration::from_secs(1),
            ..limits
        },
        ..Plan::default()
    };
    let site = plan.start().await;
    let mut line = AgentStream::with_visible_status(&site, "n", parts(1)).await;
    assert!(line.receive().await.is_err());
    let _again = AgentStream::with_visible_status(&site, "m", parts(1)).await;
}
