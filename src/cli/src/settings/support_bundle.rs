//! Settings of `octavo support-bundle`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use octavo_client::ServerSettings;

use super::doctor::DoctorSources;

/// Settings of `octavo support-bundle`.
#[derive(Debug, Clone, Args)]
pub struct SupportBundleSettings {
    /// Nodes of the fleet to collect from [default: all nodes]
    #[arg(value_name = "NODE")]
    pub nodes: Vec<String>,

    /// Collect from this node, without an aggregator: inventory, diagnosis, history
    #[arg(long, conflicts_with = "nodes")]
    pub here: bool,

    /// Archive to write [default: octavo-support-TIME.tar.gz in this directory]
    #[arg(short = 'f', long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: Option<PathBuf>,

    /// Replace names of nodes, pods, namespaces and users: node-1, pod-1, ...
    ///
    /// A name has the same replacement in all files of the archive. Device UUIDs and PCI addresses are unchanged.
    #[arg(long)]
    pub redact: bool,

    /// Sources on this node, for --here.
    #[command(flatten)]
    pub sources: DoctorSources,

    /// Aggregator.
    #[command(flatten)]
    pub server: ServerSettings,
}
