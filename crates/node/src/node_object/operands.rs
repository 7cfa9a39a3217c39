//! NVIDIA GPU Operator's operands on this node: which are paused, and for how long.
//!
//! An operand runs if a label of the Node is `true`. To pause it, the agent sets the label to [`PAUSED`]. That value is
//! the only persistent state: an agent that finds it without a reason, such as after a crash or during cleanup,
//! restores `true`. Labels that are absent, `false`, or paused by another program are never changed.
//!
//! Operands are paused for one of two reasons. A client of a GPU blocks a change of its MIG mode and may be an operand.
//! Or partitions were created or destroyed, which NVIDIA's device plugin notices only after a restart.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::view::ObservedNode;

/// Label value of a running operand. Source: NVIDIA GPU Operator, `controllers/state_manager.go`.
pub const RUNNING: &str = "true";
/// Label value of an operand paused by the agent.
pub const PAUSED: &str = "paused-for-octavo";

/// Prefix of operand labels.
pub const DEPLOY_PREFIX: &str = "nvidia.com/gpu.deploy.";
/// Label of the device plugin.
pub const PLUGIN_LABEL: &str = "nvidia.com/gpu.deploy.device-plugin";
/// Label read by the device plugin's config-manager. Source: NVIDIA k8s-device-plugin, `cmd/config-manager`.
pub const PLUGIN_CONFIG_LABEL: &str = "nvidia.com/device-plugin.config";
/// Labels of operands that open GPUs. Source: NVIDIA mig-parted, `cmd/nvidia-mig-manager/reconfigure`.
pub const CLIENT_LABELS: [&str; 5] = [
    PLUGIN_LABEL,
    "nvidia.com/gpu.deploy.gpu-feature-discovery",
    "nvidia.com/gpu.deploy.dcgm-exporter",
    "nvidia.com/gpu.deploy.dcgm",
    "nvidia.com/gpu.deploy.nvsm",
];

/// Resource of whole GPUs, prefix of partition resources, and suffix of shared resources. Source: NVIDIA
/// k8s-device-plugin.
const GPU_RESOURCE: &str = "nvidia.com/gpu";
pub(crate) const MIG_RESOURCE_PREFIX: &str = "nvidia.com/mig-";
const SHARED_SUFFIX: &str = ".shared";

/// Maximum time to pause operands for a device that is not released.
const PAUSE_TIMEOUT: Duration = Duration::from_mins(2);
/// Maximum time to wait until the device plugin has terminated.
const PLUGIN_STOP_TIMEOUT: Duration = Duration::from_mins(1);
/// Maximum time to wait until the node offers its partitions.
const OFFER_TIMEOUT: Duration = Duration::from_mins(3);

/// Current state of the node.
#[derive(Debug, Clone, Copy)]
pub struct OperandInputs<'a> {
    /// The Node.
    pub view: &'a ObservedNode,
    /// True if a process holds a device whose MIG mode must change.
    pub is_device_held: bool,
    /// True if devices are being changed.
    pub busy: bool,
    /// Counter that increases whenever partitions are created or destroyed.
    pub changes: u64,
    /// Counter that increases whenever the desired state of the node changes.
    pub choice: u64,
    /// Partitions of the node by extended resource; `None` if partitions are not offered individually.
    pub partitions: Option<&'a BTreeMap<String, u64>>,
}

/// State machine for pausing operands.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OperandPauser {
    phase: Phase,
    /// Value of `changes` that the device plugin has observed.
    seen: Option<u64>,
    /// Value of `choice` at the last pause: operands are paused only once for each choice.
    tried: Option<u64>,
    /// Two names of one device plugin configuration; switching between them restarts the plugin.
    configs: Option<(String, String)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
enum Phase {
    #[default]
    Running,
    /// All clients are paused.
    Paused { since: Duration },
    /// The device plugin is paused, to restart it.
    PluginOff { since: Duration },
    /// Waiting until the device plugin offers the node's partitions.
    Checking { since: Duration, config: Option<(String, String)> },
}

/// Desired state and results.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OperandOutcome {
    /// Labels that must be [`PAUSED`]; all others of [`CLIENT_LABELS`] must not.
    pub paused: BTreeSet<String>,
    /// Current and desired configuration name of the device plugin, if it must change.
    pub plugin_config: Option<(String, String)>,
    /// Latest time of the next reconciliation.
    pub again: Option<Duration>,
    /// The event that just happened.
    pub event: Option<OperandEvent>,
}

/// A resource whose offered count differs from the node's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// The extended resource.
    pub resource: String,
    /// Count on the node.
    pub actual: u64,
    /// Count offered by kubelet.
    pub offered: u64,
}

