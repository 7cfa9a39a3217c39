//! Settings of watching the cluster's nodes and pods, and of creating hardware profiles there.

use std::path::PathBuf;

use super::{HttpAuth, ServingSettings, usage};
use crate::Answer;

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Kubernetes")]
pub(super) struct ClusterArgs {
    /// Follow the cluster's nodes and pods, to say what of a device is free and who waits for it
    ///
    /// The account needs the right to list and watch both, and nothing else. Without this nothing is asked, and only what agents
    /// say is told.
    #[arg(long, env = "OCTAVO_FOLLOW_CLUSTER")]
    follow_cluster: bool,

    /// Make hardware profiles for people who may make them by the cluster's roles, with --follow-cluster
    ///
    /// The account needs the right to get, create and patch them. Without this pages and API show what would be made and the command
    /// that makes it, and change nothing.
    #[arg(long, env = "OCTAVO_CREATE_PROFILES")]
    create_profiles: bool,
}

/// The watched cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterSettings {
    /// Its kubeconfig; `None` for the cluster of this pod.
    pub kubeconfig: Option<PathBuf>,
    /// Whether hardware profiles are created there.
    pub create_profiles: bool,
}

impl ClusterArgs {
    /// Resolves the settings; `None` if no cluster is watched. `kubeconfig` selects the cluster.
    pub(super) fn resolve(
        &self,
        kubeconfig: Option<PathBuf>,
        (auth, serving): (&HttpAuth, &ServingSettings),
    ) -> Result<Option<ClusterSettings>, Answer> {
        if self.create_profiles && !self.follow_cluster {
            return Err(usage(
                "--create-profiles needs --follow-cluster: a profile is made of what the cluster's nodes have",
            ));
        }
        let listen = serving.http_listen();
        if self.create_profiles && *auth == HttpAuth::None && !listen.ip().is_loopback() {
            return Err(usage(&format!(
                "--create-profiles with --http-auth none: whoever reaches {listen} could make hardware profiles. Ask who they are with \
                 --http-auth token-review or proxy-header, or listen for this machine alone: --http-listen 127.0.0.1:8443"
            )));
        }
        Ok(self.follow_cluster.then_some(ClusterSettings {
            kubeconfig,
            create_profiles: self.create_profiles,
        }))
    }
}
