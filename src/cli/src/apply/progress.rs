//! Progress display while a node is being changed, and the final status.

use octavo_engine::executor::ProgressByDevice;
use octavo_model::inventory::Inventory;
use octavo_model::reason::Reason;
use octavo_planner::plan::messages::PlanFormatter;
use octavo_planner::reconcile::{DeviceLayoutStatus, InterruptedChange, NodeLayoutStatus};

use crate::Exit;
use crate::fleet::format::layout_style;
use crate::output::live;
use crate::settings::{Colors, OutputMode};
use crate::text::{Cell, columns, count_noun, group_by_key, lines, wrap};

/// Progress line that is overwritten on a terminal.
#[derive(Debug)]
pub(crate) struct ProgressLine {
    screen: OutputMode,
}

impl ProgressLine {
    pub(crate) fn new(screen: OutputMode) -> Self {
        Self { screen }
    }

    /// Shows the progress of an agent's devices.
    pub(crate) fn progress(&self, status: &NodeLayoutStatus) {
        let devices = status.devices.iter();
        let moving = devices.filter_map(|device| {
            let progress = device.progress.as_ref()?;
            Some((
                device.name.clone(),
                progress.current_step.clone(),
                progress.done,
                progress.steps,
            ))
        });
        self.line(&moving.collect::<Vec<_>>());
    }

    /// Shows the progress of this process's devices.
    pub(crate) fn board(&self, inventory: &Inventory, board: &ProgressByDevice) {
        let moving = board.iter().map(|(pci, progress)| {
            let name = PlanFormatter::new(inventory, *pci).device(*pci);
            (name, progress.current_step.clone(), progress.done, progress.steps)
        });
        self.line(&moving.collect::<Vec<_>>());
    }

    fn line(&self, moving: &[(String, String, usize, usize)]) {
        if self.screen != OutputMode::Redraw {
            return;
        }
        let text = match moving {
            [] => String::new(),
            [(name, doing, done, steps), others @ ..] => {
                let more = match others.len() {
                    0 => String::new(),
                    more => format!(", and {more} more"),
                };
                format!("{name}: {doing} ({done} of {steps} steps done){more}")
            }
        };
        live(&text);
    }
}

/// Formats the node's status: a line for each device and one for all.
pub(crate) fn format_status(status: &NodeLayoutStatus, colors: Colors) -> String {
    let mut text = devices(status, colors);
    text.push_str(&summary(status));
    text
}

/// Formats each device's status, and the interrupted changes of other layouts.
pub(crate) fn devices(status: &NodeLayoutStatus, colors: Colors) -> String {
    let mut text = String::new();
    for note in status.notice.iter().chain(&status.drain) {
        text.push_str(&wrap(&format!("Note: {note}"), 6));
        text.push('\n');
    }
    let rows: Vec<Vec<Cell>> = status
        .devices
        .iter()
        .map(|device| {
            vec![
                Cell::plain(&device.name),
                Cell::plain(&device.pci),
                Cell::new(device.state.as_str(), layout_style(&device.state)),
            ]
        })
        .collect();
    let table = columns(&rows, colors);
    for (row, device) in table.lines().zip(&status.devices) {
        text.push_str(row);
        text.push('\n');
        text.push_str(&reason(device));
    }
    text.push_str(&lines(interrupted(status)));
    text
}

/// Formats how interrupted changes of other layouts ended, a line for each device.
pub(crate) fn interrupted(status: &NodeLayoutStatus) -> Vec<String> {
    let changes = status.interrupted.iter().map(|change| {
        let InterruptedChange { pci, name, layout, state, message } = change;
        let why = if message.is_empty() { "" } else { ": " };
        let line =
            format!("Interrupted change to layout {layout}: {name} ({pci}) {state}{why}{message}");
        wrap(&line, 2)
    });
    changes.collect()
}

fn reason(device: &DeviceLayoutStatus) -> String {
    if device.message.is_empty() {
        return String::new();
    }
    lines([wrap(&format!("  {}", device.message), 2)])
}

fn summary(status: &NodeLayoutStatus) -> String {
    let layout = status.layout.as_deref().unwrap_or("(none)");
    if status.devices.is_empty() {
        return format!("Layout {layout}: no device is covered\n");
    }
    if status.is_applied() {
        let gpus = count_noun(status.devices.len(), "GPU", "GPUs");
        return format!("Layout {layout}: applied on {gpus}\n");
    }
    let by_state =
        group_by_key(status.devices.iter().map(|device| (device.state.as_str(), device)));
    let counts: Vec<String> =
        by_state.iter().map(|(state, devices)| format!("{} {state}", devices.len())).collect();
    format!("Layout {layout}: {}\n", counts.join(", "))
}

/// Returns the most severe exit code of all devices.
pub(crate) fn exit(status: &NodeLayoutStatus) -> Exit {
    let severity = |device: &DeviceLayoutStatus| match device.state.known() {
        Some(Reason::Applied) => Exit::Done,
        Some(Reason::Infeasible) => Exit::Infeasible,
        // A device that waits for another one, or was not begun in time, is not done.
        Some(
            Reason::Blocked
            | Reason::NeedsReset
            | Reason::Drifted
            | Reason::Yielded
            | Reason::Pending,
        ) => Exit::Blocked,
        _ => Exit::Failed,
    };
    let rank = |exit: &Exit| match exit {
        Exit::Done | Exit::Usage | Exit::Changes => 0,
        Exit::Blocked => 1,
        Exit::Failed => 2,
        Exit::Infeasible => 3,
    };
    let exits = status.devices.iter().map(severity);
    exits.max_by_key(rank).unwrap_or_default()
}
