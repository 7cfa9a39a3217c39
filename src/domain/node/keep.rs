//! What is to be written to a Node so that it says what we want said: what differs, and nothing else.
//!
//! A key has one writer. Where somebody else has one of ours, be it another program or a person, it is theirs for as long as
//! they have it, and they are named. Nothing is ever forced, but what we answer in the place of a program that is gone.

use std::collections::{BTreeMap, BTreeSet};

use super::operands::{DEPLOY, PAUSED, RUNNING};
use super::view::{Taint, View, has};
use super::{COMPAT_MANAGER, EFFECT, MANAGER, MIG_CONFIG_STATE, NOT_READY, REPARTITIONING};
use crate::domain::labels::LabelSet;

/// What a Node shall say.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wanted {
    /// The Node that this is for, by its UID, once all of it is known. To another one, and before, nothing is written: what is there
    /// may be right.
    pub uid: Option<String>,
    /// Labels of the hardware.
    pub labels: Labels,
    /// Annotations: keys below `octavo.dev/`.
    pub annotations: BTreeMap<String, String>,
    /// Whether no pod shall go there yet.
    pub not_ready: bool,
    /// Whether no pod shall go there because others are evicted.
    pub repartitioning: bool,
    /// The answer to whoever asks by mig-manager's label.
    pub mig_config_state: Option<&'static str>,
    /// Operands that shall be paused, by the key of their label.
    pub paused: BTreeSet<String>,
    /// The configuration of NVIDIA's device plugin: from which to which, where it is to be another one.
    pub plugin_config: Option<(String, String)>,
    /// The label that NVIDIA's device plugin follows, as far as it is ours.
    pub plugin_label: PluginLabel,
}

/// What the label that NVIDIA's device plugin follows shall be. Somebody else's is never touched.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum PluginLabel {
    /// None of ours.
    #[default]
    Absent,
    /// What it is.
    Leave,
    /// This key of the plugin's `ConfigMap`.
    Is(String),
}

/// Which labels of the hardware a Node shall have.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Labels {
    /// None of ours: they go elsewhere, or are to go.
    #[default]
    None,
    /// Whatever it has of ours, and these where it has nothing: the driver hangs since we started.
    Unless(LabelSet),
    /// These.
    Exactly(LabelSet),
}

/// A change of a Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// All that a manager says, applied on the server's side.
    Apply {
        /// Who says it.
        manager: &'static str,
        /// Whether keys are taken from others.
        force: bool,
        /// All of its labels.
        labels: BTreeMap<String, String>,
        /// All of its annotations.
        annotations: BTreeMap<String, String>,
    },
    /// All taints, if the Node is still the one that was seen.
    Taints(Vec<Taint>),
    /// The value of a label that is not ours, if it is still the one that was seen.
    Replace {
        /// The label.
        key: String,
        /// What it says.
        from: String,
        /// What it shall say.
        to: String,
    },
}

/// A key that we would write and somebody else has.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Yielded {
    /// The label's or annotation's key.
    pub key: String,
    /// Who has it.
    pub owner: String,
}

/// What to do about a Node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Decision {
    /// What to write, in this order.
    pub writes: Vec<Write>,
    /// What others say otherwise than we would.
    pub yielded: Vec<Yielded>,
}

/// Who we are where we tell NVIDIA's device plugin what to share: a manager of its own, so that nothing else is said with it.
pub const SHARING_MANAGER: &str = "octavo-agent-sharing";

/// What the device plugin's config-manager follows. Source: NVIDIA k8s-device-plugin, `cmd/config-manager`.
pub const PLUGIN_CONFIG: &str = "nvidia.com/device-plugin.config";

/// Holds what a Node says against what it shall say.
pub fn decide(view: &View, wanted: &Wanted) -> Decision {
    let mut decision = Decision::default();
    if wanted.uid.as_ref() != Some(&view.uid) {
        return decision;
    }
    decision.apply(view, wanted);
    decision.answer(view, wanted);
    decision.plugin(view, &wanted.plugin_label);
    decision.taint(view, wanted);
    decision.operands(view, wanted);
    decision.yielded.sort();
    decision
}

impl Decision {
    fn apply(&mut self, view: &View, wanted: &Wanted) {
        let had = view.labels_of(MANAGER);
        let wished = match &wanted.labels {
            Labels::None => BTreeMap::new(),
            Labels::Unless(_) if !had.is_empty() => had.clone(),
            Labels::Unless(labels) | Labels::Exactly(labels) => texts(labels),
        };
        let labels = self.claimed(&view.labels, &view.owners.labels, wished);
        let annotations = self.claimed(
            &view.annotations,
            &view.owners.annotations,
            wanted.annotations.clone(),
        );
        if labels != had || annotations != view.annotations_of(MANAGER) {
            self.writes.push(Write::Apply {
                manager: MANAGER,
                force: false,
                labels,
                annotations,
            });
        }
    }

