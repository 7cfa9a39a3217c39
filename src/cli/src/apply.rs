//! `octavo apply` and `octavo restore`: through the agent of this node, or in this process if no agent runs.

mod agent_client;
pub(super) mod local_engine;
pub(super) mod progress;
mod progress_rows;

use std::path::Path;
use std::sync::Arc;

use octavo_engine::agent_socket::{LayoutChoice, Request};
use octavo_engine::manual_choice;
use octavo_engine::store::{self, InterruptedChanges, Store};
use octavo_files::checkpoint;
use octavo_hardware::DriverHandle;
use octavo_model::inventory::Inventory;
use octavo_planner::layout::{Layout, Targets};
use octavo_planner::reconcile::{ApplyRecordEntry, NodeLayoutStatus};
use tokio::time::Instant;

pub(super) use self::agent_client::connect;
use self::local_engine::ACTOR;
use self::progress::ProgressDisplay;
use super::layout_source::LayoutSource;
use super::resolved_layout::ResolvedLayout;
use super::text::lines;
use super::{CliError, Report, explain, input, json, resolved_layout};
use crate::settings::apply::{ApplyFormat, ApplySettings, RestoreSettings, RunSettings};
use crate::settings::{Charset, Colors, OutputMode};

/// Layout name in the output of a round without a layout.
const NO_LAYOUT: &str = "(none)";

/// Opens this machine's hardware.
pub(super) type OpenHardware<'a> = &'a dyn Fn(&RunSettings) -> Result<DriverHandle, CliError>;

/// Applies a layout to the node.
pub(super) async fn apply(
    open: OpenHardware<'_>,
    settings: &ApplySettings,
    (colors, screen, charset): (Colors, OutputMode, Charset),
) -> Result<Report, CliError> {
    let run = &settings.run;
    let end_at = Instant::now() + run.timeout;
    let state_dir = &run.engine.state_dir;
    let show = ProgressDisplay::new(screen, charset);
    let Some(name) = &settings.layout else {
        return forget(settings, (&show, colors)).await;
    };
    let source = settings.layouts.as_ref().map(LayoutSource::read).transpose();
    if let Some(agent) = agent_client::connect(state_dir).await? {
        // The agent finishes interrupted changes by itself, and reports them.
        let layouts = match source {
            Ok(source) => source.map(|source| source.text),
            Err(error) => return Ok(error.into_report()),
        };
        let choice = LayoutChoice { layout: name.clone(), layouts, checkpoint: None };
        let request = Request::Apply(choice);
        let status = agent_client::ask(agent, &request, run.wait_policy(), &show).await?;
        return end(&status, run, colors);
    }
    let is_begun = store::interrupted(state_dir).record.is_some();
    let source = match source {
        Err(error) if !is_begun => {
            return Ok(with_journal_warnings(error.into_report(), state_dir));
        }
        source => source,
    };
    if settings.agent {
        return Err(CliError::NoAgent);
    }
    let handle = open(run)?;
    let inventory = observe(&handle, end_at).await?;
    let held = source.and_then(|source| resolve_here(source, name, &inventory));
    let (source, layout, case) = match held {
        Ok(held) => held,
        Err(error) if is_begun => {
            return finish(&handle, run, (&show, end_at, colors), error.into_report()).await;
        }
        Err(error) => return Ok(with_journal_warnings(error.into_report(), state_dir)),
    };
    // A device reports more once MIG mode is enabled, so the layout is resolved again before every round.
    let meant = |inventory: &Inventory| {
        let held = resolved_layout::resolve_layout(&source, &layout, inventory);
        held.map_or_else(|_| case.targets.clone(), |case| case.targets)
    };
    let status = local_engine::run(&handle, run, (name, &meant), (&show, end_at)).await?;
    Ok(end(&status, run, colors)?.after(case.notes))
}

/// Resolves the layout on this node.
fn resolve_here(
    source: Option<LayoutSource>,
    name: &str,
    inventory: &Inventory,
) -> Result<(LayoutSource, Layout, ResolvedLayout), CliError> {
    let source = source.unwrap_or_else(|| LayoutSource::generated(inventory));
    let layout = source.layout(name)?.clone();
    let case = resolved_layout::resolve_layout(&source, &layout, inventory)?;
    Ok((source, layout, case))
}

/// Finishes interrupted changes when the requested layout cannot be used.
async fn finish(
    handle: &DriverHandle,
    run: &RunSettings,
    (show, end_at, colors): (&ProgressDisplay, Instant, Colors),
    refused: Report,
) -> Result<Report, CliError> {
    let nothing = |_: &Inventory| Targets::default();
    let status = match local_engine::run(handle, run, (NO_LAYOUT, &nothing), (show, end_at)).await {
        Ok(status) => status,
        Err(error) => {
            let notes = refused.notes.clone() + &explain(&error);
            return Ok(Report { notes, ..refused });
        }
    };
    let output = match run.format {
        ApplyFormat::Table => progress::devices(&status, colors),
        ApplyFormat::Json => json(&NodeLayoutStatus { layout: None, ..status })?,
    };
    Ok(Report { output, ..refused })
}

