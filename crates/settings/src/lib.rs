//! Settings that more than one program or library has. Those of a single program are in its module `settings`.
//!
//! Each group of settings is one struct that clap parses, with help, defaults and `OCTAVO_*` variables; a flag takes
//! precedence over its variable. Methods return values that depend on several arguments. A program rejects meaningless
//! combinations before it uses its settings.

pub mod child;
pub mod duration;
pub mod engine;
pub mod hardware;
pub mod kubernetes;
pub mod labels;
pub mod server_url;

use std::ffi::OsString;
use std::{env, io};

use clap::builder::Resettable;
use clap::error::ErrorKind;
use clap::{Arg, Command, CommandFactory, FromArgMatches};
use thiserror::Error;

/// clap's output instead of a run: help, a version, or a usage error.
#[derive(Debug, Error)]
#[error("{error}")]
pub struct EarlyExit {
    // Not a source: it is the message.
    error: clap::Error,
    usage: EarlyExitKind,
}

/// Kind of output, which determines the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EarlyExitKind {
    /// Help or version, as requested.
    Requested,
    /// The arguments are wrong.
    UsageError,
    /// The arguments are wrong, and the command uses one exit code for all failures.
    Failure,
}

impl From<clap::Error> for EarlyExit {
    fn from(error: clap::Error) -> Self {
        Self { error, usage: EarlyExitKind::UsageError }
    }
}

impl EarlyExit {
    /// Prints it: requested output to standard output, an error to standard error.
    pub fn print(&self) -> io::Result<()> {
        self.error.print()
    }

    /// Creates a usage error that clap cannot detect by itself.
    pub fn usage(command: &mut Command, message: &str) -> Self {
        command.error(ErrorKind::ArgumentConflict, message).into()
    }

    /// Returns the kind of output.
    pub fn kind(&self) -> EarlyExitKind {
        if self.error.use_stderr() { self.usage } else { EarlyExitKind::Requested }
    }

    /// Turns a usage error into a general failure.
    #[must_use]
    pub fn into_failure(self) -> Self {
        Self { usage: EarlyExitKind::Failure, ..self }
    }
}

/// Parses `arguments`, program name first. An empty variable counts as unset: templates with an empty value produce
/// it, and clap would report an error for a flag that was not used.
pub fn parse<P, A>(arguments: impl IntoIterator<Item = A>) -> Result<P, clap::Error>
where
    P: CommandFactory + FromArgMatches,
    A: Into<OsString> + Clone,
{
    parse_as(P::command(), arguments)
}

/// Parses `arguments` with `command`, the description of `P` with changed texts.
pub fn parse_as<P, A>(
    command: Command,
    arguments: impl IntoIterator<Item = A>,
) -> Result<P, clap::Error>
where
    P: FromArgMatches,
    A: Into<OsString> + Clone,
{
    let mut command = prepare_variables(command);
    let mut matches = command.try_get_matches_from_mut(arguments)?;
    P::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
}

/// Hides the values of variables in help, and ignores empty variables.
fn prepare_variables(command: Command) -> Command {
    command
        .mut_args(|argument| {
            let argument = argument.hide_env_values(true);
            if is_empty(&argument) { argument.env(Resettable::Reset) } else { argument }
        })
        .mut_subcommands(prepare_variables)
}

#[expect(clippy::disallowed_methods, reason = "settings read the environment")]
fn is_empty(argument: &Arg) -> bool {
    let value = argument.get_env().and_then(env::var_os);
    value.is_some_and(|value| value.is_empty())
}
