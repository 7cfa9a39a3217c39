//! `octavo policy status --watch`: a table that is redrawn, or the output after each change.

use std::time::Duration;

use octavo_client::Client;
use tokio::time::{MissedTickBehavior, interval};

use super::status;
use crate::error::brief;
use crate::output::{self, OutputState};
use crate::settings::policy::PolicyStatusSettings;
use crate::settings::{Colors, OutputMode};
use crate::style::Style;
use crate::watch::screen::{AlternateScreen, height, over, status_line};
use crate::watch::{StopSignal, now};
use crate::{CliError, Exit, Report};

/// Interval between two requests.
const INTERVAL: Duration = Duration::from_secs(2);

/// Watches until it is interrupted or the output is closed. A failure of the first request ends the command, because the
/// configuration may be wrong.
pub(super) async fn watch(
    settings: &PolicyStatusSettings,
    colors: Colors,
    screen: OutputMode,
) -> Result<Report, CliError> {
    let mut stop = StopSignal::new().map_err(CliError::Runtime)?;
    let client = Client::connect(&settings.server).await?;
    tokio::select! {
        done = follow(&client, settings, (colors, screen)) => done?,
        () = stop.received() => {}
    }
    Ok(Report { exit: Exit::Done, ..Report::default() })
}

async fn follow(
    client: &Client,
    settings: &PolicyStatusSettings,
    (colors, screen): (Colors, OutputMode),
) -> Result<(), CliError> {
    let is_picture = settings.output.is_table() && screen == OutputMode::Redraw;
    let mut report = status(client, settings, colors).await?;
    let _canvas = is_picture.then(AlternateScreen::open).transpose()?;
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.reset();
    let mut last = String::new();
    loop {
        let shown = if is_picture {
            let head = format!("{}: {}. Ctrl-C exits.", settings.server.place(), now());
            let head = Style::Faint.paint(&head, colors);
            output::out(&over(&format!("{head}\n\n{}{}", report.output, report.notes), height()))?
        } else if report.output != last {
            last.clone_from(&report.output);
            output::out(&last)?
        } else {
            OutputState::Open
        };
        if shown == OutputState::Closed {
            return Ok(());
        }
        let mut failed = None;
        report = loop {
            ticks.tick().await;
            match status(client, settings, colors).await {
                Ok(report) => break report,
                Err(error) => {
                    let why = brief(&error);
                    if is_picture {
                        let _ = output::out(&status_line(&Style::Bad.paint(&why, colors)))?;
                    } else if failed.as_ref() != Some(&why) {
                        output::note(&why);
                    }
                    failed = Some(why);
                }
            }
        };
    }
}
