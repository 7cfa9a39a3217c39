//! Which Kubernetes cluster a program asks, and as whom.

use std::path::PathBuf;

use clap::Args;

/// Raw arguments.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Kubernetes")]
pub(super) struct KubernetesArgs {
    /// The cluster to ask, outside of a pod; in a pod it is the pod's, as its service account
    #[arg(
        long,
        value_name = "FILE",
        env = "OCTAVO_KUBECONFIG",
        hide_env_values = true
    )]
    pub(super) kubeconfig: Option<PathBuf>,
}
