//! Connections to the aggregator, and the credentials that they present.

use std::error::Error;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hyper_rustls::{FixedServerNameResolver, HttpsConnector};
use hyper_util::client::legacy::connect::HttpConnector;
use octavo_fleet::credential::{MAX_TOKEN_BYTES, Token, TokenError};
use octavo_toolkit::files;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use thiserror::Error as ThisError;
use tonic::transport::{Channel, Endpoint};

use crate::settings::{Security, UplinkSettings};

/// Maximum size of a file of CA certificates: a system's whole bundle has 250 KiB.
const MAX_CA_BYTES: u64 = 4 << 20;

/// Connects to an aggregator; the uplink requests one connection at a time.
pub trait Connector {
    /// Opens a connection.
    fn dial(&self) -> impl Future<Output = Result<Channel, ConnectError>> + Send;

    /// Returns the token that authenticates the agent; `None` if no token is configured.
    fn token(&self) -> Result<Option<Token>, ConnectError>;

    /// Returns the aggregator's name for log messages.
    fn name(&self) -> String;
}

/// Reason why a connection failed.
#[derive(Debug, ThisError)]
pub enum ConnectError {
    /// The CA certificates cannot be read.
    #[error("cannot read the certificates in {}", path.display())]
    Ca {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// The token cannot be read.
    #[error("cannot use the token in {}", path.display())]
    Token {
        /// The file.
        path: PathBuf,
        /// The cause, without the file's content.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// TLS cannot be set up.
    #[error("cannot set up TLS")]
    Tls(#[from] rustls::Error),
    /// No server responds, or its identity is wrong.
    #[error("cannot connect")]
    Connect(#[from] tonic::transport::Error),
}

/// The aggregator of the settings.
#[derive(Debug)]
pub struct Aggregator(UplinkSettings);

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(20);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// Answers are a few bytes; the default of 2 MiB would let a peer occupy that much memory of this process.
const STREAM_WINDOW_BYTES: u32 = 64 * 1024;

impl Aggregator {
    /// Creates a dialer with `settings`.
    pub fn new(settings: UplinkSettings) -> Self {
        Self(settings)
    }
}

impl Connector for Aggregator {
    async fn dial(&self) -> Result<Channel, ConnectError> {
        let endpoint = tuned(Endpoint::from(self.0.url.clone()));
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
        match &self.0.security {
            Security::Plaintext => Ok(endpoint.connect_with_connector(tcp).await?),
            Security::Tls { ca, server } => {
                let name = Arc::new(FixedServerNameResolver::new(server.clone()));
                let tls = HttpsConnector::new(tcp, trusting(ca)?, true, name);
                Ok(endpoint.connect_with_connector(tls).await?)
            }
        }
    }

    fn token(&self) -> Result<Option<Token>, ConnectError> {
        self.0.token.as_deref().map(read_token).transpose()
    }

    fn name(&self) -> String {
        let url = self.0.url.to_string();
        url.trim_end_matches('/').to_owned()
    }
}

/// Applies the settings that all connections share.
pub(super) fn tuned(endpoint: Endpoint) -> Endpoint {
    endpoint
        .connect_timeout(CONNECT_TIMEOUT)
        .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(STREAM_WINDOW_BYTES)
}

/// Returns the file's current token.
fn read_token(path: &Path) -> Result<Token, ConnectError> {
    let unusable = |source: Box<dyn Error + Send + Sync>| ConnectError::Token {
        path: path.to_owned(),
        source,
    };
    // Reading one byte more than the maximum detects an oversized file of any length.
    let most = u64::try_from(MAX_TOKEN_BYTES).unwrap_or(u64::MAX);
    let bytes =
        files::read_prefix(path, most.saturating_add(1)).map_err(|error| unusable(error.into()))?;
    let text = str::from_utf8(&bytes).map_err(|_odd| unusable(TokenError::Malformed.into()))?;
    text.trim_ascii().parse().map_err(|error: TokenError| unusable(error.into()))
}

/// Trusts the CA certificates currently in the file. Reading blocks the agent's only thread, so the file is bounded
/// and never a FIFO.
fn trusting(ca: &Path) -> Result<ClientConfig, ConnectError> {
    let unreadable =
        |source: Box<dyn Error + Send + Sync>| ConnectError::Ca { path: ca.to_owned(), source };
    let pem = files::read_bytes(ca, MAX_CA_BYTES).map_err(|error| unreadable(error.into()))?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|error| unreadable(error.to_string().into()))?;
        roots.add(certificate).map_err(|error| unreadable(error.into()))?;
    }
    if roots.is_empty() {
        return Err(unreadable("the file contains no certificate".into()));
    }
    // The provider is explicit: this code must not depend on a process-wide default.
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}
