//! The table on a terminal, redrawn periodically.

use jiff::{Timestamp, Unit};
use terminal_size::{Height, terminal_size};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval};

use super::keys::KeyReader;
use super::source::UsageSource;
use super::{UsageRows, table};
use crate::CliError;
use crate::error::brief;
use crate::output::{self, OutputState};
use crate::settings::Colors;
use crate::settings::top::TopSettings;
use crate::style::Style;
use crate::text::lines;
use crate::watch::StopSignal;
use crate::watch::screen::{AlternateScreen, over, status_line};

/// Number of lines besides rows: the heading, a blank line, the table's header, and notes.
const FRAME_LINES: usize = 5;

/// Redraws until the user quits. A failure of the first request ends the command, because the configuration may be
/// wrong.
pub(super) async fn follow(
    asker: &UsageSource<'_>,
    settings: &TopSettings,
    colors: Colors,
) -> Result<(), CliError> {
    let mut stop = StopSignal::new().map_err(CliError::Runtime)?;
    let mut resized = signal(SignalKind::window_change()).map_err(CliError::Runtime)?;
    let mut answer = tokio::select! {
        answer = asker.ask(Some(rows(settings))) => answer?,
        () = stop.received() => return Ok(()),
    };
    let _canvas = AlternateScreen::open()?;
    let mut keys = KeyReader::listen();
    let mut ticks = interval(settings.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.reset();
    let mut show = true;
    loop {
        if show && draw(&answer, settings, colors)? == OutputState::Closed {
            return Ok(());
        }
        tokio::select! {
            _ = ticks.tick() => {}
            _ = resized.recv() => {}
            () = keys.quit() => return Ok(()),
            () = stop.received() => return Ok(()),
        }
        let news = tokio::select! {
            news = asker.ask(Some(rows(settings))) => news,
            () = keys.quit() => return Ok(()),
            () = stop.received() => return Ok(()),
        };
        show = news.is_ok();
        match news {
            Ok(new) => answer = new,
            Err(error) => {
                let why = format!("{}; what follows was so before", brief(&error));
                if output::out(&status_line(&Style::Bad.paint(&why, colors)))?
                    == OutputState::Closed
                {
                    return Ok(());
                }
            }
        }
    }
}

/// Returns the number of rows that fit.
fn rows(settings: &TopSettings) -> usize {
    let room = height().saturating_sub(FRAME_LINES).max(1);
    settings.limit().map_or(room, |limit| limit.min(room))
}

fn height() -> usize {
    terminal_size().map_or(24, |(_, Height(rows))| usize::from(rows))
}

fn draw(
    answer: &UsageRows,
    settings: &TopSettings,
    colors: Colors,
) -> Result<OutputState, CliError> {
    let now = Timestamp::now();
    let now = now.round(Unit::Second).unwrap_or(now);
    let head = format!("{}: who uses what, {now}. q ends.", settings.source_name());
    let head = Style::Faint.paint(&head, colors);
    let table = table::table(&answer.list.items, settings, colors);
    let notes = lines(answer.notes.iter().map(|note| format!("note: {note}")));
    output::out(&over(&format!("{head}\n\n{table}{notes}"), height()))
}
