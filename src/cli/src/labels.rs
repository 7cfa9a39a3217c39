//! `octavo labels`: the labels of a machine, or their difference from those in a file.

use std::collections::BTreeMap;

use jiff::Timestamp;
use octavo_model::inventory::Inventory;
use octavo_node::labels::{CompiledLabels, DiffSide, KeyPolicy, compile, diff};

use super::style::Style;
use super::text::{lines, printable};
use super::{CliError, Exit, Report, input, json, yaml};
use crate::settings::Colors;
use crate::settings::inspect::{LabelsFormat, LabelsSettings};

/// Formats the labels or the difference as requested.
pub(super) fn report(
    inventory: &Inventory,
    settings: &LabelsSettings,
    colors: Colors,
) -> Result<Report, CliError> {
    let options = settings.labels.options(Timestamp::now());
    let CompiledLabels { labels, notes } = compile(inventory, &options, None);
    let labels: BTreeMap<&str, &str> = labels.iter().collect();
    let mut report = match &settings.diff {
        None => Report { output: print(&labels, settings.format)?, ..Report::default() },
        Some(file) => {
            let before = input::labels(file)?;
            let before = before.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
            compare(&before, &labels, options.nvidia, colors)
        }
    };
    report.notes =
        lines(notes.iter().map(|note| format!("note: {}", printable(&note.to_string()))));
    Ok(report)
}

fn print(labels: &BTreeMap<&str, &str>, format: LabelsFormat) -> Result<String, CliError> {
    match format {
        LabelsFormat::Table => {
            Ok(lines(labels.iter().map(|(key, value)| format!("{key}={value}"))))
        }
        LabelsFormat::Json => json(labels),
        LabelsFormat::Yaml => yaml(labels),
    }
}

fn compare(
    before: &BTreeMap<&str, &str>,
    after: &BTreeMap<&str, &str>,
    nvidia: KeyPolicy,
    colors: Colors,
) -> Report {
    let changes = diff(before, after, nvidia);
    let output = lines(changes.iter().map(|change| {
        let style = match change.side {
            DiffSide::Before => Style::Bad,
            DiffSide::After => Style::Good,
        };
        style.paint(&printable(&change.to_string()), colors)
    }));
    Report {
        output,
        notes: String::new(),
        exit: if changes.is_empty() { Exit::Done } else { Exit::Changes },
    }
}
