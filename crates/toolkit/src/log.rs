//! Settings of the log: the common flags of the long-running programs.

use clap::{Args, ValueEnum};
use tracing_subscriber::filter::Targets;

/// Settings of the log.
#[derive(Debug, Clone, PartialEq, Args)]
#[command(next_help_heading = "Logging")]
pub struct LogSettings {
    /// The least severe messages to log
    #[arg(
        long,
        value_name = "LEVEL",
        env = "OCTAVO_LOG_LEVEL",
        default_value = "info"
    )]
    pub log_level: LogLevel,

    /// Levels of single parts, such as `octavo_engine=debug,kube=trace`; goes before --log-level
    #[arg(
        long,
        value_name = "PART=LEVEL,...",
        env = "RUST_LOG",
        value_parser = parts
    )]
    pub log_filter: Option<Targets>,

    /// How messages are written
    #[arg(
        long,
        value_name = "FORMAT",
        env = "OCTAVO_LOG_FORMAT",
        default_value = "text"
    )]
    pub log_format: LogFormat,
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

impl LogLevel {
    /// Returns the level of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        <Self as ValueEnum>::from_str(name, false).ok()
    }
}

/// How messages are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One object a line, for collectors.
    Json,
}

/// Target of the audit log, which is not a crate.
const AUDIT_TARGET: &str = "octavo::audit";

/// Parses levels of crates and modules. A misspelt level is an error for the whole, because the others would have no
/// effect. So is a module of the former single crate `octavo`, which no longer exists.
fn parts(text: &str) -> Result<Targets, String> {
    let parsed = text.parse::<Targets>();
    let parsed =
        parsed.map_err(|error| format!("{error}; it reads like octavo=debug,kube=trace"))?;
    let former = parsed
        .iter()
        .find(|(target, _)| target.starts_with("octavo::") && *target != AUDIT_TARGET);
    match former {
        Some((target, _)) => Err(format!(
            "{target} no longer exists; name a crate, such as octavo_engine=debug, or all of Octavo: octavo=debug"
        )),
        None => Ok(parsed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn module_of_the_former_crate_is_rejected() {
        for text in [
            "octavo=debug",
            "octavo_engine=debug,kube=trace",
            "octavo::audit=info",
        ] {
            assert!(parts(text).is_ok(), "{text}");
        }
        let error = parts("kube=trace,octavo::apply=debug").unwrap_err();
        assert!(
            error.starts_with("octavo::apply no longer exists"),
            "{error}"
        );
    }
}
