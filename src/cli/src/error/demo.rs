//! Errors of the demo.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Reason why the demo ended early, or failed at its end.
#[derive(Debug, Error)]
pub enum DemoError {
    /// A program or the simulated driver is missing.
    #[error("there is no {name} in {}", .folder.display())]
    ProgramMissing {
        /// Its name.
        name: &'static str,
        /// The searched directory.
        folder: PathBuf,
    },
    /// The directory of scenarios cannot be read.
    #[error("cannot read the machines in {}", .folder.display())]
    Machines {
        /// The directory.
        folder: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// There is nothing to simulate.
    #[error("there is no scenario (NAME.yaml) in {}", .0.display())]
    NoMachines(PathBuf),
    /// The directory for the simulated machines cannot be created or removed.
    #[error("cannot make or remove a folder for the simulated machines")]
    Folder(#[source] io::Error),
    /// A file of a simulated machine cannot be written.
    #[error("cannot write {}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A simulated machine cannot be created.
    #[error("cannot make the machine {machine}: {said}")]
    Prepare {
        /// Its name.
        machine: String,
        /// Output of the simulation.
        said: String,
    },
    /// A program does not start.
    #[error("cannot start {}", .program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A program exited by itself.
    #[error("{name} ended early ({how}); the end of its log:\n{log}")]
    Died {
        /// Its name.
        name: String,
        /// Its exit status.
        how: String,
        /// Its last lines.
        log: String,
    },
    /// The aggregator does not report its address.
    #[error("the aggregator does not say where it listens; its log:\n{log}")]
    NoAddress {
        /// Its last lines.
        log: String,
    },
    /// The aggregator did not report the expected fleet.
    #[error("the aggregator has not seen the fleet as it is: {}", .0.join("; "))]
    FleetMismatch(Vec<String>),
}

impl DemoError {
    /// Returns advice about the error.
    pub(super) fn advice(&self) -> Option<&'static str> {
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
            Self::Died { .. } | Self::NoAddress { .. } | Self::FleetMismatch(_) => None,
        }
    }
}
