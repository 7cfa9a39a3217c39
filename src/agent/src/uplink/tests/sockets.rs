//! Tests with real TCP and TLS connections, and certificates that the tests generate.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use octavo_client::endpoint::{AggregatorEndpoint, Security};
use octavo_toolkit::error::chain;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::fake_aggregator::Service;
use super::*;
use crate::uplink::dial::Connector;

/// A certificate authority.
struct TestCa {
    params: CertificateParams,
    key: KeyPair,
}

impl TestCa {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        Self { params, key }
    }

    fn pem(&self) -> String {
        self.params.self_signed(&self.key).unwrap().pem()
    }

    /// Creates a TLS acceptor with a certificate for `name`.
    fn server(&self, name: &str) -> TlsAcceptor {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let issuer = Issuer::from_params(&self.params, &self.key);
        let certificate = params.signed_by(&key, &issuer).unwrap();
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        TlsAcceptor::from(Arc::new(config))
    }
}

/// Serves TLS on a local port until the runtime ends.
async fn serve_tls(acceptor: TlsAcceptor, service: Service) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (tcp, _) = listener.accept().await.unwrap();
            // A client that does not trust the certificate aborts the handshake.
            if let Ok(tls) = acceptor.accept(tcp).await {
                tokio::spawn(service.clone().serve(tls));
            }
        }
    });
    port
}

fn aggregator(url: &str, security: Security) -> AggregatorEndpoint {
    let url = url.parse().unwrap();
    AggregatorEndpoint { url, security, token: None, window_bytes: 65_536 }
}

fn by(ca: &Path, server: &str) -> Security {
    Security::Tls { ca: ca.to_owned(), server: server.to_owned().try_into().unwrap() }
}

fn file(directory: &TempDir, content: &str) -> PathBuf {
    let path = directory.path().join("ca.crt");
    fs::write(&path, content).unwrap();
    path
}

/// Returns why the connection failed.
async fn refusal(aggregator: &AggregatorEndpoint) -> String {
    chain(&aggregator.dial().await.expect_err("connected"))
}

#[tokio::test]
async fn only_aggregators_with_a_trusted_certificate_are_used() {
    let (mut fake, service) = FakeAggregator::new();
    let (good, other) = (TestCa::new("good"), TestCa::new("other"));
    let port = serve_tls(good.server("aggregator.octavo"), service).await;
    let url = format!("https://127.0.0.1:{port}");
    let directory = tempfile::tempdir().unwrap();
    let ca = file(&directory, &other.pem());
    let trusted = aggregator(&url, by(&ca, "aggregator.octavo"));

    let message = refusal(&trusted).await;
    assert!(message.contains("UnknownIssuer"), "{message}");
    // The next attempt uses the replaced file.
    fs::write(&ca, other.pem() + &good.pem()).unwrap();
    assert!(trusted.dial().await.is_ok());
    // Trusted, but for another name.
    let message = refusal(&aggregator(&url, by(&ca, "another.octavo"))).await;
    assert!(message.contains("not valid for name"), "{message}");

    let (mut outbox, uplink) = Uplink::new(trusted, identity(), this_one(), HEARTBEAT);
    put(&mut outbox, "one");
    let uplink = tokio::spawn(uplink.run());
    let (mut peer, receiver) = first(&mut fake).await;
    assert_eq!(known(&receiver), "one");
    drop(outbox);
    assert!(peer.sees_the_end().await);
    drop(peer);
    uplink.await.unwrap();
}

#[tokio::test]
async fn i12_file_without_certificates_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let ca = file(&directory, "nothing\n");
    let aggregator = aggregator("https://127.0.0.1:1", by(&ca, "a"));
    let message = refusal(&aggregator).await;
    assert!(
        message.contains("ca.crt: the file contains no certificate in PEM format"),
        "{message}"
    );
    fs::remove_file(&ca).unwrap();
    let message = refusal(&aggregator).await;
    assert!(message.contains("ca.crt: No such file"), "{message}");
}