/// Adds the state directory's interrupted changes to `report`.
pub(super) fn with_journal_warnings(report: Report, state_dir: &Path) -> Report {
    Report { notes: report.notes + &store::interrupted(state_dir).warnings(), ..report }
}

/// Returns to the layout of the agent's settings, and discards changes that cannot be finished.
async fn forget(
    settings: &ApplySettings,
    (show, colors): (&ProgressDisplay, Colors),
) -> Result<Report, CliError> {
    let run = &settings.run;
    let state_dir = &run.engine.state_dir;
    if let Some(agent) = agent_client::connect(state_dir).await? {
        let status = agent_client::ask(agent, &Request::Forget {}, run.wait_policy(), show).await?;
        return end(&status, run, colors);
    }
    let is_interrupted = store::interrupted(state_dir) != InterruptedChanges::default();
    let chosen = manual_choice::read(state_dir).ok().flatten();
    let is_empty = chosen.is_none() && !is_interrupted;
    if settings.agent || is_empty {
        return Err(CliError::NoAgent);
    }
    let store = Store::open(state_dir, ACTOR).map_err(CliError::State)?;
    // Before the lock was acquired, another process may have finished these changes or begun others.
    let found = store::interrupted(state_dir);
    store.clear().map_err(CliError::State)?;
    let unreadable = store.discard_unreadable().map_err(CliError::State)?;
    manual_choice::remove(state_dir).map_err(|error| CliError::State(error.into()))?;
    let mut messages = Vec::new();
    for entry in found.record.iter().flat_map(|record| &record.devices) {
        let ApplyRecordEntry { plan, layout, pci, .. } = entry;
        messages.push(format!(
            "Discarded the interrupted change of the GPU at {pci} (plan {plan}, layout {layout}); \
             the GPU is unchanged"
        ));
    }
    let unreadable = unreadable.iter();
    messages.extend(unreadable.map(|path| format!("Discarded {}", path.display())));
    if let Some(choice) = chosen {
        messages.push(format!("Deselected layout {}", choice.layout));
    }
    if messages.is_empty() {
        messages.push("Discarded an unreadable journal".to_owned());
    }
    let output = match run.format {
        ApplyFormat::Table => lines(messages),
        ApplyFormat::Json => json(&NodeLayoutStatus {
            notice: Some(messages.join("; ")),
            ..NodeLayoutStatus::default()
        })?,
    };
    Ok(Report { output, ..Report::default() })
}

/// Restores a checkpoint.
pub(super) async fn restore(
    open: OpenHardware<'_>,
    settings: &RestoreSettings,
    (colors, screen, charset): (Colors, OutputMode, Charset),
) -> Result<Report, CliError> {
    let run = &settings.run;
    let end_at = Instant::now() + run.timeout;
    let state_dir = &run.engine.state_dir;
    let text = match input::text(settings.file.input(), "a checkpoint") {
        Ok(text) => text,
        Err(error) => {
            return Ok(with_journal_warnings(error.into_report(), state_dir));
        }
    };
    let show = ProgressDisplay::new(screen, charset);
    if let Some(agent) = agent_client::connect(state_dir).await? {
        let request = Request::Apply(LayoutChoice {
            layout: LayoutChoice::CHECKPOINT_NAME.to_owned(),
            layouts: None,
            checkpoint: Some(text),
        });
        let status = agent_client::ask(agent, &request, run.wait_policy(), &show).await?;
        return end(&status, run, colors);
    }
    let handle = open(run)?;
    let inventory = observe(&handle, end_at).await?;
    let read = |inventory: &Inventory| checkpoint::read(&text, inventory);
    let targets: Targets = match read(&inventory) {
        Ok(targets) => targets,
        Err(source) => {
            let place = input::place(settings.file.input());
            let refused = CliError::document("checkpoint", place, source).into_report();
            return match store::interrupted(state_dir).record {
                Some(_) => finish(&handle, run, (&show, end_at, colors), refused).await,
                None => Ok(with_journal_warnings(refused, state_dir)),
            };
        }
    };
    let meant = |inventory: &Inventory| read(inventory).unwrap_or_else(|_| targets.clone());
    let status =
        local_engine::run(&handle, run, (LayoutChoice::CHECKPOINT_NAME, &meant), (&show, end_at))
            .await?;
    end(&status, run, colors)
}

async fn observe(handle: &DriverHandle, end: Instant) -> Result<Arc<Inventory>, CliError> {
    local_engine::observe(handle, end).await.map_err(CliError::DriverTimeout)
}

fn end(status: &NodeLayoutStatus, run: &RunSettings, colors: Colors) -> Result<Report, CliError> {
    let output = match run.format {
        ApplyFormat::Table => progress::format_status(status, colors),
        ApplyFormat::Json => json(status)?,
    };
    Ok(Report { output, exit: progress::exit(status), ..Report::default() })
}
