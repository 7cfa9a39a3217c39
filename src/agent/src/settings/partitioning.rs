//! Settings of the node's layout.

use std::path::PathBuf;

use octavo_planner::reconcile::DriftPolicy;
use octavo_toolkit::choice::choice;

/// Settings of the layout.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Partitioning")]
pub struct PartitioningSettings {
    /// Layout file [default: the layouts generated for this node]
    ///
    /// The file is reloaded when it is replaced. Without this flag, --layout and a layout label on the Node, the
    /// agent changes no device.
    #[arg(long, value_name = "FILE", env = "OCTAVO_LAYOUTS")]
    pub layouts: Option<PathBuf>,

    /// Desired layout of this node
    ///
    /// Devices in use are changed only after they are released. `octavo apply` selects another layout manually.
    #[arg(long, value_name = "NAME", env = "OCTAVO_LAYOUT")]
    pub layout: Option<String>,

    /// Change no device, and report a selected layout as failed
    ///
    /// For agents without the permissions for partitioning, such as those of the tier `reader`. The state directory
    /// is not used.
    #[arg(
        long,
        env = "OCTAVO_READ_ONLY",
        conflicts_with_all = ["layouts", "layout", "compat", "taint_not_ready", "drain"]
    )]
    pub read_only: bool,

    /// Reaction to a change by another program to a GPU that the layout covers
    #[arg(
        long,
        value_name = "POLICY",
        env = "OCTAVO_DRIFT",
        default_value = "repair",
        value_parser = choice(&[
            ("repair", "Revert the change, except where instances are in use", DriftPolicy::Repair),
            ("report", "Keep and report the change", DriftPolicy::Report),
        ])
    )]
    pub drift: DriftPolicy,
}
