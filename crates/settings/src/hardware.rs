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
    /// The full path of libnvidia-ml.so.1. Default: the first one in the usual library directories of the driver
    /// roots.
    #[arg(long, value_name = "PATH", env = "OCTAVO_NVML_LIBRARY")]
    pub nvml_library: Option<PathBuf>,

    /// Root directory to search for a driver; repeat for several
    ///
    /// Directories are searched in order. In the environment variable, separate them with colons.
    #[arg(
        long = "driver-root",
        value_name = "DIR",
        env = "OCTAVO_DRIVER_ROOT",
        value_delimiter = ':',
        // The host, a driver container, GKE.
        default_values = ["/", "/run/nvidia/driver", "/home/kubernetes/bin/nvidia"]
    )]
    pub driver_roots: Vec<PathBuf>,

    /// Mount point of sysfs
    #[arg(long, value_name = "DIR", env = "OCTAVO_SYS_ROOT", default_value = "/sys")]
    pub sys_root: PathBuf,

    /// File with the size of a logical NeuronCore
    ///
    /// This AWS Neuron file has the number of physical Trainium cores per logical core: 1 or 2. Without the file, the
    /// default of the chip is used.
    #[arg(
        long,
        value_name = "PATH",
        env = "OCTAVO_NEURON_LOGICAL_CONFIG",
        default_value = "/opt/aws/neuron/logical_nc_config"
    )]
    pub neuron_logical_config: PathBuf,

    /// Time limit of one driver call, after which NVML counts as stalled
    #[arg(
        long,
        value_name = "DURATION",
        env = "OCTAVO_CALL_DEADLINE",
        // Longer than the slowest call of a healthy driver: the first one without a persistence daemon.
        default_value = "10s",
        value_parser = duration::positive
    )]
    pub call_deadline: Duration,
}
