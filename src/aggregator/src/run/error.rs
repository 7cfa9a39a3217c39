//! Errors of starting the aggregator.

use std::io;
use std::net::SocketAddr;

use octavo_files::config_files::LayoutFileError;
use octavo_files::config_files::prices::PriceFileError;
use octavo_files::config_files::profiles::HardwareProfileFileError;
use octavo_kube::client::ConnectError;
use octavo_store::engine::EngineSetupError;
use thiserror::Error;

use crate::tls::TlsError;

/// Error of starting the aggregator.
#[derive(Debug, Error)]
pub enum StartError {
    /// The address cannot be bound.
    #[error("cannot listen for {clients} on {address}")]
    Listen {
        /// Intended clients.
        clients: &'static str,
        /// The address.
        address: SocketAddr,
        /// Cause.
        source: io::Error,
    },
    /// The certificate is unusable.
    #[error("no certificate to serve with")]
    Tls(#[from] TlsError),
    /// The layouts are unusable.
    #[error("there are no layouts to plan for")]
    Layouts(#[from] LayoutFileError),
    /// The prices are unusable.
    #[error("there are no prices to reckon with")]
    Prices(#[from] PriceFileError),
    /// The client of the estimate engine cannot be created.
    #[error("nobody to ask for estimates")]
    Engine(#[from] EngineSetupError),
    /// The client for token reviews cannot be created.
    #[error("no API server to review agents' tokens")]
    Auth(#[from] ConnectError),
    /// The client for watching the cluster cannot be created.
    #[error("no API server whose cluster could be followed")]
    Cluster(#[source] ConnectError),
    /// The file of hardware profiles is unusable.
    #[error("there are no hardware profiles")]
    Profiles(#[from] HardwareProfileFileError),
    /// The client for authorizing readers cannot be created.
    #[error("no API server to say who may read over HTTP")]
    HttpAuth(#[source] ConnectError),
    /// The client for the device plugin's `ConfigMap` cannot be created.
    #[error("no API server for the ConfigMap of NVIDIA's device plugin")]
    PluginConfigs(#[source] ConnectError),
    /// The client for annotating pods cannot be created.
    #[error("no API server for the pods that are to be annotated")]
    PodTypes(#[source] ConnectError),
    /// A thread cannot be started.
    #[error("cannot start the thread {name}")]
    Thread {
        /// Name of the thread.
        name: &'static str,
        /// Cause.
        source: io::Error,
    },
}
