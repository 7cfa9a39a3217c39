//! Calculates the changes of a Node object: the difference between current and desired fields, and nothing else.
//!
//! Every key has one writer. If another writer, such as a program or a user, owns one of Octavo's keys, it retains the
//! key, and the decision names it. Octavo never forces a field, except the status label that it sets in place of
//! mig-manager.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::operands::{DEPLOY_PREFIX, PAUSED, PLUGIN_CONFIG_LABEL, RUNNING};
use super::view::{ObservedNode, Taint, is_owned_by};
use super::{
    COMPAT_FIELD_MANAGER, FIELD_MANAGER, MIG_CONFIG_STATE_LABEL, NOT_READY_TAINT,
    REPARTITIONING_TAINT, TAINT_EFFECT,
};
use crate::label_set::LabelSet;

/// Desired fields of a Node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DesiredNode {
    /// UID of the Node that these fields belong to, once all of them are known. Without a match nothing is written,
    /// because existing values may be correct.
    pub uid: Option<String>,
    /// Hardware labels.
    pub labels: DesiredLabels,
    /// Annotations with keys below `octavo.dev/`.
    pub annotations: BTreeMap<String, String>,
    /// Taints the Node because its layout is not applied yet.
    pub not_ready: bool,
    /// Taints the Node because pods are being evicted.
    pub repartitioning: bool,
    /// Value of the status label that the agent sets in place of mig-manager.
    pub mig_config_state: Option<&'static str>,
    /// Operands to pause, by the key of their label.
    pub paused: BTreeSet<String>,
    /// Configuration name of NVIDIA's device plugin: the current and the desired one, if it must change.
    pub plugin_config: Option<(String, String)>,
    /// The configuration label of NVIDIA's device plugin, if Octavo manages it.
    pub plugin_label: PluginLabel,
}

/// Desired configuration label of NVIDIA's device plugin. A label of another writer is never changed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum PluginLabel {
    /// No label from Octavo.
    #[default]
    Absent,
    /// Unchanged.
    Unchanged,
    /// This key of the plugin's `ConfigMap`.
    Set(String),
}

/// Desired hardware labels of a Node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum DesiredLabels {
    /// None from Octavo: labels are written elsewhere, or are being removed.
    #[default]
    None,
    /// The labels that Octavo wrote before, or these if there are none: the driver has not responded since the agent
    /// started.
    IfAbsent(LabelSet),
    /// Exactly these labels.
    Exactly(LabelSet),
}

/// A change of a Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeWrite {
    /// Server-side apply of all fields of a manager.
    Apply {
        /// Field manager.
        manager: &'static str,
        /// Takes over fields of other managers.
        force: bool,
        /// All labels of this manager.
        labels: BTreeMap<String, String>,
        /// All annotations of this manager.
        annotations: BTreeMap<String, String>,
    },
    /// All taints, if the Node is unchanged since it was read.
    Taints(Vec<Taint>),
    /// The value of another writer's label, if it is unchanged since it was read.
    Replace {
        /// Label key.
        key: String,
        /// Expected value.
        from: String,
        /// New value.
        to: String,
    },
}

/// A desired key that another manager owns.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct ConflictingKey {
    /// Key of the label or annotation.
    pub key: String,
    /// The other manager.
    pub owner: String,
}

/// Changes to make on a Node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeChanges {
    /// Writes, in order.
    pub writes: Vec<NodeWrite>,
    /// Keys that other managers own with a different value.
    pub conflicts: Vec<ConflictingKey>,
}

/// Field manager for the configuration label of NVIDIA's device plugin; separate, so that applying it affects no other
/// field.
pub const SHARING_FIELD_MANAGER: &str = "octavo-agent-sharing";

/// Compares a Node with its desired fields and returns the changes.
pub fn diff_node(view: &ObservedNode, wanted: &DesiredNode) -> NodeChanges {
    let mut decision = NodeChanges::default();
    if wanted.uid.as_ref() != Some(&view.uid) {
        return decision;
    }
    decision.apply(view, wanted);
    decision.write_mig_state(view, wanted);
    decision.plugin(view, &wanted.plugin_label);
    decision.taint(view, wanted);
    decision.operands(view, wanted);
    decision.conflicts.sort();
    decision
}

impl NodeChanges {
    fn apply(&mut self, view: &ObservedNode, wanted: &DesiredNode) {
        let had = view.labels_of(FIELD_MANAGER);
        let wished = match &wanted.labels {
            DesiredLabels::None => BTreeMap::new(),
            DesiredLabels::IfAbsent(_) if !had.is_empty() => had.clone(),
            DesiredLabels::IfAbsent(labels) | DesiredLabels::Exactly(labels) => to_map(labels),
        };
        let labels = self.claimable(&view.labels, &view.owners.labels, wished);
        let annotations =
            self.claimable(&view.annotations, &view.owners.annotations, wanted.annotations.clone());
        if labels != had || annotations != view.annotations_of(FIELD_MANAGER) {
            self.writes.push(NodeWrite::Apply {
                manager: FIELD_MANAGER,
                force: false,
                labels,
                annotations,
            });
        }
    }

