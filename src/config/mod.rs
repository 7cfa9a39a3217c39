//! Settings: the only reader of arguments and environment, for every program.
//!
//! Two stages. Raw arguments are what a person may type, described to clap once, with help, defaults and `OCTAVO_*`
//! variables; a flag beats its variable. Resolved settings are what the program runs on: private fields, every value
//! checked, no combination left that means nothing. Only resolved settings leave this module, so nobody else has to ask
//! what an absent flag means.
//!
//! Called by the binaries: [`octavo::Invocation::from_process`], [`agent::AgentSettings::from_process`] and
//! [`aggregator::AggregatorSettings::from_process`].

pub mod agent;
pub mod aggregator;
pub mod child;
pub mod duration;
pub mod engine;
pub mod hardware;
pub mod kubernetes;
pub mod labels;
pub mod log;
pub mod octavo;

use std::env;
use std::ffi::OsString;
use std::io;

use clap::builder::Resettable;
use clap::error::ErrorKind;
use clap::{Arg, Command, CommandFactory, FromArgMatches, ValueEnum};
use thiserror::Error;

/// clap's own answer instead of a run: help, a version, or what is wrong with the arguments.
#[derive(Debug, Error)]
#[error("{error}")]
pub struct Answer {
    // Not a source: it is the message.
    error: clap::Error,
    usage: AnswerKind,
}

/// What kind of answer it is, which decides the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerKind {
    /// Help or version, as asked.
    Asked,
    /// The arguments are wrong.
    UsageError,
    /// The arguments are wrong, and whoever gave them knows one exit code for all that fails.
    Failure,
}

impl From<clap::Error> for Answer {
    fn from(error: clap::Error) -> Self {
        Self {
            error,
            usage: AnswerKind::UsageError,
        }
    }
}

impl Answer {
    /// Prints it: what was asked for on standard output, an error on standard error.
    pub fn print(&self) -> io::Result<()> {
        self.error.print()
    }

    /// Wrong usage that clap cannot see by itself.
    fn usage(command: &mut Command, message: &str) -> Self {
        command.error(ErrorKind::ArgumentConflict, message).into()
    }

    /// What kind it is.
    pub fn kind(&self) -> AnswerKind {
        if self.error.use_stderr() {
            self.usage
        } else {
            AnswerKind::Asked
        }
    }

    /// Wrong usage as a failure like any other.
    fn into_failure(self) -> Self {
        Self {
            usage: AnswerKind::Failure,
            ..self
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

/// Parses `arguments`, program name first. A variable that is set to nothing is as good as unset, because that is what a
/// template with an empty value leaves behind, and clap would blame a flag that nobody gave.
fn parse<P, A>(arguments: impl IntoIterator<Item = A>) -> Result<P, clap::Error>
where
    P: CommandFactory + FromArgMatches,
    A: Into<OsString> + Clone,
{
    parse_as(P::command(), arguments)
}

/// The same with the description of `P` changed in words only.
fn parse_as<P, A>(
    command: Command,
    arguments: impl IntoIterator<Item = A>,
) -> Result<P, clap::Error>
where
    P: FromArgMatches,
    A: Into<OsString> + Clone,
{
    let mut command = without_empty_variables(command);
    let mut matches = command.try_get_matches_from_mut(arguments)?;
    P::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
}

fn without_empty_variables(command: Command) -> Command {
    command
        .mut_args(|argument| {
            if is_empty(&argument) {
                argument.env(Resettable::Reset)
            } else {
                argument
            }
        })
        .mut_subcommands(without_empty_variables)
}

#[expect(
    clippy::disallowed_methods,
    reason = "config is who reads the environment"
)]
fn is_empty(argument: &Arg) -> bool {
    let value = argument.get_env().and_then(env::var_os);
    value.is_some_and(|value| value.is_empty())
}
