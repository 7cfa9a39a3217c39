//! Settings of `octavo demo`.

use std::env;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

pub(super) const EXAMPLES: &str = "\
Examples:
  # A fleet of simulated machines, until Ctrl-C
  octavo demo

  # The page always at the same address
  octavo demo --port 8080

  # End after 20 seconds: 0 if every machine was seen and counted, 1 if not
  octavo demo --seconds 20

  # Machines of your own: a folder with a scenario (NAME.yaml) for each
  octavo demo --machines ./machines

No accelerator and no driver is needed, and none of this machine is touched. The programs are those of a checkout:
`make demo` builds and starts them.";

/// Settings of `octavo demo`.
#[derive(Debug, Clone, Args)]
pub struct DemoSettings {
    /// Where the aggregator serves its page and API on 127.0.0.1; 0 for any port that is free
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub port: u16,

    /// End after so many seconds, and fail if the aggregator has not seen every machine as it is
    #[arg(
        long,
        value_name = "N",
        env = "DEMO_SECONDS",
        value_parser = clap::value_parser!(u64).range(1..=86_400)
    )]
    pub seconds: Option<u64>,

    /// Folder with a scenario (NAME.yaml) for each machine, instead of the built-in ones
    ///
    /// With NAME.labels beside it, the labels that the machine must carry, its devices are counted too.
    #[arg(long, value_name = "DIR")]
    pub machines: Option<PathBuf>,

    /// Folder with octavo-agent, octavo-aggregator, nvml-simctl and `libnvml_sim.so`; this program's own unless told
    #[arg(long, value_name = "DIR")]
    pub programs: Option<PathBuf>,
}

/// Returns the directory of this program, where cargo also puts the simulated driver.
pub fn program_dir() -> PathBuf {
    let own = program_path();
    own.parent().unwrap_or_else(|| Path::new(".")).to_owned()
}

/// Returns this program's path, as another process can start it. Links are resolved, because the other programs are in
/// the file's directory.
pub fn program_path() -> PathBuf {
    env::current_exe().unwrap_or_else(|_| "octavo".into())
}

impl DemoSettings {
    /// Returns the duration; `None` until it is stopped.
    pub fn duration(&self) -> Option<Duration> {
        self.seconds.map(Duration::from_secs)
    }

    /// Returns the directory of the programs.
    pub fn programs(&self) -> PathBuf {
        self.programs.clone().unwrap_or_else(program_dir)
    }
}
