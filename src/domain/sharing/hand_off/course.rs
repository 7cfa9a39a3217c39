//! Rollout of a configuration to NVIDIA's device plugin, as a state machine: the configuration is requested, the
//! `ConfigMap` contains it, kubelet has projected it, the label names it, the Node offers it; otherwise the rollout
//! fails with a cause.
//!
//! Only the start of each wait is stored. The current label and `ConfigMap` are evaluated every time.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::domain::labels::MigStrategy;
use crate::domain::node::keep::{PLUGIN_CONFIG, PluginLabel, SHARING_MANAGER};
use crate::domain::node::{View, operands};
use crate::domain::sharing::diagnosis::{
    Case, ConfigMap, Evidence, Finding, Found, Mismatch, diagnose, is_of_plugin, label_of_another,
    mismatches, nobody_gives_out,
};
use crate::domain::sharing::status::HandOff;

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
pub struct Facts<'a> {
    /// The desired plugin configuration.
    pub wish: &'a HandOff,
    /// The desired count of each resource on the Node.
    pub wanted: &'a BTreeMap<String, u64>,
    /// The MIG strategy.
    pub strategy: MigStrategy,
    /// The observed Node.
    pub view: &'a View,
    /// Namespace and name of the `ConfigMap`: `gpu-operator/plugin-config`.
    pub config_map: &'a str,
    /// The API server's answers about the `ConfigMap` and the plugin.
    pub heard: &'a Heard,
    /// True if NVIDIA's plugin is known to be present because the administrator configured it.
    pub is_certain: bool,
}

/// Queries to send to the API server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Orders {
    /// The key of the `ConfigMap` to wait for.
    pub key: Option<String>,
    /// True if evidence must be collected for a diagnosis.
    pub investigate: bool,
}

/// Answers of the API server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Heard {
    /// The key that the answers are about.
    pub key: String,
    /// The `ConfigMap`, once it was queried.
    pub config_map: Option<Found<ConfigMap>>,
    /// The evidence, if it was collected.
    pub evidence: Option<Evidence>,
}

/// State of the rollout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// In progress; contains what it waits for.
    Pending(String),
    /// The Node offers the desired resources.
    InForce,
    /// The Node does not offer the desired resources; contains the causes.
    NotInForce(Vec<Finding>),
    /// The plugin must not be configured.
    Refused(Finding),
}

/// Result of one evaluation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// State of the rollout.
    pub standing: Standing,
    /// The desired label of the Node.
    pub label: PluginLabel,
    /// Queries to send.
    pub orders: Orders,
    /// Latest time of the next evaluation, from now.
    pub again: Option<Duration>,
}

/// A rollout in progress.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Course {
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
    Labelled { since: Duration },
}

impl Course {
    /// Evaluates the rollout against the current facts.
    pub fn look(&mut self, now: Duration, limits: Limits, facts: &Facts<'_>) -> Step {
        if self.key != facts.wish.key {
            *self = Self {
                key: facts.wish.key.clone(),
                ..Self::default()
            };
        }
        let said = facts.view.labels.get(PLUGIN_CONFIG);
        let is_said = said == Some(&self.key);
        if let Some((value, owner)) = said.filter(|_| !is_said).zip(stranger(facts.view)) {
            self.phase = None;
            return step(
                Standing::Refused(label_of_another(value, owner)),
                PluginLabel::Leave,
            );
        }
        if !facts.is_certain && !runs(facts.view) {
            return self.nobody(now, limits);
        }
        // A label that already names the key was set by an earlier agent, which did the waiting.
        let phase = match self.phase {
            Some(phase @ Phase::Labelled { .. }) => phase,
            _ if is_said => Phase::Labelled { since: now },
            Some(phase) => phase,
            None => Phase::Waiting { since: now },
        };
        let phase = self.after(phase, now, limits, facts);
        self.phase = Some(phase);
        match phase {
            Phase::Waiting { since } => self.waiting(now, limits, (since, facts)),
            Phase::Settling { until } => self.settling(now, until),
            Phase::Labelled { since } => self.labelled(now, limits, (since, facts)),
        }
    }

    fn after(&self, phase: Phase, now: Duration, limits: Limits, facts: &Facts<'_>) -> Phase {
        let map = facts.heard.config_map.as_ref();
        let map = map.filter(|_| facts.heard.key == self.key);
        let written = map.and_then(|map| match map {
            Found::There(map) if map.content.as_ref() == Some(&facts.wish.config) => {
                Some(map.written.unwrap_or(Duration::ZERO))
            }
            Found::There(_) | Found::Missing | Found::Unknown(_) => None,
        });
        match (phase, written) {
            (Phase::Waiting { .. }, Some(ago)) if ago >= limits.settle => {
                Phase::Labelled { since: now }
            }
            (Phase::Waiting { .. }, Some(ago)) => {
                let rest = limits.settle.saturating_sub(ago);
                Phase::Settling {
                    until: now.saturating_add(rest),
                }
            }
            (Phase::Settling { .. }, None) => Phase::Waiting { since: now },
            (Phase::Settling { until }, Some(_)) if now >= until => Phase::Labelled { since: now },
            (phase, _) => phase,
        }
    }

