//! Documents about policies, for the API and the pages.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use octavo_files::config_files::LayoutFileSnapshot;
use octavo_fleet::node_plan::{NodePlanRow, NodePlanTotals};
use octavo_kube::hardware_profiles::Presence;
use octavo_model::API_VERSION;
use octavo_model::id::TypeName;
use octavo_planner::plan::PlanOutcome;
use octavo_policy::document::{
    InfeasibleNodes, PolicyDetail, PolicyList, PolicyManifest, PolicyPlanDocument, PolicyRow,
    PolicySource, RolloutCapacity, RolloutDuration, waits_for,
};
use octavo_policy::{Period, Policy, PolicyPlan, PolicyStatus, Rollout, members};

use super::{FeasibilityCache, PolicyView, reported, world};
use crate::clock::Moment;
use crate::dry_run::{MAX_PLANNED_NODES, plan_nodes};
use crate::fleet::Fleet;

/// Maximum number of nodes in the document of a policy.
const MAX_MEMBERS: usize = 1000;

/// Returns the policies; without a view, policies are disabled.
pub fn list(view: Option<&PolicyView>) -> PolicyList {
    let known = view.map(PolicyView::known);
    let items = known.iter().flat_map(|known| known.all.values());
    PolicyList {
        api_version: API_VERSION.to_owned(),
        kind: "PolicyList".to_owned(),
        source: source(view).into(),
        notice: view.and_then(PolicyView::notice),
        items: items.map(|policy| PolicyRow::of(policy)).collect(),
    }
}

/// Returns the source of the policies.
pub fn source(view: Option<&PolicyView>) -> PolicySource {
    match view.map(|view| view.known().presence) {
        None => PolicySource::Disabled,
        Some(None) => PolicySource::Starting,
        Some(Some(Presence::Absent)) => PolicySource::Absent,
        Some(Some(Presence::Present)) => PolicySource::Cluster,
    }
}

