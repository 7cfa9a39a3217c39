//! `octavo plan`: what a layout would change on a node, as a picture of each GPU before and after.
//!
//! ```text
//! pictures   GPUs whose story is the same share it    story.rs, picture.rs
//! steps      what is done, in order                   steps.rs
//! obstacles  who is in the way, why it cannot be      story.rs
//! summary    one line for each group, and the whole   summary.rs
//! ```

mod picture;
mod steps;
mod story;
mod summary;

use std::collections::BTreeSet;

use super::case::{self, Case, Refused};
use super::text::lines;
use super::{CliError, Exit, Report, json, yaml};
use crate::config::octavo::Colors;
use crate::config::octavo::layouts::{PlanFormat, PlanSettings};
use crate::domain::holder::Holder;
use crate::domain::inventory::Inventory;
use crate::domain::layout::Targets;
use crate::domain::plan::{NodePlan, Outcome, Question, plan};
use crate::wire;
use crate::wire::plan::{Subject, document};

/// What is drawn.
#[derive(Debug, Clone, Copy)]
struct View<'a> {
    inventory: &'a Inventory,
    holders: &'a [Holder],
    targets: &'a Targets,
    plan: &'a NodePlan,
    detail: Detail,
    colors: Colors,
}

/// How much is said of steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Detail {
    /// What becomes of each GPU instance.
    Instances,
    /// Every call to the driver.
    Calls,
}

/// The plan in the form asked for; its outcome is the exit code.
pub(super) fn report(
    inventory: &Inventory,
    holders: &[Holder],
    settings: &PlanSettings,
    colors: Colors,
) -> Result<Report, CliError> {
    let case = match case::open(settings.wish(), inventory)? {
        Ok(case) => case,
        Err(refused) => return refusal(inventory, holders, settings, refused),
    };
    let plan = plan(&Question {
        inventory,
        targets: &case.targets,
        holders,
        policy: &settings.policy(),
        refused: &BTreeSet::new(),
    });
    let view = |detail| View {
        inventory,
        holders,
        targets: &case.targets,
        plan: &plan,
        detail,
        colors,
    };
    let output = match settings.format() {
        PlanFormat::Table => people(&view(Detail::Instances), &case),
        PlanFormat::Wide => people(&view(Detail::Calls), &case),
        PlanFormat::Json => json(&written(inventory, &case, holders, &plan))?,
        PlanFormat::Yaml => yaml(&written(inventory, &case, holders, &plan))?,
        PlanFormat::Name => names(inventory, &plan),
    };
    let notes = match settings.format() {
        PlanFormat::Table | PlanFormat::Wide | PlanFormat::Name => case.notes,
        // The document has them.
        PlanFormat::Json | PlanFormat::Yaml => String::new(),
    };
    Ok(Report {
        output,
        notes,
        exit: exit(plan.outcome()),
    })
}

/// What is wrong with the layout, and, where a document is asked for and the hardware is what forbids it, that document.
fn refusal(
    inventory: &Inventory,
    holders: &[Holder],
    settings: &PlanSettings,
    refused: Refused,
) -> Result<Report, CliError> {
    let targets = Targets::default();
    let subject = Subject {
        inventory,
        node: None,
        layout: settings.wish().layout(),
        targets: &targets,
        holders,
        warnings: &[],
    };
    let Some(document) = wire::plan::refused(&subject, &refused.errors) else {
        return Ok(refused.report);
    };
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
    holders: &[Holder],
    plan: &NodePlan,
) -> crate::wire::plan::Document {
    let subject = Subject {
        inventory,
        node: None,
        layout: &case.layout,
        targets: &case.targets,
        holders,
        warnings: &case.warnings,
    };
    document(&subject, plan)
}

fn people(view: &View<'_>, case: &Case) -> String {
    let groups = story::groups(view);
    let mut parts: Vec<String> = groups.iter().map(|group| group.text.clone()).collect();
    parts.push(summary::summary(view, &case.layout, &groups));
    parts.join("\n")
}

/// What the devices of an empty node would look like: the pictures of a plan without what leads there.
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
        detail: Detail::Instances,
        colors,
    })
}

/// What each device that is not as it shall be is known by.
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