    fn nobody(&mut self, now: Duration, limits: Limits) -> Step {
        let since = match self.phase {
            Some(Phase::Waiting { since }) => since,
            _ => now,
        };
        self.phase = Some(Phase::Waiting { since });
        let waited = now.saturating_sub(since);
        if waited >= limits.deadline {
            let found = vec![nobody_gives_out()];
            return step(Standing::NotInForce(found), PluginLabel::Leave);
        }
        let words = "it waits for NVIDIA's device plugin to be seen on this node".to_owned();
        Step {
            again: Some(limits.deadline.saturating_sub(waited)),
            ..step(Standing::Pending(words), PluginLabel::Leave)
        }
    }

    /// Leaves the label unchanged until the key exists: config-manager exits if the label names a missing key.
    fn waiting(
        &mut self,
        now: Duration,
        limits: Limits,
        (since, facts): (Duration, &Facts<'_>),
    ) -> Step {
        let waited = now.saturating_sub(since);
        let key = Some(self.key.clone());
        if waited < limits.deadline {
            let words = format!(
                "it waits for ConfigMap {} to have the key {}",
                facts.config_map, self.key
            );
            return Step {
                orders: Orders {
                    key,
                    investigate: false,
                },
                again: Some(limits.deadline.saturating_sub(waited)),
                ..step(Standing::Pending(words), PluginLabel::Leave)
            };
        }
        let standing = self.standing(differences(facts), false, facts);
        Step {
            orders: Orders {
                key,
                investigate: true,
            },
            ..step(standing, PluginLabel::Leave)
        }
    }

    fn settling(&self, now: Duration, until: Duration) -> Step {
        let words = format!(
            "it waits for kubelet to bring the key {} to the plugin",
            self.key
        );
        Step {
            orders: Orders {
                key: Some(self.key.clone()),
                investigate: false,
            },
            again: Some(until.saturating_sub(now)),
            ..step(Standing::Pending(words), PluginLabel::Leave)
        }
    }

    fn labelled(
        &mut self,
        now: Duration,
        limits: Limits,
        (since, facts): (Duration, &Facts<'_>),
    ) -> Step {
        let label = PluginLabel::Is(self.key.clone());
        let differs = differences(facts);
        let is_said = facts.view.labels.get(PLUGIN_CONFIG) == Some(&self.key);
        if differs.is_empty() && is_said {
            // A later deviation starts a new wait.
            self.phase = Some(Phase::Labelled { since: now });
            self.found = None;
            return step(Standing::InForce, label);
        }
        let waited = now.saturating_sub(since);
        if waited < limits.deadline {
            let words =
                format!("the label {PLUGIN_CONFIG} says it; the Node does not offer it yet");
            return Step {
                again: Some(limits.deadline.saturating_sub(waited)),
                ..step(Standing::Pending(words), label)
            };
        }
        let standing = self.standing(differs, true, facts);
        Step {
            orders: Orders {
                key: Some(self.key.clone()),
                investigate: true,
            },
            ..step(standing, label)
        }
    }

    /// The state after the deadline: the diagnosis, once evidence was collected.
    fn standing(
        &mut self,
        differs: Vec<Mismatch>,
        is_labelled: bool,
        facts: &Facts<'_>,
    ) -> Standing {
        let heard = facts.heard;
        let Some(evidence) = heard.evidence.clone().filter(|_| heard.key == self.key) else {
            return Standing::Pending("it takes long, and is being looked into".to_owned());
        };
        if let Some((known, by, found)) = &self.found
            && *known == differs
            && *by == evidence
        {
            return Standing::NotInForce(found.clone());
        }
        let found = diagnose(&Case {
            config_map: facts.config_map,
            key: (&self.key, &facts.wish.config),
            strategy: facts.strategy,
            is_labelled,
            mismatches: &differs,
            evidence: &evidence,
        });
        self.found = Some((differs, evidence, found.clone()));
        Standing::NotInForce(found)
    }
}

fn differences(facts: &Facts<'_>) -> Vec<Mismatch> {
    let view = facts.view;
    mismatches(facts.wanted, (&view.allocatable, &view.capacity))
}

/// The other writer that owns the label.
fn stranger(view: &View) -> Option<&str> {
    let owners = view.owners.labels.get(PLUGIN_CONFIG);
    if owners.is_some_and(|all| all.contains(SHARING_MANAGER)) {
        return None;
    }
    let first = owners.and_then(|all| all.first());
    Some(first.map_or("somebody", String::as_str))
}

/// Returns whether the Node shows signs of NVIDIA's plugin.
pub fn runs(view: &View) -> bool {
    let deploys = view.labels.get(operands::PLUGIN);
    let offers = |(name, count): (&String, &u64)| *count > 0 && is_of_plugin(name);
    deploys.is_some_and(|value| value == operands::RUNNING || value == operands::PAUSED)
        || view.labels.contains_key(PLUGIN_CONFIG)
        || view.capacity.iter().any(offers)
        || view.allocatable.iter().any(offers)
}

fn step(standing: Standing, label: PluginLabel) -> Step {
    Step {
        standing,
        label,
        orders: Orders::default(),
        again: None,
    }
}

#[cfg(test)]
mod tests;
