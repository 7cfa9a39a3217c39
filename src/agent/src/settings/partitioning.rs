//! Settings of the node's layout.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use octavo_planner::reconcile::DriftPolicy;
use octavo_settings::engine::{EngineArgs, EngineSettings};

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Partitioning")]
pub(super) struct PartitioningArgs {
    /// A file of layouts; without it those that are generated for this node can be named
    ///
    /// It is read again when it was replaced. An agent with neither this nor --layout, and whose Node names none, changes nothing.
    #[arg(long, value_name = "FILE", env = "OCTAVO_LAYOUTS")]
    layouts: Option<PathBuf>,

    /// The layout that this node shall have
    ///
    /// What is in use stays as it is until it is let go of. `octavo apply` chooses another one by hand.
    #[arg(long, value_name = "NAME", env = "OCTAVO_LAYOUT")]
    layout: Option<String>,

    /// Change no device: a layout that is chosen for this node is reported as failed
    ///
    /// For agents without the permissions that partitioning needs, such as those of the tier reader. The state directory is not used.
    #[arg(
        long,
        env = "OCTAVO_READ_ONLY",
        conflicts_with_all = ["layouts", "layout", "compat", "taint_not_ready", "drain"]
    )]
    read_only: bool,

    /// What is done when somebody else changed a GPU that this node's layout speaks of
    #[arg(
        long,
        value_name = "POLICY",
        env = "OCTAVO_DRIFT",
        default_value = "repair"
    )]
    drift: DriftArg,

    #[command(flatten)]
    engine: EngineArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DriftArg {
    /// It is undone as far as nothing is in use
    Repair,
    /// It is left and reported
    Report,
}

/// Settings of partitioning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitioningSettings {
    layouts: Option<PathBuf>,
    layout: Option<String>,
    read_only: bool,
    drift: DriftPolicy,
    engine: EngineSettings,
}

impl PartitioningSettings {
    /// Returns the layouts file, if there is one.
    pub fn layouts(&self) -> Option<&Path> {
        self.layouts.as_deref()
    }

    /// Returns the desired layout; `None` until one is selected.
    pub fn layout(&self) -> Option<&str> {
        self.layout.as_deref()
    }

    /// Returns whether devices are never modified.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Returns how changes by other programs are handled.
    pub fn drift(&self) -> DriftPolicy {
        self.drift
    }

    /// Returns how devices are changed.
    pub fn engine(&self) -> &EngineSettings {
        &self.engine
    }
}

impl PartitioningArgs {
    /// Returns how the node is inspected.
    pub(super) fn engine(&self) -> EngineSettings {
        self.engine.clone().into()
    }

    /// Resolves the settings; `None` if nothing is changed. A watched Node may name a layout. Devices are changed as
    /// `engine` configures.
    pub(super) fn resolve(
        self,
        engine: &EngineSettings,
        follows: bool,
    ) -> Option<PartitioningSettings> {
        if self.layouts.is_none() && self.layout.is_none() && !follows {
            return None;
        }
        Some(PartitioningSettings {
            layouts: self.layouts,
            layout: self.layout,
            read_only: self.read_only,
            drift: match self.drift {
                DriftArg::Repair => DriftPolicy::Repair,
                DriftArg::Report => DriftPolicy::Report,
            },
            engine: engine.clone(),
        })
    }
}
