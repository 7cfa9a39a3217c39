//! Output while a program runs, in single writes.

use std::io::{self, ErrorKind, Write};

/// State of the output's reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a command whose output is closed exits"]
pub enum OutputState {
    /// Not known to be closed.
    Open,
    /// The pipe is closed.
    Closed,
}

/// Prints to standard output, in one write.
pub fn out(text: &str) -> io::Result<OutputState> {
    state(write_all(&mut io::stdout().lock(), text))
}

/// Prints a line to standard error. Errors are ignored, because there is nowhere left to report them.
pub fn note(text: &str) {
    let _ = write_all(&mut io::stderr().lock(), &format!("{text}\n"));
}

/// Converts the result of a write. A reader that stops early is no failure.
pub fn state(written: io::Result<()>) -> io::Result<OutputState> {
    match written {
        Ok(()) => Ok(OutputState::Open),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(OutputState::Closed),
        Err(error) => Err(error),
    }
}

/// Writes and flushes.
pub fn write_all(to: &mut dyn Write, text: &str) -> io::Result<()> {
    to.write_all(text.as_bytes())?;
    to.flush()
}
