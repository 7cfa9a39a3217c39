//! The gRPC service of an aggregator: its address, and the credentials of connections to it.

use std::error::Error;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hyper::Uri;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector};
use hyper_util::client::legacy::connect::HttpConnector;
use octavo_fleet::credential::{MAX_TOKEN_BYTES, Token, TokenError};
use octavo_toolkit::error::chain;
use octavo_toolkit::files;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use thiserror::Error as ThisError;
use tonic::Status;
use tonic::metadata::errors::InvalidMetadataValue;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};

use crate::{MAX_CA_BYTES, TrustAnchors, tls};

/// Time limit for a TCP connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of logged characters of a reason.
const MAX_REASON_CHARS: usize = 256;
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(20);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Address of an aggregator's gRPC service, and how both sides are authenticated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AggregatorEndpoint {
    /// Its URL.
    pub url: Uri,
    /// How it is authenticated.
    pub security: Security,
    /// The file of the token that authenticates this client, if there is one.
    pub token: Option<PathBuf>,
    /// Number of bytes that the aggregator may send before they are read.
    pub window_bytes: u32,
}

/// Authentication of the aggregator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Security {
    /// None: any server is accepted.
    Plaintext,
    /// By a TLS certificate.
    Tls {
        /// The CA certificates, in PEM.
        ca: PathBuf,
        /// The name that the certificate must contain.
        server: ServerName<'static>,
    },
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
    /// No server responds, or its identity is wrong.
    #[error("cannot connect")]
    Connect(#[from] tonic::transport::Error),
}

impl AggregatorEndpoint {
    /// Opens a connection.
    ///
    /// # Errors
    /// Fails if a certificate cannot be read, or no server with the right identity responds.
    pub async fn connect(&self) -> Result<Channel, ConnectError> {
        let endpoint = tuned(Endpoint::from(self.url.clone()), self.window_bytes);
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
        match &self.security {
            Security::Plaintext => Ok(endpoint.connect_with_connector(tcp).await?),
            Security::Tls { ca, server } => {
                let name = Arc::new(FixedServerNameResolver::new(server.clone()));
                let tls = HttpsConnector::new(tcp, trusting(ca)?, true, name);
                Ok(endpoint.connect_with_connector(tls).await?)
            }
        }
    }

    /// Returns the current token; `None` if no file is set.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or contains no token.
    pub fn token(&self) -> Result<Option<Token>, ConnectError> {
        self.token.as_deref().map(read_token).transpose()
    }

    /// Returns the URL for log messages.
    pub fn name(&self) -> String {
        self.url.to_string().trim_end_matches('/').to_owned()
    }
}

/// Applies the settings that all connections share.
pub fn tuned(endpoint: Endpoint, window_bytes: u32) -> Endpoint {
    endpoint
        .connect_timeout(CONNECT_TIMEOUT)
        .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(window_bytes)
        .initial_connection_window_size(window_bytes)
}

/// Parses a URL that consists only of a scheme, a host and optionally a port.
pub fn parse_url(text: &str) -> Option<Uri> {
    let url: Uri = text.parse().ok()?;
    let authority = url.authority()?;
    let known = matches!(url.scheme_str(), Some("http" | "https"));
    let plain = !authority.as_str().contains('@') && !authority.host().is_empty();
    let bare = url.path() == "/" && url.query().is_none();
    (known && plain && bare).then_some(url)
}

/// Returns whether the host is a loopback address of this machine. A name is not: it may resolve to anything.
pub fn is_loopback(url: &Uri) -> bool {
    host(url).parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

/// Returns the host without the brackets of an IPv6 address.
pub fn host(url: &Uri) -> &str {
    let host = url.host().unwrap_or_default();
    host.trim_start_matches('[').trim_end_matches(']')
}

/// Returns the token as a metadata value, marked sensitive so that no library stores or prints it.
///
/// # Errors
/// Fails if the token has characters that metadata cannot contain.
pub fn bearer(token: &Token) -> Result<MetadataValue<Ascii>, InvalidMetadataValue> {
    let mut value: MetadataValue<Ascii> = format!("Bearer {}", token.expose()).parse()?;
    value.set_sensitive(true);
    Ok(value)
}

/// Returns why the aggregator refused a stream, or what broke it.
pub fn describe_status(status: &Status) -> String {
    let message = status.message();
    match status.source() {
        Some(cause) => {
            // tonic's message ends with the beginning of its cause.
            let message = message.strip_suffix(&cause.to_string()).unwrap_or(message);
            format!("{}: {}", message.trim_end_matches(": "), chain(cause))
        }
        None => format!(
            "the aggregator rejected the stream: {}: {message}",
            status.code().description()
        ),
    }
}

/// Returns the beginning of a reason, without control characters that a terminal might interpret.
pub fn sanitize_reason(reason: &str) -> String {
    let reason = reason.chars().take(MAX_REASON_CHARS);
    reason.map(|c| if c.is_control() { ' ' } else { c }).collect()
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

/// Trusts the CA certificates currently in the file. Reading blocks the caller's thread, so the file is bounded and never a FIFO.
fn trusting(ca: &Path) -> Result<ClientConfig, ConnectError> {
    let unreadable =
        |source: Box<dyn Error + Send + Sync>| ConnectError::Ca { path: ca.to_owned(), source };
    let pem = files::read_bytes(ca, MAX_CA_BYTES).map_err(|error| unreadable(error.into()))?;
    let mut config = tls(TrustAnchors::Pem(pem)).map_err(unreadable)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}