/// Something to report as an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OperandEvent {
    /// Operands are paused because a client holds a device.
    Paused,
    /// Operands run again, and the device was released.
    Restored,
    /// Operands run again, but the device is still held.
    StillBlocked,
    /// The device plugin was restarted.
    Refreshed,
    /// Kubelet offers the node's partitions.
    Offered,
    /// Kubelet still does not offer the node's partitions after the timeout.
    NotOffered(Vec<Mismatch>),
}

impl OperandPauser {
    /// Creates the state machine; `configs` are two names of one device plugin configuration, if they exist.
    pub fn new(configs: Option<(String, String)>) -> Self {
        Self { configs, ..Self::default() }
    }

    /// Advances the state machine with the current facts.
    pub fn reconcile(&mut self, now: Duration, facts: &OperandInputs<'_>) -> OperandOutcome {
        let seen = match self.seen {
            Some(seen) => seen,
            None => self.restore(now, facts),
        };
        let before = self.phase.clone();
        self.phase = match before.clone() {
            Phase::Running => self.after_running(now, facts, seen),
            Phase::Paused { since } => after_paused(now, facts, since),
            Phase::PluginOff { since } => after_plugin_off(now, facts, since),
            Phase::Checking { since, config } => {
                if self.may_pause(facts) || (facts.changes != seen && !facts.busy) {
                    self.after_running(now, facts, seen)
                } else {
                    after_checking(now, facts, since, config)
                }
            }
        };
        // Pausing all clients restarted the device plugin too.
        if self.phase != Phase::Running && !facts.busy {
            self.seen = Some(facts.changes);
        }
        OperandOutcome { event: event(&before, &self.phase, facts), ..self.wanted(facts) }
    }

    /// Restores the state after a restart. A previous agent may have been killed at any point: with operands paused for
    /// a change that continues now, or before the plugin noticed new partitions. Returns the number of changes that the
    /// plugin has observed.
    fn restore(&mut self, now: Duration, facts: &OperandInputs<'_>) -> u64 {
        let paused = |key: &&str| facts.view.labels.get(*key).map(String::as_str) == Some(PAUSED);
        if CLIENT_LABELS.iter().any(paused) && (facts.busy || facts.is_device_held) {
            self.tried = Some(facts.choice);
            self.phase = Phase::Paused { since: now };
        }
        let seen = if offers_removed_partitions(facts) { u64::MAX } else { 0 };
        self.seen = Some(seen);
        seen
    }

    fn may_pause(&self, facts: &OperandInputs<'_>) -> bool {
        facts.is_device_held && self.tried != Some(facts.choice)
    }

    fn after_running(&mut self, now: Duration, facts: &OperandInputs<'_>, seen: u64) -> Phase {
        if self.may_pause(facts) && runs(facts.view, &CLIENT_LABELS) {
            self.tried = Some(facts.choice);
            return Phase::Paused { since: now };
        }
        if facts.changes == seen || facts.busy {
            return Phase::Running;
        }
        if let Some(config) = self.other_config(facts.view) {
            let config = Some(config);
            return Phase::Checking { since: now, config };
        }
        if runs(facts.view, &[PLUGIN_LABEL]) {
            return Phase::PluginOff { since: now };
        }
        self.seen = Some(facts.changes);
        Phase::Running
    }

    /// Returns the switch to the configuration name that is not in use.
    fn other_config(&self, view: &ObservedNode) -> Option<(String, String)> {
        let now = view.labels.get(PLUGIN_CONFIG_LABEL)?;
        let (one, other) = self.configs.as_ref()?;
        let to = match now {
            now if now == one => other,
            now if now == other => one,
            _ => return None,
        };
        Some((now.clone(), to.clone()))
    }

    fn wanted(&self, facts: &OperandInputs<'_>) -> OperandOutcome {
        let keys: &[&str] = match &self.phase {
            Phase::Running | Phase::Checking { .. } => &[],
            Phase::Paused { .. } => &CLIENT_LABELS,
            Phase::PluginOff { .. } => &[PLUGIN_LABEL],
        };
        let (plugin_config, deadline) = match &self.phase {
            Phase::Running => (None, None),
            Phase::Paused { since } => (None, Some(since.saturating_add(PAUSE_TIMEOUT))),
            Phase::PluginOff { since } => (None, Some(since.saturating_add(PLUGIN_STOP_TIMEOUT))),
            Phase::Checking { since, config } => {
                (config.clone(), Some(since.saturating_add(OFFER_TIMEOUT)))
            }
        };
        let there = |key: &&&str| facts.view.labels.contains_key(**key);
        OperandOutcome {
            paused: keys.iter().filter(there).map(ToString::to_string).collect(),
            plugin_config,
            again: deadline,
            event: None,
        }
    }
}