    /// Returns the desired fields that no other manager owns. A field with equal value may stay shared if Octavo
    /// already owns it.
    fn claimable(
        &mut self,
        now: &BTreeMap<String, String>,
        owners: &BTreeMap<String, BTreeSet<String>>,
        mut wished: BTreeMap<String, String>,
    ) -> BTreeMap<String, String> {
        wished.retain(|key, value| {
            let all = owners.get(key);
            let other = all.and_then(|all| all.iter().find(|owner| *owner != FIELD_MANAGER));
            let Some(other) = other else { return true };
            let agreed = now.get(key) == Some(value);
            if !agreed {
                self.conflicts.push(ConflictingKey { key: key.clone(), owner: other.clone() });
            }
            agreed && is_owned_by(owners, key, FIELD_MANAGER)
        });
        wished
    }

    fn write_mig_state(&mut self, view: &ObservedNode, wanted: &DesiredNode) {
        let had = view.labels_of(COMPAT_FIELD_MANAGER);
        let mig_state = wanted.mig_config_state;
        let labels: BTreeMap<String, String> = mig_state
            .map(|state| (MIG_CONFIG_STATE_LABEL.to_owned(), state.to_owned()))
            .into_iter()
            .collect();
        if labels != had {
            self.writes.push(NodeWrite::Apply {
                manager: COMPAT_FIELD_MANAGER,
                force: true,
                labels,
                annotations: BTreeMap::new(),
            });
        }
    }

    fn plugin(&mut self, view: &ObservedNode, wanted: &PluginLabel) {
        let had = view.labels_of(SHARING_FIELD_MANAGER);
        let labels: BTreeMap<String, String> = match wanted {
            PluginLabel::Unchanged => return,
            PluginLabel::Absent => BTreeMap::new(),
            PluginLabel::Set(key) => {
                let owners = view.owners.labels.get(PLUGIN_CONFIG_LABEL);
                let mut others = owners.into_iter().flatten();
                let now = view.labels.get(PLUGIN_CONFIG_LABEL);
                if let Some(owner) = others.find(|owner| *owner != SHARING_FIELD_MANAGER) {
                    // Another manager with the same value may retain the label.
                    if now != Some(key) {
                        self.conflicts.push(ConflictingKey {
                            key: PLUGIN_CONFIG_LABEL.to_owned(),
                            owner: owner.clone(),
                        });
                    }
                    return;
                }
                [(PLUGIN_CONFIG_LABEL.to_owned(), key.clone())].into()
            }
        };
        if labels != had {
            self.writes.push(NodeWrite::Apply {
                manager: SHARING_FIELD_MANAGER,
                force: false,
                labels,
                annotations: BTreeMap::new(),
            });
        }
    }

    fn taint(&mut self, view: &ObservedNode, wanted: &DesiredNode) {
        let ours =
            [(NOT_READY_TAINT, wanted.not_ready), (REPARTITIONING_TAINT, wanted.repartitioning)];
        let mut taints = view.taints.clone();
        for (key, is_wanted) in ours {
            // A taint with another effect does not serve its purpose, and what waits for the taint would wait forever.
            let effects = taints.iter().filter(|taint| taint.key == key);
            let effects: Vec<&str> = effects.map(|taint| taint.effect.as_str()).collect();
            if effects == if is_wanted { &[TAINT_EFFECT][..] } else { &[][..] } {
                continue;
            }
            taints.retain(|taint| taint.key != key);
            if is_wanted {
                taints.push(Taint {
                    key: key.to_owned(),
                    value: None,
                    effect: TAINT_EFFECT.to_owned(),
                    added: None,
                });
            }
        }
        if taints != view.taints {
            self.writes.push(NodeWrite::Taints(taints));
        }
    }

    fn operands(&mut self, view: &ObservedNode, wanted: &DesiredNode) {
        for (key, value) in &view.labels {
            let to = match value.as_str() {
                RUNNING if wanted.paused.contains(key) => PAUSED,
                PAUSED if key.starts_with(DEPLOY_PREFIX) && !wanted.paused.contains(key) => RUNNING,
                _ => continue,
            };
            self.writes.push(NodeWrite::Replace {
                key: key.clone(),
                from: value.clone(),
                to: to.to_owned(),
            });
        }
        let config = view.labels.get(PLUGIN_CONFIG_LABEL);
        if let (Some(now), Some((from, to))) = (config, &wanted.plugin_config)
            && now == from
        {
            self.writes.push(NodeWrite::Replace {
                key: PLUGIN_CONFIG_LABEL.to_owned(),
                from: from.clone(),
                to: to.clone(),
            });
        }
    }
}

fn to_map(labels: &LabelSet) -> BTreeMap<String, String> {
    let labels = labels.iter();
    labels.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

#[cfg(test)]
mod tests;
