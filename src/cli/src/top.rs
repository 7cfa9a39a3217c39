//! `octavo top`: usage by pod, of this node or of the fleet, as a table that is redrawn.
//!
//! ```text
//! source.rs   rows of an aggregator, page by page, or of the agent's socket
//! table.rs    rows as a table
//! screen.rs   the table on a terminal, redrawn periodically
//! keys.rs     the key that quits
//! ```

mod keys;
mod screen;
mod source;
mod table;

use octavo_fleet::usage::UsageList;

use self::source::UsageSource;
use super::{CliError, Exit, Report, json, yaml};
use crate::settings::top::{TopFormat, TopSettings};
use crate::settings::{Colors, OutputMode};

/// Rows, with notes on them.
#[derive(Debug)]
struct UsageRows {
    list: UsageList,
    /// Notes on missing data.
    notes: Vec<String>,
}

/// Prints one table, or redraws it until the user quits.
pub(super) async fn top(
    settings: &TopSettings,
    colors: Colors,
    screen: OutputMode,
) -> Result<Report, CliError> {
    let source = UsageSource::new(settings).await?;
    if screen == OutputMode::Redraw && !settings.is_once() {
        screen::follow(&source, settings, colors).await?;
        return Ok(Report { exit: Exit::Done, ..Report::default() });
    }
    let answer = source.ask(settings.limit()).await?;
    let output = match settings.format {
        TopFormat::Table | TopFormat::Wide => {
            table::table(&answer.list.items, settings.is_wide(), settings.headers, colors)
        }
        TopFormat::Json => json(&answer.list)?,
        TopFormat::Yaml => yaml(&answer.list)?,
    };
    Ok(Report::with_notes(output, &answer.notes, Exit::Done))
}
