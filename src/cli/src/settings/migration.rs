//! Settings of `octavo migrate`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};
use octavo_client::ServerSettings;

use super::input::Input;

/// Settings of `octavo migrate`'s subcommands.
#[derive(Debug, Clone, Subcommand)]
pub enum MigrateCommand {
    /// Convert the MIG and time-slicing configuration of NVIDIA's GPU Operator
    #[command(after_long_help = include_str!("../../help/migrate.txt"))]
    GpuOperator(OperatorSettings),
}

/// Settings of `octavo migrate gpu-operator`.
#[derive(Debug, Clone, Args)]
pub struct OperatorSettings {
    /// Directory for layouts.yaml, policies.yaml and values.yaml
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub output_dir: PathBuf,

    /// Compare with the files of --output-dir, and write nothing
    #[arg(long)]
    pub check: bool,

    /// File with saved objects, instead of the cluster; - for standard input; repeat for several
    ///
    /// The output of `kubectl get clusterpolicy,configmap,nodes -n gpu-operator -o yaml`.
    #[arg(short = 'f', long = "file", value_name = "FILE", value_hint = ValueHint::AnyPath)]
    pub files: Vec<Input>,

    /// Aggregator.
    #[command(flatten)]
    pub server: ServerSettings,
}

impl OperatorSettings {
    /// Returns an error if standard input would be read twice.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        Input::read_once(&self.files, "standard input can be read only once")
    }

    /// Returns whether an aggregator is named, which then plans the changes.
    pub fn asks_aggregator(&self) -> bool {
        self.server.server.is_some() || self.server.octavo_namespace.is_some()
    }
}
