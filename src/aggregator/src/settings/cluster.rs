//! Settings of watching the cluster's nodes and pods, and of creating hardware profiles there.

use octavo_settings::Answer;

use super::{ServingSettings, usage};

/// Settings of the watched cluster.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Kubernetes")]
pub struct ClusterSettings {
    /// Follow the cluster's nodes and pods, to say what of a device is free and who waits for it
    ///
    /// The account needs the right to list and watch both, and nothing else. Without this nothing is asked, and only what agents
    /// say is told.
    #[arg(long, env = "OCTAVO_FOLLOW_CLUSTER")]
    pub follow_cluster: bool,

    /// Make hardware profiles for people who may make them by the cluster's roles, with --follow-cluster
    ///
    /// The account needs the right to get, create and patch them. Without this pages and API show what would be made and the command
    /// that makes it, and change nothing.
    #[arg(long, env = "OCTAVO_CREATE_PROFILES")]
    pub create_profiles: bool,
}

impl ClusterSettings {
    /// Rejects invalid combinations. `has_auth` is whether HTTP clients are authenticated.
    pub(super) fn check(&self, has_auth: bool, serving: &ServingSettings) -> Result<(), Answer> {
        if self.create_profiles && !self.follow_cluster {
            return Err(usage(
                "--create-profiles needs --follow-cluster: a profile is made of what the cluster's nodes have",
            ));
        }
        let listen = serving.http_listen;
        if self.create_profiles && !has_auth && !listen.ip().is_loopback() {
            return Err(usage(&format!(
                "--create-profiles with --http-auth none: whoever reaches {listen} could make hardware profiles. Ask who they are with \
                 --http-auth token-review or proxy-header, or listen for this machine alone: --http-listen 127.0.0.1:8443"
            )));
        }
        Ok(())
    }
}
