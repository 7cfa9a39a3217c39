//! Progress display while a node is being changed, and the final status.

use std::cell::RefCell;
use std::time::Duration;

use octavo_engine::executor::ProgressByDevice;
use octavo_model::inventory::Inventory;
use octavo_model::reason::Reason;
use octavo_planner::plan::messages::PlanFormatter;
use octavo_planner::reconcile::{
    ChangeProgress, DeviceLayoutStatus, InterruptedChange, NodeLayoutStatus,
};
use tokio::time::{Instant, Interval, interval_at};

use super::progress_rows::{DeviceProgress, ProgressRows, fitted};
use crate::Exit;
use crate::fleet::format::layout_style;
use crate::output::{note, redraw, width_of_stderr};
use crate::settings::{Charset, Colors, OutputMode};
use crate::text::{Cell, columns, count_noun, group_by_key, lines, printable, wrap};

/// Time between two updates of the rows.
const ROWS_INTERVAL: Duration = Duration::from_secs(1);
/// Time between two reports in a file or a pipe. Most changes are shorter and need none.
const LINES_INTERVAL: Duration = Duration::from_secs(10);

/// How progress is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Not at all.
    Silent,
    /// A line for each device, from time to time.
    Lines,
    /// Rows that are overwritten.
    Rows(Charset),
}

/// Progress display on standard error.
#[derive(Debug)]
pub(crate) struct ProgressDisplay {
    mode: Mode,
    state: RefCell<State>,
}

#[derive(Debug, Default)]
struct State {
    devices: Vec<DeviceProgress>,
    /// Action on pods that block the change.
    drain: Option<String>,
    rows: ProgressRows,
    /// Number of rows on the terminal.
    drawn: usize,
}

impl ProgressDisplay {
    /// Creates a display for a terminal, or for a file or a pipe.
    pub(crate) fn new(screen: OutputMode, charset: Charset) -> Self {
        Self::with_mode(match screen {
            OutputMode::Redraw => Mode::Rows(charset),
            OutputMode::Append => Mode::Lines,
        })
    }

    /// Creates a display that shows nothing.
    pub(crate) fn silent() -> Self {
        Self::with_mode(Mode::Silent)
    }

    fn with_mode(mode: Mode) -> Self {
        Self { mode, state: RefCell::default() }
    }

    /// Returns the times at which to call [`Self::refresh`].
    pub(crate) fn ticks(&self) -> Interval {
        let period = match self.mode {
            Mode::Rows(_) => ROWS_INTERVAL,
            Mode::Lines | Mode::Silent => LINES_INTERVAL,
        };
        interval_at(Instant::now() + period, period)
    }

    /// Shows the progress of an agent's devices.
    pub(crate) fn progress(&self, status: &NodeLayoutStatus) {
        let devices = status.devices.iter();
        let moving = devices.filter_map(|device| {
            let progress = device.progress.as_ref()?;
            Some(device_progress(device.name.clone(), progress))
        });
        self.show(moving.collect(), status.drain.clone());
    }

    /// Shows the progress of this process's devices.
    pub(crate) fn board(&self, inventory: &Inventory, board: &ProgressByDevice) {
        let moving = board.iter().map(|(pci, progress)| {
            device_progress(PlanFormatter::new(inventory, *pci).device(*pci), progress)
        });
        self.show(moving.collect(), None);
    }

    /// Updates the times, or prints the next lines.
    pub(crate) fn refresh(&self) {
        let state = &mut *self.state.borrow_mut();
        match self.mode {
            Mode::Silent => {}
            Mode::Rows(charset) => state.draw(charset),
            Mode::Lines => {
                if let Some(drain) = &state.drain {
                    note(&printable(drain));
                }
                for DeviceProgress { name, step, done, steps } in &state.devices {
                    note(&printable(&format!("{name}: {step} ({done} of {steps} steps done)")));
                }
            }
        }
    }

    fn show(&self, devices: Vec<DeviceProgress>, drain: Option<String>) {
        let state = &mut *self.state.borrow_mut();
        (state.devices, state.drain) = (devices, drain);
        if let Mode::Rows(charset) = self.mode {
            state.draw(charset);
        }
    }
}

impl State {
    fn draw(&mut self, charset: Charset) {
        // The last column stays empty: some terminals fold a row that fills it.
        let width = width_of_stderr().saturating_sub(1);
        let mut rows = self.rows.rows(&self.devices, Instant::now(), (width, charset));
        rows.extend(self.drain.as_deref().map(|text| fitted(text, width)));
        if rows.is_empty() && self.drawn == 0 {
            return;
        }
        redraw(&rows, self.drawn);
        self.drawn = rows.len();
    }
}

fn device_progress(name: String, progress: &ChangeProgress) -> DeviceProgress {
    let ChangeProgress { current_step, done, steps, .. } = progress;
    DeviceProgress { name, step: current_step.clone(), done: *done, steps: *steps }
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
