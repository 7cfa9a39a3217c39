//! Whether the aggregator follows the cluster's nodes and pods.

use std::path::PathBuf;

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Kubernetes")]
pub(super) struct ClusterArgs {
    /// Follow the cluster's nodes and pods, to say what of a device is free and who waits for it
    ///
    /// The account needs the right to list and watch both, and nothing else. Without this nothing is asked, and only what agents
    /// say is told.
    #[arg(long, env = "OCTAVO_FOLLOW_CLUSTER", hide_env_values = true)]
    follow_cluster: bool,
}

/// Which cluster is followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterSettings {
    /// Its kubeconfig; where there is none it is the cluster of this pod.
    pub kubeconfig: Option<PathBuf>,
}

impl ClusterArgs {
    /// `kubeconfig` is the cluster that is asked; `None` where none is followed.
    pub(super) fn resolve(&self, kubeconfig: Option<PathBuf>) -> Option<ClusterSettings> {
        self.follow_cluster
            .then_some(ClusterSettings { kubeconfig })
    }
}
