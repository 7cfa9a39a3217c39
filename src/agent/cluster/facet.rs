//! The part of a Node that the agent acts on. Changes to anything else in the Node are ignored.

use std::collections::BTreeMap;

use crate::agent::draining::is_tainted;
use crate::domain::accelerators::TYPE_OVERRIDE;
use crate::domain::node::keep::PLUGIN_CONFIG;
use crate::domain::node::operands;
use crate::domain::node::selection::at_work;
use crate::domain::node::{Compat, LOG_LEVEL, Selected, View, select};

/// The part of a Node that the agent acts on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Facet {
    pub(super) uid: String,
    pub(super) selected: Option<Selected>,
    pub(super) at_work: Option<String>,
    pub(super) log_level: Option<String>,
    pub(super) type_override: Option<String>,
    pub(super) deployed: BTreeMap<String, String>,
    pub(super) is_tainted: bool,
    pub(super) offered: BTreeMap<String, u64>,
}

impl Facet {
    /// Extracts the facet of `view`; `compat` selects which other program's labels are honored too.
    pub(super) fn of(view: &View, compat: Compat) -> Self {
        let deployed = view
            .labels
            .iter()
            .filter(|(key, _)| operands::CLIENTS.contains(&key.as_str()) || *key == PLUGIN_CONFIG);
        Self {
            uid: view.uid.clone(),
            selected: select(view, compat),
            at_work: at_work(view),
            log_level: view.annotations.get(LOG_LEVEL).cloned(),
            type_override: view.labels.get(TYPE_OVERRIDE).cloned(),
            deployed: deployed
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect(),
            is_tainted: is_tainted(view),
            offered: view.allocatable.clone(),
        }
    }
}
