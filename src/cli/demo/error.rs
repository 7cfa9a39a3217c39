//! What can go wrong with the demo.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::cli::CliError;

/// Why the demo ended before its time, or should not have ended as it did.
#[derive(Debug, Error)]
pub enum DemoError {
    /// A program or the simulated driver is not where it should be.
    #[error("there is no {name} in {}", .folder.display())]
    ProgramMissing {
        /// Its name.
        name: &'static str,
        /// Where it was looked for.
        folder: PathBuf,
    },
    /// The folder of scenarios cannot be read.
    #[error("cannot read the machines in {}", .folder.display())]
    Machines {
        /// The folder.
        folder: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// There is nothing to simulate.
    #[error("there is no scenario (NAME.yaml) in {}", .0.display())]
    NoMachines(PathBuf),
    /// The folder for the simulated machines cannot be made or removed.
    #[error("cannot make or remove a folder for the simulated machines")]
    Folder(#[source] io::Error),
    /// A file of a simulated machine cannot be written.
    #[error("cannot write {}", .path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A simulated machine cannot be made.
    #[error("cannot make the machine {machine}: {said}")]
    Prepare {
        /// Its name.
        machine: String,
        /// What the simulation says.
        said: String,
    },
    /// A program does not start.
    #[error("cannot start {}", .program.display())]
    Start {
        /// Which.
        program: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A program ended by itself.
    #[error("{name} ended early ({how}); the end of its log:\n{log}")]
    Died {
        /// Who it was.
        name: String,
        /// How it ended.
        how: String,
        /// Its last lines.
        log: String,
    },
    /// The aggregator does not say where it listens.
    #[error("the aggregator does not say where it listens; its log:\n{log}")]
    NoAddress {
        /// Its last lines.
        log: String,
    },
    /// The aggregator did not see what is there.
    #[error("the aggregator has not seen the fleet as it is: {}", .0.join("; "))]
    Unseen(Vec<String>),
}

impl DemoError {
    /// What the person can do about it.
    pub(in crate::cli) fn advice(&self) -> Option<&'static str> {
        match self {
            Self::ProgramMissing { .. } => Some(
                "run `make demo` in a checkout of Octavo, which builds all of them, or say where they are with --programs",
            ),
            Self::Machines { .. } | Self::NoMachines(_) => {
                Some("give a folder of scenarios with --machines, or leave it out")
            }
            Self::Folder(_) | Self::File { .. } => {
                Some("make room, or set TMPDIR to a folder that can be written")
            }
            Self::Prepare { .. } => {
                Some("correct the scenario; tests/nvml-sim/README.md has its form")
            }
            Self::Start { .. } => {
                Some("is it a program for this machine? build anew with `make demo`")
            }
            Self::Died { .. } | Self::NoAddress { .. } | Self::Unseen(_) => None,
        }
    }
}

impl From<DemoError> for CliError {
    fn from(error: DemoError) -> Self {
        Self::Demo(error)
    }
}
