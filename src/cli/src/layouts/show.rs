//! The content of a layouts file as a table, and pictures of each layout on a machine with empty GPUs.

use std::collections::BTreeSet;

use octavo_model::inventory::{Inventory, Mig};
use octavo_planner::layout::{Layout, MigSpec, Rule};
use octavo_planner::plan::{Disruption, PlanInput, Policy, plan};

use super::NamedInventory;
use crate::layout_source::LayoutSource;
use crate::plan::result;
use crate::settings::Colors;
use crate::settings::layouts::ShowSettings;
use crate::style::Style;
use crate::text::{Cell, columns};
use crate::{CliError, Exit, Report, resolved_layout};

const HEADERS: [&str; 4] = ["LAYOUT", "DEVICES", "PARTITIONS", "TIME-SLICING"];

pub(super) fn report(
    settings: &ShowSettings,
    machine: Option<&NamedInventory>,
    colors: Colors,
) -> Result<Report, CliError> {
    let sheet = match LayoutSource::read(&settings.file)? {
        Ok(sheet) => sheet,
        Err(refused) => {
            return Ok(Report {
                notes: refused.said,
                exit: Exit::Failed,
                ..Report::default()
            });
        }
    };
    let layouts: Vec<&Layout> = match &settings.layout {
        Some(name) => vec![sheet.layout(name)?],
        None => sheet.layouts.layouts.iter().collect(),
    };
    let mut report = Report {
        output: table(&layouts, colors),
        notes: sheet.warnings().concat(),
        exit: Exit::Done,
    };
    let Some(machine) = machine else {
        return Ok(report);
    };
    let empty = emptied(&machine.inventory);
    for layout in layouts {
        match resolved_layout::resolve_layout(&sheet, layout, &machine.inventory) {
            Ok(case) => {
                let plan = plan(&PlanInput {
                    inventory: &empty,
                    targets: &case.targets,
                    holders: &[],
                    policy: &Policy {
                        max_disruption: Disruption::Reboot,
                    },
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
    let head = HEADERS
        .map(|header| Cell::new(header, Style::Strong))
        .to_vec();
    let rows = layouts.iter().flat_map(|layout| {
        layout.rules.iter().enumerate().map(|(number, rule)| {
            let name = if number == 0 {
                layout.name.as_str()
            } else {
                ""
            };
            vec![
                Cell::plain(name),
                Cell::plain(&rule.devices.to_string()),
                Cell::plain(&partitions(rule)),
                Cell::plain(&sharing(rule)),
            ]
        })
    });
    columns(&[head].into_iter().chain(rows).collect::<Vec<_>>(), colors)
}

fn partitions(rule: &Rule) -> String {
    match &rule.mig {
        None => "as they are".to_owned(),
        Some(MigSpec::Disabled) => "MIG off".to_owned(),
        Some(MigSpec::Enabled(counts)) if counts.is_empty() => "MIG on, none".to_owned(),
        Some(MigSpec::Enabled(counts)) => {
            let each = counts.iter();
            let each: Vec<String> = each
                .map(|count| format!("{}x {}", count.count, count.profile))
                .collect();
            each.join(", ")
        }
    }
}

fn sharing(rule: &Rule) -> String {
    let sharing = rule.time_slicing.as_ref();
    sharing.map_or_else(|| "-".to_owned(), ToString::to_string)
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
