//! What a layout would do to a node: the agent's own planner over what its agent reported last.
//!
//! The layouts that can be named are those of the file that the aggregator was given, and those made for the very devices of
//! the node, such as `all-balanced`; a file's layout hides a made one of the same name. Who holds a partition is known by the
//! process id only: commands and pods are the node's to tell.

use std::collections::BTreeSet;

use thiserror::Error;

use super::layouts::Current;
use crate::domain::inventory::Inventory;
use crate::domain::layout::{
    Dialect, Layout, Layouts, Resolved, RuleError, Targets, generate, resolve,
};
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

/// The names of layouts that can be asked for, in their order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Names {
    /// Those of the file.
    pub file: Vec<String>,
    /// Those made for the node's devices and not hidden by the file's.
    pub made: Vec<String>,
}

/// Why there is no plan.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DryRunError {
    /// Nothing has this name.
    #[error("there is no layout {0:?} for this node")]
    NoSuchLayout(String),
    /// The layout cannot be meant for this node.
    #[error("layout {name:?} does not suit this node: {}", joined(.errors))]
    Rules {
        /// The layout.
        name: String,
        /// All that is wrong with it; never empty.
        errors: Vec<RuleError>,
    },
}

impl Current {
    /// The layouts that can be asked for on a node that has this.
    pub fn names(&self, inventory: &Inventory) -> Names {
        let of = |layouts: &Layouts| -> Vec<String> {
            let layouts = layouts.layouts.iter();
            layouts.map(|layout| layout.name.clone()).collect()
        };
        let file = self.layouts.as_deref().map(of).unwrap_or_default();
        let mut made = of(&made(inventory));
        made.retain(|name| !file.contains(name));
        Names { file, made }
    }

    /// What would happen to a node that has this if the layout `name` were put in force.
    pub fn dry_run(
        &self,
        name: &str,
        inventory: &Inventory,
        policy: Policy,
    ) -> Result<DryRun, DryRunError> {
        let made = made(inventory);
        let file = self.layouts.as_deref();
        let (layout, dialect) = file
            .and_then(|file| Some((file.by_name(name)?, file.dialect)))
            .or_else(|| Some((made.by_name(name)?, made.dialect)))
            .ok_or_else(|| DryRunError::NoSuchLayout(name.to_owned()))?;
        run(layout, dialect, inventory, policy)
    }
}

fn made(inventory: &Inventory) -> Layouts {
    generate(inventory, Dialect::Octavo)
}

fn run(
    layout: &Layout,
    dialect: Dialect,
    inventory: &Inventory,
    policy: Policy,
) -> Result<DryRun, DryRunError> {
    let Resolved { targets, warnings } =
        resolve(layout, dialect, inventory).map_err(|errors| DryRunError::Rules {
            name: layout.name.clone(),
            errors,
        })?;
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

fn joined(errors: &[RuleError]) -> String {
    let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
    errors.join("; ")
}
