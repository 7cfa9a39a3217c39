//! `octavo sharing`: previews the devices that a layout would offer to pods, before anything is changed.
//!
//! ```text
//! check.rs   resources, IDs and labels
//! diff.rs    comparison with the Node's current resources
//! ```

mod check;
mod diff;

use std::collections::BTreeSet;

use jiff::Timestamp;
use octavo_model::inventory::Inventory;
use octavo_node::label_set::LabelSet;
use octavo_node::labels::{Note, compile as labels};
use octavo_node::sharing::CompiledOffers;
use octavo_node::sharing::forecast::forecast;
use octavo_node::sharing::offer::compile;
use octavo_planner::layout::{DeviceRef, Dialect, Layout};
use octavo_planner::plan::messages::PlanFormatter;
use octavo_planner::plan::{Disruption, NodePlan, PlanInput, Policy, Verdict, plan};

use super::layout_source::LayoutSource;
use super::layouts::document;
use super::resolved_layout::{self, ResolvedLayout};
use super::{CliError, Exit, Report, input};
use crate::settings::Colors;
use crate::settings::sharing::{CheckSettings, DiffSettings, ImportSettings, SharingSettings};

/// Preview of the offered devices.
#[derive(Debug)]
struct SharingPreview {
    layout: String,
    /// The node after the layout is applied.
    inventory: Inventory,
    compiled: CompiledOffers,
    labels: LabelSet,
    /// Warnings about the file, and notes on the labels.
    notes: String,
}

/// Runs `octavo sharing check`.
pub(super) fn check(
    inventory: &Inventory,
    settings: &CheckSettings,
    colors: Colors,
) -> Result<Report, CliError> {
    match outlook(&settings.request, inventory)? {
        Ok(outlook) => check::report(outlook, settings.format, colors),
        Err(refused) => Ok(refused),
    }
}

/// Runs `octavo sharing diff`.
pub(super) fn diff(
    inventory: &Inventory,
    settings: &DiffSettings,
    colors: Colors,
) -> Result<Report, CliError> {
    let now = input::node(&settings.node)?;
    Ok(match outlook(&settings.request, inventory)? {
        Ok(outlook) => diff::report(outlook, &now, colors),
        Err(refused) => refused,
    })
}

/// Computes the preview; returns a report if the layout cannot be used here.
fn outlook(
    settings: &SharingSettings,
    inventory: &Inventory,
) -> Result<Result<SharingPreview, Report>, CliError> {
    let sheet = match LayoutSource::read(&settings.file)? {
        Ok(sheet) => sheet,
        Err(refused) => return Ok(Err(failed(refused.said, Exit::Failed))),
    };
    let Some(layout) = chosen(&sheet, settings.layout.as_deref()) else {
        let names = sheet.layouts.layouts.iter();
        let names: Vec<&str> = names.map(|layout| layout.name.as_str()).collect();
        let (name, names) = (&sheet.name, names.join(", "));
        let said = format!("{name} has several layouts ({names}); choose one with --layout\n");
        return Ok(Err(failed(said, Exit::Failed)));
    };
    let layout = layout?;
    let case = match resolved_layout::resolve_layout(&sheet, layout, inventory) {
        Ok(case) => case,
        Err(refused) => return Ok(Err(refused.report)),
    };
    Ok(given(case, settings, inventory))
}

fn chosen<'s>(sheet: &'s LayoutSource, name: Option<&str>) -> Option<Result<&'s Layout, CliError>> {
    match (name, sheet.layouts.layouts.as_slice()) {
        (Some(name), _) => Some(sheet.layout(name)),
        (None, [only]) => Some(Ok(only)),
        (None, _) => None,
    }
}

fn given(
    case: ResolvedLayout,
    settings: &SharingSettings,
    inventory: &Inventory,
) -> Result<SharingPreview, Report> {
    let plan = plan(&PlanInput {
        inventory,
        targets: &case.targets,
        holders: &[],
        policy: &Policy {
            max_disruption: Disruption::Reboot,
        },
        refused: &BTreeSet::new(),
    });
    let impossible = infeasible(inventory, &plan);
    if !impossible.is_empty() {
        return Err(failed(case.notes + &impossible, Exit::Infeasible));
    }
    let after = forecast(inventory, &case.targets, &plan);
    let options = settings.labels.options(Timestamp::now());
    let mut compiled = compile(&after, &case.targets, options.mig_strategy);
    compiled.warnings.splice(0..0, waiting(inventory, &plan));
    let labels = labels(&after, &options, Some(&compiled.offers));
    let notes = labels
        .notes
        .iter()
        .map(|note: &Note| format!("note: {note}\n"));
    Ok(SharingPreview {
        layout: case.layout,
        inventory: after,
        notes: case.notes + &notes.collect::<String>(),
        labels: labels.labels,
        compiled,
    })
}

/// Formats the devices that can never have their target.
fn infeasible(inventory: &Inventory, plan: &NodePlan) -> String {
    let all = plan.devices.iter().filter_map(|planned| {
        let Verdict::Infeasible(why) = &planned.verdict else {
            return None;
        };
        let device = inventory
            .devices
            .iter()
            .find(|one| one.pci == planned.pci)?;
        let words = PlanFormatter::new(inventory, planned.pci);
        let (device, rule) = (DeviceRef::from_device(device), words.rule(&why.rule));
        Some(format!("error: {device}: {rule}\n"))
    });
    all.collect()
}

/// Returns notes on devices whose partitions cannot be changed now, so that they are shown as they are.
fn waiting(inventory: &Inventory, plan: &NodePlan) -> Vec<String> {
    let blocked = plan.devices.iter().filter(|planned| match planned.verdict {
        Verdict::Blocked(_) => true,
        Verdict::Unchanged | Verdict::Change(_) | Verdict::Infeasible(_) => false,
    });
    let all = blocked.filter_map(|planned| {
        let device = inventory.devices.iter().find(|one| one.pci == planned.pci)?;
        let device = DeviceRef::from_device(device);
        Some(format!(
            "{device}: somebody is in the way of its partitions, which are shown as they are; `octavo plan` says who"
        ))
    });
    all.collect()
}

/// Runs `octavo sharing import`.
pub(super) fn import(settings: &ImportSettings) -> Result<Report, CliError> {
    let sheet = match LayoutSource::read(&settings.file)? {
        Ok(sheet) => sheet,
        Err(refused) => return Ok(failed(refused.said, Exit::Failed)),
    };
    if sheet.layouts.dialect != Dialect::DevicePlugin {
        let said = format!(
            "{} is no configuration of NVIDIA's device plugin; files of layouts need no import\n",
            sheet.name
        );
        return Ok(failed(said, Exit::Failed));
    }
    let mut layouts = sheet.layouts.clone();
    layouts.dialect = Dialect::Octavo;
    for layout in &mut layouts.layouts {
        settings.name.clone_into(&mut layout.name);
    }
    let report = document(&layouts, Dialect::Octavo, settings.format)?;
    Ok(Report {
        notes: sheet.warnings().concat(),
        ..report
    })
}

fn failed(notes: String, exit: Exit) -> Report {
    Report {
        notes,
        exit,
        ..Report::default()
    }
}
