//! Rollout of a configuration to NVIDIA's device plugin, as a state machine: the configuration is requested, the
//! `ConfigMap` contains it, kubelet has projected it, the label names it, the Node offers it; otherwise the rollout
//! fails with a cause.
//!
//! Only the start of each wait is stored. The current label and `ConfigMap` are evaluated every time.

use std::collections::BTreeMap;
use std::time::Duration;

use octavo_model::sharing_status::HandOffConfig;

use crate::mig_strategy::MigStrategy;
use crate::node_object::ObservedNode;
use crate::node_object::node_diff::{PluginLabel, SHARING_FIELD_MANAGER};
use crate::node_object::operands::{self, PLUGIN_CONFIG_LABEL};
use crate::sharing::diagnosis::{
    ConfigMap, DiagnosisInput, Evidence, Finding, LookupResult, Mismatch, diagnose, foreign_label,
    is_plugin_resource, mismatches, no_device_plugin,
};

/// Time limits of the rollout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Time after which a missing result is diagnosed.
    pub deadline: Duration,
    /// Time that kubelet may take to project a new key into the plugin's pod.
    pub settle: Duration,
}

/// The inputs of one evaluation.
#[derive(Debug, Clone, Copy)]
pub struct RolloutInput<'a> {
    /// The desired plugin configuration.
    pub desired: &'a HandOffConfig,
    /// The desired count of each resource on the Node.
    pub wanted: &'a BTreeMap<String, u64>,
    /// The MIG strategy.
    pub strategy: MigStrategy,
    /// The observed Node.
    pub view: &'a ObservedNode,
    /// Namespace and name of the `ConfigMap`: `gpu-operator/plugin-config`.
    pub config_map: &'a str,
    /// The API server's answers about the `ConfigMap` and the plugin.
    pub answers: &'a ApiAnswers,
    /// True if NVIDIA's plugin is known to be present because the administrator configured it.
    pub is_plugin_configured: bool,
}

/// Queries to send to the API server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ApiQueries {
    /// The key of the `ConfigMap` to wait for.
    pub key: Option<String>,
    /// True if evidence must be collected for a diagnosis.
    pub investigate: bool,
}

/// Answers of the API server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ApiAnswers {
    /// The key that the answers are about.
    pub key: String,
    /// The `ConfigMap`, once it was queried.
    pub config_map: Option<LookupResult<ConfigMap>>,
    /// The evidence, if it was collected.
    pub evidence: Option<Evidence>,
}

/// State of the rollout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RolloutState {
    /// In progress; contains what it waits for.
    Pending(String),
    /// The Node offers the desired resources.
    Applied,
    /// The Node does not offer the desired resources; contains the causes.
    Failed(Vec<Finding>),
    /// The plugin must not be configured.
    Refused(Finding),
}

/// Result of one evaluation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RolloutStep {
    /// State of the rollout.
    pub state: RolloutState,
    /// The desired label of the Node.
    pub label: PluginLabel,
    /// Queries to send.
    pub orders: ApiQueries,
    /// Latest time of the next evaluation, from now.
    pub again: Option<Duration>,
}

/// A rollout in progress.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rollout {
    key: String,
    phase: Option<Phase>,
    /// The last findings and the facts they are based on. A new diagnosis is made only when these facts change.
    found: Option<(Vec<Mismatch>, Evidence, Vec<Finding>)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Waiting for the plugin to appear, or for the `ConfigMap` to contain the key.
    Waiting { since: Duration },
    /// The `ConfigMap` contains the key, and kubelet is projecting it.
    Settling { until: Duration },
    /// The label names the key.
    Labeled { since: Duration },
}

