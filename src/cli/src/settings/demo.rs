//! Settings of `octavo demo`.

use std::env;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

/// Settings of `octavo demo`.
#[derive(Debug, Clone, Args)]
pub struct DemoSettings {
    /// Port of the aggregator's web pages and API on 127.0.0.1; 0 for any free port
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub port: u16,

    /// Exit after this many seconds; fail if the aggregator does not show every machine and the cluster correctly
    #[arg(
        long,
        value_name = "N",
        env = "DEMO_SECONDS",
        value_parser = clap::value_parser!(u64).range(1..=86_400)
    )]
    pub seconds: Option<u64>,

    /// Walk through ten commands against the running demo, then exit
    ///
    /// Shows each command with its purpose and its real output. On a terminal, waits for Enter after each command.
    #[arg(long, conflicts_with = "machines")]
    pub tour: bool,

    /// Directory with one scenario (NAME.yaml) per machine, instead of the built-in ones
    ///
    /// An optional NAME.labels file lists the labels that the machine must have. The devices of such machines are
    /// also counted.
    #[arg(long, value_name = "DIR")]
    pub machines: Option<PathBuf>,

    /// Directory with octavo-agent, octavo-aggregator, nvml-simctl and `libnvml_sim.so` [default: directory of this
    /// program]
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
