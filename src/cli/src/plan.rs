//! `octavo plan`: the changes of a layout on a node, as a picture of each GPU before and after.
//!
//! ```text
//! pictures   shared by GPUs with the same changes       device_summary.rs, picture.rs
//! steps      actions, in order                          steps.rs
//! obstacles  blockers, and reasons for infeasibility    device_summary.rs
//! summary    one line for each group, and the whole     summary.rs
//! ```

mod device_summary;
mod picture;
mod steps;
mod summary;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use octavo_engine::store::InterruptedChanges;
use octavo_model::holder::Holder;
use octavo_model::id::PciAddress;
use octavo_model::inventory::Inventory;
use octavo_planner::layout::Targets;
use octavo_planner::plan::document::{PlanDocument, PlanInputs};
use octavo_planner::plan::{NodePlan, PlanInput, PlanOutcome, Policy, plan};
use octavo_planner::reconcile::{self, DriftPolicy, NodeReconciler};

use super::resolved_layout::{self, RejectedLayout, ResolvedLayout};
use super::text::lines;
use super::{CliError, Exit, Report, devices, json, yaml};
use crate::settings::Colors;
use crate::settings::layouts::{PlanFormat, PlanSettings};

/// Inputs of the output.
#[derive(Debug, Clone, Copy)]
struct PlanView<'a> {
    inventory: &'a Inventory,
    holders: &'a [Holder],
    targets: &'a Targets,
    plan: &'a NodePlan,
    interrupted: &'a BTreeMap<PciAddress, String>,
    detail: StepDetail,
    colors: Colors,
}

/// Level of detail of steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StepDetail {
    /// The result for each GPU instance.
    Instances,
    /// Every call to the driver.
    Calls,
}

/// Formats the plan as requested; its outcome is the exit code. Like an apply, the plan includes interrupted changes.
pub(super) fn report(
    inventory: &Inventory,
    (holders, found): (&[Holder], InterruptedChanges),
    settings: &PlanSettings,
    colors: Colors,
) -> Result<Report, CliError> {
    let found = resumable_changes(found, inventory);
    let mut case = match resolved_layout::open(&settings.request, inventory) {
        Ok(Ok(case)) => case,
        Ok(Err(refused)) => {
            let report = refusal(inventory, (holders, &found), settings, refused)?;
            return Ok(warned(report, &found));
        }
        Err(error) => return Ok(warned(error.into_report(), &found)),
    };
    let policy = settings.policy();
    let interrupted = add_interrupted(&mut case, inventory, (holders, &policy), &found);
    let plan = plan(&PlanInput {
        inventory,
        targets: &case.targets,
        holders,
        policy: &policy,
        refused: &BTreeSet::new(),
    });
    let view = |detail| PlanView {
        inventory,
        holders,
        targets: &case.targets,
        plan: &plan,
        interrupted: &interrupted,
        detail,
        colors,
    };
    let written = || written(inventory, &case, (holders, &interrupted), &plan);
    let output = match settings.format {
        PlanFormat::Table => format_plan(&view(StepDetail::Instances), &case),
        PlanFormat::Wide => format_plan(&view(StepDetail::Calls), &case),
        PlanFormat::Json => json(&written())?,
        PlanFormat::Yaml => yaml(&written())?,
        PlanFormat::Name => names(inventory, &plan),
    };
    let notes = match settings.format {
        PlanFormat::Table | PlanFormat::Wide | PlanFormat::Name => case.notes,
        // The document contains them.
        PlanFormat::Json | PlanFormat::Yaml => String::new(),
    };
    let report = Report { output, notes, exit: exit(plan.outcome()) };
    Ok(warned(report, &found))
}

/// Returns the interrupted changes that an apply would resume: those that left a device unchanged are dropped.
fn resumable_changes(mut found: InterruptedChanges, inventory: &Inventory) -> InterruptedChanges {
    if let Some(record) = &mut found.record {
        record.devices.retain(|entry| !entry.is_at_previous(inventory));
    }
    found
}

