//! A table on a terminal that is redrawn as the fleet changes.
//!
//! Each redraw is a single write, line over line, to prevent flickering. It uses the terminal's alternate screen, so
//! that the previous content is restored at the end.

use std::time::Duration;

use octavo_client::{EventFeed, FeedItem};
use octavo_fleet::api::NodeList;
use terminal_size::{Height, terminal_size};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep_until};

use super::now;
use crate::CliError;
use crate::fleet::{self, nodes};
use crate::output::{self, OutputState};
use crate::settings::Colors;
use crate::settings::fleet::WatchSettings;
use crate::style::Style;
use crate::text::printable;

/// Maximum interval between redraws: ages change even without events.
const MAX_REDRAW_INTERVAL: Duration = Duration::from_secs(2);

/// Minimum interval between redraws, which limits requests for a fleet that changes constantly.
const MIN_REDRAW_INTERVAL: Duration = Duration::from_millis(250);

/// Number of lines besides nodes: the heading, a blank line, the table's header.
const FRAME_LINES: usize = 3;

const ENTER: &str = "\u{1b}[?1049h\u{1b}[?25l\u{1b}[?7l";
const LEAVE: &str = "\u{1b}[?7h\u{1b}[?25h\u{1b}[?1049l";

/// The alternate screen; the main screen is restored on drop.
#[derive(Debug)]
pub(crate) struct AlternateScreen;

impl AlternateScreen {
    pub(crate) fn open() -> Result<Self, CliError> {
        let _ = output::out(ENTER)?;
        Ok(Self)
    }
}

impl Drop for AlternateScreen {
    fn drop(&mut self) {
        // An error cannot be reported here.
        let _ = output::out(LEAVE);
    }
}

/// Redraws until the terminal is closed.
pub(super) async fn follow(
    mut feed: EventFeed,
    settings: &WatchSettings,
    colors: Colors,
) -> Result<(), CliError> {
    let mut resized = signal(SignalKind::window_change()).map_err(CliError::Runtime)?;
    let mut canvas = None;
    let mut due = Instant::now();
    loop {
        let lost = |why: &str| {
            // Shown immediately: the next redraw may take a while.
            let _ = output::out(&status_line(&Style::Bad.paint(&printable(why), colors)));
        };
        let before = due.checked_sub(MAX_REDRAW_INTERVAL);
        // While disconnected, the feed waits before it retries, and nothing must shorten that wait.
        let shows = canvas.is_some() && feed.is_connected();
        tokio::select! {
            item = feed.next(lost) => {
                let item = item?;
                // Failures before the first connection belong on the main screen, which remains.
                if canvas.is_none() {
                    canvas = Some(AlternateScreen::open()?);
                }
                due = match (item, before) {
                    (FeedItem::Changed(_), Some(before)) => due.min(before + MIN_REDRAW_INTERVAL),
                    (FeedItem::Connected, _) | (FeedItem::Changed(_), None) => Instant::now(),
                };
                continue;
            }
            () = sleep_until(due), if shows => {}
            _ = resized.recv(), if shows => {}
        }
        let height = height();
        let rows = height.saturating_sub(FRAME_LINES).max(1);
        let filter = (&settings.filter, settings.order);
        match fleet::list(feed.client(), filter, Some(rows)).await {
            Ok(page) => {
                let text = picture(&page, settings, colors);
                if output::out(&over(&text, height))? == OutputState::Closed {
                    return Ok(());
                }
            }
            Err(CliError::Client(error)) => feed.failed(error, &lost).await?,
            Err(error) => return Err(error),
        }
        due = Instant::now() + MAX_REDRAW_INTERVAL;
    }
}

/// Formats the heading, then the table.
fn picture(list: &NodeList, settings: &WatchSettings, colors: Colors) -> String {
    let stale = list.items.iter().filter(|row| fleet::format::is_stale(row));
    let stale = match stale.count() {
        0 => String::new(),
        count => format!(", {count} of them stale"),
    };
    let head = format!(
        "{}: {} of {} nodes{stale}, {}. Ctrl-C exits.",
        settings.server.place(),
        list.items.len(),
        list.total,
        now()
    );
    let table = nodes::table(&list.items, settings.output, colors);
    format!("{}\n\n{table}", Style::Faint.paint(&head, colors))
}

/// Returns the number of lines of the terminal.
pub(crate) fn height() -> usize {
    terminal_size().map_or(24, |(_, Height(rows))| usize::from(rows))
}

/// Writes at most `height` lines of `text` over the previous content.
pub(crate) fn over(text: &str, height: usize) -> String {
    let lines: Vec<&str> = text.lines().take(height).collect();
    format!("\u{1b}[H{}\u{1b}[K\u{1b}[J", lines.join("\u{1b}[K\r\n"))
}

/// Writes `text` over the heading.
pub(crate) fn status_line(text: &str) -> String {
    format!("\u{1b}[H{text}\u{1b}[K")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redraw_overwrites_without_scrolling() {
        assert_eq!(over("a\nb\nc\n", 2), "\u{1b}[Ha\u{1b}[K\r\nb\u{1b}[K\u{1b}[J");
    }
}
