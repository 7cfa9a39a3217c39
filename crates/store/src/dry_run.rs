//! Dry run of a layout: the agent's planner, applied to the status that the agent last reported. Pods with an allocation
//! and processes of pods are known by name if the agent reports usage by pod; commands are known on the node only.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use octavo_files::config_files::{AvailableLayouts, LayoutFileSnapshot, LayoutLookupError};
use octavo_fleet::node_plan::NodePlanRow;
use octavo_model::claim::ClaimRef;
use octavo_model::holder::{self, DeviceAllocation, Holder, Pod};
use octavo_model::id::{PciAddress, TypeName};
use octavo_model::inventory::{Inventory, Vendor};
use octavo_node::sharing::usage::{Tenant, Usage};
use octavo_planner::layout::{ResolvedLayout, Targets};
use octavo_planner::plan::{self, NodePlan, PlanInput, Policy};
use octavo_stream::status::NodeStatus;
use octavo_toolkit::error::chain;

use crate::clock::Moment;
use crate::fleet::Node;

/// Maximum number of nodes that are planned for one request.
pub const MAX_PLANNED_NODES: usize = 100;

/// Maximum number of nodes for which layouts are generated to list their names.
const MAX_NAMED_NODES: usize = 8;

/// Warning about a plan for a node that does not report usage.
const NO_USAGE: &str =
    "pods without a process are unknown, because the agent does not report usage by pod";

/// Plan for a layout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DryRun {
    /// Target of each device.
    pub targets: Targets,
    /// Known holders of the devices.
    pub holders: Vec<Holder>,
    /// The changes.
    pub plan: NodePlan,
    /// Human-readable warnings about the layout on this node.
    pub warnings: Vec<String>,
}

/// Plans the changes that applying the layout `name` would make to a node with this status. If the agent does not know all
/// allocations, all devices that they could be of count as in use.
pub fn dry_run(
    layouts: &LayoutFileSnapshot,
    name: &str,
    status: &NodeStatus,
    policy: Policy,
) -> Result<DryRun, LayoutLookupError> {
    let inventory = &status.inventory;
    let ResolvedLayout { targets, warnings, .. } = layouts.resolve(name, inventory)?;
    let (holders, unknown) =
        status.usage.as_ref().map(|usage| holders(inventory, usage)).unwrap_or_default();
    let marked = unknown.map(|reason| with_unknown_users(inventory, &reason));
    let plan = plan::plan(&PlanInput {
        inventory: marked.as_ref().unwrap_or(inventory),
        targets: &targets,
        holders: &holders,
        policy: &policy,
        refused: &BTreeSet::new(),
    });
    let warnings = warnings.iter().map(ToString::to_string).collect();
    Ok(DryRun { targets, holders, plan, warnings })
}

/// Plans the layout `name` on each of these nodes. Takes milliseconds per node.
pub fn plan_nodes(
    layouts: &LayoutFileSnapshot,
    name: &str,
    nodes: &[Arc<Node>],
    now: Moment,
) -> Vec<NodePlanRow> {
    nodes.iter().map(|node| plan_node(layouts, name, node, now)).collect()
}

fn plan_node(layouts: &LayoutFileSnapshot, name: &str, node: &Node, now: Moment) -> NodePlanRow {
    let (stale, of) = (node.freshness.is_stale(now), node.name.as_str());
    if !node.has_agent() {
        return NodePlanRow::unplanned(of, stale, "no agent reports the devices of this node");
    }
    if !node.is_local() {
        let reason = "the layouts of this cluster do not apply to nodes of other clusters";
        return NodePlanRow::unplanned(of, stale, reason);
    }
    let status = match node.status() {
        Ok(status) => status,
        Err(error) => {
            let reason = format!("the report of the agent cannot be decoded: {}", chain(&error));
            return NodePlanRow::unplanned(of, stale, &reason);
        }
    };
    match dry_run(layouts, name, &status, Policy::default()) {
        Ok(run) => {
            let row = NodePlanRow::of_plan(of, stale, &status.inventory, &run.plan);
            let is_blind = status.usage.is_none() && !run.plan.devices.is_empty();
            if is_blind { row.with_warning(NO_USAGE) } else { row }
        }
        Err(error @ LayoutLookupError::DoesNotFit { .. }) => {
            NodePlanRow::infeasible(of, stale, &error.to_string())
        }
        Err(
            error @ (LayoutLookupError::NoSuchLayout { .. }
            | LayoutLookupError::ExactInstances(_)
            | LayoutLookupError::Unusable(_)),
        ) => NodePlanRow::unplanned(of, stale, &error.to_string()),
    }
}

/// Layouts of the file, and those generated for these nodes: one node of each combination of types, up to a limit.
pub fn layout_names(layouts: &LayoutFileSnapshot, nodes: &[Arc<Node>]) -> AvailableLayouts {
    let mut samples: BTreeMap<Vec<Option<&str>>, &Arc<Node>> = BTreeMap::new();
    for node in nodes.iter().filter(|node| node.has_agent() && node.is_local()) {
        let types = node.summary.types.iter();
        let types = types.map(|one| one.type_name.as_ref().map(TypeName::as_str)).collect();
        samples.entry(types).or_insert(node);
    }
    let mut all = layouts.names(&Inventory::default());
    let mut made: BTreeSet<String> = all.made.drain(..).collect();
    for node in samples.values().take(MAX_NAMED_NODES) {
        if let Ok(status) = node.status() {
            made.extend(layouts.names(&status.inventory).made);
        }
    }
    AvailableLayouts { made: made.into_iter().collect(), ..all }
}

