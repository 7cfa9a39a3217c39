//! Addresses and transport of the aggregator's servers.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::builder::TypedValueParser;
use clap::value_parser;
use octavo_settings::Answer;
use thiserror::Error;

use super::{count, usage};
use crate::tls::TlsFiles;

/// Reason why a host name can never equal that of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
enum HostNameError {
    #[error("the name is empty")]
    Empty,
    #[error("give the name alone, without a scheme, port or path")]
    NotAlone,
    #[error("give the name without a dot at its end")]
    TrailingDot,
}

/// Addresses and transport of the servers.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Serving")]
pub struct ServingSettings {
    /// Where agents connect, and programs that watch the fleet; port 0 takes any free one
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "OCTAVO_GRPC_LISTEN",
        default_value = "0.0.0.0:7443"
    )]
    pub grpc_listen: SocketAddr,

    /// Where pages, REST and metrics are served; port 0 takes any free one
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "OCTAVO_HTTP_LISTEN",
        default_value = "0.0.0.0:8443"
    )]
    pub http_listen: SocketAddr,

    /// A name that readers use for this server, besides localhost and IP addresses; repeat for more
    ///
    /// Only needed with --http-auth none on an address of this machine alone, such as behind a proxy that keeps the Host header.
    /// Requests for other names are refused there: a page of another site could have made them.
    #[arg(
        long = "http-host",
        value_name = "NAME",
        env = "OCTAVO_HTTP_HOSTS",
        value_delimiter = ',',
        value_parser = host_name
    )]
    pub http_hosts: Vec<String>,

    /// The certificate of both servers, with its chain, in PEM
    ///
    /// It is read again when it or the key has changed. A pair that cannot be used leaves the one before in use.
    #[arg(long, value_name = "PATH", env = "OCTAVO_TLS_CERT")]
    pub tls_cert: Option<PathBuf>,

    /// The certificate's private key, in PEM
    #[arg(long, value_name = "PATH", env = "OCTAVO_TLS_KEY")]
    pub tls_key: Option<PathBuf>,

    /// Serve both without TLS: for a laptop, or behind something that does TLS
    #[arg(long, env = "OCTAVO_PLAINTEXT")]
    pub plaintext: bool,

    /// Most connections of each server; more are refused
    ///
    /// Each takes a file descriptor, so the limit of open files (ulimit -n) must be above twice this number. Each may
    /// also hold messages that came in part: 2 MiB of memory at worst.
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
    pub(super) fn check(&self) -> Result<(), Answer> {
        let (has_cert, has_key) = (self.tls_cert.is_some(), self.tls_key.is_some());
        Err(usage(match (has_cert, has_key, self.plaintext) {
            (false, false, true) | (true, true, false) => return Ok(()),
            (false, false, false) => {
                "there is no certificate: give --tls-cert and --tls-key, or say --plaintext to serve without TLS"
            }
            (true, false, false) => "--tls-cert needs --tls-key",
            (false, true, false) => "--tls-key needs --tls-cert",
            (_, _, true) => "--plaintext cannot be used with --tls-cert or --tls-key",
        }))
    }
}

/// Parses a host name; rejects names that can match no request.
fn host_name(name: &str) -> Result<String, HostNameError> {
    if name.is_empty() {
        return Err(HostNameError::Empty);
    }
    if name.contains(['/', ':']) || name.contains(char::is_whitespace) {
        return Err(HostNameError::NotAlone);
    }
    if name.ends_with('.') {
        return Err(HostNameError::TrailingDot);
    }
    Ok(name.to_owned())
}
