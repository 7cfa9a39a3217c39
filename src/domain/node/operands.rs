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

use super::keep::PLUGIN_CONFIG;
use super::view::View;

/// Label value of a running operand. Source: NVIDIA GPU Operator, `controllers/state_manager.go`.
pub const RUNNING: &str = "true";
/// Label value of an operand paused by the agent.
pub const PAUSED: &str = "paused-for-octavo";

/// Prefix of operand labels.
pub const DEPLOY: &str = "nvidia.com/gpu.deploy.";
/// Label of the device plugin.
pub const PLUGIN: &str = "nvidia.com/gpu.deploy.device-plugin";
/// Labels of operands that open GPUs. Source: NVIDIA mig-parted, `cmd/nvidia-mig-manager/reconfigure`.
pub const CLIENTS: [&str; 5] = [
    PLUGIN,
    "nvidia.com/gpu.deploy.gpu-feature-discovery",
    "nvidia.com/gpu.deploy.dcgm-exporter",
    "nvidia.com/gpu.deploy.dcgm",
    "nvidia.com/gpu.deploy.nvsm",
];

/// Resource of whole GPUs, prefix of partition resources, and suffix of shared resources. Source: NVIDIA
/// k8s-device-plugin.
const WHOLE: &str = "nvidia.com/gpu";
const PARTITION: &str = "nvidia.com/mig-";
const SHARED: &str = ".shared";

/// Maximum time to pause operands for a device that is not released.
const CLIENTS_WITHIN: Duration = Duration::from_mins(2);
/// Maximum time to wait until the device plugin has terminated.
const OFF_WITHIN: Duration = Duration::from_mins(1);
/// Maximum time to wait until the node offers its partitions.
const OFFERS_WITHIN: Duration = Duration::from_mins(3);

/// Current state of the node.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// The Node.
    pub view: &'a View,
    /// True if a process holds a device whose MIG mode must change.
    pub in_the_way: bool,
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
pub struct Operands {
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
    Checking {
        since: Duration,
        config: Option<(String, String)>,
    },
}

/// Desired state and results.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outcome {
    /// Labels that must be [`PAUSED`]; all others of [`CLIENTS`] must not.
    pub paused: BTreeSet<String>,
    /// Current and desired configuration name of the device plugin, if it must change.
    pub plugin_config: Option<(String, String)>,
    /// Latest time of the next reconciliation.
    pub again: Option<Duration>,
    /// The event that just happened.
    pub news: Option<News>,
}

/// A resource whose offered count differs from the node's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// The extended resource.
    pub resource: String,
    /// Count on the node.
    pub there: u64,
    /// Count offered by kubelet.
    pub offered: u64,
}

/// Something to report as an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// Operands are paused because a client holds a device.
    Paused,
    /// Operands run again, and the device was released.
    Restored,
    /// Operands run again, but the device is still held.
    StillInTheWay,
    /// The device plugin was restarted.
    Refreshed,
    /// Kubelet offers the node's partitions.
    Offered,
    /// Kubelet still does not offer the node's partitions after the timeout.
    NotOffered(Vec<Mismatch>),
}

impl Operands {
    /// Creates the state machine; `configs` are two names of one device plugin configuration, if they exist.
    pub fn new(configs: Option<(String, String)>) -> Self {
        Self {
            configs,
            ..Self::default()
        }
    }

