//! `octavo plan`: the changes of a layout on a node, as a picture of each GPU before and after.
//!
//! ```text
//! pictures   shared by GPUs with the same changes       story.rs, picture.rs
//! steps      actions, in order                          steps.rs
//! obstacles  blockers, and reasons for infeasibility    story.rs
//! summary    one line for each group, and the whole     summary.rs
//! ```

mod picture;
mod steps;
mod story;
mod summary;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::case::{self, Case, Refused};
use super::text::lines;
use super::{CliError, Exit, Report, explain, json, yaml};
use crate::apply::store::Interrupted;
use crate::config::octavo::Colors;
use crate::config::octavo::layouts::{PlanFormat, PlanSettings};
use crate::domain::holder::Holder;
use crate::domain::id::PciAddress;
use crate::domain::inventory::Inventory;
use crate::domain::layout::Targets;
use crate::domain::plan::{NodePlan, Outcome, Policy, Question, plan};
use crate::domain::reconcile::{self, Drift, Node};
use crate::wire;
use crate::wire::plan::{Subject, document};

/// Inputs of the output.
#[derive(Debug, Clone, Copy)]
struct View<'a> {
    inventory: &'a Inventory,
    holders: &'a [Holder],
    targets: &'a Targets,
    plan: &'a NodePlan,
    interrupted: &'a BTreeMap<PciAddress, String>,
    detail: Detail,
    colors: Colors,
}

/// Level of detail of steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Detail {
    /// The result for each GPU instance.
    Instances,
    /// Every call to the driver.
    Calls,
}

/// Formats the plan as requested; its outcome is the exit code. Like an apply, the plan includes interrupted changes.
pub(super) fn report(
    inventory: &Inventory,
    (holders, found): (&[Holder], Interrupted),
    settings: &PlanSettings,
    colors: Colors,
) -> Result<Report, CliError> {
    let found = left(found, inventory);
    let mut case = match case::open(settings.wish(), inventory) {
        Ok(Ok(case)) => case,
        Ok(Err(refused)) => {
            let report = refusal(inventory, (holders, &found), settings, refused)?;
            return Ok(warned(report, &found));
        }
        Err(error) => return Ok(warned(Report::refused(explain(&error)), &found)),
    };
    let policy = settings.policy();
    let interrupted = taken_up(&mut case, inventory, (holders, &policy), &found);
    let plan = plan(&Question {
        inventory,
        targets: &case.targets,
        holders,
        policy: &policy,
        refused: &BTreeSet::new(),
    });
    let view = |detail| View {
        inventory,
        holders,
        targets: &case.targets,
        plan: &plan,
        interrupted: &interrupted,
        detail,
        colors,
    };
    let written = || written(inventory, &case, (holders, &interrupted), &plan);
    let output = match settings.format() {
        PlanFormat::Table => people(&view(Detail::Instances), &case),
        PlanFormat::Wide => people(&view(Detail::Calls), &case),
        PlanFormat::Json => json(&written())?,
        PlanFormat::Yaml => yaml(&written())?,
        PlanFormat::Name => names(inventory, &plan),
    };
    let notes = match settings.format() {
        PlanFormat::Table | PlanFormat::Wide | PlanFormat::Name => case.notes,
        // The document contains them.
        PlanFormat::Json | PlanFormat::Yaml => String::new(),
    };
    let report = Report {
        output,
        notes,
        exit: exit(plan.outcome()),
    };
    Ok(warned(report, &found))
}

/// Returns the interrupted changes that an apply would resume: those that left a device unchanged are dropped.
fn left(mut found: Interrupted, inventory: &Inventory) -> Interrupted {
    if let Some(record) = &mut found.record {
        record
            .devices
            .retain(|entry| !entry.is_at_previous(inventory));
    }
    found
}

