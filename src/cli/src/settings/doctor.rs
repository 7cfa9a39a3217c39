//! Settings of `octavo doctor`.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum, ValueHint};
use octavo_client::ServerSettings;

use super::input::Input;
use super::source::SourceSettings;

/// Default path of the labels, which is the agent's default too.
pub const FEATURE_FILE: &str = "/etc/kubernetes/node-feature-discovery/features.d/octavo";

/// How findings are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DoctorFormat {
    /// Problems with evidence and remedies; other checks are counted
    Table,
    /// All findings as JSON
    Json,
    /// YAML
    Yaml,
}

/// Settings of `octavo doctor`.
#[derive(Debug, Clone, Args)]
pub struct DoctorSettings {
    /// Node of the fleet to diagnose from here, through the aggregator [default: this node]
    #[arg(value_name = "NODE", conflicts_with_all = ["from", "labels"])]
    pub node: Option<String>,

    /// Show all checks, including passed ones and ones that do not apply
    #[arg(short, long)]
    pub verbose: bool,

    /// Output format
    #[arg(short = 'o', long = "output", value_name = "FORMAT", default_value = "table")]
    pub format: DoctorFormat,

    /// Sources on this node.
    #[command(flatten)]
    pub sources: DoctorSources,

    /// Aggregator.
    #[command(flatten)]
    pub server: ServerSettings,
}

/// Sources of the checks on this node.
#[derive(Debug, Clone, Args)]
pub struct DoctorSources {
    /// Labels to compare with the hardware; - for standard input
    ///
    /// A feature file of Node Feature Discovery, or a Node printed by kubectl with -o json or -o yaml. Default: the
    /// file that the agent writes with --label-sink file, if it exists.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::AnyPath)]
    pub labels: Option<Input>,

    /// Directory of device files; ignored with --from
    #[arg(long, value_name = "DIR", env = "OCTAVO_DEV_ROOT", default_value = "/dev")]
    pub dev_root: PathBuf,

    /// Mount point of the host's procfs; ignored with --from
    #[arg(long, value_name = "DIR", env = "OCTAVO_PROC_ROOT", default_value = "/proc")]
    pub proc_root: PathBuf,

    /// Directory of the kubelet; ignored with --from
    #[arg(
        long,
        value_name = "DIR",
        env = "OCTAVO_KUBELET_ROOT",
        default_value = "/var/lib/kubelet"
    )]
    pub kubelet_root: PathBuf,

    /// Directory of the agent's socket, journal and history; ignored with --from
    #[arg(long, value_name = "DIR", env = "OCTAVO_STATE_DIR", default_value = "/var/lib/octavo")]
    pub state_dir: PathBuf,

    /// Directory of kernel modules, with one subdirectory per kernel; ignored with --from
    #[arg(long, value_name = "DIR", env = "OCTAVO_MODULES_ROOT", default_value = "/lib/modules")]
    pub modules_root: PathBuf,

    /// Set by the kubelet in every container; not for users
    #[arg(long, env = "KUBERNETES_SERVICE_HOST", hide = true)]
    pub kubernetes_service_host: Option<String>,

    /// Source of the inventory.
    #[command(flatten)]
    pub source: SourceSettings,
}

impl DoctorSources {
    pub(super) fn check(&self) -> Result<(), &'static str> {
        Input::read_once(
            self.source.from.iter().chain(&self.labels),
            "only one of --from and --labels can read standard input",
        )
    }

    /// Returns the directory of device files; `None` if it is this pod's own, which does not show the node's.
    pub fn dev_root(&self) -> Option<&Path> {
        let is_own = self.in_pod() && self.dev_root == Path::new("/dev");
        (!is_own).then_some(self.dev_root.as_path())
    }

    /// Returns whether this runs in a pod, where the node's directories are visible only if they are mounted.
    pub fn in_pod(&self) -> bool {
        self.kubernetes_service_host.is_some()
    }
}