impl Rollout {
    /// Evaluates the rollout against the current facts.
    pub fn evaluate(
        &mut self,
        now: Duration,
        limits: Limits,
        facts: &RolloutInput<'_>,
    ) -> RolloutStep {
        if self.key != facts.desired.key {
            *self = Self { key: facts.desired.key.clone(), ..Self::default() };
        }
        let selected_key = facts.view.labels.get(PLUGIN_CONFIG_LABEL);
        let is_selected = selected_key == Some(&self.key);
        if let Some((value, owner)) =
            selected_key.filter(|_| !is_selected).zip(foreign_owner(facts.view))
        {
            self.phase = None;
            return step(
                RolloutState::Refused(foreign_label(value, owner)),
                PluginLabel::Unchanged,
            );
        }
        if !facts.is_plugin_configured && !is_plugin_present(facts.view) {
            return self.plugin_missing(now, limits);
        }
        // A label that already names the key was set by an earlier agent, which did the waiting.
        let phase = match self.phase {
            Some(phase @ Phase::Labeled { .. }) => phase,
            _ if is_selected => Phase::Labeled { since: now },
            Some(phase) => phase,
            None => Phase::Waiting { since: now },
        };
        let phase = self.next_phase(phase, now, limits, facts);
        self.phase = Some(phase);
        match phase {
            Phase::Waiting { since } => self.waiting(now, limits, (since, facts)),
            Phase::Settling { until } => self.settling(now, until),
            Phase::Labeled { since } => self.labeled(now, limits, (since, facts)),
        }
    }

    fn next_phase(
        &self,
        phase: Phase,
        now: Duration,
        limits: Limits,
        facts: &RolloutInput<'_>,
    ) -> Phase {
        let map = facts.answers.config_map.as_ref();
        let map = map.filter(|_| facts.answers.key == self.key);
        let written = map.and_then(|map| match map {
            LookupResult::Present(map) if map.content.as_ref() == Some(&facts.desired.config) => {
                Some(map.written.unwrap_or(Duration::ZERO))
            }
            LookupResult::Present(_) | LookupResult::Missing | LookupResult::Unknown(_) => None,
        });
        match (phase, written) {
            (Phase::Waiting { .. }, Some(ago)) if ago >= limits.settle => {
                Phase::Labeled { since: now }
            }
            (Phase::Waiting { .. }, Some(ago)) => {
                let rest = limits.settle.saturating_sub(ago);
                Phase::Settling { until: now.saturating_add(rest) }
            }
            (Phase::Settling { .. }, None) => Phase::Waiting { since: now },
            (Phase::Settling { until }, Some(_)) if now >= until => Phase::Labeled { since: now },
            (phase, _) => phase,
        }
    }

    fn plugin_missing(&mut self, now: Duration, limits: Limits) -> RolloutStep {
        let since = match self.phase {
            Some(Phase::Waiting { since }) => since,
            _ => now,
        };
        self.phase = Some(Phase::Waiting { since });
        let waited = now.saturating_sub(since);
        if waited >= limits.deadline {
            let found = vec![no_device_plugin()];
            return step(RolloutState::Failed(found), PluginLabel::Unchanged);
        }
        let words = "waiting for NVIDIA's device plugin on this node".to_owned();
        RolloutStep {
            again: Some(limits.deadline.saturating_sub(waited)),
            ..step(RolloutState::Pending(words), PluginLabel::Unchanged)
        }
    }

