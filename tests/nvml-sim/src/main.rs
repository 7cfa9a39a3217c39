//! `nvml-simctl`: administers a simulated machine while clients use it through the library.

mod ctl;

use std::error::Error;
use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let arguments = ctl::Arguments::parse();
    let mut out = std::io::stdout().lock();
    match ctl::run(&arguments, &mut out) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let mut text = error.to_string();
            let mut cause = error.source();
            while let Some(error) = cause {
                text = format!("{text}: {error}");
                cause = error.source();
            }
            // If standard error is closed, only the exit code reports the failure.
            drop(writeln!(std::io::stderr(), "nvml-simctl: {text}"));
            ExitCode::FAILURE
        }
    }
}
