//! The way of a configuration to NVIDIA's device plugin, as a state machine: it is asked for, the `ConfigMap` has it, kubelet has
//! brought it, the label says so, the Node offers it; or not, and why.
//!
//! Nothing is remembered but since when it waits: what the Node's label and the `ConfigMap` say now is looked at every time.

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

/// How long things may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// After so long without what was asked it is looked into.
    pub deadline: Duration,
    /// How long kubelet may take to bring a new key to the plugin's pod.
    pub settle: Duration,
}

/// What there is to be looked at.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// What the plugin shall be told.
    pub wish: &'a HandOff,
    /// What the Node shall offer then, by resource.
    pub wanted: &'a BTreeMap<String, u64>,
    /// How partitions are called.
    pub strategy: MigStrategy,
    /// The Node.
    pub view: &'a View,
    /// Where the `ConfigMap` is: `gpu-operator/plugin-config`.
    pub config_map: &'a str,
    /// What the API server said of it and of the plugin.
    pub heard: &'a Heard,
    /// Whether NVIDIA's plugin is there for certain, because a person said so.
    pub is_certain: bool,
}

/// What is to be asked of the API server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Orders {
    /// The key of the `ConfigMap` that is waited for.
    pub key: Option<String>,
    /// Whether it is to be looked what is in the way.
    pub investigate: bool,
}

/// What it said.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Heard {
    /// The key that this is about.
    pub key: String,
    /// The `ConfigMap`, once it was asked about.
    pub config_map: Option<Found<ConfigMap>>,
    /// What is in the way, where it was looked into.
    pub evidence: Option<Evidence>,
}

/// How far it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// On its way: what it waits for.
    Pending(String),
    /// The Node offers it.
    InForce,
    /// It does not, and why.
    NotInForce(Vec<Finding>),
    /// It shall not be said to the plugin.
    Refused(Finding),
}

/// What a look came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// How far it is.
    pub standing: Standing,
    /// What the Node's label shall be.
    pub label: PluginLabel,
    /// What is to be asked.
    pub orders: Orders,
    /// When to look again at the latest; from now on.
    pub again: Option<Duration>,
}

/// A configuration on its way.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Course {
    key: String,
    phase: Option<Phase>,
    /// What was found, and what it was found by: it is told anew when that changes, and not with every minute.
    found: Option<(Vec<Mismatch>, Evidence, Vec<Finding>)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// For the plugin to be there, or for the `ConfigMap` to have the key.
    Waiting { since: Duration },
    /// The `ConfigMap` has it, and kubelet brings it.
    Settling { until: Duration },
    /// The label says it.
    Labelled { since: Duration },
}

impl Course {
    /// Holds it against what there is now.
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
        // What the Node says already is never waited for: an agent before this one saw to it.
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

    /// Until the key is there the label stays what it was: config-manager ends where a label names a key that it does not have.
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
            // What it does from now on is another matter.
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

    /// It took too long: what was found, once it was looked into.
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

/// Who else has the label.
fn stranger(view: &View) -> Option<&str> {
    let owners = view.owners.labels.get(PLUGIN_CONFIG);
    if owners.is_some_and(|all| all.contains(SHARING_MANAGER)) {
        return None;
    }
    let first = owners.and_then(|all| all.first());
    Some(first.map_or("somebody", String::as_str))
}

/// Whether NVIDIA's plugin is there, as far as the Node says.
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
