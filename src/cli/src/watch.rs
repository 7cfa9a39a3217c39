//! `octavo watch`: changes of the fleet, as a table that is redrawn or as lines.
//!
//! ```text
//! lines.rs      a line or an object for each change
//! screen.rs     a table on a terminal
//! node_diff.rs  description of the difference between two rows of a node
//! ```
//!
//! The stream only reports that a node changed. The aggregator applies the filter, so the node is requested again.
//! Exits with 0 when it is interrupted or the output is closed.

mod lines;
pub(super) mod node_diff;
pub(super) mod screen;

use std::io;

use jiff::{Timestamp, Unit};
use octavo_client::{Client, EventFeed};
use tokio::signal::unix::{SignalKind, signal};

use super::fleet::absent_types;
use super::{CliError, Exit, Report, output};
use crate::settings::fleet::{FleetFormat, WatchSettings};
use crate::settings::{Colors, OutputMode};
use crate::text::printable;

/// Watches until it is interrupted or the output is closed.
pub(super) async fn watch(
    settings: &WatchSettings,
    colors: Colors,
    screen: OutputMode,
) -> Result<Report, CliError> {
    let mut stop = StopSignal::new().map_err(CliError::Runtime)?;
    let client = Client::connect(&settings.server).await?;
    // A misspelled type never has a change to show. Other types may appear later, for example after the aggregator has
    // been restarted, and agents connect again.
    for unknown in absent_types::unknown(&client, &settings.filter.types, []).await? {
        output::note(&format!("note: {unknown}"));
    }
    let table = matches!(settings.output.format, FleetFormat::Table | FleetFormat::Wide);
    let feed: EventFeed = EventFeed::new(client);
    if table && screen == OutputMode::Redraw {
        tokio::select! {
            done = screen::follow(feed, settings, colors) => done?,
            () = stop.received() => {}
        }
    } else {
        tokio::select! {
            done = lines::follow(feed, settings, colors) => done?,
            () = stop.received() => {}
        }
    }
    Ok(Report { exit: Exit::Done, ..Report::default() })
}

/// Reports on standard error that a connection was lost.
pub(super) fn note_lost(why: &str) {
    output::note(&format!("note: {}", printable(why)));
}

/// Returns the current time in seconds, as in the documents.
pub(super) fn now() -> String {
    let now = Timestamp::now();
    now.round(Unit::Second).unwrap_or(now).to_string()
}

/// Receiver of SIGINT and SIGTERM.
#[derive(Debug)]
pub(super) struct StopSignal {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

impl StopSignal {
    /// Installs the handlers; the signals no longer end the process by default.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Returns once either signal is received.
    pub(super) async fn received(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
