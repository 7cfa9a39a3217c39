//! What a layout would do to a node: the agent's own planner over what its agent reported last. Who holds a partition is known
//! by the process id only: commands and pods are the node's to tell.

use std::collections::BTreeSet;

use crate::book::{ChoiceError, Current};
use crate::domain::inventory::Inventory;
use crate::domain::layout::{Resolved, Targets};
use crate::domain::plan::{self, NodePlan, Policy, Question};

/// A plan for a layout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DryRun {
    /// What the layout asks of each device.
    pub targets: Targets,
    /// What would happen.
    pub plan: NodePlan,
    /// What is odd about the layout on this node, in words for a person.
    pub warnings: Vec<String>,
}

/// What would happen to a node that has this if the layout `name` were put in force.
pub fn dry_run(
    layouts: &Current,
    name: &str,
    inventory: &Inventory,
    policy: Policy,
) -> Result<DryRun, ChoiceError> {
    let Resolved {
        targets, warnings, ..
    } = layouts.meant(name, inventory)?;
    let plan = plan::plan(&Question {
        inventory,
        targets: &targets,
        holders: &[],
        policy: &policy,
        refused: &BTreeSet::new(),
    });
    let warnings = warnings.iter().map(ToString::to_string).collect();
    Ok(DryRun {
        targets,
        plan,
        warnings,
    })
}
