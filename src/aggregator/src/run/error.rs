//! Errors of starting and running the aggregator.

use std::io;
use std::net::SocketAddr;

use octavo_files::config_files::ConfigFileError;
use octavo_kube::client::ConnectError;
use octavo_store::estimate_engine::EngineSetupError;
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
    #[error("cannot load the TLS certificate")]
    Tls(#[from] TlsError),
    /// The prices are unusable.
    #[error("cannot load the price book")]
    Prices(#[source] ConfigFileError),
    /// The budgets are unusable.
    #[error("cannot load the budgets")]
    Budgets(#[source] ConfigFileError),
    /// The client of the estimate engine cannot be created.
    #[error("cannot create the client of the estimate engine")]
    Engine(#[from] EngineSetupError),
    /// The client for token reviews cannot be created.
    #[error("cannot connect to the API server for agent token reviews")]
    Auth(#[from] ConnectError),
    /// The client for watching the cluster cannot be created.
    #[error("cannot connect to the API server for --follow-cluster")]
    Cluster(#[source] ConnectError),
    /// The file of hardware profiles is unusable.
    #[error("cannot load the hardware profiles file")]
    Profiles(#[source] ConfigFileError),
    /// The client for authorizing readers cannot be created.
    #[error("cannot connect to the API server for --http-auth")]
    HttpAuth(#[source] ConnectError),
    /// The client for the device plugin's `ConfigMap` cannot be created.
    #[error("cannot connect to the API server for the ConfigMap of NVIDIA's device plugin")]
    PluginConfigs(#[source] ConnectError),
    /// The client for annotating pods cannot be created.
    #[error("cannot connect to the API server for --annotate-pods")]
    PodTypes(#[source] ConnectError),
    /// The client for the leader election cannot be created.
    #[error("cannot connect to the API server for --leader-election")]
    LeaderElection(#[source] ConnectError),
    /// A thread cannot be started.
    #[error("cannot start the thread {name}")]
    Thread {
        /// Name of the thread.
        name: &'static str,
        /// Cause.
        source: io::Error,
    },
}

/// Error that ends a running aggregator.
#[derive(Debug, Error)]
pub enum RunError {
    /// It cannot be started.
    #[error(transparent)]
    Start(#[from] StartError),
    /// A thread ended without being stopped.
    #[error("the thread {0} exited unexpectedly")]
    Thread(&'static str),
    /// Another replica can become the leader.
    #[error(
        "this replica is no longer the leader: it could not renew the Lease octavo-serving, or another replica has acquired it; \
         exiting so that agents and clients connect to the leader"
    )]
    LeaseLost,
    /// A task did not end within the time limit.
    #[error("not all tasks stopped in time")]
    NotStopped,
}
