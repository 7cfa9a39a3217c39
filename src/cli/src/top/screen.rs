//! The table on a terminal, redrawn periodically.

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
use crate::watch::screen::{AlternateScreen, height, over, status_line};
use crate::watch::{StopSignal, now};

/// Number of lines besides rows: the heading, a blank line, the table's header, and notes.
const FRAME_LINES: usize = 5;

/// Redraws until the user quits. A failure of the first request ends the command, because the configuration may be
/// wrong.
pub(super) async fn follow(
    source: &UsageSource<'_>,
    settings: &TopSettings,
    colors: Colors,
) -> Result<(), CliError> {
    let mut stop = StopSignal::new().map_err(CliError::Runtime)?;
    let mut resized = signal(SignalKind::window_change()).map_err(CliError::Runtime)?;
    let mut answer = tokio::select! {
        answer = source.ask(Some(rows(settings))) => answer?,
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
        let result = tokio::select! {
            result = source.ask(Some(rows(settings))) => result,
            () = keys.quit() => return Ok(()),
            () = stop.received() => return Ok(()),
        };
        show = result.is_ok();
        match result {
            Ok(new) => answer = new,
            Err(error) => {
                let why = format!("{}; the output below is from the last update", brief(&error));
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

fn draw(
    answer: &UsageRows,
    settings: &TopSettings,
    colors: Colors,
) -> Result<OutputState, CliError> {
    let head = format!("{}: usage by pod, {}. q exits.", settings.source_name(), now());
    let head = Style::Faint.paint(&head, colors);
    let table = table::table(&answer.list.items, settings.is_wide(), settings.headers, colors);
    let notes = lines(answer.notes.iter().map(|note| format!("note: {note}")));
    output::out(&over(&format!("{head}\n\n{table}{notes}"), height()))
}
