//! The servers' certificate: read from files, and read again when they change.
//!
//! Whoever renews a certificate replaces its files, at a time of their own and not both at once. So the files are looked
//! at when a connection comes, and what cannot be used (a key that does not belong to the certificate yet, half a file)
//! leaves the pair before in use.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem};
use rustls::server::NoServerSessionStorage;
use rustls::{ServerConfig, version};
use thiserror::Error;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tracing::{info, warn};

use super::stats::Stats;
use crate::book::Stamp;
use crate::config::aggregator::TlsFiles;
use crate::domain::error::chain;
use crate::files;

/// The certificate of one server.
#[derive(Debug)]
pub struct Tls {
    files: TlsFiles,
    protocols: Vec<Vec<u8>>,
    loaded: Mutex<Loaded>,
}

#[derive(Debug)]
struct Loaded {
    config: Arc<ServerConfig>,
    /// Of the files that were read last, be it in vain.
    stamps: Stamps,
    /// When they were there and could not be read, which says nothing of them: the process may have too many files open.
    unread: Option<Instant>,
}

/// Longest certificate chain or key.
const MAX_PEM_BYTES: u64 = 4 << 20;
/// Files that could not be read are read again no sooner, however many connections come.
const READ_AGAIN: Duration = Duration::from_secs(10);

/// What differs when a certificate or its key was replaced; nothing of a file that is not there.
type Stamps = [Option<Stamp>; 2];

/// Why a certificate cannot be used.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file is there and is not what it should be.
    #[error("{path} has no {wanted} in PEM")]
    Pem {
        /// Which.
        path: PathBuf,
        /// What was looked for in it.
        wanted: &'static str,
        /// What is wrong.
        source: pem::Error,
    },
    /// There is no certificate in the file.
    #[error("{0} has no certificate in PEM")]
    Empty(PathBuf),
    /// The two do not make a server.
    #[error("{certificate} and {key} cannot be used together")]
    Pair {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's.
        key: PathBuf,
        /// Why.
        source: rustls::Error,
    },
}

impl Tls {
    /// Reads the certificate of a server that speaks `protocols`, as ALPN names them, the preferred one first.
    pub fn load(files: TlsFiles, protocols: &[&[u8]]) -> Result<Self, TlsError> {
        let protocols: Vec<Vec<u8>> = protocols.iter().map(|name| name.to_vec()).collect();
        let stamps = stamps(&files);
        let config = read(&files, &protocols)?;
        let loaded = Mutex::new(Loaded {
            config,
            stamps,
            unread: None,
        });
        Ok(Self {
            files,
            protocols,
            loaded,
        })
    }

    /// Accepts with the certificate as it is in the files now, or was when they could last be used.
    pub(super) fn acceptor(&self, server: &'static str, stats: &Stats) -> TlsAcceptor {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let stamps = stamps(&self.files);
        let again = loaded.unread.is_some_and(|at| at.elapsed() >= READ_AGAIN);
        if stamps != loaded.stamps || again {
            loaded.stamps = stamps;
            loaded.unread = None;
            match read(&self.files, &self.protocols) {
                Ok(config) => {
                    loaded.config = config;
                    stats.tls_reloaded(server);
                    info!("the certificate of the {server} server was replaced");
                }
                Err(error) => {
                    loaded.unread = matches!(error, TlsError::Read { .. }).then(Instant::now);
                    stats.tls_reload_failed(server);
                    warn!(
                        "the {server} server goes on with the certificate it has: {}",
                        chain(&error)
                    );
                }
            }
        }
        TlsAcceptor::from(Arc::clone(&loaded.config))
    }
}

fn read(files: &TlsFiles, protocols: &[Vec<u8>]) -> Result<Arc<ServerConfig>, TlsError> {
    let (certificate, key) = (files.certificate(), files.key());
    let chain: Vec<CertificateDer<'static>> =
        CertificateDer::pem_slice_iter(&content(certificate)?)
            .collect::<Result<_, _>>()
            .map_err(|source| TlsError::Pem {
                path: certificate.to_owned(),
                wanted: "certificate",
                source,
            })?;
    if chain.is_empty() {
        return Err(TlsError::Empty(certificate.to_owned()));
    }
    let secret = PrivateKeyDer::from_pem_slice(&content(key)?).map_err(|source| TlsError::Pem {
        path: key.to_owned(),
        wanted: "private key",
        source,
    })?;
    let pair = |source| TlsError::Pair {
        certificate: certificate.to_owned(),
        key: key.to_owned(),
        source,
    };
    // The provider is named, because a process in which two are linked has no default.
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(&[&version::TLS13, &version::TLS12])
        .map_err(pair)?
        .with_no_client_auth()
        .with_single_cert(chain, secret)
        .map_err(pair)?;
    config.alpn_protocols = protocols.to_vec();
    // A cache of sessions that is bounded is of no use to a fleet that reconnects as one.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

fn content(path: &Path) -> Result<Vec<u8>, TlsError> {
    files::bytes(path, MAX_PEM_BYTES).map_err(|error| TlsError::Read {
        path: path.to_owned(),
        source: error.into(),
    })
}

fn stamps(files: &TlsFiles) -> Stamps {
    [files.certificate(), files.key()].map(Stamp::of)
}
