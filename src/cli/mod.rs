//! The `octavo` command line: asks for an inventory and renders it.
//!
//! Nothing is decided here; what a value means is the domain's. A command is a function from settings and an inventory to
//! a report, which is printed at the end, once, so that a closed pipe or a full disk is met in one place only. Where
//! the inventory of this machine comes from is the caller's business: `src/bin/octavo.rs` passes the hardware in.

mod error;
mod exit;
mod input;
mod inspect;
mod labels;
mod paint;
mod text;

use std::io::{self, ErrorKind, Write};
use std::sync::Arc;

use serde::Serialize;

pub use self::error::{CliError, explain};
pub use self::exit::Exit;
use crate::config::hardware::HardwareSettings;
use crate::config::octavo::{Command, Invocation, Source, completion_script};
use crate::config::{Answer, AnswerKind};
use crate::domain::inventory::Inventory;

/// What a command has to say.
#[derive(Debug, Default)]
struct Report {
    /// For standard output.
    output: String,
    /// For standard error.
    notes: String,
    exit: Exit,
}

/// Runs the command line of this process. `observe` reads the hardware of this machine, and is called at most once.
pub fn main<F, E>(observe: F) -> Exit
where
    F: AsyncFnOnce(&HardwareSettings) -> Result<Arc<Inventory>, E>,
    E: std::error::Error + 'static,
{
    let invocation = match Invocation::from_process() {
        Ok(invocation) => invocation,
        Err(answer) => return say(&answer),
    };
    match run(&invocation, observe).and_then(|report| publish(&report).map(|()| report.exit)) {
        Ok(exit) => exit,
        Err(error) => {
            // Standard error is the last place to complain; when that is gone too, the exit code still tells.
            let _ = io::stderr().write_all(explain(&error).as_bytes());
            Exit::Failed
        }
    }
}

fn say(answer: &Answer) -> Exit {
    // As above: help that nobody reads is no failure.
    let _ = answer.print();
    match answer.kind() {
        AnswerKind::Asked => Exit::Done,
        AnswerKind::UsageError => Exit::Usage,
    }
}

fn run<F, E>(invocation: &Invocation, observe: F) -> Result<Report, CliError>
where
    F: AsyncFnOnce(&HardwareSettings) -> Result<Arc<Inventory>, E>,
    E: std::error::Error + 'static,
{
    match invocation.command() {
        Command::Inspect(settings) => {
            let inventory = inventory(settings.source(), observe)?;
            inspect::report(&inventory, settings, invocation.colors())
        }
        Command::Labels(settings) => {
            let inventory = inventory(settings.source(), observe)?;
            labels::report(&inventory, settings, invocation.colors())
        }
        Command::Completion(shell) => Ok(Report {
            output: completion_script(*shell),
            ..Report::default()
        }),
    }
}

fn inventory<F, E>(source: &Source, observe: F) -> Result<Arc<Inventory>, CliError>
where
    F: AsyncFnOnce(&HardwareSettings) -> Result<Arc<Inventory>, E>,
    E: std::error::Error + 'static,
{
    match source {
        Source::Recording(file) => input::inventory(file).map(Arc::new),
        Source::Machine(hardware) => {
            input::check_library(hardware)?;
            tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .build()
                .map_err(CliError::Runtime)?
                .block_on(observe(hardware))
                .map_err(|error| CliError::Observe(Box::new(error)))
        }
    }
}

/// Prints a report. A reader that has seen enough (`| head -1`) is no failure.
fn publish(report: &Report) -> Result<(), CliError> {
    let written = write_all(&mut io::stderr().lock(), &report.notes)
        .and_then(|()| write_all(&mut io::stdout().lock(), &report.output));
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other.map_err(CliError::Print),
    }
}

fn write_all(to: &mut dyn Write, text: &str) -> io::Result<()> {
    to.write_all(text.as_bytes())?;
    to.flush()
}

fn json(value: &impl Serialize) -> Result<String, CliError> {
    let mut text = serde_json::to_string_pretty(value)
        .map_err(|error| CliError::Serialize(Box::new(error)))?;
    text.push('\n');
    Ok(text)
}

fn yaml(value: &impl Serialize) -> Result<String, CliError> {
    serde_saphyr::to_string(value).map_err(|error| CliError::Serialize(Box::new(error)))
}
