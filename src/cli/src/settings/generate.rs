//! Settings of `octavo generate`.

use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};
use octavo_client::ServerSettings;
use octavo_generate::argocd::ArgoCdOptions;
use octavo_generate::kueue::KueueApi;
use octavo_kube::client::ClusterSelection;
use octavo_model::id::is_label_name;
use octavo_model::text::shell_word;
use octavo_toolkit::choice::{Choice, choice};

use super::input::{Input, WantedFile};

/// Versions of Kueue's API.
const KUEUE_APIS: &[Choice<KueueApi>] = &[
    ("v1beta2", "Kueue 0.15 and later", KueueApi::V1Beta2),
    ("v1beta1", "Kueue 0.14", KueueApi::V1Beta1),
];

/// Settings of `octavo generate`'s subcommands.
#[derive(Debug, Clone, Subcommand)]
pub enum GenerateCommand {
    /// Generate flavors and queues of Kueue
    #[command(after_long_help = include_str!("../../help/generate.txt"))]
    Kueue(KueueSettings),
    /// Generate quotas and limits of namespaces
    #[command(after_long_help = include_str!("../../help/generate.txt"))]
    Quotas(QueueSettings),
    /// Generate node pools of Karpenter on AWS
    #[command(after_long_help = include_str!("../../help/generate.txt"))]
    Karpenter(KarpenterSettings),
    /// Generate machine sets and autoscalers of OpenShift on AWS
    #[command(name = "openshift", after_long_help = include_str!("../../help/generate.txt"))]
    OpenShift(OpenShiftSettings),
    /// Generate admission policies and quotas that limit namespaces to types
    #[command(after_long_help = include_str!("../../help/generate.txt"))]
    Access(AccessSettings),
    /// Generate the configuration of NVIDIA's GPU Operator from layouts
    #[command(after_long_help = include_str!("../../help/generate.txt"))]
    GpuOperator(GpuOperatorSettings),
    /// Generate an application of Argo CD for machine pools
    #[command(name = "argocd", after_long_help = include_str!("../../help/generate.txt"))]
    ArgoCd(ArgoCdSettings),
}

/// Settings of `octavo generate kueue`.
#[derive(Debug, Clone, Args)]
pub struct KueueSettings {
    /// Version of Kueue's API
    #[arg(
        long,
        value_name = "VERSION",
        default_value = "v1beta2",
        value_parser = choice(KUEUE_APIS)
    )]
    pub kueue_api: KueueApi,

    /// Type whose flavors are tried first; repeat in order of preference
    #[arg(long = "prefer", value_name = "TYPE", value_delimiter = ',')]
    pub preferred: Vec<String>,

    /// Namespaces, priorities and nodes.
    #[command(flatten)]
    pub queues: QueueSettings,
}

/// Settings of queues and quotas.
#[derive(Debug, Clone, Args)]
pub struct QueueSettings {
    /// Namespace to generate a queue or quota for; repeat for several
    #[arg(
        short,
        long = "namespace",
        value_name = "NAMESPACE",
        value_delimiter = ',',
        value_parser = object_name
    )]
    pub namespaces: Vec<String>,

    /// Names of priority classes to generate, the highest priority first
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = object_name)]
    pub priorities: Vec<String>,

    /// Nodes of the fleet.
    #[command(flatten)]
    pub fleet: FleetSettings,
}

/// Settings of `octavo generate karpenter`.
#[derive(Debug, Clone, Args)]
pub struct KarpenterSettings {
    /// Name of the EC2NodeClass with the image, network and role of new nodes
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub node_class: String,

    /// Nodes of the fleet.
    #[command(flatten)]
    pub fleet: FleetSettings,
}

/// Settings of `octavo generate openshift`.
#[derive(Debug, Clone, Args)]
pub struct OpenShiftSettings {
    /// Machine sets of the cluster, printed by `oc get machinesets -n openshift-machine-api -o yaml`; new ones get
    /// their image, network and credentials; - for standard input
    #[arg(short = 'f', long, value_name = "FILE", value_hint = ValueHint::AnyPath)]
    pub machine_sets: Input,

    /// Nodes of the fleet.
    #[command(flatten)]
    pub fleet: FleetSettings,
}

/// Settings of `octavo generate access`.
#[derive(Debug, Clone, Args)]
pub struct AccessSettings {
    /// Rules of access.
    #[command(flatten)]
    pub file: WantedFile,

    /// Namespace for the parameters of the policies
    #[arg(short, long, value_name = "NAMESPACE", default_value = "octavo-system", value_parser = object_name)]
    pub namespace: String,

    /// Files of the manifests.
    #[command(flatten)]
    pub files: FileSettings,

    /// Aggregator.
    #[command(flatten)]
    pub server: ServerSettings,
}

/// Settings of `octavo generate gpu-operator`.
#[derive(Debug, Clone, Args)]
pub struct GpuOperatorSettings {
    /// Layout file.
    #[command(flatten)]
    pub file: WantedFile,