/// Adds the targets that an apply adds: devices whose interrupted change it finishes although the layout has no target
/// for them, or one that is currently not possible. Returns the layout of each such change.
fn add_interrupted(
    case: &mut ResolvedLayout,
    inventory: &Inventory,
    (holders, policy): (&[Holder], &Policy),
    found: &InterruptedChanges,
) -> BTreeMap<PciAddress, String> {
    let Some(record) = &found.record else {
        return BTreeMap::new();
    };
    let mut others = record.interrupted(inventory);
    others.retain(|pci| !case.targets.has_mig(*pci));
    let decision = NodeReconciler::default().reconcile(
        Duration::ZERO,
        &reconcile::ReconcileInput {
            inventory,
            targets: &case.targets,
            holders,
            holders_unknown: None,
            policy,
            drift: DriftPolicy::Repair,
            record: Some(record),
        },
    );
    case.targets = record.with_interrupted(inventory, &case.targets);
    others.extend(decision.finish);
    let layout = |pci: PciAddress| Some((pci, record.entry(inventory, pci)?.layout.clone()));
    others.into_iter().filter_map(layout).collect()
}

fn warned(report: Report, found: &InterruptedChanges) -> Report {
    Report { notes: report.notes + &found.warnings(), ..report }
}

/// Reports the errors of the layout. If a document was requested and only the hardware prevents the layout, the report
/// contains that document, including the interrupted changes, which an apply finishes in any case.
fn refusal(
    inventory: &Inventory,
    (holders, found): (&[Holder], &InterruptedChanges),
    settings: &PlanSettings,
    refused: RejectedLayout,
) -> Result<Report, CliError> {
    let (targets, interrupted) = match &found.record {
        None => (Targets::default(), BTreeMap::new()),
        Some(record) => {
            let layout =
                |pci: PciAddress| Some((pci, record.entry(inventory, pci)?.layout.clone()));
            let interrupted = record.interrupted(inventory).into_iter();
            let targets = record.with_interrupted(inventory, &Targets::default());
            (targets, interrupted.filter_map(layout).collect())
        }
    };
    let subject = PlanInputs {
        inventory,
        node: None,
        layout: &settings.request.layout,
        targets: &targets,
        interrupted: &interrupted,
        holders,
        warnings: &[],
    };
    let Some(mut document) = PlanDocument::refused(&subject, &refused.errors) else {
        return Ok(refused.report);
    };
    let taken_up = plan(&PlanInput {
        inventory,
        targets: &targets,
        holders,
        policy: &settings.policy(),
        refused: &BTreeSet::new(),
    });
    document.merge(PlanDocument::new(&subject, &taken_up));
    let output = match settings.format {
        PlanFormat::Json => json(&document)?,
        PlanFormat::Yaml => yaml(&document)?,
        PlanFormat::Table | PlanFormat::Wide | PlanFormat::Name => String::new(),
    };
    Ok(Report { output, ..refused.report })
}

fn exit(outcome: PlanOutcome) -> Exit {
    match outcome {
        PlanOutcome::Unchanged => Exit::Done,
        PlanOutcome::Changes => Exit::Changes,
        PlanOutcome::Blocked => Exit::Blocked,
        PlanOutcome::Infeasible => Exit::Infeasible,
    }
}

fn written(
    inventory: &Inventory,
    case: &ResolvedLayout,
    (holders, interrupted): (&[Holder], &BTreeMap<PciAddress, String>),
    plan: &NodePlan,
) -> PlanDocument {
    let subject = PlanInputs {
        inventory,
        node: None,
        layout: &case.layout,
        targets: &case.targets,
        holders,
        warnings: &case.warnings,
        interrupted,
    };
    PlanDocument::new(&subject, plan)
}

fn format_plan(view: &PlanView<'_>, case: &ResolvedLayout) -> String {
    let groups = device_summary::groups(view);
    let mut parts: Vec<String> = groups.iter().map(|group| group.text.clone()).collect();
    parts.push(summary::summary(view, &case.layout, &groups));
    parts.join("\n")
}

/// Draws the devices of an empty node after the plan, without the steps.
pub(super) fn result(
    inventory: &Inventory,
    targets: &Targets,
    plan: &NodePlan,
    colors: Colors,
) -> String {
    device_summary::results(&PlanView {
        inventory,
        holders: &[],
        targets,
        plan,
        interrupted: &BTreeMap::new(),
        detail: StepDetail::Instances,
        colors,
    })
}

/// Lists the devices that the plan changes or cannot change.
fn names(inventory: &Inventory, plan: &NodePlan) -> String {
    let changed =
        plan.devices.iter().filter(|device| device.verdict.outcome() != PlanOutcome::Unchanged);
    lines(changed.map(|planned| {
        let device = devices::find(inventory, planned.pci);
        let uuid = device.and_then(|device| device.uuid.as_ref());
        uuid.map_or_else(|| planned.pci.to_string(), ToString::to_string)
    }))
}
