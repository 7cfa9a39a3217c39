//! Addresses and transport of the aggregator's servers.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::value_parser;
use thiserror::Error;

use super::{count, usage};
use crate::Answer;

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

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Serving")]
pub(super) struct ServingArgs {
    /// Where agents connect, and programs that watch the fleet; port 0 takes any free one
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "OCTAVO_GRPC_LISTEN",
        default_value = "0.0.0.0:7443"
    )]
    grpc_listen: SocketAddr,

    /// Where pages, REST and metrics are served; port 0 takes any free one
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "OCTAVO_HTTP_LISTEN",
        default_value = "0.0.0.0:8443"
    )]
    http_listen: SocketAddr,

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
    http_hosts: Vec<String>,

    /// The certificate of both servers, with its chain, in PEM
    ///
    /// It is read again when it or the key has changed. A pair that cannot be used leaves the one before in use.
    #[arg(long, value_name = "PATH", env = "OCTAVO_TLS_CERT")]
    tls_cert: Option<PathBuf>,

    /// The certificate's private key, in PEM
    #[arg(long, value_name = "PATH", env = "OCTAVO_TLS_KEY")]
    tls_key: Option<PathBuf>,

    /// Serve both without TLS: for a laptop, or behind something that does TLS
    #[arg(long, env = "OCTAVO_PLAINTEXT")]
    plaintext: bool,

    /// Most connections of each server; more are refused
    ///
    /// Each takes a file descriptor, so the limit of open files (ulimit -n) must be above twice this number. Each may
    /// also hold messages that came in part: 2 MiB of memory at worst.
    #[arg(
        long,
        value_name = "COUNT",
        env = "OCTAVO_MAX_CONNECTIONS",
        default_value_t = 20_000,
        value_parser = value_parser!(u32).range(1..=1_000_000)
    )]
    max_connections: u32,
}

/// Addresses and transport of the servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServingSettings {
    grpc_listen: SocketAddr,
    http_listen: SocketAddr,
    http_hosts: Vec<String>,
    transport: Transport,
    max_connections: usize,
}

/// Transport of the connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transport {
    /// Plain TCP.
    Plaintext,
    /// TLS with this certificate.
    Tls(TlsFiles),
}

/// Paths of a certificate and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    certificate: PathBuf,
    key: PathBuf,
}

impl ServingArgs {
    pub(super) fn resolve(self) -> Result<ServingSettings, Answer> {
        let usage = |message| Err(usage(message));
        let transport = match (self.tls_cert, self.tls_key, self.plaintext) {
            (None, None, true) => Transport::Plaintext,
            (Some(certificate), Some(key), false) => Transport::Tls(TlsFiles { certificate, key }),
            (None, None, false) => {
                return usage(
                    "there is no certificate: give --tls-cert and --tls-key, or say --plaintext to serve without TLS",
                );
            }
            (Some(_), None, false) => return usage("--tls-cert needs --tls-key"),
            (None, Some(_), false) => return usage("--tls-key needs --tls-cert"),
            (_, _, true) => {
                return usage("--plaintext cannot be used with --tls-cert or --tls-key");
            }
        };
        Ok(ServingSettings {
            grpc_listen: self.grpc_listen,
            http_listen: self.http_listen,
            http_hosts: self.http_hosts,
            transport,
            max_connections: count(self.max_connections),
        })
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

impl ServingSettings {
    /// Returns the address for agents.
    pub fn grpc_listen(&self) -> SocketAddr {
        self.grpc_listen
    }

    /// Returns the address for users and programs.
    pub fn http_listen(&self) -> SocketAddr {
        self.http_listen
    }

    /// Returns the names by which HTTP clients reach the server, besides this machine's own.
    pub fn http_hosts(&self) -> &[String] {
        &self.http_hosts
    }

    /// Returns the transport of the connections.
    pub fn transport(&self) -> &Transport {
        &self.transport
    }

    /// Returns the maximum number of connections per server.
    pub fn max_connections(&self) -> usize {
        self.max_connections
    }
}

impl TlsFiles {
    /// Creates the paths of a certificate chain and its key, both in PEM.
    pub fn new(certificate: PathBuf, key: PathBuf) -> Self {
        Self { certificate, key }
    }

    /// Returns the certificate's path, with its chain.
    pub fn certificate(&self) -> &Path {
        &self.certificate
    }

    /// Returns the key's path.
    pub fn key(&self) -> &Path {
        &self.key
    }
}
