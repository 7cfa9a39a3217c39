//! Output: a report at the end of a command, or lines while it runs.

use std::io;

use octavo_client::{Client, RequestPath};
pub(super) use octavo_terminal::output::{OutputState, note};
use octavo_terminal::output::{state, write_all};
use serde::Serialize;
use terminal_size::{Width, terminal_size_of};

use super::text::{WIDTH, lines, printable};
use super::{CliError, Report, json, yaml};
use crate::settings::fleet::FleetFormat;

/// Formats an aggregator's answer as requested: the document itself, the names of its items, or `text`.
pub(super) fn render<'a>(
    format: FleetFormat,
    answer: &impl Serialize,
    names: impl IntoIterator<Item = &'a str>,
    text: impl FnOnce() -> String,
) -> Result<String, CliError> {
    match format {
        FleetFormat::Json => json(answer),
        FleetFormat::Yaml => yaml(answer),
        FleetFormat::Name => Ok(lines(names.into_iter().map(printable))),
        FleetFormat::Table | FleetFormat::Wide => Ok(text()),
    }
}

/// Prints a report, its notes last: a long table does not scroll them away. A reader that stops early (`| head -1`) is
/// no failure.
pub(super) fn publish(report: &Report) -> Result<(), CliError> {
    let written = write_all(&mut io::stdout().lock(), &report.output);
    let noted = write_all(&mut io::stderr().lock(), &report.notes);
    state(written.and(noted)).map(|_| ()).map_err(CliError::Print)
}

/// Prints to standard output during a command, in one write.
pub(super) fn out(text: &str) -> Result<OutputState, CliError> {
    octavo_terminal::output::out(text).map_err(CliError::Print)
}

/// Prints a file of the aggregator line by line as it arrives.
pub(super) async fn download(
    client: &Client,
    target: &RequestPath,
    media_type: &'static str,
) -> Result<Report, CliError> {
    let mut download = client.download(target, media_type).await?;
    let mut rest = Vec::new();
    while let Some(part) = download.next().await? {
        rest.extend_from_slice(&part);
        let end = rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at.saturating_add(1));
        let lines: Vec<u8> = rest.drain(..end).collect();
        if out(&String::from_utf8_lossy(&lines))? == OutputState::Closed {
            return Ok(Report::default());
        }
    }
    Ok(Report { output: String::from_utf8_lossy(&rest).into_owned(), ..Report::default() })
}

/// Returns the width of the terminal that is standard error.
pub(super) fn width_of_stderr() -> usize {
    terminal_size_of(io::stderr()).map_or(WIDTH, |(Width(columns), _)| usize::from(columns))
}

/// Overwrites the last `drawn` rows of a terminal, on standard error. Every row must fit on one line.
pub(super) fn redraw(rows: &[String], drawn: usize) {
    let back = if drawn == 0 { String::new() } else { format!("\x1b[{drawn}A") };
    let rows = lines(rows.iter().cloned());
    let _ = write_all(&mut io::stderr().lock(), &format!("{back}\r\x1b[J{rows}"));
}
