//! Settings of the node's layout.

use std::path::PathBuf;

use clap::ValueEnum;
use octavo_planner::reconcile::DriftPolicy;

/// Settings of the layout.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Partitioning")]
pub struct PartitioningSettings {
    /// A file of layouts; without it those that are generated for this node can be named
    ///
    /// It is read again when it was replaced. An agent with neither this nor --layout, and whose Node names none, changes nothing.
    #[arg(long, value_name = "FILE", env = "OCTAVO_LAYOUTS")]
    pub layouts: Option<PathBuf>,

    /// The layout that this node shall have
    ///
    /// What is in use stays as it is until it is let go of. `octavo apply` chooses another one by hand.
    #[arg(long, value_name = "NAME", env = "OCTAVO_LAYOUT")]
    pub layout: Option<String>,

    /// Change no device: a layout that is chosen for this node is reported as failed
    ///
    /// For agents without the permissions that partitioning needs, such as those of the tier reader. The state directory is not used.
    #[arg(
        long,
        env = "OCTAVO_READ_ONLY",
        conflicts_with_all = ["layouts", "layout", "compat", "taint_not_ready", "drain"]
    )]
    pub read_only: bool,

    /// What is done when somebody else changed a GPU that this node's layout speaks of
    #[arg(
        long,
        value_name = "POLICY",
        env = "OCTAVO_DRIFT",
        default_value = "repair"
    )]
    pub drift: Drift,
}

/// Handling of changes by other programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Drift {
    /// It is undone as far as nothing is in use
    Repair,
    /// It is left and reported
    Report,
}

impl PartitioningSettings {
    /// Returns how changes by other programs are handled.
    pub fn drift_policy(&self) -> DriftPolicy {
        match self.drift {
            Drift::Repair => DriftPolicy::Repair,
            Drift::Report => DriftPolicy::Report,
        }
    }
}