fn after_paused(now: Duration, facts: &OperandInputs<'_>, since: Duration) -> Phase {
    let late = now.saturating_sub(since) >= PAUSE_TIMEOUT;
    if facts.busy || (facts.is_device_held && !late) {
        return Phase::Paused { since };
    }
    Phase::Checking { since: now, config: None }
}

fn after_plugin_off(now: Duration, facts: &OperandInputs<'_>, since: Duration) -> Phase {
    let nvidia = |(name, count): (&String, &u64)| {
        (name.starts_with(GPU_RESOURCE) || name.starts_with(MIG_RESOURCE_PREFIX)) && *count > 0
    };
    let paused = facts.view.labels.get(PLUGIN_LABEL).map(String::as_str) == Some(PAUSED);
    let gone = paused && !facts.view.allocatable.iter().any(nvidia);
    if !gone && now.saturating_sub(since) < PLUGIN_STOP_TIMEOUT {
        return Phase::PluginOff { since };
    }
    Phase::Checking { since: now, config: None }
}

fn after_checking(
    now: Duration,
    facts: &OperandInputs<'_>,
    since: Duration,
    config: Option<(String, String)>,
) -> Phase {
    let now_called = facts.view.labels.get(PLUGIN_CONFIG_LABEL);
    let unwritten = config.as_ref().is_some_and(|(from, _)| now_called == Some(from));
    if (offers_match(facts) && !unwritten) || now.saturating_sub(since) >= OFFER_TIMEOUT {
        return Phase::Running;
    }
    Phase::Checking { since, config }
}

/// Returns true if one of these operands is enabled.
fn runs(view: &ObservedNode, keys: &[&str]) -> bool {
    keys.iter().any(|key| view.labels.get(*key).map(String::as_str) == Some(RUNNING))
}

/// Returns true if kubelet offers partitions that do not exist.
fn offers_removed_partitions(facts: &OperandInputs<'_>) -> bool {
    mismatches(facts).iter().any(|one| one.actual == 0)
}

/// Returns true if kubelet offers each partition once, or a multiple if shared.
fn offers_match(facts: &OperandInputs<'_>) -> bool {
    mismatches(facts).is_empty()
}

/// Returns the differences; empty if partitions are not offered individually.
fn mismatches(facts: &OperandInputs<'_>) -> Vec<Mismatch> {
    let Some(partitions) = facts.partitions else {
        return Vec::new();
    };
    let offers = &facts.view.allocatable;
    let lacking = partitions.iter().filter_map(|(name, count)| {
        let shared = || offers.get(&format!("{name}{SHARED_SUFFIX}")).copied();
        let whole = offers.get(name).copied().filter(|count| *count > 0);
        let offered = whole.or_else(shared).unwrap_or_default();
        let right = offered > 0 && offered.checked_rem(*count) == Some(0);
        (!right).then(|| Mismatch { resource: name.clone(), actual: *count, offered })
    });
    let left = offers.iter().filter_map(|(name, count)| {
        let known = name.strip_suffix(SHARED_SUFFIX).unwrap_or(name);
        let gone =
            *count > 0 && name.starts_with(MIG_RESOURCE_PREFIX) && !partitions.contains_key(known);
        gone.then(|| Mismatch { resource: name.clone(), actual: 0, offered: *count })
    });
    lacking.chain(left).collect()
}

fn event(before: &Phase, now: &Phase, facts: &OperandInputs<'_>) -> Option<OperandEvent> {
    match (before, now) {
        (Phase::Running | Phase::Checking { .. }, Phase::Paused { .. }) => {
            Some(OperandEvent::Paused)
        }
        (Phase::Paused { .. }, Phase::Checking { .. }) if facts.is_device_held => {
            Some(OperandEvent::StillBlocked)
        }
        (Phase::Paused { .. }, Phase::Checking { .. }) => Some(OperandEvent::Restored),
        (Phase::PluginOff { .. } | Phase::Running, Phase::Checking { .. }) => {
            Some(OperandEvent::Refreshed)
        }
        // Without individually offered partitions, nothing was checked.
        (Phase::Checking { .. }, Phase::Running) if facts.partitions.is_none() => None,
        (Phase::Checking { .. }, Phase::Running) if offers_match(facts) => {
            Some(OperandEvent::Offered)
        }
        (Phase::Checking { .. }, Phase::Running) => {
            Some(OperandEvent::NotOffered(mismatches(facts)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
