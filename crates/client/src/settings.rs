//! Settings of the connection to the aggregator: the common flags of all commands about the fleet.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use octavo_kube::client::ClusterSelection;
use octavo_settings::duration;
use octavo_settings::server_url::ServerUrl;

/// Settings of the connection to the aggregator.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Aggregator")]
pub struct ServerSettings {
    /// URL of the aggregator, instead of the aggregator of the kubeconfig's cluster
    ///
    /// With https://, the certificate is verified. With http://, the connection is not encrypted. The default scheme
    /// is https://.
    #[arg(long, value_name = "URL", env = "OCTAVO_SERVER")]
    pub server: Option<ServerUrl>,

    /// Kubeconfig of the cluster with the aggregator [default: KUBECONFIG, ~/.kube/config, or the pod's account]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig [default: the current context]
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,

    /// Namespace of the aggregator [default: any namespace, if only one has an aggregator]
    ///
    /// If the aggregator requires a token, the token of the kubeconfig is sent only to this namespace or to
    /// octavo-system.
    #[arg(long, value_name = "NAMESPACE", env = "OCTAVO_NAMESPACE")]
    pub octavo_namespace: Option<String>,

    /// CA certificates (PEM) to verify the aggregator with, instead of the CA that the cluster publishes or, with
    /// --server, the system's
    #[arg(long, visible_alias = "ca", value_name = "FILE", env = "OCTAVO_CA")]
    pub certificate_authority: Option<PathBuf>,

    /// Name to verify in the aggregator's certificate, instead of the host name
    #[arg(long, value_name = "NAME", env = "OCTAVO_TLS_SERVER_NAME")]
    pub tls_server_name: Option<String>,

    /// File with the bearer token, for aggregators that require authentication
    ///
    /// For example, a token from `kubectl create token`. The file is read for each request. The token is sent only
    /// over TLS or to this machine.
    #[arg(long, value_name = "FILE", env = "OCTAVO_TOKEN_FILE")]
    pub token_file: Option<PathBuf>,

    /// Timeout of one request
    #[arg(
        long,
        value_name = "DURATION",
        env = "OCTAVO_TIMEOUT",
        default_value = "10s",
        value_parser = duration::positive
    )]
    pub timeout: Duration,
}

impl ServerSettings {
    /// Creates settings for an aggregator without TLS at `server`, for a program that has just started it.
    pub fn plaintext(server: ServerUrl, timeout: Duration) -> Self {
        Self {
            server: Some(server),
            kubeconfig: None,
            context: None,
            octavo_namespace: None,
            certificate_authority: None,
            tls_server_name: None,
            token_file: None,
            timeout,
        }
    }

    /// Returns where the aggregator is, for the title of a table: its URL, or the context of the kubeconfig.
    pub fn place(&self) -> String {
        match (&self.server, &self.context) {
            (Some(server), _) => server.to_string(),
            (None, Some(context)) => format!("context {context}"),
            (None, None) => "current context".to_owned(),
        }
    }

    /// Returns the cluster of the aggregator: none if the aggregator is specified by its URL only, because the current
    /// context may be of another cluster.
    pub fn aggregator_cluster(&self) -> Option<ClusterSelection> {
        let is_named = self.kubeconfig.is_some() || self.context.is_some();
        (self.server.is_none() || is_named).then(|| self.cluster())
    }

    /// Returns the cluster and the user that kubectl would select.
    pub fn cluster(&self) -> ClusterSelection {
        ClusterSelection { kubeconfig: self.kubeconfig.clone(), context: self.context.clone() }
    }
}
