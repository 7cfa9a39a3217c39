//! `octavo history`: past changes of this node's partitions.

use octavo_engine::store::history;
use octavo_files::history::{Attempt, DeviceAttempt};
use octavo_model::reason::Reason;

use super::style::Style;
use super::text::{Cell, columns};
use super::{CliError, Report, json};
use crate::settings::Colors;
use crate::settings::apply::{ApplyFormat, HistorySettings};

/// Reports the last attempts, the newest last.
pub(super) fn report(settings: &HistorySettings, colors: Colors) -> Result<Report, CliError> {
    let mut attempts = history(&settings.state_dir).map_err(CliError::State)?;
    let first = attempts.len().saturating_sub(settings.count);
    let last = attempts.split_off(first);
    let output = match settings.format {
        ApplyFormat::Json => json(&last)?,
        ApplyFormat::Table if last.is_empty() => {
            let directory = settings.state_dir.display();
            format!("No changes yet (in {directory})\n")
        }
        ApplyFormat::Table => table(&last, colors),
    };
    Ok(Report { output, ..Report::default() })
}

fn table(attempts: &[Attempt], colors: Colors) -> String {
    let head = [
        "TIME",
        "LAYOUT",
        "ACTOR",
        "DEVICE",
        "RESULT",
        "DESTROYED",
        "CREATED",
        "DURATION",
        "REASON",
    ];
    let mut rows = vec![head.map(|name| Cell::new(name, Style::Faint)).to_vec()];
    for attempt in attempts {
        rows.extend(attempt.devices.iter().map(|device| row(attempt, device)));
    }
    columns(&rows, colors)
}

fn row(attempt: &Attempt, device: &DeviceAttempt) -> Vec<Cell> {
    // Fractions of a second are not useful in a history.
    let time = attempt.time.split('.').next().unwrap_or(&attempt.time);
    let style = match device.result.known() {
        Some(Reason::Applied) => Style::Plain,
        Some(Reason::Failed | Reason::RolledBack) => Style::Bad,
        _ => Style::Warning,
    };
    vec![
        Cell::plain(time),
        Cell::plain(&attempt.layout),
        Cell::plain(&attempt.by),
        Cell::plain(&device.pci),
        Cell::new(device.result.as_str(), style),
        Cell::plain(&device.destroyed),
        Cell::plain(&device.created),
        Cell::plain(&format!("{} ms", device.duration_ms)),
        Cell::plain(&device.message),
    ]
}