    /// Namespace of the operator
    #[arg(short, long, value_name = "NAMESPACE", default_value = "gpu-operator", value_parser = object_name)]
    pub namespace: String,

    /// Files of the manifests.
    #[command(flatten)]
    pub files: FileSettings,

    /// Cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

/// Settings of `octavo generate argocd`.
#[derive(Debug, Clone, Args)]
pub struct ArgoCdSettings {
    /// URL of the Git repository
    #[arg(long = "repo", value_name = "URL", value_hint = ValueHint::Url)]
    pub repository: String,

    /// Directory with the manifests in the repository
    #[arg(long, value_name = "PATH")]
    pub path: String,

    /// Branch, tag or commit
    #[arg(long, value_name = "REVISION", default_value = "HEAD")]
    pub revision: String,

    /// Name of the application
    #[arg(long, value_name = "NAME", default_value = "machine-pools", value_parser = object_name)]
    pub name: String,

    /// Namespace of Argo CD; on OpenShift openshift-gitops
    #[arg(short, long, value_name = "NAMESPACE", default_value = "argocd", value_parser = object_name)]
    pub namespace: String,

    /// Files of the manifests.
    #[command(flatten)]
    pub files: FileSettings,

    /// Cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

/// Nodes of the fleet.
#[derive(Debug, Clone, Args)]
pub struct FleetSettings {
    /// Generate only for this type; repeat for several
    #[arg(long = "type", value_name = "TYPE", value_delimiter = ',')]
    pub types: Vec<String>,

    /// Files of the manifests.
    #[command(flatten)]
    pub files: FileSettings,

    /// Aggregator.
    #[command(flatten)]
    pub server: ServerSettings,
}

/// Files of the manifests.
#[derive(Debug, Clone, Args)]
pub struct FileSettings {
    /// Write one file per kind to this directory, instead of standard output
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub output_dir: Option<PathBuf>,

    /// Compare with the files of --output-dir, and write nothing
    #[arg(long, requires = "output_dir")]
    pub check: bool,

    /// Apply the manifests to the cluster of the kubeconfig by server-side apply; deletes nothing
    #[arg(long, conflicts_with_all = ["output_dir", "check"])]
    pub apply: bool,

    /// Take over fields that other clients manage
    #[arg(long, requires = "apply")]
    pub force_conflicts: bool,
}

/// Cluster to apply manifests to, for generators without an aggregator.
#[derive(Debug, Clone, Args)]
pub struct ClusterArgs {
    /// Kubeconfig of the cluster for --apply [default: KUBECONFIG, ~/.kube/config, or the pod's account]
    #[arg(long, value_name = "FILE", requires = "apply", value_hint = ValueHint::FilePath)]
    pub kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig [default: the current context]
    #[arg(long, value_name = "NAME", requires = "apply")]
    pub context: Option<String>,
}

impl ArgoCdSettings {
    /// Returns the settings for the generator.
    pub fn options(&self) -> ArgoCdOptions<'_> {
        ArgoCdOptions {
            name: &self.name,
            namespace: &self.namespace,
            repository: &self.repository,
            path: &self.path,
            revision: &self.revision,
        }
    }
}

impl GenerateCommand {
    /// Returns an error for a repeated name of a priority class.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        let names = self.queues().map(|queues| queues.priorities.as_slice()).unwrap_or_default();
        let distinct: BTreeSet<&String> = names.iter().collect();
        let is_valid = distinct.len() == names.len();
        is_valid.then_some(()).ok_or("--priorities contains the same name more than once")
    }

    fn queues(&self) -> Option<&QueueSettings> {
        match self {
            Self::Kueue(settings) => Some(&settings.queues),
            Self::Quotas(settings) => Some(settings),
            Self::Karpenter(_)
            | Self::OpenShift(_)
            | Self::Access(_)
            | Self::GpuOperator(_)
            | Self::ArgoCd(_) => None,
        }
    }

    /// Returns the files to write or compare.
    pub fn files(&self) -> &FileSettings {
        self.files_and_types().0
    }

    /// Returns the cluster to apply the manifests to.
    pub fn cluster(&self) -> ClusterSelection {
        match self {
            Self::Kueue(KueueSettings { queues: QueueSettings { fleet, .. }, .. })
            | Self::Quotas(QueueSettings { fleet, .. })
            | Self::Karpenter(KarpenterSettings { fleet, .. })
            | Self::OpenShift(OpenShiftSettings { fleet, .. }) => fleet.server.cluster(),
            Self::Access(settings) => settings.server.cluster(),
            Self::GpuOperator(GpuOperatorSettings { cluster, .. })
            | Self::ArgoCd(ArgoCdSettings { cluster, .. }) => ClusterSelection {
                kubeconfig: cluster.kubeconfig.clone(),
                context: cluster.context.clone(),
            },
        }
    }

