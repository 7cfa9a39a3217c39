//! Settings of the Kubernetes Node of the agent's machine.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use octavo_model::id::NodeName;
use octavo_node::node::Compat;
use octavo_node::node::drain::{Policy, Scope};
use octavo_settings::kubernetes::KubernetesSettings;
use octavo_settings::{Answer, duration};

use super::{LabelSink, usage};

/// Default time limit of a drain.
const DEFAULT_DRAIN_TIMEOUT: Duration = Duration::from_mins(10);
/// Minimum time limit: less is too short for a pod to terminate.
const MIN_DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Kubernetes")]
pub(super) struct ClusterArgs {
    #[command(flatten)]
    kubernetes: KubernetesSettings,

    /// Take the layout from the labels of this machine's Node, and say in its annotation and events how far it is
    ///
    /// The label octavo.dev/layout names a layout and goes before --layout. On by itself with --label-sink node.
    #[arg(long, env = "OCTAVO_FOLLOW_NODE")]
    follow_node: bool,

    /// Honour the labels of another program in its place; needs --follow-node or --label-sink node
    #[arg(long, value_name = "PROGRAM", env = "OCTAVO_COMPAT")]
    compat: Option<CompatArg>,

    /// Keep pods away with the taint octavo.dev/not-ready:NoSchedule until the layout is in force
    #[arg(long, env = "OCTAVO_TAINT_NOT_READY")]
    taint_not_ready: bool,

    /// Evict pods that are in the way of a layout; needs --follow-node or --label-sink node
    ///
    /// Disruption budgets are respected. Pods that are critical, static, of a daemon set or of no controller are left.
    /// While it lasts the Node has the taint octavo.dev/repartitioning:NoSchedule.
    #[arg(
        long,
        value_name = "PODS",
        default_value = "never",
        env = "OCTAVO_DRAIN"
    )]
    drain: DrainArg,

    /// For how long pods may be evicted for one choice of a layout; needs --follow-node or --label-sink node [default: 10m]
    #[arg(
        long,
        value_name = "DURATION",
        env = "OCTAVO_DRAIN_DEADLINE",
        value_parser = duration::positive
    )]
    drain_deadline: Option<Duration>,

    /// Two names of one configuration of NVIDIA's device plugin
    ///
    /// With --compat mig-manager: where config-manager runs, it is given the other one of them after partitions have changed, so
    /// that the plugin looks again without its pod being stopped.
    #[arg(
        long,
        value_name = "NAME,NAME",
        env = "OCTAVO_DEVICE_PLUGIN_CONFIGS",
        value_delimiter = ',',
        num_args = 1
    )]
    device_plugin_configs: Vec<String>,

    /// Take away all that an agent has written to the cluster or the feature file, and do nothing else
    ///
    /// With the same --label-sink and credentials as the agent's. What was paused runs again; partitions stay. With =stay it does
    /// not end, but is ready (/readyz) from then on: for pods that would be started again.
    #[arg(
        long,
        conflicts_with = "oneshot",
        value_name = "THEN",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "end"
    )]
    pub(super) cleanup: Option<Cleanup>,
}

/// What an agent does when it has taken away what was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Cleanup {
    /// It ends.
    End,
    /// It stays, does nothing and says that it is ready.
    Stay,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum CompatArg {
    /// NVIDIA's: nvidia.com/mig.config is a layout, nvidia.com/mig.config.state is answered, GPU Operator's operands are paused
    /// where they are in the way
    MigManager,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DrainArg {
    /// None: they are waited for
    Never,
    /// Those that are in the way
    Affected,
    /// Where some are in the way, all of the node that may be evicted
    Node,
}

/// Settings of the agent's Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterSettings {
    /// The kubeconfig, for use outside a pod.
    pub kubeconfig: Option<PathBuf>,
    /// Name of this machine's Node.
    pub node: NodeName,
    /// Whether the Node is watched and written.
    pub watches_node: bool,
    /// Whether labels are written to the node's NodeFeature.
    pub writes_node_feature: bool,
    /// The other program whose labels are honored.
    pub compat: Compat,
    /// Whether a taint keeps pods away until the layout is applied.
    pub taint: bool,
    /// Which blocking pods are evicted; `None` if none ever is.
    pub drain: Option<Policy>,
    /// Two names of one configuration of NVIDIA's device plugin.
    pub plugin_configs: Option<(String, String)>,
}

impl ClusterArgs {
    /// Resolves the settings; `None` if no API server is contacted.
    pub(super) fn resolve(
        self,
        sink: LabelSink,
        node: impl FnOnce() -> Result<NodeName, Answer>,
    ) -> Result<Option<ClusterSettings>, Answer> {
        let follows = self.follow_node || sink == LabelSink::Node;
        if !follows {
            let without = |given: bool, name: &str| {
                let message = format!("{name} needs --follow-node or --label-sink node");
                if given { Err(usage(&message)) } else { Ok(()) }
            };
            without(self.compat.is_some(), "--compat")?;
            without(self.taint_not_ready, "--taint-not-ready")?;
            without(self.drain != DrainArg::Never, "--drain")?;
            without(self.drain_deadline.is_some(), "--drain-deadline")?;
        }
        let drain = self.policy()?;
        let plugin_configs = self.plugin_configs()?;
        if !follows && sink != LabelSink::NodeFeature {
            return Ok(None);
        }
        Ok(Some(ClusterSettings {
            kubeconfig: self.kubernetes.kubeconfig,
            node: node()?,
            watches_node: follows,
            writes_node_feature: sink == LabelSink::NodeFeature,
            compat: match self.compat {
                Some(CompatArg::MigManager) => Compat::MigManager,
                None => Compat::None,
            },
            taint: self.taint_not_ready,
            drain,
            plugin_configs,
        }))
    }

    fn policy(&self) -> Result<Option<Policy>, Answer> {
        let deadline = self.drain_deadline.unwrap_or(DEFAULT_DRAIN_TIMEOUT);
        if deadline < MIN_DRAIN_TIMEOUT {
            return Err(usage("--drain-deadline: at least a second is needed"));
        }
        let scope = match self.drain {
            DrainArg::Never => None,
            DrainArg::Affected => Some(Scope::Affected),
            DrainArg::Node => Some(Scope::Node),
        };
        Ok(scope.map(|scope| Policy { scope, deadline }))
    }

    fn plugin_configs(&self) -> Result<Option<(String, String)>, Answer> {
        match self.device_plugin_configs.as_slice() {
            [] => Ok(None),
            _ if self.compat.is_none() => {
                Err(usage("--device-plugin-configs needs --compat mig-manager"))
            }
            [one, other] if one != other && !one.is_empty() && !other.is_empty() => {
                Ok(Some((one.clone(), other.clone())))
            }
            _ => Err(usage(
                "--device-plugin-configs: two names that differ are needed, such as a,b",
            )),
        }
    }
}
