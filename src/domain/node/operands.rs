//! NVIDIA's GPU Operator's operands on this node: which of them are paused, and for how long.
//!
//! An operand runs where a label of the Node says `true`. What we pause says [`PAUSED`] instead, and that value is all the
//! memory there is: whoever finds it and has no reason for it, an agent after a crash or one that cleans up, puts `true` back.
//! Labels that are absent, that say `false`, or that somebody else paused are never touched.
//!
//! They are paused for one of two reasons. A client of a GPU is in the way of a change of its MIG mode, and may be one of
//! them. Or partitions were made or destroyed, which NVIDIA's device plugin does not see before it starts again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::keep::PLUGIN_CONFIG;
use super::view::View;

/// An operand runs. Source: NVIDIA GPU Operator, `controllers/state_manager.go`.
pub const RUNNING: &str = "true";
/// We paused it.
pub const PAUSED: &str = "paused-for-octavo";

/// How the labels of operands begin.
pub const DEPLOY: &str = "nvidia.com/gpu.deploy.";
/// The device plugin's label.
pub const PLUGIN: &str = "nvidia.com/gpu.deploy.device-plugin";
/// Labels of operands that have GPUs open. Source: NVIDIA mig-parted, `cmd/nvidia-mig-manager/reconfigure`.
pub const CLIENTS: [&str; 5] = [
    PLUGIN,
    "nvidia.com/gpu.deploy.gpu-feature-discovery",
    "nvidia.com/gpu.deploy.dcgm-exporter",
    "nvidia.com/gpu.deploy.dcgm",
    "nvidia.com/gpu.deploy.nvsm",
];

/// How resources of whole GPUs and of partitions begin, and how those end that are shared. Source: NVIDIA k8s-device-plugin.
const WHOLE: &str = "nvidia.com/gpu";
const PARTITION: &str = "nvidia.com/mig-";
const SHARED: &str = ".shared";

/// How long operands are paused for a device that is not let go of.
const CLIENTS_WITHIN: Duration = Duration::from_mins(2);
/// How long the device plugin may take to be gone.
const OFF_WITHIN: Duration = Duration::from_mins(1);
/// How long the node may take to offer what it has.
const OFFERS_WITHIN: Duration = Duration::from_mins(3);

/// What is known of the node.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// The Node.
    pub view: &'a View,
    /// Whether somebody has a device open whose MIG mode is to change.
    pub in_the_way: bool,
    /// Whether devices are being changed.
    pub busy: bool,
    /// Grows whenever partitions were made or destroyed.
    pub changes: u64,
    /// Grows whenever something else is asked of the node.
    pub choice: u64,
    /// Partitions that the node has, by extended resource; `None` where they are not offered one by one.
    pub partitions: Option<&'a BTreeMap<String, u64>>,
}

/// Where the operands are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Operands {
    phase: Phase,
    /// Of the partitions that the plugin was made to see.
    seen: Option<u64>,
    /// What was asked when they were paused last: for the same they are not paused twice.
    tried: Option<u64>,
    /// Two configurations of the device plugin that say the same, between which a change makes it start again.
    configs: Option<(String, String)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
enum Phase {
    #[default]
    Running,
    /// All clients are paused.
    Paused { since: Duration },
    /// The plugin is paused, so that it starts again.
    PluginOff { since: Duration },
    /// The plugin shall offer what the node has.
    Checking {
        since: Duration,
        config: Option<(String, String)>,
    },
}

/// What is to be, and what has come of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outcome {
    /// Labels that shall say [`PAUSED`]; all others of [`CLIENTS`] shall not.
    pub paused: BTreeSet<String>,
    /// What the plugin's configuration is called, and what it shall be called.
    pub plugin_config: Option<(String, String)>,
    /// When to look again at the latest.
    pub again: Option<Duration>,
    /// What just happened.
    pub news: Option<News>,
}

/// A resource of which kubelet offers something else than there is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// The extended resource.
    pub resource: String,
    /// How many the node has.
    pub there: u64,
    /// How many it offers.
    pub offered: u64,
}

/// Something to tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// Operands are paused, because a client is in the way.
    Paused,
    /// They run again, and the device was let go of.
    Restored,
    /// They run again, and somebody still has the device open.
    StillInTheWay,
    /// The plugin was made to look again.
    Refreshed,
    /// The node offers what it has.
    Offered,
    /// It does not, after a long time: in what it differs.
    NotOffered(Vec<Mismatch>),
}

impl Operands {
    /// Operands of a node; `configs` are two names of one configuration of the device plugin, where there are such.
    pub fn new(configs: Option<(String, String)>) -> Self {
        Self {
            configs,
            ..Self::default()
        }
    }

    /// Holds them against what is known now.
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
        // A pause of all clients made the plugin start again too.
        if self.phase != Phase::Running && !facts.busy {
            self.seen = Some(facts.changes);
        }
        Outcome {
            news: news(&before, &self.phase, facts),
            ..self.wanted(facts)
        }
    }

    /// An agent before us may have been killed at any point: with operands paused for a change that goes on now, or with partitions
    /// that the plugin was still to see. Of how many changes the plugin knows.
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

    /// The one of the two configurations that is not in use.
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

/// Whether one of these operands is to run.
fn runs(view: &View, keys: &[&str]) -> bool {
    keys.iter()
        .any(|key| view.labels.get(*key).map(String::as_str) == Some(RUNNING))
}

/// Whether kubelet offers partitions that are not there.
fn stale(facts: &Facts<'_>) -> bool {
    mismatches(facts).iter().any(|one| one.there == 0)
}

/// Whether what kubelet offers is what there is: each partition, or each a number of times where they are shared.
fn offered(facts: &Facts<'_>) -> bool {
    mismatches(facts).is_empty()
}

/// In what it differs; nothing where partitions are not offered one by one.
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
        // Where they are not offered one by one nothing was looked at.
        (Phase::Checking { .. }, Phase::Running) if facts.partitions.is_none() => None,
        (Phase::Checking { .. }, Phase::Running) if offered(facts) => Some(News::Offered),
        (Phase::Checking { .. }, Phase::Running) => Some(News::NotOffered(mismatches(facts))),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
