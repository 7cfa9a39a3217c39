//! Settings of resource claims.

use std::path::PathBuf;

use octavo_dra::claims::ReleasePolicy;
use octavo_toolkit::choice::choice;

/// Settings of resource claims, which are served with `--dra`.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Sharing")]
pub struct DraSettings {
    /// Treatment of a partition that was created for a resource claim, after the claim; for --dra
    #[arg(
        long = "dra-release",
        value_name = "POLICY",
        env = "OCTAVO_DRA_RELEASE",
        default_value = "destroy",
        value_parser = choice(&[
            ("destroy", "Destroy it as soon as it is idle", ReleasePolicy::Destroy),
            ("keep", "Keep it until another claim needs its slices or engines", ReleasePolicy::Keep),
        ])
    )]
    pub release: ReleasePolicy,

    /// Directory of the kubelet, in which it looks for plugins; for --dra
    #[arg(
        long,
        value_name = "DIR",
        env = "OCTAVO_KUBELET_DIR",
        default_value = "/var/lib/kubelet"
    )]
    pub kubelet_dir: PathBuf,
}
