//! Settings of `octavo usage`: filter and grouping of allocations.

use clap::{Args, ValueEnum, ValueHint};
use octavo_client::ServerSettings;

use super::fleet::OutputOptions;
use super::input::Input;

/// Settings of `octavo usage`.
#[derive(Debug, Clone, Args)]
pub struct UsageSettings {
    /// Show only this namespace; repeat for several
    #[arg(short, long = "namespace", value_name = "NAMESPACE", value_delimiter = ',')]
    pub namespaces: Vec<String>,

    /// Show only this type; `unknown` for unidentified devices; repeat for several
    #[arg(long = "type", value_name = "TYPE", value_delimiter = ',')]
    pub types: Vec<String>,

    /// Show only allocations that these rules of `octavo generate access` do not allow; exit with 3 if there are any, or 1 if nodes are stale or nothing is reported
    #[arg(long, value_name = "FILE", value_hint = ValueHint::AnyPath)]
    pub access_rules: Option<Input>,

    /// Grouping of the table's rows; JSON and YAML always have both
    #[arg(long, value_name = "FIELD", default_value = "both")]
    pub by: UsageGrouping,

    /// Output format.
    #[command(flatten)]
    pub output: OutputOptions,

    /// Aggregator.
    #[command(flatten)]
    pub server: ServerSettings,
}

/// What a row is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum UsageGrouping {
    /// One row per namespace and type
    Both,
    /// One row per namespace
    Namespace,
    /// One row per type
    Type,
}

impl UsageSettings {
    /// Returns whether a namespace's allocation of a type passes the filter; a missing type is `unknown`.
    pub fn matches(&self, namespace: &str, type_name: Option<&str>) -> bool {
        let type_name = type_name.unwrap_or("unknown");
        let is = |all: &[String], has: &str| all.is_empty() || all.iter().any(|one| one == has);
        is(&self.namespaces, namespace) && is(&self.types, type_name)
    }
}
