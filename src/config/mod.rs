//! Settings: the only reader of arguments and environment, for every program.
//!
//! Two stages. Raw arguments are what a person may type, described to clap once, with help, defaults and `OCTAVO_*`
//! variables; a flag beats its variable. Resolved settings are what the program runs on: private fields, every value
//! checked, no combination left that means nothing. Only resolved settings leave this module, so nobody else has to ask
//! what an absent flag means.
//!
//! Called by the binaries: [`octavo::Invocation::from_process`] and [`agent::AgentSettings::from_process`].

pub mod agent;
pub mod duration;
pub mod hardware;
pub mod labels;
pub mod octavo;

use std::io;

use clap::ValueEnum;
use thiserror::Error;

/// clap's own answer instead of a run: help, a version, or what is wrong with the arguments.
#[derive(Debug, Error)]
#[error(transparent)]
pub struct Answer(#[from] clap::Error);

/// What kind of answer it is, which decides the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerKind {
    /// Help or version, as asked.
    Asked,
    /// The arguments are wrong.
    UsageError,
}

impl Answer {
    /// Prints it: what was asked for on standard output, an error on standard error.
    pub fn print(&self) -> io::Result<()> {
        self.0.print()
    }

    /// What kind it is.
    pub fn kind(&self) -> AnswerKind {
        if self.0.use_stderr() {
            AnswerKind::UsageError
        } else {
            AnswerKind::Asked
        }
    }
}

/// A setting that is on or off, and says so: `--flag=off` can undo what a variable or a manifest set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// Do it.
    On,
    /// Leave it.
    Off,
}
