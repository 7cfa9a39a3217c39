//! Arguments of `nvml-simctl`.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use nvml_sim::location::STATE_VARIABLE;
use nvml_sim::model::{ComputeMode, MemoryMode, ProcessKind, ProcessLoad, is_driver_version};

const EXAMPLES: &str = "\
Examples:
  export NVML_SIM_STATE=/tmp/machine
  nvml-simctl init dgx-h100.yaml
  nvml-simctl show
  nvml-simctl mig create 0 3g.40gb --start 4
  nvml-simctl process add 0 --pid 4711 --gi 2 --ci 0
  nvml-simctl process load 4711=87:30000
  nvml-simctl fault add '{call: nvmlGpuInstanceDestroy, nth: 2, times: 1, return: IN_USE}'
  nvml-simctl xid 0 79
  nvml-simctl reload --version 580.105.08
  nvml-simctl library --without nvmlDeviceGetGpuFabricInfoV --out old/libnvidia-ml.so.1";

/// Control a simulated machine: inject failures, reset GPUs, reload the driver
#[derive(Debug, Parser)]
#[command(name = "nvml-simctl", version, after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// State directory of the machine; default: the value of `NVML_SIM_STATE`
    #[arg(long, value_name = "DIR", global = true)]
    state: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Create a machine from a scenario
    Init {
        /// Scenario file
        scenario: PathBuf,
        /// Replace an existing machine
        #[arg(long)]
        force: bool,
    },
    /// Show the machine: driver, GPUs, instances, processes
    Show {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Report an Xid error
    Xid {
        #[command(flatten)]
        gpu: GpuOption,
        /// Xid number
        number: u64,
        /// GPU instance that the error is limited to
        #[arg(long)]
        gi: Option<u32>,
        /// Compute instance that the error is limited to
        #[arg(long, requires = "gi")]
        ci: Option<u32>,
    },
    /// Simulate a GPU that has fallen off the bus
    Lose(GpuOption),
    /// Restore a lost GPU with its previous state
    Return(GpuOption),
    /// Set the recovery action (field 230): 0 none, 1 reset, 2 reboot, 3 drain P2P, 4 drain and reset
    Recovery {
        #[command(flatten)]
        gpu: GpuOption,
        /// Recovery action
        action: u32,
    },
    /// Reset a GPU: destroy its instances, apply pending modes, restore it if it was lost
    Reset {
        #[command(flatten)]
        gpu: GpuOption,
        /// Terminate the processes on the GPU first, instead of failing
        #[arg(long)]
        kill: bool,
    },
    /// Unload the driver and load it again
    Reload {
        /// Version to load; default: the current one
        #[arg(long, value_parser = driver_version)]
        version: Option<String>,
    },
    /// Unload the driver
    Unload,
    /// Load the driver
    Load,
    /// Reboot the machine
    Reboot,
    /// Add and remove processes
    #[command(subcommand)]
    Process(ProcessCommand),
    /// Add, list and clear faults
    #[command(subcommand)]
    Fault(FaultCommand),
    /// List, create and destroy MIG instances
    #[command(subcommand)]
    Mig(MigCommand),
    /// Set the partitioning modes of the AMD devices that support them; `sysfs` writes the resulting files
    Amd {
        /// Compute mode: SPX, DPX, QPX or CPX
        #[arg(value_parser = compute_mode)]
        compute: ComputeMode,
        /// Memory mode: NPS1 or NPS4
        #[arg(value_parser = memory_mode)]
        memory: MemoryMode,
    },
    /// Write the /sys tree of the machine under a directory
    Sysfs {
        /// Directory in which `sys/` is created
        directory: PathBuf,
    },
    /// Copy the library without some functions, to simulate an older driver
    Library(LibraryOptions),
}

