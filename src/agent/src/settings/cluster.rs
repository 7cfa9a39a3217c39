//! Settings of the Kubernetes Node of the agent's machine.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use octavo_model::id::NodeName;
use octavo_node::node_object::Compat;
use octavo_node::node_object::drain::{Policy, Scope};
use octavo_settings::duration::DurationError;
use octavo_settings::kubernetes::KubernetesSettings;
use octavo_settings::{EarlyExit, duration};
use octavo_toolkit::choice::choice;
use thiserror::Error;

use super::{LabelSink, usage};

/// Default time limit of a drain.
pub(crate) const DEFAULT_DRAIN_TIMEOUT: Duration = Duration::from_mins(10);
/// Minimum time limit: less is too short for a pod to terminate.
const MIN_DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// The pods to evict, if any. The derive macro would take `Option` for an optional flag.
type MaybeScope = Option<Scope>;

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Kubernetes")]
pub(super) struct ClusterArgs {
    #[command(flatten)]
    kubernetes: KubernetesSettings,

    /// Read the layout from a label of this machine's Node, and report progress in an annotation and in events
    ///
    /// The label octavo.dev/layout names the layout and overrides --layout. Implied by --label-sink node.
    #[arg(long, env = "OCTAVO_FOLLOW_NODE")]
    follow_node: bool,

    /// Support the labels of another program, which this agent replaces; needs --follow-node or --label-sink node
    #[arg(
        long,
        value_name = "PROGRAM",
        env = "OCTAVO_COMPAT",
        value_parser = choice(&[("mig-manager", "NVIDIA's MIG manager: read the layout from nvidia.com/mig.config, report in \
             nvidia.com/mig.config.state, and pause blocking GPU Operator operands", Compat::MigManager)])
    )]
    compat: Option<Compat>,

    /// Taint the Node with octavo.dev/not-ready:NoSchedule until the layout is applied
    #[arg(long, env = "OCTAVO_TAINT_NOT_READY")]
    taint_not_ready: bool,

    /// Evict pods that block a layout; needs --follow-node or --label-sink node
    ///
    /// The annotation octavo.dev/drain of the Node overrides it, for example affected,10m. Respects PodDisruptionBudgets. Never evicts critical pods, static pods, DaemonSet pods or pods without a
    /// controller. Meanwhile, the Node has the taint octavo.dev/repartitioning:NoSchedule.
    #[arg(
        long,
        value_name = "SCOPE",
        default_value = "never",
        env = "OCTAVO_DRAIN",
        value_parser = choice(&[
            ("never", "Evict no pods; wait for them", None),
            ("affected", "Evict only the blocking pods", Some(Scope::Affected)),
            ("node", "If any pod blocks a layout, evict all evictable pods of the node", Some(Scope::Node)),
        ])
    )]
    drain: MaybeScope,

    /// Time limit for evictions per selected layout; needs --follow-node or --label-sink node [default: 10m]
    #[arg(
        long,
        value_name = "DURATION",
        env = "OCTAVO_DRAIN_DEADLINE",
        value_parser = duration::positive
    )]
    drain_deadline: Option<Duration>,

    /// Two names of the same configuration of NVIDIA's device plugin
    ///
    /// For --compat mig-manager on nodes with config-manager. After a change of partitions, the agent selects the
    /// other name, so that the plugin rescans devices without a restart of its pod.
    #[arg(
        long,
        value_name = "NAME,NAME",
        env = "OCTAVO_DEVICE_PLUGIN_CONFIGS",
        value_delimiter = ',',
        num_args = 1
    )]
    device_plugin_configs: Vec<String>,

    /// Remove everything that the agent wrote to the cluster or the feature file, and do nothing else
    ///
    /// Needs the same --label-sink and credentials as the agent. Resumes paused operands and keeps partitions. With
    /// =stay, the program reports ready (/readyz) and keeps running, for pods that would otherwise be restarted.
    #[arg(
        long,
        conflicts_with = "oneshot",
        value_name = "ACTION",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "end"
    )]
    pub(super) cleanup: Option<Cleanup>,
}

/// Action of an agent after a cleanup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Cleanup {
    /// Exit
    End,
    /// Keep running and report ready
    Stay,
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

/// Reason why an annotation `octavo.dev/drain` is invalid.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DrainAnnotationError {
    /// The scope is unknown.
    #[error("{0:?} is not one of never, affected and node")]
    Scope(String),
    /// The time limit cannot be parsed.
    #[error("invalid time limit")]
    Timeout(#[source] DurationError),
    /// The time limit is too short.
    #[error("the time limit must be at least 1s")]
    TooShort,
}

