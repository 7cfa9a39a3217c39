//! `octavo watch`: the fleet as it changes, as a table that is printed over or as lines.
//!
//! ```text
//! feed.rs      the aggregator's stream: connect, follow, connect again
//! lines.rs     a line or an object for each change
//! screen.rs    a table on a terminal
//! change.rs    what lies between two rows of one node, in words
//! ```
//!
//! The stream tells that something changed and of which node; which nodes pass the filter is the aggregator's to say, so
//! it is asked again. Ends with 0 when it is interrupted or nobody reads any more.

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

/// Until somebody interrupts or nobody reads any more.
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

/// Ctrl-C and the polite request to end.
#[derive(Debug)]
pub(super) struct Stop {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

impl Stop {
    /// From now on neither ends the process by itself.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Returns once either came.
    pub(super) async fn asked(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