/// Known holders of the devices in a node's status, and whether these are all: the agent reports the usage by pod completely.
pub(super) fn observed_holders(status: &NodeStatus) -> (Vec<Holder>, bool) {
    let Some(usage) = &status.usage else { return (Vec::new(), false) };
    let (holders, unknown) = holders(&status.inventory, usage);
    (holders, unknown.is_none())
}

/// Inventory in which the users of the devices that pods can be allocated by UUID are unknown for this reason.
fn with_unknown_users(inventory: &Inventory, reason: &str) -> Inventory {
    let mut marked = inventory.clone();
    let devices = marked.devices.iter_mut();
    for device in devices.filter(|device| device.vendor == Vendor::Nvidia) {
        device.record_unknown_users(reason.to_owned());
    }
    marked
}

/// Holders of the devices: the processes that the driver reports, with their pods, and pods with an allocation. The second
/// value is the reason why the list is incomplete.
fn holders(inventory: &Inventory, usage: &Usage) -> (Vec<Holder>, Option<String>) {
    let mut pods: BTreeMap<(PciAddress, u32), &Tenant> = BTreeMap::new();
    let mut allocations = Vec::new();
    for device in &usage.devices {
        for unit in &device.units {
            let is_known = |tenant: &&Tenant| tenant.pod.is_some() || tenant.claim.is_some();
            for tenant in unit.tenants.iter().filter(is_known) {
                let claim = tenant.namespace.clone().zip(tenant.claim.clone());
                let claim = claim.map(|(namespace, name)| ClaimRef { namespace, name });
                let processes = tenant.processes.iter();
                pods.extend(processes.map(|pid| ((device.pci, *pid), tenant)));
                let resource = unit.resource.as_ref().map(ToString::to_string);
                allocations.extend(tenant.ids.iter().map(|id| DeviceAllocation {
                    namespace: tenant.namespace.clone().unwrap_or_default(),
                    pod: tenant.pod.clone().unwrap_or_default(),
                    container: tenant.container.clone().unwrap_or_default(),
                    resource: resource.clone().unwrap_or_default(),
                    device_id: id.to_string(),
                    claim: claim.clone(),
                }));
            }
        }
    }
    let mut all = holder::of(inventory);
    for holder in &mut all {
        let tenant = holder.details.pid.and_then(|pid| pods.get(&(holder.device, pid)));
        holder.details.pod = tenant.map(|tenant| Pod {
            uid: None,
            namespace: tenant.namespace.clone(),
            name: tenant.pod.clone(),
            container: tenant.container.clone(),
        });
    }
    let allocated = holder::holders_from_allocations(&allocations, &inventory.devices);
    all.extend(allocated.holders);
    all.sort();
    // An id of another form is not one of NVIDIA's devices.
    let is_nvidia = |id: &str| id.starts_with("GPU-") || id.starts_with("MIG-");
    let unassigned = allocated.unassigned.iter().find(|one| is_nvidia(&one.device_id));
    let unassigned = unassigned
        .map(|one| format!("pod {}/{} was allocated {}", one.namespace, one.pod, one.device_id));
    (all, usage.incompleteness().or(unassigned))
}

#[cfg(test)]
mod tests {
    use octavo_model::examples::{gpu, process};
    use octavo_model::inventory::DeviceProcesses;
    use octavo_model::resource::ShareId;
    use octavo_node::sharing::usage::DeviceUsage;
    use octavo_planner::plan::messages;

    use super::*;

    const UUID: &str = "GPU-5fd4087b-86f3-7a43-b711-4771313afc50";

    #[test]
    fn holders_are_pods_by_name_with_or_without_a_process() {
        let mut device = gpu();
        device.uuid = Some(UUID.parse().unwrap());
        device.processes = vec![process(7, None, None), process(8, None, None)];
        let tenant = |pod: &str, processes: Vec<u32>| Tenant {
            namespace: Some("team".to_owned()),
            pod: Some(pod.to_owned()),
            container: Some("main".to_owned()),
            ids: vec![ShareId::replica(UUID, 0)],
            processes,
            ..Tenant::default()
        };
        let text = format!(
            r#"{{"pci":"{}","name":"GPU 0","units":[{{"uuid":"{UUID}","tenants":[]}}]}}"#,
            device.pci
        );
        let mut used: DeviceUsage = serde_json::from_str(&text).unwrap();
        used.units[0].tenants = vec![tenant("busy", vec![7]), tenant("idle", Vec::new())];
        let usage = Usage { devices: vec![used], ..Usage::default() };
        let inventory = Inventory { devices: vec![device], ..Inventory::default() };
        let (found, unknown) = holders(&inventory, &usage);
        assert_eq!(unknown, None);
        let mut shown: Vec<String> =
            found.iter().map(|holder| messages::holder(&holder.details)).collect();
        shown.sort();
        assert_eq!(
            shown,
            [
                "pid 8, compute",
                "pod team/busy (container main)",
                "pod team/busy (container main): pid 7, compute",
                "pod team/idle (container main)",
            ]
        );
        let listed = messages::holders(&found);
        assert_eq!(listed.matches("team/busy").count(), 1, "{listed}");

        // The unit of the tenants is not a device of this node any more.
        let (_, unknown) = holders(&Inventory::default(), &usage);
        assert!(unknown.unwrap().starts_with("pod team/"));
        let unknown = Usage { are_allocations_unknown: true, ..usage };
        let (found, reason) = holders(&inventory, &unknown);
        assert_eq!(found.len(), 4);
        let marked = with_unknown_users(&inventory, &reason.unwrap());
        assert!(matches!(marked.devices[0].usage(), DeviceProcesses::Unknown));
    }
}