/// Parses the annotation `octavo.dev/drain`: a scope as in `--drain`, and optionally a time limit as in `--drain-deadline`, such as
/// `affected,10m`. `None` evicts no pod.
pub(crate) fn parse_drain(text: &str) -> Result<Option<Policy>, DrainAnnotationError> {
    let (scope, timeout) = match text.split_once(',') {
        Some((scope, timeout)) => (scope, Some(timeout)),
        None => (text, None),
    };
    let deadline = timeout.map(duration::positive).transpose();
    let deadline = deadline.map_err(DrainAnnotationError::Timeout)?;
    let deadline = deadline.unwrap_or(DEFAULT_DRAIN_TIMEOUT);
    if deadline < MIN_DRAIN_TIMEOUT {
        return Err(DrainAnnotationError::TooShort);
    }
    if scope == "never" {
        return Ok(None);
    }
    let unknown = |_| DrainAnnotationError::Scope(scope.to_owned());
    scope.parse().map(|scope| Some(Policy { scope, deadline })).map_err(unknown)
}

impl ClusterArgs {
    /// Resolves the settings; `None` if no API server is contacted.
    pub(super) fn resolve(
        self,
        sink: LabelSink,
        publishes_slices: bool,
        node: impl FnOnce() -> Result<NodeName, EarlyExit>,
    ) -> Result<Option<ClusterSettings>, EarlyExit> {
        let follows = self.follow_node || sink == LabelSink::Node;
        if !follows {
            let without = |is_set: bool, name: &str| {
                let message = format!("{name} needs --follow-node or --label-sink node");
                if is_set { Err(usage(&message)) } else { Ok(()) }
            };
            without(self.compat.is_some(), "--compat")?;
            without(self.taint_not_ready, "--taint-not-ready")?;
            without(self.drain.is_some(), "--drain")?;
            without(self.drain_deadline.is_some(), "--drain-deadline")?;
        }
        let drain = self.policy()?;
        let plugin_configs = self.plugin_configs()?;
        if !follows && !publishes_slices && sink != LabelSink::NodeFeature {
            return Ok(None);
        }
        Ok(Some(ClusterSettings {
            kubeconfig: self.kubernetes.kubeconfig,
            node: node()?,
            watches_node: follows,
            writes_node_feature: sink == LabelSink::NodeFeature,
            compat: self.compat.unwrap_or_default(),
            taint: self.taint_not_ready,
            drain,
            plugin_configs,
        }))
    }

    fn policy(&self) -> Result<Option<Policy>, EarlyExit> {
        let deadline = self.drain_deadline.unwrap_or(DEFAULT_DRAIN_TIMEOUT);
        if deadline < MIN_DRAIN_TIMEOUT {
            return Err(usage("--drain-deadline must be at least 1s"));
        }
        Ok(self.drain.map(|scope| Policy { scope, deadline }))
    }

    fn plugin_configs(&self) -> Result<Option<(String, String)>, EarlyExit> {
        match self.device_plugin_configs.as_slice() {
            [] => Ok(None),
            _ if self.compat.is_none() => {
                Err(usage("--device-plugin-configs needs --compat mig-manager"))
            }
            [one, other] if one != other && !one.is_empty() && !other.is_empty() => {
                Ok(Some((one.clone(), other.clone())))
            }
            _ => Err(usage("--device-plugin-configs needs two different names, such as a,b")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i12_drain_annotation_has_the_words_of_the_flags() {
        let of =
            |scope, minutes| Ok(Some(Policy { scope, deadline: Duration::from_mins(minutes) }));
        assert_eq!(parse_drain("affected,1h30m"), of(Scope::Affected, 90));
        assert_eq!(parse_drain("node"), of(Scope::Node, 10));
        assert_eq!(parse_drain("never,10m"), Ok(None));
        for (text, expected) in [
            ("", DrainAnnotationError::Scope(String::new())),
            ("Node,10m", DrainAnnotationError::Scope("Node".to_owned())),
            ("node,10", DrainAnnotationError::Timeout(DurationError::Malformed)),
            ("never,-1s", DrainAnnotationError::Timeout(DurationError::Negative)),
            ("node,10ms", DrainAnnotationError::TooShort),
        ] {
            assert_eq!(parse_drain(text), Err(expected), "{text}");
        }
    }
}
