//! The content of a layouts file as a table, and pictures of each layout on a machine with empty GPUs.

use std::collections::BTreeSet;

use octavo_model::inventory::{Inventory, Mig};
use octavo_planner::layout::{Layout, MigSpec, Rule};
use octavo_planner::plan::{Disruption, PlanInput, Policy, plan};

use super::NamedInventory;
use crate::layout_source::LayoutSource;
use crate::plan::result;
use crate::settings::layouts::ShowSettings;
use crate::settings::{Colors, Headers};
use crate::style::Style;
use crate::text::{self, Cell};
use crate::{CliError, Exit, Report, resolved_layout};

const HEADERS: [&str; 4] = ["LAYOUT", "DEVICES", "PARTITIONS", "TIME-SLICING"];

/// Runs `octavo layouts show`.
pub(crate) fn report(
    settings: &ShowSettings,
    machine: Option<&NamedInventory>,
    colors: Colors,
) -> Result<Report, CliError> {
    let source = LayoutSource::read(settings.file.input())?;
    let layouts: Vec<&Layout> = match settings.layout() {
        Some(name) => vec![source.layout(name)?],
        None => source.layouts.layouts.iter().collect(),
    };
    let mut report = Report {
        output: table(&layouts, colors),
        notes: source.warnings().concat(),
        exit: Exit::Done,
    };
    let Some(machine) = machine else {
        return Ok(report);
    };
    let empty = emptied(&machine.inventory);
    for layout in layouts {
        match resolved_layout::resolve_layout(&source, layout, &machine.inventory) {
            Ok(case) => {
                let plan = plan(&PlanInput {
                    inventory: &empty,
                    targets: &case.targets,
                    holders: &[],
                    policy: &Policy { max_disruption: Disruption::Reboot },
                    refused: &BTreeSet::new(),
                });
                let head = format!("{} on {}", layout.name, machine.name);
                let head = Style::Strong.paint(&head, colors);
                let drawn = result(&empty, &case.targets, &plan, colors);
                let drawn = format!("\n{head}\n{drawn}");
                report.output.push_str(&drawn);
                report.notes.push_str(&case.notes);
            }
            Err(refused) => {
                report.notes.push_str(&refused.report.notes);
                report.exit = Exit::Failed;
            }
        }
    }
    Ok(report)
}

fn table(layouts: &[&Layout], colors: Colors) -> String {
    let rows = layouts.iter().flat_map(|layout| {
        layout.rules.iter().enumerate().map(|(number, rule)| {
            let name = if number == 0 { layout.name.as_str() } else { "" };
            vec![
                Cell::plain(name),
                Cell::plain(&rule.devices),
                Cell::plain(&partitions(rule)),
                Cell::optional(rule.time_slicing.as_ref()),
            ]
        })
    });
    text::table(&[&HEADERS], rows, Headers::Shown, colors)
}

fn partitions(rule: &Rule) -> String {
    match &rule.mig {
        None => "unchanged".to_owned(),
        Some(MigSpec::Disabled) => "MIG off".to_owned(),
        Some(MigSpec::Enabled(_)) if rule.claims => "MIG on, by claims".to_owned(),
        Some(MigSpec::Enabled(counts)) if counts.is_empty() => "MIG on, no partitions".to_owned(),
        Some(MigSpec::Enabled(counts)) => {
            let each = counts.iter();
            let each: Vec<String> =
                each.map(|count| format!("{}x {}", count.count, count.profile)).collect();
            each.join(", ")
        }
    }
}

/// Returns the same machine without processes and GPU instances.
fn emptied(inventory: &Inventory) -> Inventory {
    let mut empty = inventory.clone();
    for device in &mut empty.devices {
        device.processes.clear();
        if let Mig::Capable(state) = &mut device.mig {
            state.gpu_instances.clear();
        }
    }
    empty
}
