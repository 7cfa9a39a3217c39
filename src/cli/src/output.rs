//! Output: a report at the end of a command, or lines while it runs.

use std::io::{self, ErrorKind, Write};

use super::{CliError, Report};

/// State of the output's reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a command that nobody reads ends"]
pub(super) enum OutputState {
    /// Not known to be closed.
    Open,
    /// The pipe is closed.
    Closed,
}

/// Prints a report, its notes last: a long table does not scroll them away. A reader that stops early (`| head -1`) is
/// no failure.
pub(super) fn publish(report: &Report) -> Result<(), CliError> {
    let written = write_all(&mut io::stdout().lock(), &report.output);
    let noted = write_all(&mut io::stderr().lock(), &report.notes);
    output_state(written.and(noted)).map(|_| ())
}

/// Prints to standard output during a command, in one write.
pub(super) fn out(text: &str) -> Result<OutputState, CliError> {
    output_state(write_all(&mut io::stdout().lock(), text))
}

/// Prints to standard error. Errors are ignored, because there is nowhere left to report them.
pub(super) fn note(text: &str) {
    let _ = write_all(&mut io::stderr().lock(), &format!("{text}\n"));
}

/// Overwrites one line of a terminal, on standard error; an empty text clears it.
pub(super) fn live(text: &str) {
    const WIDTH: usize = 79;
    let shown: String = super::text::printable(text).chars().take(WIDTH).collect();
    let _ = write_all(&mut io::stderr().lock(), &format!("\r\x1b[K{shown}"));
}

fn output_state(written: io::Result<()>) -> Result<OutputState, CliError> {
    match written {
        Ok(()) => Ok(OutputState::Open),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(OutputState::Closed),
        Err(error) => Err(CliError::Print(error)),
    }
}

fn write_all(to: &mut dyn Write, text: &str) -> io::Result<()> {
    to.write_all(text.as_bytes())?;
    to.flush()
}
