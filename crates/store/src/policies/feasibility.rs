//! Feasibility of layouts: the planner's dry run on the types that a policy selects.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use octavo_files::config_files::LayoutFileSnapshot;
use octavo_fleet::cluster::ClusterSnapshot;
use octavo_model::id::TypeName;
use octavo_planner::plan::PlanOutcome;
use octavo_policy::Policy;

use super::reported;
use crate::clock::Moment;
use crate::dry_run::plan_nodes;
use crate::fleet::{Fleet, Node};

/// Number of nodes of a combination of types that are planned. A layout is infeasible on the types only if it is infeasible on all of
/// these nodes: one faulty device does not stop a policy.
const SAMPLES: usize = 3;
/// Time for which a result is used. Devices are replaced, and the file of the layouts changes.
const VALID_FOR: Duration = Duration::from_secs(15);

/// Results by layout and types.
#[derive(Debug, Default)]
pub struct FeasibilityCache {
    /// Time of the result, and why the layout is infeasible; `None` if it is not.
    results: BTreeMap<(String, String), (Moment, Option<String>)>,
}

impl FeasibilityCache {
    /// Returns the policies whose layout is infeasible on a selected combination of types, with the explanation. A layout that the
    /// aggregator does not know, and nodes without an agent, are not judged.
    pub fn infeasible(
        &mut self,
        policies: &[Policy],
        snapshot: &ClusterSnapshot,
        layouts: &LayoutFileSnapshot,
        (fleet, now): (&Fleet, Moment),
    ) -> BTreeMap<String, String> {
        self.results.retain(|_, (judged, _)| judged.age(now) < VALID_FOR);
        let mut all = BTreeMap::new();
        for policy in policies {
            let layout = policy.spec.as_ref().ok().and_then(|spec| spec.layout.clone());
            let Some(layout) = layout else { continue };
            for (types, samples) in samples(policy, snapshot, (fleet, &layout)) {
                let key = (layout.clone(), types.clone());
                let result = self.results.entry(key);
                let (_, result) =
                    result.or_insert_with(|| (now, judge(layouts, &layout, &samples, now)));
                if let Some(why) = result {
                    let types = if types.is_empty() { "devices of unknown type" } else { &types };
                    all.insert(
                        policy.name.clone(),
                        format!("layout {layout} is infeasible on {types}: {why}"),
                    );
                    break;
                }
            }
        }
        all
    }
}

/// Some selected nodes of each combination of types on which the layout is not applied.
fn samples(
    policy: &Policy,
    snapshot: &ClusterSnapshot,
    (fleet, layout): (&Fleet, &str),
) -> BTreeMap<String, Vec<Arc<Node>>> {
    let mut samples: BTreeMap<String, Vec<Arc<Node>>> = BTreeMap::new();
    for node in snapshot.nodes.values() {
        let report = node.layout_report.as_ref();
        if report.is_some_and(|one| one.is_applied(layout)) || !policy.selects(node) {
            continue;
        }
        let reported = reported(fleet, &node.name).filter(|node| node.has_agent());
        let Some(reported) = reported else { continue };
        let types = reported.summary.types.iter();
        let types: Vec<&str> =
            types.filter_map(|one| one.type_name.as_ref().map(TypeName::as_str)).collect();
        let of_types = samples.entry(types.join(", ")).or_default();
        if of_types.len() < SAMPLES {
            of_types.push(Arc::clone(reported));
        }
    }
    samples
}

fn judge(
    layouts: &LayoutFileSnapshot,
    layout: &str,
    samples: &[Arc<Node>],
    now: Moment,
) -> Option<String> {
    let rows = plan_nodes(layouts, layout, samples, now);
    if rows.iter().any(|row| row.outcome != Some(PlanOutcome::Infeasible)) {
        return None;
    }
    let problems = rows.first()?.problems.iter();
    let problem = problems.map(|one| match &one.device {
        Some(device) => format!("{device}: {}", one.message),
        None => one.message.clone(),
    });
    Some(problem.take(1).collect())
}
