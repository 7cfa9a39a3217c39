//! The source of an inventory.

use clap::{Args, ValueHint};
use octavo_settings::hardware::HardwareSettings;

use super::input::Input;

/// Source of an inventory.
#[derive(Debug, Clone, Args)]
pub struct SourceSettings {
    /// Read a recorded inventory instead of this machine; - for standard input
    ///
    /// FILE is output of `octavo inspect -o json` or `-o yaml`, or a scenario of the simulated driver. A scenario
    /// needs nvml-simctl and `libnvml_sim.so` in the directory of this program. Hardware flags are ignored.
    #[arg(long, alias = "machine", value_name = "FILE", value_hint = ValueHint::AnyPath)]
    pub from: Option<Input>,

    /// Paths of the hardware.
    #[command(flatten)]
    pub hardware: HardwareSettings,
}
