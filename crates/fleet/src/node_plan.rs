//! Dry run of a layout on several nodes: the document of the REST API, and its rows.

use std::fmt;

use octavo_model::inventory::Inventory;
use octavo_model::text::truncate_visibly;
use octavo_planner::plan::messages::PlanFormatter;
use octavo_planner::plan::{DevicePlan, DevicePlanResult, Disruption, NodePlan, PlanOutcome};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

/// Maximum length of an explanation in bytes.
const MAX_MESSAGE_BYTES: usize = 1024;

/// Dry run of a layout on the nodes of a page.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodePlanList {
    /// `octavo.dev/v1`.
    pub api_version: String,
    /// `NodePlanList`.
    pub kind: String,
    /// Revision of the fleet; increases with every change.
    pub revision: u64,
    /// Name of the layout.
    pub layout: String,
    /// Number of matching nodes on all pages.
    pub total: usize,
    /// Token of the next page, for the parameter `continue`; absent on the last page.
    #[serde(rename = "continue")]
    pub continue_token: Option<String>,
    /// Reason why the layouts may differ from the current content of the file; absent if they do not.
    pub notice: Option<String>,
    /// Sums over the nodes of this page.
    pub totals: NodePlanTotals,
    /// The nodes of this page.
    pub items: Vec<NodePlanRow>,
}

/// Sums over nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodePlanTotals {
    /// Number of nodes.
    pub nodes: usize,
    /// Nodes on which nothing has to be done.
    pub unchanged: usize,
    /// Nodes with changes that nothing blocks.
    pub changes: usize,
    /// Nodes with a blocked device. Their other devices change.
    pub blocked: usize,
    /// Nodes that do not support the layout. Nothing changes there.
    pub infeasible: usize,
    /// Nodes without a plan, because the layout or the devices of the node are unknown.
    pub unplanned: usize,
    /// Changed devices.
    pub changed_devices: usize,
    /// Destroyed instances: GPU instances, and compute instances in GPU instances that stay.
    pub destroyed: usize,
    /// Created instances, counted the same way.
    pub created: usize,
}

/// Effect of a layout on one node.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodePlanRow {
    /// Name of the Kubernetes Node.
    pub node: String,
    /// True if the node is stale: the plan is based on its last reported state.
    pub stale: bool,
    /// The worst outcome of all devices; absent if there is no plan.
    pub outcome: Option<PlanOutcome>,
    /// Number of devices that the layout covers.
    pub devices: usize,
    /// Number of devices that change; 0 if the node does not support the layout, because then nothing changes.
    pub changed_devices: usize,
    /// Destroyed instances: GPU instances, and compute instances in GPU instances that stay.
    pub destroyed: usize,
    /// Created instances, counted the same way.
    pub created: usize,
    /// The largest disruption of all devices.
    pub disruption: Disruption,
    /// Reasons why devices are blocked or do not support the layout, or why there is no plan.
    pub problems: Vec<NodePlanProblem>,
    /// Human-readable warnings about the plan.
    pub warnings: Vec<String>,
}

/// Obstacle to a layout on a node.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodePlanProblem {
    /// Display name of the device: `GPU 3`; absent for the whole node.
    pub device: Option<String>,
    /// Human-readable explanation, of bounded length; it names the holders that block the device.
    pub message: String,
}

impl NodePlanRow {
    /// Effect of a plan on a node with this inventory.
    pub fn of_plan(node: &str, stale: bool, inventory: &Inventory, plan: &NodePlan) -> Self {
        let outcome = plan.outcome();
        let row = Self {
            outcome: Some(outcome),
            devices: plan.devices.len(),
            problems: plan.devices.iter().filter_map(|one| problem(inventory, one)).collect(),
            ..Self::empty(node, stale)
        };
        if outcome == PlanOutcome::Infeasible {
            return row;
        }
        let changed = plan.devices.iter().filter(|device| device.verdict.change().is_some());
        let summary = plan.summary();
        Self {
            changed_devices: changed.count(),
            destroyed: summary.destroyed.saturating_add(summary.compute_destroyed),
            created: summary.created.saturating_add(summary.compute_created),
            disruption: summary.disruption,
            ..row
        }
    }

    /// Node that does not support the layout as a whole.
    pub fn infeasible(node: &str, stale: bool, reason: &str) -> Self {
        Self { outcome: Some(PlanOutcome::Infeasible), ..Self::unplanned(node, stale, reason) }
    }

    /// Node without a plan.
    pub fn unplanned(node: &str, stale: bool, reason: &str) -> Self {
        Self { problems: vec![NodePlanProblem::new(None, reason)], ..Self::empty(node, stale) }
    }

    /// Adds a warning about the plan.
    #[must_use]
    pub fn with_warning(mut self, warning: &str) -> Self {
        self.warnings.push(warning.to_owned());
        self
    }

    fn empty(node: &str, stale: bool) -> Self {
        Self {
            node: node.to_owned(),
            stale,
            outcome: None,
            devices: 0,
            changed_devices: 0,
            destroyed: 0,
            created: 0,
            disruption: Disruption::None,
            problems: Vec::new(),
            warnings: Vec::new(),
        }
    }
}

impl fmt::Display for NodePlanProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.device {
            Some(device) => write!(f, "{device}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl NodePlanProblem {
    fn new(device: Option<String>, message: &str) -> Self {
        Self { device, message: truncate_visibly(message, MAX_MESSAGE_BYTES) }
    }
}

/// Obstacle to the plan of a device; `None` if there is none.
fn problem(inventory: &Inventory, plan: &DevicePlan) -> Option<NodePlanProblem> {
    let formatter = PlanFormatter::new(inventory, plan.pci);
    let message = match &plan.verdict {
        DevicePlanResult::Unchanged | DevicePlanResult::Change(_) => return None,
        DevicePlanResult::Blocked(blocked) => formatter.causes(&blocked.causes),
        DevicePlanResult::Infeasible(infeasible) => formatter.infeasible(infeasible),
    };
    Some(NodePlanProblem::new(Some(formatter.device(plan.pci)), &message))
}

impl NodePlanTotals {
    /// Sums over these nodes.
    pub fn of_rows(rows: &[NodePlanRow]) -> Self {
        let count = |outcome| rows.iter().filter(|row| row.outcome == outcome).count();
        let sum = |of: fn(&NodePlanRow) -> usize| rows.iter().map(of).sum();
        Self {
            nodes: rows.len(),
            unchanged: count(Some(PlanOutcome::Unchanged)),
            changes: count(Some(PlanOutcome::Changes)),
            blocked: count(Some(PlanOutcome::Blocked)),
            infeasible: count(Some(PlanOutcome::Infeasible)),
            unplanned: count(None),
            changed_devices: sum(|row| row.changed_devices),
            destroyed: sum(|row| row.destroyed),
            created: sum(|row| row.created),
        }
    }
}