    /// Of what we would say, that which nobody else says. What another one says just so may stay ours if it was.
    fn claimed(
        &mut self,
        now: &BTreeMap<String, String>,
        owners: &BTreeMap<String, BTreeSet<String>>,
        mut wished: BTreeMap<String, String>,
    ) -> BTreeMap<String, String> {
        wished.retain(|key, value| {
            let all = owners.get(key);
            let other = all.and_then(|all| all.iter().find(|owner| *owner != MANAGER));
            let Some(other) = other else { return true };
            let agreed = now.get(key) == Some(value);
            if !agreed {
                self.yielded.push(Yielded {
                    key: key.clone(),
                    owner: other.clone(),
                });
            }
            agreed && has(owners, key, MANAGER)
        });
        wished
    }

    fn answer(&mut self, view: &View, wanted: &Wanted) {
        let had = view.labels_of(COMPAT_MANAGER);
        let answer = wanted.mig_config_state;
        let labels: BTreeMap<String, String> = answer
            .map(|state| (MIG_CONFIG_STATE.to_owned(), state.to_owned()))
            .into_iter()
            .collect();
        if labels != had {
            self.writes.push(Write::Apply {
                manager: COMPAT_MANAGER,
                force: true,
                labels,
                annotations: BTreeMap::new(),
            });
        }
    }

    fn plugin(&mut self, view: &View, wanted: &PluginLabel) {
        let had = view.labels_of(SHARING_MANAGER);
        let labels: BTreeMap<String, String> = match wanted {
            PluginLabel::Leave => return,
            PluginLabel::Absent => BTreeMap::new(),
            PluginLabel::Is(key) => {
                let owners = view.owners.labels.get(PLUGIN_CONFIG);
                let mut others = owners.into_iter().flatten();
                let now = view.labels.get(PLUGIN_CONFIG);
                if let Some(owner) = others.find(|owner| *owner != SHARING_MANAGER) {
                    // Who says just this may go on saying it.
                    if now != Some(key) {
                        self.yielded.push(Yielded {
                            key: PLUGIN_CONFIG.to_owned(),
                            owner: owner.clone(),
                        });
                    }
                    return;
                }
                [(PLUGIN_CONFIG.to_owned(), key.clone())].into()
            }
        };
        if labels != had {
            self.writes.push(Write::Apply {
                manager: SHARING_MANAGER,
                force: false,
                labels,
                annotations: BTreeMap::new(),
            });
        }
    }

    fn taint(&mut self, view: &View, wanted: &Wanted) {
        let ours = [
            (NOT_READY, wanted.not_ready),
            (REPARTITIONING, wanted.repartitioning),
        ];
        let mut taints = view.taints.clone();
        for (key, is_wanted) in ours {
            // A taint of another effect is not what is wanted, and nothing that is waited for comes of it.
            let effects = taints.iter().filter(|taint| taint.key == key);
            let effects: Vec<&str> = effects.map(|taint| taint.effect.as_str()).collect();
            if effects == if is_wanted { &[EFFECT][..] } else { &[][..] } {
                continue;
            }
            taints.retain(|taint| taint.key != key);
            if is_wanted {
                taints.push(Taint {
                    key: key.to_owned(),
                    value: None,
                    effect: EFFECT.to_owned(),
                    added: None,
                });
            }
        }
        if taints != view.taints {
            self.writes.push(Write::Taints(taints));
        }
    }

    fn operands(&mut self, view: &View, wanted: &Wanted) {
        for (key, value) in &view.labels {
            let to = match value.as_str() {
                RUNNING if wanted.paused.contains(key) => PAUSED,
                PAUSED if key.starts_with(DEPLOY) && !wanted.paused.contains(key) => RUNNING,
                _ => continue,
            };
            self.writes.push(Write::Replace {
                key: key.clone(),
                from: value.clone(),
                to: to.to_owned(),
            });
        }
        let config = view.labels.get(PLUGIN_CONFIG);
        if let (Some(now), Some((from, to))) = (config, &wanted.plugin_config)
            && now == from
        {
            self.writes.push(Write::Replace {
                key: PLUGIN_CONFIG.to_owned(),
                from: from.clone(),
                to: to.clone(),
            });
        }
    }
}

fn texts(labels: &LabelSet) -> BTreeMap<String, String> {
    let labels = labels.iter();
    labels
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests;
