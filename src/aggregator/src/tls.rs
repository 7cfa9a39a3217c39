//! TLS certificate of the servers, reloaded when its files change.
//!
//! Renewal replaces the certificate and key files at any time, and not both at the same time. The files are therefore
//! checked on each connection, and an unusable pair (a key that does not match the certificate yet, a partial file)
//! leaves the previous pair in use.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use octavo_files::config_files::FileStamp;
use octavo_store::stats::Stats;
use octavo_toolkit::error::chain;
use octavo_toolkit::files;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem};
use rustls::server::NoServerSessionStorage;
use rustls::{ServerConfig, version};
use thiserror::Error;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tracing::{info, warn};

/// Paths of a certificate and its key, both in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, with its chain.
    pub certificate: PathBuf,
    /// The key.
    pub key: PathBuf,
}

/// Certificate of one server.
#[derive(Debug)]
pub struct Tls {
    files: TlsFiles,
    protocols: Vec<Vec<u8>>,
    loaded: Mutex<LoadedCertificate>,
}

#[derive(Debug)]
struct LoadedCertificate {
    config: Arc<ServerConfig>,
    /// Stamps of the files at the last attempt to read them.
    stamps: Stamps,
    /// Time at which existing files could not be read. This does not depend on their contents, for example if the
    /// process has too many open files.
    unreadable_since: Option<Instant>,
}

/// Maximum size of a certificate chain or a key.
const MAX_PEM_BYTES: u64 = 4 << 20;
/// Minimum interval between attempts to read unreadable files, at any rate of connections.
const REREAD_INTERVAL: Duration = Duration::from_secs(10);

/// Stamps of the certificate and the key; `None` for a missing file.
type Stamps = [Option<FileStamp>; 2];

/// Error of loading a certificate.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// Path.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// A file is not in the expected format.
    #[error("{path} contains no {wanted} in PEM format")]
    Pem {
        /// Path.
        path: PathBuf,
        /// Expected PEM section.
        wanted: &'static str,
        /// Cause.
        source: pem::Error,
    },
    /// The file contains no certificate.
    #[error("{0} contains no certificate in PEM format")]
    Empty(PathBuf),
    /// Certificate and key do not match.
    #[error("the certificate {certificate} and the key {key} do not match")]
    Pair {
        /// Path of the certificate.
        certificate: PathBuf,
        /// Path of the key.
        key: PathBuf,
        /// Cause.
        source: rustls::Error,
    },
}

impl Tls {
    /// Loads the certificate of a server with these ALPN `protocols`, the preferred one first.
    pub fn load(files: TlsFiles, protocols: &[&[u8]]) -> Result<Self, TlsError> {
        let protocols: Vec<Vec<u8>> = protocols.iter().map(|name| name.to_vec()).collect();
        let stamps = stamps(&files);
        let config = read(&files, &protocols)?;
        let loaded = Mutex::new(LoadedCertificate { config, stamps, unreadable_since: None });
        Ok(Self { files, protocols, loaded })
    }

    /// Returns an acceptor with the current certificate, or the previous one if the files are unusable.
    pub(super) fn acceptor(&self, server: &'static str, stats: &Stats) -> TlsAcceptor {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let stamps = stamps(&self.files);
        let again = loaded.unreadable_since.is_some_and(|at| at.elapsed() >= REREAD_INTERVAL);
        if stamps != loaded.stamps || again {
            loaded.stamps = stamps;
            loaded.unreadable_since = None;
            match read(&self.files, &self.protocols) {
                Ok(config) => {
                    loaded.config = config;
                    stats.count_tls_reload(server);
                    info!(server, "loaded the renewed certificate");
                }
                Err(error) => {
                    loaded.unreadable_since =
                        matches!(error, TlsError::Read { .. }).then(Instant::now);
                    stats.count_tls_reload_failure(server);
                    warn!(
                        server,
                        error = chain(&error),
                        "cannot load the renewed certificate; the previous one stays in use"
                    );
                }
            }
        }
        TlsAcceptor::from(Arc::clone(&loaded.config))
    }
}

fn read(files: &TlsFiles, protocols: &[Vec<u8>]) -> Result<Arc<ServerConfig>, TlsError> {
    let (certificate, key) = (&files.certificate, &files.key);
    let chain: Vec<CertificateDer<'static>> =
        CertificateDer::pem_slice_iter(&content(certificate)?).collect::<Result<_, _>>().map_err(
            |source| TlsError::Pem { path: certificate.to_owned(), wanted: "certificate", source },
        )?;
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
    // The provider is explicit, because a process with two linked providers has no default.
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(&[&version::TLS13, &version::TLS12])
        .map_err(pair)?
        .with_no_client_auth()
        .with_single_cert(chain, secret)
        .map_err(pair)?;
    config.alpn_protocols = protocols.to_vec();
    // A bounded session cache does not help when a whole fleet reconnects at the same time.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

fn content(path: &Path) -> Result<Vec<u8>, TlsError> {
    files::read_bytes(path, MAX_PEM_BYTES)
        .map_err(|error| TlsError::Read { path: path.to_owned(), source: error.into() })
}

fn stamps(files: &TlsFiles) -> Stamps {
    [&files.certificate, &files.key].map(|path| FileStamp::from_path(path))
}