    /// Advances the state machine with the current facts.
    pub fn look(&mut self, now: Duration, facts: &Facts<'_>) -> Outcome {
        let seen = match self.seen {
            Some(seen) => seen,
            None => self.begin(now, facts),
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
        Outcome {
            news: news(&before, &self.phase, facts),
            ..self.wanted(facts)
        }
    }

    /// Restores the state after a restart. A previous agent may have been killed at any point: with operands paused for
    /// a change that continues now, or before the plugin noticed new partitions. Returns the number of changes that the
    /// plugin has observed.
    fn begin(&mut self, now: Duration, facts: &Facts<'_>) -> u64 {
        let paused = |key: &&str| facts.view.labels.get(*key).map(String::as_str) == Some(PAUSED);
        if CLIENTS.iter().any(paused) && (facts.busy || facts.in_the_way) {
            self.tried = Some(facts.choice);
            self.phase = Phase::Paused { since: now };
        }
        let seen = if stale(facts) { u64::MAX } else { 0 };
        self.seen = Some(seen);
        seen
    }

    fn may_pause(&self, facts: &Facts<'_>) -> bool {
        facts.in_the_way && self.tried != Some(facts.choice)
    }

    fn after_running(&mut self, now: Duration, facts: &Facts<'_>, seen: u64) -> Phase {
        if self.may_pause(facts) && runs(facts.view, &CLIENTS) {
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
        if runs(facts.view, &[PLUGIN]) {
            return Phase::PluginOff { since: now };
        }
        self.seen = Some(facts.changes);
        Phase::Running
    }

    /// Returns the switch to the configuration name that is not in use.
    fn other_config(&self, view: &View) -> Option<(String, String)> {
        let now = view.labels.get(PLUGIN_CONFIG)?;
        let (one, other) = self.configs.as_ref()?;
        let to = match now {
            now if now == one => other,
            now if now == other => one,
            _ => return None,
        };
        Some((now.clone(), to.clone()))
    }

    fn wanted(&self, facts: &Facts<'_>) -> Outcome {
        let keys: &[&str] = match &self.phase {
            Phase::Running | Phase::Checking { .. } => &[],
            Phase::Paused { .. } => &CLIENTS,
            Phase::PluginOff { .. } => &[PLUGIN],
        };
        let (plugin_config, deadline) = match &self.phase {
            Phase::Running => (None, None),
            Phase::Paused { since } => (None, Some(since.saturating_add(CLIENTS_WITHIN))),
            Phase::PluginOff { since } => (None, Some(since.saturating_add(OFF_WITHIN))),
            Phase::Checking { since, config } => {
                (config.clone(), Some(since.saturating_add(OFFERS_WITHIN)))
            }
        };
        let there = |key: &&&str| facts.view.labels.contains_key(**key);
        Outcome {
            paused: keys.iter().filter(there).map(ToString::to_string).collect(),
            plugin_config,
            again: deadline,
            news: None,
        }
    }
}

fn after_paused(now: Duration, facts: &Facts<'_>, since: Duration) -> Phase {
    let late = now.saturating_sub(since) >= CLIENTS_WITHIN;
    if facts.busy || (facts.in_the_way && !late) {
        return Phase::Paused { since };
    }
    Phase::Checking {
        since: now,
        config: None,
    }
}

fn after_plugin_off(now: Duration, facts: &Facts<'_>, since: Duration) -> Phase {
    let nvidia = |(name, count): (&String, &u64)| {
        (name.starts_with(WHOLE) || name.starts_with(PARTITION)) && *count > 0
    };
    let paused = facts.view.labels.get(PLUGIN).map(String::as_str) == Some(PAUSED);
    let gone = paused && !facts.view.allocatable.iter().any(nvidia);
    if !gone && now.saturating_sub(since) < OFF_WITHIN {
        return Phase::PluginOff { since };
    }
    Phase::Checking {
        since: now,
        config: None,
    }
}

fn after_checking(
    now: Duration,
    facts: &Facts<'_>,
    since: Duration,
    config: Option<(String, String)>,
) -> Phase {
    let now_called = facts.view.labels.get(PLUGIN_CONFIG);
    let unwritten = config
        .as_ref()
        .is_some_and(|(from, _)| now_called == Some(from));
    if (offered(facts) && !unwritten) || now.saturating_sub(since) >= OFFERS_WITHIN {
        return Phase::Running;
    }
    Phase::Checking { since, config }
}

/// Returns true if one of these operands is enabled.
fn runs(view: &View, keys: &[&str]) -> bool {
    keys.iter()
        .any(|key| view.labels.get(*key).map(String::as_str) == Some(RUNNING))
}

/// Returns true if kubelet offers partitions that do not exist.
fn stale(facts: &Facts<'_>) -> bool {
    mismatches(facts).iter().any(|one| one.there == 0)
}

/// Returns true if kubelet offers each partition once, or a multiple if shared.
fn offered(facts: &Facts<'_>) -> bool {
    mismatches(facts).is_empty()
}

/// Returns the differences; empty if partitions are not offered individually.
fn mismatches(facts: &Facts<'_>) -> Vec<Mismatch> {
    let Some(partitions) = facts.partitions else {
        return Vec::new();
    };
    let offers = &facts.view.allocatable;
    let lacking = partitions.iter().filter_map(|(name, count)| {
        let shared = || offers.get(&format!("{name}{SHARED}")).copied();
        let whole = offers.get(name).copied().filter(|count| *count > 0);
        let offered = whole.or_else(shared).unwrap_or_default();
        let right = offered > 0 && offered.checked_rem(*count) == Some(0);
        (!right).then(|| Mismatch {
            resource: name.clone(),
            there: *count,
            offered,
        })
    });
    let left = offers.iter().filter_map(|(name, count)| {
        let known = name.strip_suffix(SHARED).unwrap_or(name);
        let gone = *count > 0 && name.starts_with(PARTITION) && !partitions.contains_key(known);
        gone.then(|| Mismatch {
            resource: name.clone(),
            there: 0,
            offered: *count,
        })
    });
    lacking.chain(left).collect()
}

fn news(before: &Phase, now: &Phase, facts: &Facts<'_>) -> Option<News> {
    match (before, now) {
        (Phase::Running | Phase::Checking { .. }, Phase::Paused { .. }) => Some(News::Paused),
        (Phase::Paused { .. }, Phase::Checking { .. }) if facts.in_the_way => {
            Some(News::StillInTheWay)
        }
        (Phase::Paused { .. }, Phase::Checking { .. }) => Some(News::Restored),
        (Phase::PluginOff { .. } | Phase::Running, Phase::Checking { .. }) => Some(News::Refreshed),
        // Without individually offered partitions, nothing was checked.
        (Phase::Checking { .. }, Phase::Running) if facts.partitions.is_none() => None,
        (Phase::Checking { .. }, Phase::Running) if offered(facts) => Some(News::Offered),
        (Phase::Checking { .. }, Phase::Running) => Some(News::NotOffered(mismatches(facts))),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