impl PolicyView {
    /// Reason why policies or nodes may be outdated; `None` if they are not.
    pub fn notice(&self) -> Option<String> {
        let (known, cluster) = (self.known(), self.cluster());
        let policies =
            known.error.as_ref().map(|error| format!("policies may be outdated: {error}"));
        let nodes = cluster.error.as_ref().map(|error| format!("nodes may be outdated: {error}"));
        let all: Vec<String> = policies.into_iter().chain(nodes).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    /// Returns a policy with its nodes; `None` if it does not exist.
    pub fn detail(&self, name: &str, fleet: (&Fleet, Moment)) -> Option<PolicyDetail> {
        let known = self.known();
        let policy = known.all.get(name)?;
        let policies: Vec<Policy> = known.all.values().map(|one| Policy::clone(one)).collect();
        let cluster = self.cluster();
        let world = world(&policies, &cluster.snapshot, fleet, BTreeMap::new());
        let mut members = members(&world, policy);
        let more_members = members.len().saturating_sub(MAX_MEMBERS);
        members.truncate(MAX_MEMBERS);
        Some(PolicyDetail {
            api_version: API_VERSION.to_owned(),
            kind: "Policy".to_owned(),
            name: policy.name.clone(),
            created: policy.created,
            notice: self.notice(),
            spec: policy.spec.as_ref().ok().cloned(),
            spec_error: policy.spec.as_ref().err().cloned(),
            status: PolicyStatus { waits_for: waits_for(policy), ..policy.status.clone() },
            members,
            more_members,
        })
    }

    /// Returns the policy of this name after the manifest was applied.
    pub fn after(&self, manifest: PolicyManifest) -> Policy {
        let name = manifest.metadata.name;
        match self.known().all.get(&name) {
            Some(stored) => {
                let mut policy = Policy::clone(stored);
                if policy.spec.as_ref() != Ok(&manifest.spec) {
                    policy.generation = policy.generation.saturating_add(1);
                    policy.spec = Ok(manifest.spec);
                }
                policy
            }
            None => Policy {
                name,
                uid: String::new(),
                version: String::new(),
                generation: 1,
                created: None,
                is_deleting: false,
                has_finalizer: true,
                rollback_to: None,
                approved: BTreeSet::new(),
                spec: Ok(manifest.spec),
                status: PolicyStatus::default(),
            },
        }
    }

    /// Plans the roll-out of a policy, stored or not, and its layout on the nodes. Takes milliseconds per node.
    pub fn preview(
        &self,
        policy: &Policy,
        layouts: &LayoutFileSnapshot,
        (fleet, now): (&Fleet, Moment),
    ) -> PolicyPlanDocument {
        let cluster = self.cluster();
        let policies = std::slice::from_ref(policy);
        let mut infeasible = FeasibilityCache::default().infeasible(
            policies,
            &cluster.snapshot,
            layouts,
            (fleet, now),
        );
        let rollout = self.plan(policy, (fleet, now), infeasible.remove(&policy.name));
        let names = rollout.waves.iter().flatten().chain(&rollout.waiting);
        let names: Vec<&str> = names.map(|node| node.name.as_str()).collect();
        let rows = match &rollout.layout {
            Some(layout) => rows(layouts, layout, &names, (fleet, now)),
            None => Vec::new(),
        };
        let pace = policy.spec.as_ref().ok().map(|spec| &spec.rollout);
        let more_nodes = if rows.is_empty() { 0 } else { names.len().saturating_sub(rows.len()) };
        PolicyPlanDocument {
            api_version: API_VERSION.to_owned(),
            kind: "PolicyPlan".to_owned(),
            name: policy.name.clone(),
            exists: self.known().all.contains_key(&policy.name),
            notice: self.notice(),
            infeasible: infeasible_nodes(&rows, fleet),
            totals: NodePlanTotals::of_rows(&rows),
            more_nodes,
            nodes: rows,
            capacity: self.capacity(policy, &rollout, fleet),
            duration: pace.and_then(|pace| duration(pace, rollout.waves.len())),
            rollout,
        }
    }

    /// Available nodes and devices during the roll-out.
    fn capacity(&self, policy: &Policy, plan: &PolicyPlan, fleet: &Fleet) -> RolloutCapacity {
        let cluster = self.cluster();
        let nodes = cluster.snapshot.nodes.values().filter(|node| policy.selects(node));
        let devices = |name: &str| {
            reported(fleet, name).map_or(0, |node| u64::from(node.summary.counts().total))
        };
        let selected: Vec<(&str, u64)> =
            nodes.map(|node| (node.name.as_str(), devices(&node.name))).collect();
        let available = |unavailable: &BTreeSet<String>| {
            let up = selected.iter().filter(|(name, _)| !unavailable.contains(*name));
            up.fold((0_usize, 0_u64), |(nodes, devices), (_, more)| {
                (nodes.saturating_add(1), devices.saturating_add(*more))
            })
        };
        let steps: Vec<(usize, u64)> = plan.unavailable_by_step.iter().map(available).collect();
        let (nodes, devices) = steps.first().copied().unwrap_or_default();
        RolloutCapacity {
            nodes,
            devices,
            min_nodes: steps.iter().map(|(nodes, _)| *nodes).min().unwrap_or_default(),
            min_devices: steps.iter().map(|(_, devices)| *devices).min().unwrap_or_default(),
        }
    }
}

/// Effect of a layout on the first nodes.
fn rows(
    layouts: &LayoutFileSnapshot,
    layout: &str,
    names: &[&str],
    (fleet, now): (&Fleet, Moment),
) -> Vec<NodePlanRow> {
    let names = names.iter().take(MAX_PLANNED_NODES);
    let rows = names.flat_map(|name| match reported(fleet, name) {
        Some(node) => plan_nodes(layouts, layout, std::slice::from_ref(node), now),
        None => vec![NodePlanRow::unplanned(name, false, "no agent reports this node")],
    });
    rows.collect()
}

/// Infeasible rows by the types of their nodes.
fn infeasible_nodes(rows: &[NodePlanRow], fleet: &Fleet) -> Vec<InfeasibleNodes> {
    let mut all: BTreeMap<Vec<String>, InfeasibleNodes> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.outcome == Some(PlanOutcome::Infeasible)) {
        let types: Vec<String> = reported(fleet, &row.node)
            .iter()
            .flat_map(|node| &node.summary.types)
            .map(|one| one.type_name.as_ref().map_or("unknown", TypeName::as_str).to_owned())
            .collect();
        let group = all.entry(types.clone()).or_insert_with(|| InfeasibleNodes {
            types,
            nodes: 0,
            reason: row.problems.first().map(ToString::to_string).unwrap_or_default(),
        });
        group.nodes = group.nodes.saturating_add(1);
    }
    all.into_values().collect()
}

/// Limits of the duration of this many waves.
fn duration(pace: &Rollout, waves: usize) -> Option<RolloutDuration> {
    let waves = u32::try_from(waves).unwrap_or(u32::MAX);
    let pauses = waves.checked_sub(1)?;
    let pause = pace.pause.map_or(Duration::ZERO, Period::get);
    let pauses = pause.saturating_mul(pauses);
    let most = pace.node_deadline.get().saturating_mul(waves).saturating_add(pauses);
    Some(RolloutDuration { min_seconds: pauses.as_secs(), max_seconds: most.as_secs() })
}
