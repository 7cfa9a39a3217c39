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
use octavo_planner::layout::{DeviceRef, Dialect};
use octavo_planner::plan::messages::PlanFormatter;
use octavo_planner::plan::{DevicePlanResult, Disruption, NodePlan, PlanInput, Policy, plan};

use super::layout_source::LayoutSource;
use super::layouts::document;
use super::{CliError, Exit, Report, devices, input, resolved_layout};
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
    check::report(preview(&settings.request, inventory)?, settings.format, colors)
}

/// Runs `octavo sharing diff`.
pub(super) fn diff(
    inventory: &Inventory,
    settings: &DiffSettings,
    colors: Colors,
) -> Result<Report, CliError> {
    let now = input::node(&settings.node)?;
    Ok(diff::report(preview(&settings.request, inventory)?, &now, colors))
}

/// Computes the preview, if the layout can be used here.
fn preview(settings: &SharingSettings, inventory: &Inventory) -> Result<SharingPreview, CliError> {
    let source = LayoutSource::read(settings.file.input())?;
    let layout = match (&settings.layout, source.layouts.layouts.as_slice()) {
        (Some(name), _) => source.layout(name)?,
        (None, [only]) => only,
        (None, several) => {
            let names: Vec<&str> = several.iter().map(|layout| layout.name.as_str()).collect();
            let (name, names) = (&source.name, names.join(", "));
            return Err(CliError::rejected(format!(
                "{name} has several layouts ({names}); choose one with --layout\n"
            )));
        }
    };
    let case = resolved_layout::resolve_layout(&source, layout, inventory)?;
    let plan = plan(&PlanInput {
        inventory,
        targets: &case.targets,
        holders: &[],
        policy: &Policy { max_disruption: Disruption::Reboot },
        refused: &BTreeSet::new(),
    });
    let impossible = infeasible(inventory, &plan);
    if !impossible.is_empty() {
        let notes = case.notes + &impossible;
        let report = Report { notes, exit: Exit::Infeasible, ..Report::default() };
        return Err(CliError::Rejected(Box::new(report)));
    }
    let after = forecast(inventory, &case.targets, &plan);
    let options = settings.labels.options(Timestamp::now());
    let mut compiled = compile(&after, &case.targets, options.mig_strategy);
    compiled.warnings.splice(0..0, waiting(inventory, &plan));
    let labels = labels(&after, &options, Some(&compiled.offers));
    let notes = labels.notes.iter().map(|note: &Note| format!("note: {note}\n"));
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
        let DevicePlanResult::Infeasible(why) = &planned.verdict else {
            return None;
        };
        let device = devices::find(inventory, planned.pci)?;
        let formatter = PlanFormatter::new(inventory, planned.pci);
        let (device, rule) = (DeviceRef::from_device(device), formatter.rule(&why.rule));
        Some(format!("error: {device}: {rule}\n"))
    });
    all.collect()
}

/// Returns notes on devices whose partitions cannot be changed now, so that they are shown as they are.
fn waiting(inventory: &Inventory, plan: &NodePlan) -> Vec<String> {
    let blocked = plan.devices.iter().filter(|planned| match planned.verdict {
        DevicePlanResult::Blocked(_) => true,
        DevicePlanResult::Unchanged
        | DevicePlanResult::Change(_)
        | DevicePlanResult::Infeasible(_) => false,
    });
    let all = blocked.filter_map(|planned| {
        let device = devices::find(inventory, planned.pci)?;
        let device = DeviceRef::from_device(device);
        Some(format!(
            "{device}: a change of its partitions is blocked, so the current ones are shown; run \
             `octavo plan` to show the blockers"
        ))
    });
    all.collect()
}

/// Runs `octavo sharing import`.
pub(super) fn import(settings: &ImportSettings) -> Result<Report, CliError> {
    let source = LayoutSource::read(settings.file.input())?;
    if source.layouts.dialect != Dialect::DevicePlugin {
        return Err(CliError::rejected(format!(
            "{} is not a configuration of NVIDIA's device plugin; layout files need no import\n",
            source.name
        )));
    }
    let mut layouts = source.layouts.clone();
    layouts.dialect = Dialect::Octavo;
    for layout in &mut layouts.layouts {
        settings.name.clone_into(&mut layout.name);
    }
    let report = document(&layouts, Dialect::Octavo, settings.format)?;
    Ok(Report { notes: source.warnings().concat(), ..report })
}