    fn files_and_types(&self) -> (&FileSettings, &[String]) {
        match self {
            Self::Kueue(KueueSettings { queues: QueueSettings { fleet, .. }, .. })
            | Self::Quotas(QueueSettings { fleet, .. })
            | Self::Karpenter(KarpenterSettings { fleet, .. })
            | Self::OpenShift(OpenShiftSettings { fleet, .. }) => (&fleet.files, &fleet.types),
            Self::Access(settings) => (&settings.files, &[]),
            Self::GpuOperator(settings) => (&settings.files, &[]),
            Self::ArgoCd(settings) => (&settings.files, &[]),
        }
    }

    /// Returns the command line that generates the same manifests, without the aggregator and the directory.
    pub fn command_line(&self) -> String {
        let text = |text: &str| text.to_owned();
        let path = |input: &Input| input.path().display().to_string();
        let (name, mut flags) = match self {
            Self::Kueue(settings) => {
                let api = Some(settings.kueue_api).filter(|api| *api != KueueApi::V1Beta2);
                let api = api.and_then(|api| KUEUE_APIS.iter().find(|(_, _, known)| *known == api));
                let version = api.map(|(version, _, _)| text(version)).unwrap_or_default();
                ("kueue", vec![("kueue-api", version), ("prefer", settings.preferred.join(","))])
            }
            Self::Quotas(_) => ("quotas", Vec::new()),
            Self::Karpenter(settings) => {
                ("karpenter", vec![("node-class", text(&settings.node_class))])
            }
            Self::OpenShift(settings) => {
                ("openshift", vec![("machine-sets", path(&settings.machine_sets))])
            }
            Self::Access(AccessSettings { file, namespace, .. }) => {
                ("access", vec![("file", path(file.input())), ("namespace", text(namespace))])
            }
            Self::GpuOperator(GpuOperatorSettings { file, namespace, .. }) => {
                ("gpu-operator", vec![("file", path(file.input())), ("namespace", text(namespace))])
            }
            Self::ArgoCd(settings) => {
                let options = settings.options();
                let flags = [
                    ("repo", options.repository),
                    ("path", options.path),
                    ("revision", options.revision),
                    ("name", options.name),
                    ("namespace", options.namespace),
                ];
                ("argocd", flags.map(|(flag, value)| (flag, text(value))).to_vec())
            }
        };
        let queues = self.queues().into_iter();
        flags.extend(queues.flat_map(|queues| {
            [
                ("namespace", queues.namespaces.join(",")),
                ("priorities", queues.priorities.join(",")),
            ]
        }));
        flags.push(("type", self.files_and_types().1.join(",")));
        let given = flags.iter().filter(|(_, value)| !value.is_empty());
        let flags = given.map(|(flag, value)| format!(" --{flag} {}", shell_word(value)));
        format!("octavo generate {name}{}", flags.collect::<String>())
    }
}

/// Parses the name of a namespace or priority class.
fn object_name(text: &str) -> Result<String, &'static str> {
    let name = is_label_name(text).then(|| text.to_owned());
    name.ok_or(
        "use at most 63 lowercase letters, digits and '-', and a letter or digit at each end",
    )
}

#[cfg(test)]
mod tests {
    use crate::settings::{Command, Invocation, Terminal};

    #[test]
    fn command_line_repeats_what_determines_the_manifests() {
        let line = |arguments: &[&str]| {
            let program = ["octavo", "generate"].iter();
            let parsed =
                Invocation::from_arguments(program.chain(arguments), Terminal::Plain).unwrap();
            let Command::Generate(command) = parsed.command else { panic!("another command") };
            command.command_line()
        };
        assert_eq!(line(&["quotas", "--output-dir=x", "--check"]), "octavo generate quotas");
        let same = "octavo generate kueue --kueue-api v1beta1 --namespace a,b --priorities high \
                    --type 'nvidia-l4-24gb,a b'";
        let words = [
            "kueue",
            "-n",
            "a,b",
            "--priorities=high",
            "--kueue-api=v1beta1",
            "--type=nvidia-l4-24gb",
            "--type=a b",
            "--server=https://x",
        ];
        assert_eq!(line(&words), same);
        let pools = ["openshift", "-f=sets.yaml", "--type=nvidia-l4-24gb", "--server=https://x"];
        let same = "octavo generate openshift --machine-sets sets.yaml --type nvidia-l4-24gb";
        assert_eq!(line(&pools), same);
        let same = "octavo generate argocd --repo 'https://x/y' --path a --revision HEAD --name machine-pools \
                    --namespace argocd";
        assert_eq!(line(&["argocd", "--repo=https://x/y", "--path=a", "--output-dir=b"]), same);
    }

    #[test]
    fn invalid_and_repeated_names_are_rejected() {
        for (flag, expected) in [
            ("--namespace=Team_A", "'Team_A' for '--namespace <NAMESPACE>': use at most 63"),
            ("--priorities=high,a.b", "'a.b' for '--priorities <NAME>': use at most 63"),
            ("--priorities=high,low,high", "--priorities contains the same name more than once"),
        ] {
            let arguments = ["octavo", "generate", "quotas", flag];
            let error = Invocation::from_arguments(arguments, Terminal::Plain).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
}
