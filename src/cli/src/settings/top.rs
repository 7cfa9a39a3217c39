//! Settings of `octavo top`.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, ValueEnum};
use octavo_client::ServerSettings;
use octavo_settings::duration;

use super::{Headers, headers};

/// How the rows are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TopFormat {
    /// Table
    Table,
    /// Table with more columns
    Wide,
    /// JSON, printed once
    Json,
    /// YAML, printed once
    Yaml,
}

/// What rows are ordered by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TopOrder {
    /// Highest memory usage first
    Memory,
    /// Node, then device
    Node,
}

/// Settings of `octavo top`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = include_str!("../../help/top.txt"))]
pub struct TopSettings {
    /// Output format
    #[arg(short = 'o', long = "output", value_name = "FORMAT", default_value = "table")]
    pub format: TopFormat,

    /// Print only the rows of the table
    #[arg(long = "no-headers", action = ArgAction::SetTrue, value_parser = headers())]
    pub headers: Headers,

    /// Order of the rows
    #[arg(long, value_name = "COLUMN", default_value = "memory")]
    pub sort_by: TopOrder,

    /// Print one table and exit; implied if standard output is not a terminal
    #[arg(long)]
    pub once: bool,

    /// Refresh interval of the table
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration::positive)]
    pub interval: Duration,

    /// Maximum number of rows
    #[arg(long, value_name = "N")]
    pub limit: Option<NonZeroUsize>,

    /// Show this node, using its agent instead of an aggregator
    #[arg(long, conflicts_with = "node")]
    pub here: bool,

    /// Directory of the agent's socket, with --here
    #[arg(long, value_name = "DIR", env = "OCTAVO_STATE_DIR", default_value = "/var/lib/octavo")]
    pub state_dir: PathBuf,

    /// Show only this node
    #[arg(long, value_name = "NAME", help_heading = "Filter")]
    pub node: Option<String>,

    /// Show only pods of this namespace
    #[arg(short, long, value_name = "NAME", help_heading = "Filter")]
    pub namespace: Option<String>,

    /// Show only pods with this name
    #[arg(long, value_name = "NAME", help_heading = "Filter")]
    pub pod: Option<String>,

    /// Show only containers that exceed their share
    #[arg(long, help_heading = "Filter")]
    pub over: bool,

    /// Aggregator.
    #[command(flatten)]
    pub server: ServerSettings,
}

impl TopSettings {
    /// Returns whether only one table is printed.
    pub fn is_once(&self) -> bool {
        self.once || matches!(self.format, TopFormat::Json | TopFormat::Yaml)
    }

    /// Returns whether the table has all columns.
    pub fn is_wide(&self) -> bool {
        self.format == TopFormat::Wide
    }

    /// Returns the maximum number of rows; `None` for all.
    pub fn limit(&self) -> Option<usize> {
        self.limit.map(NonZeroUsize::get)
    }

    /// Returns the source's name for users.
    pub fn source_name(&self) -> String {
        if self.here { "this node".to_owned() } else { self.server.place() }
    }
}