/// A GPU.
#[derive(Debug, Args)]
pub(crate) struct GpuOption {
    /// Index, UUID or PCI address of the GPU
    pub(crate) gpu: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ProcessCommand {
    /// Add a process that uses a GPU or an instance
    Add(AddedProcess),
    /// Remove a process
    Remove {
        /// Process ID
        pid: u32,
    },
    /// Set the utilization and the used memory of processes; power and temperature of their GPUs follow
    Load {
        /// Process ID, utilization in percent and used memory in MiB, such as 4711=87:30000
        #[arg(required = true, value_name = "PID=PERCENT:MIB", value_parser = process_load)]
        loads: Vec<ProcessLoad>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct AddedProcess {
    #[command(flatten)]
    pub(crate) gpu: GpuOption,
    /// Process ID
    #[arg(long)]
    pub(crate) pid: u32,
    /// GPU instance ID
    #[arg(long)]
    pub(crate) gi: Option<u32>,
    /// Compute instance ID
    #[arg(long, requires = "gi")]
    pub(crate) ci: Option<u32>,
    /// Used memory, in MiB
    #[arg(long, default_value_t = 0)]
    pub(crate) memory_mib: u64,
    /// Process name
    #[arg(long, default_value = "python3")]
    pub(crate) name: String,
    /// NVML process list that contains the process
    #[arg(long, value_enum, default_value_t = Kind::Compute)]
    pub(crate) kind: Kind,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Kind {
    /// CUDA context
    Compute,
    /// OpenGL or Vulkan context
    Graphics,
    /// MPS client
    Mps,
    /// In no list, like a daemon with a leaked handle
    Holder,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FaultCommand {
    /// Add a rule that takes effect with the next call
    Add {
        /// Rule in scenario syntax, such as '{call: nvmlInit*, hang: forever}'
        rule: String,
    },
    /// List the rules
    List,
    /// Remove rules; without IDs, remove all
    Clear {
        /// Rule IDs
        ids: Vec<String>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum MigCommand {
    /// Set the MIG mode
    Mode {
        #[command(flatten)]
        gpu: GpuOption,
        /// New mode
        #[arg(value_enum)]
        mode: Mode,
    },
    /// List profiles with their placements and remaining capacity
    List(GpuOption),
    /// Create a GPU instance with the compute instance that fills it
    Create {
        #[command(flatten)]
        gpu: GpuOption,
        /// Name or ID of the profile
        profile: String,
        /// First memory slice; default: chosen by the driver
        #[arg(long)]
        start: Option<u32>,
        /// Do not create a compute instance
        #[arg(long)]
        empty: bool,
    },
    /// Destroy a GPU instance with its compute instances
    Destroy {
        #[command(flatten)]
        gpu: GpuOption,
        /// GPU instance ID; default: all
        gi: Option<u32>,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Mode {
    /// Partitioned
    On,
    /// One whole GPU
    Off,
}

#[derive(Debug, Args)]
pub(crate) struct LibraryOptions {
    /// Functions to remove
    #[arg(long, value_delimiter = ',', required = true)]
    pub(crate) without: Vec<String>,
    /// Library to copy; default: the one in the directory of this program
    #[arg(long)]
    pub(crate) from: Option<PathBuf>,
    /// Path of the copy
    #[arg(long)]
    pub(crate) out: PathBuf,
}

impl Arguments {
    /// The value of the option, otherwise of the variable.
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the place where the tool reads its environment"
    )]
    pub(crate) fn state_directory(&self) -> Option<PathBuf> {
        let variable = || std::env::var_os(STATE_VARIABLE).map(PathBuf::from);
        self.state.clone().or_else(variable)
    }
}

fn compute_mode(text: &str) -> Result<ComputeMode, String> {
    let known = [ComputeMode::Spx, ComputeMode::Dpx, ComputeMode::Qpx, ComputeMode::Cpx];
    let found = known.into_iter().find(|mode| mode.name() == text);
    found.ok_or_else(|| "expected SPX, DPX, QPX or CPX".to_owned())
}

fn memory_mode(text: &str) -> Result<MemoryMode, String> {
    let known = [MemoryMode::Nps1, MemoryMode::Nps4];
    let found = known.into_iter().find(|mode| mode.name() == text);
    found.ok_or_else(|| "expected NPS1 or NPS4".to_owned())
}

fn process_load(text: &str) -> Result<ProcessLoad, &'static str> {
    let parse = || {
        let (pid, load) = text.split_once('=')?;
        let (percent, memory) = load.split_once(':')?;
        let percent: u32 = percent.parse().ok().filter(|percent| *percent <= 100)?;
        let (pid, memory_mib) = (pid.parse().ok()?, memory.parse().ok()?);
        Some(ProcessLoad { pid, percent, memory_mib })
    };
    parse().ok_or("expected PID=PERCENT:MIB, such as 4711=87:30000")
}

fn driver_version(text: &str) -> Result<String, &'static str> {
    if is_driver_version(text) {
        return Ok(text.to_owned());
    }
    Err("expected a version such as 580.95.05")
}

impl From<Kind> for ProcessKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Compute => Self::Compute,
            Kind::Graphics => Self::Graphics,
            Kind::Mps => Self::Mps,
            Kind::Holder => Self::Holder,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn arguments_are_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn every_help_example_is_accepted() {
        for line in EXAMPLES.lines().filter_map(|line| line.trim().strip_prefix("nvml-simctl ")) {
            let (before, quoted) = line.split_once('\'').unwrap_or((line, ""));
            let words = before.split_whitespace().map(str::to_owned);
            let rule = quoted.strip_suffix('\'').map(str::to_owned);
            let all = std::iter::once("nvml-simctl".to_owned()).chain(words).chain(rule);
            assert!(Arguments::try_parse_from(all).is_ok(), "{line}");
        }
    }
}
