//! Settings of watching the cluster's nodes and pods, of creating hardware profiles there, and of several replicas.

use octavo_node::workload::PodKey;
use octavo_settings::EarlyExit;

use super::{ServingSettings, usage};

/// Settings of the watched cluster.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Kubernetes")]
pub struct ClusterSettings {
    /// Watch the nodes and pods of the cluster, to show free devices and pending pods
    ///
    /// The account needs permission to list and watch both. Without this flag, the cluster is not contacted and only
    /// the reports of agents are shown.
    #[arg(long, env = "OCTAVO_FOLLOW_CLUSTER")]
    pub follow_cluster: bool,

    /// Create hardware profiles on behalf of users whose cluster roles allow it; needs --follow-cluster
    ///
    /// The account needs permission to get, create and patch hardware profiles. Without this flag, pages and API show
    /// the profile and the command that creates it, but change nothing.
    #[arg(long, env = "OCTAVO_CREATE_PROFILES")]
    pub create_profiles: bool,

    /// Roll out the layouts, labels and taints of accelerator policies to their nodes; needs --follow-cluster
    ///
    /// The account needs permission to get and patch nodes, and to watch and patch acceleratorpolicies.octavo.dev. With several
    /// aggregators, only the holder of the Lease octavo-policies writes. Without this flag, policies have no effect.
    #[arg(long, env = "OCTAVO_POLICIES")]
    pub policies: bool,

    /// Name of this pod, if it is one of several replicas: it serves only while it is the leader
    ///
    /// The leader holds the Lease octavo-serving in --lease-namespace and labels its pod octavo.dev/role=leader, so that a Service
    /// can select it. The other replicas are standbys, which answer only probes until one of them becomes the leader. The account
    /// needs permission to list and patch pods in that namespace. A leader that loses the Lease exits with status 1.
    #[arg(long, value_name = "POD", env = "OCTAVO_LEADER_ELECTION", value_parser = pod_name)]
    pub leader_election: Option<String>,
}

impl ClusterSettings {
    /// Rejects invalid combinations. `has_auth` is whether HTTP clients are authenticated.
    pub(super) fn check(&self, has_auth: bool, serving: &ServingSettings) -> Result<(), EarlyExit> {
        if self.create_profiles && !self.follow_cluster {
            return Err(usage(
                "--create-profiles needs --follow-cluster, because profiles are derived from the \
                 nodes of the cluster",
            ));
        }
        if self.policies && !self.follow_cluster {
            return Err(usage(
                "--policies needs --follow-cluster, because policies select nodes of the cluster",
            ));
        }
        let listen = serving.http_listen;
        if self.create_profiles && !has_auth && !listen.ip().is_loopback() {
            return Err(usage(&format!(
                "--create-profiles with --http-auth none: any client that can reach {listen} \
                 could create hardware profiles. Use --http-auth token-review or proxy-header, or \
                 a loopback address: --http-listen 127.0.0.1:8443"
            )));
        }
        Ok(())
    }
}

fn pod_name(text: &str) -> Result<String, &'static str> {
    match PodKey::new("any", text) {
        Some(pod) => Ok(pod.name().to_owned()),
        None => Err("a pod name has at most 253 lower-case letters, digits, '-' and '.'"),
    }
}