#[tokio::test]
async fn restarted_aggregator_is_reconnected() {
    let (mut fake, service) = FakeAggregator::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serve = |listener: TcpListener| {
        let service = service.clone();
        tokio::spawn(async move {
            let (tcp, _) = listener.accept().await.unwrap();
            // The listener is dropped with the connection.
            service.serve(tcp).await;
        })
    };
    let first_life = serve(listener);
    let dial = aggregator(&format!("http://{address}"), Security::Plaintext);
    assert_eq!(dial.name(), format!("http://{address}"));
    let (mut outbox, uplink) = Uplink::new(dial, identity(), this_one(), HEARTBEAT);
    put(&mut outbox, "one");
    tokio::spawn(uplink.run());
    let (peer, _forgotten) = first(&mut fake).await;

    first_life.abort();
    assert!(first_life.await.unwrap_err().is_cancelled());
    drop(peer);
    let second_life = serve(TcpListener::bind(address).await.unwrap());
    let mut peer = fake.peer().await;
    let hello = peer.greeting().await;
    assert_eq!(hello.seq, 1);
    let (mut receiver, answer) = Receiver::new(&hello);
    peer.send(&answer).await;
    let incoming = take(&mut peer, &mut receiver).await;
    assert!(matches!(incoming, FromAgent::Snapshot { seq: 2, .. }), "{incoming:?}");
    assert_eq!(known(&receiver), "one");
    second_life.abort();
}

#[tokio::test]
async fn token_file_is_read_for_each_connection() {
    let (mut fake, service) = FakeAggregator::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        loop {
            let (tcp, _) = listener.accept().await.unwrap();
            tokio::spawn(service.clone().serve(tcp));
        }
    });
    let directory = tempfile::tempdir().unwrap();
    let token = file(&directory, "head.first.sign\n");
    let dial = shows_token(&url, &token);
    let (mut outbox, uplink) = Uplink::new(dial, identity(), this_one(), HEARTBEAT);
    put(&mut outbox, "one");
    tokio::spawn(uplink.run());
    let (peer, _receiver) = first(&mut fake).await;
    assert_eq!(peer.shown.as_deref(), Some("Bearer head.first.sign"));
    // Replaced as kubelet does it.
    fs::write(&token, "head.second.sign").unwrap();
    drop(peer);
    let peer = fake.peer().await;
    assert_eq!(peer.shown.as_deref(), Some("Bearer head.second.sign"));
}

#[tokio::test]
async fn i12_unusable_token_is_reported_without_its_content() {
    let directory = tempfile::tempdir().unwrap();
    let token = file(&directory, "");
    let dial = shows_token("http://127.0.0.1:1", &token);
    let long = "a.b.".to_owned() + &"c".repeat(100_000);
    let tables: [(&[u8], &str); 5] = [
        (b"", "the token is empty"),
        (b" \n", "the token is empty"),
        (b"-----BEGIN PRIVATE KEY-----", "three parts"),
        (b"a.b.c\xff", "three parts"),
        (long.as_bytes(), "more than 16384 bytes"),
    ];
    for (content, message) in tables {
        fs::write(&token, content).unwrap();
        let error = dial.token().unwrap_err();
        let line = chain(&error);
        let named = format!("cannot use the token in {}: ", token.display());
        assert!(line.starts_with(&named) && line.contains(message), "{line}");
        assert!(!format!("{error:?}").contains("PRIVATE"), "{error:?}");
    }
    fs::remove_file(&token).unwrap();
    let line = chain(&dial.token().unwrap_err());
    assert!(line.contains("No such file"), "{line}");
}

#[tokio::test]
async fn fifo_as_token_or_ca_file_is_rejected_without_blocking() {
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR, 0).unwrap();
    let line = chain(&shows_token("http://127.0.0.1:1", &pipe).token().unwrap_err());
    let named = format!("cannot use the token in {}: ", pipe.display());
    assert_eq!(line, format!("{named}it is not a regular file"));
    let line = refusal(&aggregator("https://127.0.0.1:1", by(&pipe, "a.octavo"))).await;
    let named = format!("cannot read the certificates in {}: ", pipe.display());
    assert_eq!(line, format!("{named}it is not a regular file"));
}

fn shows_token(url: &str, file: &Path) -> AggregatorEndpoint {
    AggregatorEndpoint { token: Some(file.to_owned()), ..aggregator(url, Security::Plaintext) }
}
