//! Dry run of a layout on a node: the agent's planner, applied to the inventory that the agent last reported. Holders
//! of a partition are known by process ID only; commands and pods are known on the node.

use std::collections::BTreeSet;

use octavo_files::config_files::{LayoutFileSnapshot, LayoutLookupError};
use octavo_model::inventory::Inventory;
use octavo_planner::layout::{ResolvedLayout, Targets};
use octavo_planner::plan::{self, NodePlan, PlanInput, Policy};

/// Plan for a layout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DryRun {
    /// Target of each device.
    pub targets: Targets,
    /// The changes.
    pub plan: NodePlan,
    /// Human-readable warnings about the layout on this node.
    pub warnings: Vec<String>,
}

/// Plans the changes that applying the layout `name` would make to a node with this inventory.
pub fn dry_run(
    layouts: &LayoutFileSnapshot,
    name: &str,
    inventory: &Inventory,
    policy: Policy,
) -> Result<DryRun, LayoutLookupError> {
    let ResolvedLayout { targets, warnings, .. } = layouts.resolve(name, inventory)?;
    let plan = plan::plan(&PlanInput {
        inventory,
        targets: &targets,
        holders: &[],
        policy: &policy,
        refused: &BTreeSet::new(),
    });
    let warnings = warnings.iter().map(ToString::to_string).collect();
    Ok(DryRun { targets, plan, warnings })
}
