//! Settings of access to the hardware: the common flags of every program that reads a machine.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::duration;

/// Paths of the hardware, and the timeout for the driver.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(next_help_heading = "Hardware")]
pub struct HardwareSettings {
    /// NVML library to load instead of searching for one
    ///
    /// The full path of libnvidia-ml.so.1. Without it, the usual library directories below each driver root are searched.
    #[arg(long, value_name = "PATH", env = "OCTAVO_NVML_LIBRARY")]
    pub nvml_library: Option<PathBuf>,

    /// Root below which a driver may be installed; repeat for several
    ///
    /// Roots are tried in order. In the variable they are separated by colons.
    #[arg(
        long = "driver-root",
        value_name = "DIR",
        env = "OCTAVO_DRIVER_ROOT",
        value_delimiter = ':',
        default_values = ["/", "/run/nvidia/driver", "/home/kubernetes/bin/nvidia"]
    )]
    pub driver_roots: Vec<PathBuf>,

    /// Where sysfs is mounted
    #[arg(
        long,
        value_name = "DIR",
        env = "OCTAVO_SYS_ROOT",
        default_value = "/sys"
    )]
    pub sys_root: PathBuf,

    /// Where the node says how large a logical core is
    ///
    /// One line of this file of AWS Neuron says how many physical cores of Trainium are one logical core: 1 or 2. Without the file,
    /// the chip's default holds.
    #[arg(
        long,
        value_name = "PATH",
        env = "OCTAVO_NEURON_LOGICAL_CONFIG",
        default_value = "/opt/aws/neuron/logical_nc_config"
    )]
    pub neuron_logical_config: PathBuf,

    /// A catalogue of your own, by which devices are recognised too
    ///
    /// It adds products, with the PCI ids and names that they are recognised by. docs/cli.md has its form, which is read strictly: a
    /// mistake in it ends the program.
    #[arg(long, value_name = "FILE", env = "OCTAVO_CATALOG")]
    pub catalog: Option<PathBuf>,

    /// How long one call of the driver may take before NVML counts as stalled
    #[arg(
        long,
        value_name = "DURATION",
        env = "OCTAVO_CALL_DEADLINE",
        default_value = "10s",
        value_parser = duration::positive
    )]
    pub call_deadline: Duration,
}
