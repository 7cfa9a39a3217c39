//! The part of a Node that the agent acts on. Changes to anything else in the Node are ignored.

use std::collections::BTreeMap;

use octavo_model::accelerators::TYPE_OVERRIDE;
use octavo_node::node_object::operands::PLUGIN_CONFIG_LABEL;
use octavo_node::node_object::selection::active_mig_manager;
use octavo_node::node_object::{
    Compat, DRAIN_ANNOTATION, LOG_LEVEL_ANNOTATION, ObservedNode, SelectedLayout, operands, select,
};

use crate::draining::is_tainted;

/// The part of a Node that the agent acts on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NodeInputs {
    pub(super) uid: String,
    pub(super) selected: Option<SelectedLayout>,
    pub(super) at_work: Option<String>,
    pub(super) log_level: Option<String>,
    pub(super) drain: Option<String>,
    pub(super) type_override: Option<String>,
    pub(super) deployed: BTreeMap<String, String>,
    pub(super) is_tainted: bool,
    pub(super) offered: BTreeMap<String, u64>,
}

impl NodeInputs {
    /// Extracts the facet of `view`; `compat` selects which other program's labels are honored too.
    pub(super) fn from_view(view: &ObservedNode, compat: Compat) -> Self {
        let deployed = view.labels.iter().filter(|(key, _)| {
            operands::CLIENT_LABELS.contains(&key.as_str()) || *key == PLUGIN_CONFIG_LABEL
        });
        Self {
            uid: view.uid.clone(),
            selected: select(view, compat),
            at_work: active_mig_manager(view),
            log_level: view.annotations.get(LOG_LEVEL_ANNOTATION).cloned(),
            drain: view.annotations.get(DRAIN_ANNOTATION).cloned(),
            type_override: view.labels.get(TYPE_OVERRIDE).cloned(),
            deployed: deployed.map(|(key, value)| (key.clone(), value.clone())).collect(),
            is_tainted: is_tainted(view),
            offered: view.allocatable.clone(),
        }
    }
}