    /// Leaves the label unchanged until the key exists: config-manager exits if the label names a missing key.
    fn waiting(
        &mut self,
        now: Duration,
        limits: Limits,
        (since, facts): (Duration, &RolloutInput<'_>),
    ) -> RolloutStep {
        let waited = now.saturating_sub(since);
        let key = Some(self.key.clone());
        if waited < limits.deadline {
            let words = format!(
                "waiting for ConfigMap {} to contain the key {}",
                facts.config_map, self.key
            );
            return RolloutStep {
                orders: ApiQueries { key, investigate: false },
                again: Some(limits.deadline.saturating_sub(waited)),
                ..step(RolloutState::Pending(words), PluginLabel::Unchanged)
            };
        }
        let state = self.diagnosed_state(differences(facts), false, facts);
        RolloutStep {
            orders: ApiQueries { key, investigate: true },
            ..step(state, PluginLabel::Unchanged)
        }
    }

    fn settling(&self, now: Duration, until: Duration) -> RolloutStep {
        let words = format!("waiting for the kubelet to pass the key {} to the plugin", self.key);
        RolloutStep {
            orders: ApiQueries { key: Some(self.key.clone()), investigate: false },
            again: Some(until.saturating_sub(now)),
            ..step(RolloutState::Pending(words), PluginLabel::Unchanged)
        }
    }

    fn labeled(
        &mut self,
        now: Duration,
        limits: Limits,
        (since, facts): (Duration, &RolloutInput<'_>),
    ) -> RolloutStep {
        let label = PluginLabel::Set(self.key.clone());
        let differs = differences(facts);
        let is_selected = facts.view.labels.get(PLUGIN_CONFIG_LABEL) == Some(&self.key);
        if differs.is_empty() && is_selected {
            // A later deviation starts a new wait.
            self.phase = Some(Phase::Labeled { since: now });
            self.found = None;
            return step(RolloutState::Applied, label);
        }
        let waited = now.saturating_sub(since);
        if waited < limits.deadline {
            let words = format!(
                "the label {PLUGIN_CONFIG_LABEL} is set; the Node does not advertise the requested \
                 resources yet"
            );
            return RolloutStep {
                again: Some(limits.deadline.saturating_sub(waited)),
                ..step(RolloutState::Pending(words), label)
            };
        }
        let state = self.diagnosed_state(differs, true, facts);
        RolloutStep {
            orders: ApiQueries { key: Some(self.key.clone()), investigate: true },
            ..step(state, label)
        }
    }

    /// The state after the deadline: the diagnosis, once evidence was collected.
    fn diagnosed_state(
        &mut self,
        differs: Vec<Mismatch>,
        is_labeled: bool,
        facts: &RolloutInput<'_>,
    ) -> RolloutState {
        let answers = facts.answers;
        let Some(evidence) = answers.evidence.clone().filter(|_| answers.key == self.key) else {
            return RolloutState::Pending(
                "it takes longer than expected; Octavo is determining the cause".to_owned(),
            );
        };
        if let Some((known, by, found)) = &self.found
            && *known == differs
            && *by == evidence
        {
            return RolloutState::Failed(found.clone());
        }
        let found = diagnose(&DiagnosisInput {
            config_map: facts.config_map,
            key: (&self.key, &facts.desired.config),
            strategy: facts.strategy,
            is_labeled,
            mismatches: &differs,
            evidence: &evidence,
        });
        self.found = Some((differs, evidence, found.clone()));
        RolloutState::Failed(found)
    }
}

fn differences(facts: &RolloutInput<'_>) -> Vec<Mismatch> {
    let view = facts.view;
    mismatches(facts.wanted, (&view.allocatable, &view.capacity))
}

/// The other writer that owns the label.
fn foreign_owner(view: &ObservedNode) -> Option<&str> {
    let owners = view.owners.labels.get(PLUGIN_CONFIG_LABEL);
    if owners.is_some_and(|all| all.contains(SHARING_FIELD_MANAGER)) {
        return None;
    }
    let first = owners.and_then(|all| all.first());
    Some(first.map_or("an unknown writer", String::as_str))
}

/// Returns whether the Node shows signs of NVIDIA's plugin.
pub fn is_plugin_present(view: &ObservedNode) -> bool {
    let deploys = view.labels.get(operands::PLUGIN_LABEL);
    let offers = |(name, count): (&String, &u64)| *count > 0 && is_plugin_resource(name);
    deploys.is_some_and(|value| value == operands::RUNNING || value == operands::PAUSED)
        || view.labels.contains_key(PLUGIN_CONFIG_LABEL)
        || view.capacity.iter().any(offers)
        || view.allocatable.iter().any(offers)
}

fn step(state: RolloutState, label: PluginLabel) -> RolloutStep {
    RolloutStep { state, label, orders: ApiQueries::default(), again: None }
}

#[cfg(test)]
mod tests;
