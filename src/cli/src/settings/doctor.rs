//! Settings of `octavo doctor`.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use super::args::SourceArgs;
use super::{Input, Source};

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
const FEATURE_FILE: &str = "/etc/kubernetes/node-feature-discovery/features.d/octavo";

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

/// Raw arguments.
#[derive(Debug, Args)]
pub(super) struct DoctorArgs {
    /// How to print it
    #[arg(
        short,
        long,
        value_enum,
        value_name = "FORMAT",
        default_value = "table"
    )]
    output: DoctorFormat,

    /// Labels to hold against the hardware; - for standard input
    ///
    /// A feature file of Node Feature Discovery, or a Node as kubectl prints it with -o json or yaml. Without it, the file that the agent
    /// writes with --label-sink file is read, if it is there.
    #[arg(long, value_name = "FILE")]
    labels: Option<PathBuf>,

    /// Where device files are; not used with --from
    #[arg(
        long,
        value_name = "DIR",
        env = "OCTAVO_DEV_ROOT",
        hide_env_values = true,
        default_value = "/dev"
    )]
    dev_root: PathBuf,

    /// Where the /proc of the driver's host is mounted; not used with --from
    #[arg(
        long,
        value_name = "DIR",
        env = "OCTAVO_PROC_ROOT",
        hide_env_values = true,
        default_value = "/proc"
    )]
    proc_root: PathBuf,

    /// The kubelet's folder; not used with --from
    #[arg(
        long,
        value_name = "DIR",
        env = "OCTAVO_KUBELET_ROOT",
        hide_env_values = true,
        default_value = "/var/lib/kubelet"
    )]
    kubelet_root: PathBuf,

    /// Where the agent's socket, journal and history are; not used with --from
    #[arg(
        long,
        value_name = "DIR",
        env = "OCTAVO_STATE_DIR",
        hide_env_values = true,
        default_value = "/var/lib/octavo"
    )]
    state_dir: PathBuf,

    /// Where kernel modules are, a folder for each kernel; not used with --from
    #[arg(
        long,
        value_name = "DIR",
        env = "OCTAVO_MODULES_ROOT",
        hide_env_values = true,
        default_value = "/lib/modules"
    )]
    modules_root: PathBuf,

    /// What kubelet says to every container: not for people
    #[arg(long, env = "KUBERNETES_SERVICE_HOST", hide = true)]
    kubernetes_service_host: Option<String>,

    #[command(flatten)]
    source: SourceArgs,
}

/// Settings of `octavo doctor`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DoctorSettings {
    source: Source,
    catalog: Option<Input>,
    format: DoctorFormat,
    labels: Option<Input>,
    dev_root: PathBuf,
    proc_root: PathBuf,
    kubelet_root: PathBuf,
    state_dir: PathBuf,
    modules_root: PathBuf,
    in_pod: bool,
}

impl DoctorSettings {
    /// Returns the source of the inventory.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Returns the administrator's catalog.
    pub fn catalog(&self) -> Option<&Input> {
        self.catalog.as_ref()
    }

    /// Returns the output format.
    pub fn format(&self) -> DoctorFormat {
        self.format
    }

    /// Returns the explicitly specified labels.
    pub fn labels(&self) -> Option<&Input> {
        self.labels.as_ref()
    }

    /// Returns the labels that are compared with the hardware by default.
    pub fn feature_file() -> &'static Path {
        Path::new(FEATURE_FILE)
    }

    /// Returns the directory of device files; `None` if it is this pod's own, which does not show the node's.
    pub fn dev_root(&self) -> Option<&Path> {
        let is_own = self.in_pod && self.dev_root == Path::new("/dev");
        (!is_own).then_some(self.dev_root.as_path())
    }

    /// Returns the process file system.
    pub fn proc_root(&self) -> &Path {
        &self.proc_root
    }

    /// Returns kubelet's directory.
    pub fn kubelet_root(&self) -> &Path {
        &self.kubelet_root
    }

    /// Returns the agent's state directory.
    pub fn state_dir(&self) -> &Path {
        &self.state_dir
    }

    /// Returns the directory of kernel modules, with a subdirectory for each kernel.
    pub fn modules_root(&self) -> &Path {
        &self.modules_root
    }

    /// Returns whether this runs in a pod, where the node's directories are visible only if they are mounted.
    pub fn in_pod(&self) -> bool {
        self.in_pod
    }
}

impl DoctorArgs {
    pub(super) fn resolve(self) -> Result<DoctorSettings, &'static str> {
        let catalog = self.source.catalog();
        let source = Source::from(self.source);
        let labels = self.labels.map(Input::from);
        if source == Source::Recording(Input::Stdin) && labels == Some(Input::Stdin) {
            return Err("only one of --from and --labels can read standard input");
        }
        Ok(DoctorSettings {
            source,
            catalog,
            format: self.output,
            labels,
            dev_root: self.dev_root,
            proc_root: self.proc_root,
            kubelet_root: self.kubelet_root,
            state_dir: self.state_dir,
            modules_root: self.modules_root,
            in_pod: self.kubernetes_service_host.is_some(),
        })
    }
}