/// Adds the targets that an apply adds: devices whose interrupted change it finishes although the layout has no target
/// for them, or one that is currently not possible. Returns the layout of each such change.
fn taken_up(
    case: &mut Case,
    inventory: &Inventory,
    (holders, policy): (&[Holder], &Policy),
    found: &Interrupted,
) -> BTreeMap<PciAddress, String> {
    let Some(record) = &found.record else {
        return BTreeMap::new();
    };
    let is_asked = |pci: PciAddress| {
        let mut devices = case.targets.devices.iter();
        devices.any(|target| target.pci == pci && target.mig.is_some())
    };
    let unfinished = record.interrupted(inventory);
    let mut others: BTreeSet<PciAddress> = unfinished.clone();
    others.retain(|pci| !is_asked(*pci));
    let targets = record.complete(inventory, &case.targets);
    let decision = Node::default().look(
        Duration::ZERO,
        &reconcile::View {
            inventory,
            targets: &targets,
            holders,
            policy,
            drift: Drift::Repair,
            unfinished: &unfinished,
            absent: &record.absent(inventory),
            untold: None,
        },
    );
    case.targets = targets;
    others.extend(decision.finish);
    let layout = |pci: PciAddress| Some((pci, record.entry(inventory, pci)?.layout.clone()));
    others.into_iter().filter_map(layout).collect()
}

fn warned(report: Report, found: &Interrupted) -> Report {
    Report {
        notes: report.notes + &found.warnings(),
        ..report
    }
}

/// Reports the errors of the layout. If a document was requested and only the hardware prevents the layout, the report
/// contains that document, including the interrupted changes, which an apply finishes in any case.
fn refusal(
    inventory: &Inventory,
    (holders, found): (&[Holder], &Interrupted),
    settings: &PlanSettings,
    refused: Refused,
) -> Result<Report, CliError> {
    let (targets, interrupted) = match &found.record {
        None => (Targets::default(), BTreeMap::new()),
        Some(record) => {
            let layout =
                |pci: PciAddress| Some((pci, record.entry(inventory, pci)?.layout.clone()));
            let interrupted = record.interrupted(inventory).into_iter();
            let targets = record.complete(inventory, &Targets::default());
            (targets, interrupted.filter_map(layout).collect())
        }
    };
    let subject = Subject {
        inventory,
        node: None,
        layout: settings.wish().layout(),
        targets: &targets,
        interrupted: &interrupted,
        holders,
        warnings: &[],
    };
    let Some(mut document) = wire::plan::refused(&subject, &refused.errors) else {
        return Ok(refused.report);
    };
    let taken_up = plan(&Question {
        inventory,
        targets: &targets,
        holders,
        policy: &settings.policy(),
        refused: &BTreeSet::new(),
    });
    document.include(wire::plan::document(&subject, &taken_up));
    let output = match settings.format() {
        PlanFormat::Json if !refused.errors.is_empty() => json(&document)?,
        PlanFormat::Yaml if !refused.errors.is_empty() => yaml(&document)?,
        PlanFormat::Json
        | PlanFormat::Yaml
        | PlanFormat::Table
        | PlanFormat::Wide
        | PlanFormat::Name => String::new(),
    };
    Ok(Report {
        output,
        ..refused.report
    })
}

fn exit(outcome: Outcome) -> Exit {
    match outcome {
        Outcome::Nothing => Exit::Done,
        Outcome::Changes => Exit::Changes,
        Outcome::Blocked => Exit::Blocked,
        Outcome::Infeasible => Exit::Infeasible,
    }
}

fn written(
    inventory: &Inventory,
    case: &Case,
    (holders, interrupted): (&[Holder], &BTreeMap<PciAddress, String>),
    plan: &NodePlan,
) -> crate::wire::plan::Document {
    let subject = Subject {
        inventory,
        node: None,
        layout: &case.layout,
        targets: &case.targets,
        holders,
        warnings: &case.warnings,
        interrupted,
    };
    document(&subject, plan)
}

fn people(view: &View<'_>, case: &Case) -> String {
    let groups = story::groups(view);
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
    story::results(&View {
        inventory,
        holders: &[],
        targets,
        plan,
        interrupted: &BTreeMap::new(),
        detail: Detail::Instances,
        colors,
    })
}

/// Lists the devices that the plan changes or cannot change.
fn names(inventory: &Inventory, plan: &NodePlan) -> String {
    let changed = plan
        .devices
        .iter()
        .filter(|device| device.verdict.outcome() != Outcome::Nothing);
    lines(changed.map(|planned| {
        let mut devices = inventory.devices.iter();
        let found = devices.find(|device| device.pci == planned.pci);
        let uuid = found.and_then(|device| device.uuid.as_ref());
        uuid.map_or_else(|| planned.pci.to_string(), ToString::to_string)
    }))
}
