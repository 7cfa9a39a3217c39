//! What is logged and how: the flags every program that runs for long has in common.

use clap::{Args, ValueEnum};

/// Raw arguments.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Logging")]
pub(super) struct LogArgs {
    /// The least severe messages to log
    #[arg(
        long,
        value_enum,
        value_name = "LEVEL",
        env = "OCTAVO_LOG_LEVEL",
        hide_env_values = true,
        default_value = "info"
    )]
    log_level: LogLevel,

    /// How messages are written
    #[arg(
        long,
        value_enum,
        value_name = "FORMAT",
        env = "OCTAVO_LOG_FORMAT",
        hide_env_values = true,
        default_value = "text"
    )]
    log_format: LogFormat,
}

/// What is logged and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogSettings {
    level: LogLevel,
    format: LogFormat,
}

/// The least severe messages to log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    /// What failed.
    Error,
    /// What is not as it should be.
    Warn,
    /// What happened.
    Info,
    /// Why it happened.
    Debug,
    /// Every call.
    Trace,
}

/// How messages are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One object a line, for collectors.
    Json,
}

impl LogSettings {
    /// The least severe messages to log.
    pub fn level(self) -> LogLevel {
        self.level
    }

    /// How messages are written.
    pub fn format(self) -> LogFormat {
        self.format
    }
}

impl From<LogArgs> for LogSettings {
    fn from(args: LogArgs) -> Self {
        Self {
            level: args.log_level,
            format: args.log_format,
        }
    }
}
