//! Why the aggregator could not start.

use std::io;
use std::net::SocketAddr;

use thiserror::Error;

use crate::aggregator::engine::EngineSetupError;
use crate::aggregator::tls::TlsError;
use crate::book::BookError;
use crate::book::prices::PricesError;
use crate::book::profiles::ProfilesError;
use crate::k8s::client::ConnectError;

/// Why it could not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// An address is not to be had.
    #[error("cannot listen for {whom} on {address}")]
    Listen {
        /// Who would connect there.
        whom: &'static str,
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The certificate cannot be used.
    #[error("no certificate to serve with")]
    Tls(#[from] TlsError),
    /// The layouts cannot be used.
    #[error("there are no layouts to plan for")]
    Layouts(#[from] BookError),
    /// The prices cannot be used.
    #[error("there are no prices to reckon with")]
    Prices(#[from] PricesError),
    /// The engine cannot be asked.
    #[error("nobody to ask for estimates")]
    Engine(#[from] EngineSetupError),
    /// Nobody could be asked about agents' tokens.
    #[error("no API server to review agents' tokens")]
    Auth(#[from] ConnectError),
    /// Nobody could be asked for the cluster's nodes and pods.
    #[error("no API server whose cluster could be followed")]
    Cluster(#[source] ConnectError),
    /// The file of hardware profiles cannot be used.
    #[error("there are no hardware profiles")]
    Profiles(#[from] ProfilesError),
    /// Nobody could be asked about readers.
    #[error("no API server to say who may read over HTTP")]
    HttpAuth(#[source] ConnectError),
    /// Nobody could be asked to keep the plugin's `ConfigMap`.
    #[error("no API server for the ConfigMap of NVIDIA's device plugin")]
    PluginConfigs(#[source] ConnectError),
    /// Nobody could be asked for the pods that are to be annotated.
    #[error("no API server for the pods that are to be annotated")]
    PodTypes(#[source] ConnectError),
    /// The machine gave no thread.
    #[error("cannot start the thread {name}")]
    Thread {
        /// Its name.
        name: &'static str,
        /// Why.
        source: io::Error,
    },
}
