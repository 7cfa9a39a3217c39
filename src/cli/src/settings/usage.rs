//! Settings of `octavo usage`: filter and grouping of allocations.

use clap::{Args, ValueEnum};

use super::fleet::OutputOptions;
use super::server::ServerSettings;

pub(super) const EXAMPLES: &str = "\
Examples:
  # How many devices of which type does each namespace have now?
  octavo usage

  # One team, or one type
  octavo usage --namespace team-a
  octavo usage --type nvidia-h200-141gb

  # Together, by namespace or by type
  octavo usage --by namespace
  octavo usage --by type

  # For a bill: a line each with namespace, type and devices
  octavo usage -o json | jq -r '.items[] | [.namespace, .type, .devices] | @tsv'

Counted is what pods were given, whether or not they use it: `octavo top` tells who uses it. Agents tell where they run with
--usage-interval. It is how it is now; docs/rest.md says how it is put together over a time.";

/// Settings of `octavo usage`.
#[derive(Debug, Clone, Args)]
pub struct UsageSettings {
    /// Only this namespace; repeat for several
    #[arg(
        short,
        long = "namespace",
        value_name = "NAMESPACE",
        value_delimiter = ','
    )]
    pub namespaces: Vec<String>,

    /// Only this type; `unknown` for devices that nobody knows; repeat for several
    #[arg(long = "type", value_name = "TYPE", value_delimiter = ',')]
    pub types: Vec<String>,

    /// What a row of the table is for; documents always have both
    #[arg(long, value_name = "WHAT", default_value = "both")]
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
    /// A namespace and a type
    Both,
    /// A namespace, all types together
    Namespace,
    /// A type, all namespaces together
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
