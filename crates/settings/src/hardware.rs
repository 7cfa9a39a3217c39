//! Settings of access to the hardware: the common flags of every program that reads a machine.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use super::duration;

/// Raw arguments.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Hardware")]
pub struct HardwareArgs {
    /// NVML library to load instead of searching for one
    ///
    /// The full path of libnvidia-ml.so.1. Without it, the usual library directories below each driver root are searched.
    #[arg(long, value_name = "PATH", env = "OCTAVO_NVML_LIBRARY")]
    nvml_library: Option<PathBuf>,

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
    driver_roots: Vec<PathBuf>,

    /// Where sysfs is mounted
    #[arg(
        long,
        value_name = "DIR",
        env = "OCTAVO_SYS_ROOT",
        default_value = "/sys"
    )]
    sys_root: PathBuf,

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
    neuron_logical_config: PathBuf,

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
    call_deadline: Duration,
}

/// Paths of the hardware, and the timeout for the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HardwareSettings {
    nvml_library: NvmlLibrary,
    driver_roots: Vec<PathBuf>,
    sys_root: PathBuf,
    neuron_logical_config: PathBuf,
    catalog: Option<PathBuf>,
    call_deadline: Duration,
}

/// The NVML library to use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NvmlLibrary {
    /// The first one found below the driver roots.
    Search,
    /// This one and no other.
    At(PathBuf),
}

impl HardwareSettings {
    /// Returns the library to load.
    pub fn nvml_library(&self) -> &NvmlLibrary {
        &self.nvml_library
    }

    /// Returns the roots to search below, in order.
    pub fn driver_roots(&self) -> &[PathBuf] {
        &self.driver_roots
    }

    /// Returns the mount point of sysfs.
    pub fn sys_root(&self) -> &Path {
        &self.sys_root
    }

    /// Returns the file that configures how many physical cores of a Neuron device are one logical core.
    pub fn neuron_logical_config(&self) -> &Path {
        &self.neuron_logical_config
    }

    /// Returns the administrator's catalog.
    pub fn catalog(&self) -> Option<&Path> {
        self.catalog.as_deref()
    }

    /// Returns the timeout for one call of the driver.
    pub fn call_deadline(&self) -> Duration {
        self.call_deadline
    }
}

impl From<HardwareArgs> for HardwareSettings {
    fn from(args: HardwareArgs) -> Self {
        Self {
            nvml_library: args
                .nvml_library
                .map_or(NvmlLibrary::Search, NvmlLibrary::At),
            driver_roots: args.driver_roots,
            sys_root: args.sys_root,
            neuron_logical_config: args.neuron_logical_config,
            catalog: args.catalog,
            call_deadline: args.call_deadline,
        }
    }
}
