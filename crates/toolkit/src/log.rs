//! Settings of the log: the common flags of the long-running programs.

use clap::{Args, ValueEnum};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;

use crate::choice::{Choice, choice};

/// Settings of the log.
#[derive(Debug, Clone, PartialEq, Args)]
#[command(next_help_heading = "Logging")]
pub struct LogSettings {
    /// Minimum level of log messages
    #[arg(
        long,
        value_name = "LEVEL",
        env = "OCTAVO_LOG_LEVEL",
        default_value = "info",
        value_parser = choice(&LEVELS)
    )]
    pub log_level: LevelFilter,

    /// Levels per module, such as `octavo_engine=debug,kube=trace`; overrides --log-level
    #[arg(
        long,
        value_name = "MODULE=LEVEL,...",
        env = "RUST_LOG",
        value_parser = parts
    )]
    pub log_filter: Option<Targets>,

    /// Format of log messages
    #[arg(long, value_name = "FORMAT", env = "OCTAVO_LOG_FORMAT", default_value = "text")]
    pub log_format: LogFormat,
}

/// Levels by name, with their help texts.
pub(crate) const LEVELS: [Choice<LevelFilter>; 5] = [
    ("error", "Failures", LevelFilter::ERROR),
    ("warn", "Problems", LevelFilter::WARN),
    ("info", "Events", LevelFilter::INFO),
    ("debug", "Reasons for decisions", LevelFilter::DEBUG),
    ("trace", "Every call", LevelFilter::TRACE),
];

/// How messages are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Human-readable text
    Text,
    /// One JSON object per line, for log collectors
    Json,
}

/// Target of the audit log, which is not a crate.
const AUDIT_TARGET: &str = "octavo::audit";

/// Parses levels of crates and modules. A misspelt level is an error for the whole, because the others would have no
/// effect. So is a module of the former single crate `octavo`, which no longer exists.
fn parts(text: &str) -> Result<Targets, String> {
    let parsed = text.parse::<Targets>();
    let parsed = parsed
        .map_err(|error| format!("{error}; expected a list such as octavo=debug,kube=trace"))?;
    let former =
        parsed.iter().find(|(target, _)| target.starts_with("octavo::") && *target != AUDIT_TARGET);
    match former {
        Some((target, _)) => Err(format!(
            "{target} no longer exists; use a crate, such as octavo_engine=debug, or all of \
             Octavo: octavo=debug"
        )),
        None => Ok(parsed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn module_of_the_former_crate_is_rejected() {
        for text in ["octavo=debug", "octavo_engine=debug,kube=trace", "octavo::audit=info"] {
            assert!(parts(text).is_ok(), "{text}");
        }
        let error = parts("kube=trace,octavo::apply=debug").unwrap_err();
        assert!(error.starts_with("octavo::apply no longer exists"), "{error}");
    }
}
