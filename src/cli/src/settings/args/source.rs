//! Command-line arguments for the source of an inventory.

use std::path::{Path, PathBuf};

use octavo_settings::hardware::HardwareSettings;

use crate::settings::{Input, Source};

#[derive(Debug, clap::Args)]
pub(in crate::settings) struct SourceArgs {
    /// Read a recorded inventory instead of this machine; - for standard input
    ///
    /// FILE is what `octavo inspect -o json` or `-o yaml` printed, or a scenario of the simulated driver, which needs
    /// nvml-simctl and `libnvml_sim.so` beside this program. The flags about hardware are not used then, but
    /// --catalog by `inspect`, `labels` and `doctor`.
    #[arg(long, visible_alias = "machine", value_name = "FILE")]
    from: Option<PathBuf>,

    #[command(flatten)]
    hardware: HardwareSettings,
}

impl SourceArgs {
    /// Returns the administrator's catalog.
    pub(in crate::settings) fn catalog(&self) -> Option<Input> {
        self.hardware.catalog.clone().map(Input::File)
    }
}

impl From<SourceArgs> for Source {
    fn from(args: SourceArgs) -> Self {
        match args.from {
            Some(path) => Self::Recording(path.into()),
            None => Self::Machine(args.hardware),
        }
    }
}

impl From<PathBuf> for Input {
    fn from(path: PathBuf) -> Self {
        if path == Path::new("-") {
            Self::Stdin
        } else {
            Self::File(path)
        }
    }
}
