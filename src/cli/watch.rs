//! `octavo watch`: changes of the fleet, as a table that is redrawn or as lines.
//!
//! ```text
//! feed.rs      the aggregator's stream: connect, read, reconnect
//! lines.rs     a line or an object for each change
//! screen.rs    a table on a terminal
//! change.rs    description of the difference between two rows of a node
//! ```
//!
//! The stream only reports that a node changed. The aggregator applies the filter, so the node is requested again.
//! Exits with 0 when it is interrupted or the output is closed.

pub(super) mod change;
pub(super) mod feed;
mod lines;
pub(super) mod screen;

use std::io;

use tokio::signal::unix::{SignalKind, signal};

use self::feed::Feed;
use super::client::Client;
use super::{CliError, Exit, Report};
use crate::config::octavo::fleet::{FleetFormat, NodesSettings};
use crate::config::octavo::{Colors, Screen};

/// Watches until it is interrupted or the output is closed.
pub(super) async fn watch(
    settings: &NodesSettings,
    colors: Colors,
    screen: Screen,
) -> Result<Report, CliError> {
    let mut stop = Stop::new().map_err(CliError::Runtime)?;
    let client = Client::new(settings.server())?;
    let table = matches!(
        settings.printed().format,
        FleetFormat::Table | FleetFormat::Wide
    );
    let feed: Feed = Feed::new(client);
    if table && screen == Screen::Live {
        tokio::select! {
            done = screen::follow(feed, settings, colors) => done?,
            () = stop.asked() => {}
        }
    } else {
        tokio::select! {
            done = lines::follow(feed, settings, colors) => done?,
            () = stop.asked() => {}
        }
    }
    Ok(Report {
        exit: Exit::Done,
        ..Report::default()
    })
}

/// Receiver of SIGINT and SIGTERM.
#[derive(Debug)]
pub(super) struct Stop {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

impl Stop {
    /// Installs the handlers; the signals no longer end the process by default.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Returns once either signal is received.
    pub(super) async fn asked(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
