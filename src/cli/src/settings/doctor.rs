//! Settings of `octavo doctor`.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum, ValueHint};

use super::input::Input;
use super::source::SourceSettings;

pub(super) const EXAMPLES: &str = "\
Examples:
  # Why does this node have nothing to offer, and what is to be done?
  octavo doctor

  # What fails, for a script
  octavo doctor -o json | jq -r '.findings[] | select(.verdict == \"failing\") | .check + \": \" + .remedy'

  # Are the labels of the Node those of its hardware?
  kubectl get node $NODE -o json | octavo doctor --labels -

  # In the agent's pod, which sees the node's processes there
  kubectl exec -n octavo-system POD -- octavo doctor --proc-root /host/proc

  # A machine that was recorded with `octavo inspect -o json`
  octavo doctor --from node7.json

Findings stand in the order of the way from the bus to a pod: the first that fails is most often the cause of the others. Nothing is
changed, and no device is opened.

Exit codes: 0 nothing fails (warnings and what nobody tells may be there), 1 something fails, or the command did; 2 wrong usage.";

/// Default path of the labels, which is the agent's default too.
pub const FEATURE_FILE: &str = "/etc/kubernetes/node-feature-discovery/features.d/octavo";

/// How findings are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DoctorFormat {
    /// Findings with their evidence and what to do; what does not apply is only named
    Table,
    /// All findings as JSON
    Json,
    /// The same as YAML
    Yaml,
}

/// Settings of `octavo doctor`.
#[derive(Debug, Clone, Args)]
pub struct DoctorSettings {
    /// How to print it
    #[arg(
        short = 'o',
        long = "output",
        value_name = "FORMAT",
        default_value = "table"
    )]
    pub format: DoctorFormat,

    /// Labels to hold against the hardware; - for standard input
    ///
    /// A feature file of Node Feature Discovery, or a Node as kubectl prints it with -o json or yaml. Without it, the file that the agent
    /// writes with --label-sink file is read, if it is there.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::AnyPath)]
    pub labels: Option<Input>,

    /// Where device files are; not used with --from
    #[arg(
        long,
        value_name = "DIR",
        env = "OCTAVO_DEV_ROOT",
        default_value = "/dev"
    )]
    pub dev_root: PathBuf,

    /// Where the /proc of the driver's host is mounted; not used with --from
    #[arg(
        long,
        value_name = "DIR",
        env = "OCTAVO_PROC_ROOT",
        default_value = "/proc"
    )]
    pub proc_root: PathBuf,

    /// The kubelet's folder; not used with --from
    #[arg(
        long,
        value_name = "DIR",
        env = "OCTAVO_KUBELET_ROOT",
        default_value = "/var/lib/kubelet"
    )]
    pub kubelet_root: PathBuf,

    /// Where the agent's socket, journal and history are; not used with --from
    #[arg(
        long,
        value_name = "DIR",
        env = "OCTAVO_STATE_DIR",
        default_value = "/var/lib/octavo"
    )]
    pub state_dir: PathBuf,

    /// Where kernel modules are, a folder for each kernel; not used with --from
    #[arg(
        long,
        value_name = "DIR",
        env = "OCTAVO_MODULES_ROOT",
        default_value = "/lib/modules"
    )]
    pub modules_root: PathBuf,

    /// What kubelet says to every container: not for people
    #[arg(long, env = "KUBERNETES_SERVICE_HOST", hide = true)]
    pub kubernetes_service_host: Option<String>,

    /// Source of the inventory.
    #[command(flatten)]
    pub source: SourceSettings,
}

impl DoctorSettings {
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
