//! Addresses and transport of the aggregator's servers.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::builder::TypedValueParser;
use clap::value_parser;
use octavo_settings::EarlyExit;

use super::{count, usage};
use crate::tls::TlsFiles;

/// Addresses and transport of the servers.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Serving")]
pub struct ServingSettings {
    /// Address for agents and Watch clients (gRPC); port 0 for any free port
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "OCTAVO_GRPC_LISTEN",
        default_value = "0.0.0.0:7443"
    )]
    pub grpc_listen: SocketAddr,

    /// Address for web pages, REST API and metrics; port 0 for any free port
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "OCTAVO_HTTP_LISTEN",
        default_value = "0.0.0.0:8443"
    )]
    pub http_listen: SocketAddr,

    /// Host name that clients use for this server, in addition to localhost and IP addresses; repeat for several
    ///
    /// Needed only with --http-auth none on a loopback address, for example behind a proxy that preserves the Host
    /// header. Requests for other host names are rejected there, because a page of another site could have sent them.
    #[arg(
        long = "http-host",
        value_name = "NAME",
        env = "OCTAVO_HTTP_HOSTS",
        value_delimiter = ',',
        value_parser = host_name
    )]
    pub http_hosts: Vec<String>,

    /// Certificate chain of both servers (PEM)
    ///
    /// Reloaded when the certificate or the key changes. If the new pair is invalid, the previous one stays in use.
    #[arg(long, value_name = "PATH", env = "OCTAVO_TLS_CERT")]
    pub tls_cert: Option<PathBuf>,

    /// Private key of the certificate (PEM)
    #[arg(long, value_name = "PATH", env = "OCTAVO_TLS_KEY")]
    pub tls_key: Option<PathBuf>,

    /// Serve both without TLS, for local use or behind a TLS-terminating proxy
    #[arg(long, env = "OCTAVO_PLAINTEXT")]
    pub plaintext: bool,

    /// Maximum number of connections per server; others are refused
    ///
    /// Each connection needs a file descriptor, so the limit of open files (ulimit -n) must be more than twice this
    /// number. Each connection can buffer up to 2 MiB of incomplete messages.
    #[arg(
        long,
        value_name = "COUNT",
        env = "OCTAVO_MAX_CONNECTIONS",
        default_value_t = 20_000,
        value_parser = value_parser!(u32).range(1..=1_000_000).map(count)
    )]
    pub max_connections: usize,
}

impl ServingSettings {
    /// Returns the certificate; `None` for plain TCP.
    pub fn tls(&self) -> Option<TlsFiles> {
        let pair = self.tls_cert.clone().zip(self.tls_key.clone());
        pair.map(|(certificate, key)| TlsFiles { certificate, key })
    }

    /// Rejects a transport that is incomplete or ambiguous.
    pub(super) fn check(&self) -> Result<(), EarlyExit> {
        let (has_cert, has_key) = (self.tls_cert.is_some(), self.tls_key.is_some());
        Err(usage(match (has_cert, has_key, self.plaintext) {
            (false, false, true) | (true, true, false) => return Ok(()),
            (false, false, false) => {
                "no certificate: set --tls-cert and --tls-key, or --plaintext to serve without \
                 TLS"
            }
            (true, false, false) => "--tls-cert needs --tls-key",
            (false, true, false) => "--tls-key needs --tls-cert",
            (_, _, true) => "--plaintext cannot be used with --tls-cert or --tls-key",
        }))
    }
}

/// Parses a host name; rejects names that can match no request.
fn host_name(name: &str) -> Result<String, &'static str> {
    if name.is_empty() {
        return Err("the name is empty");
    }
    if name.contains(['/', ':']) || name.contains(char::is_whitespace) {
        return Err("use only the host name, without a scheme, port or path");
    }
    if name.ends_with('.') {
        return Err("use the name without a dot at its end");
    }
    Ok(name.to_owned())
}
