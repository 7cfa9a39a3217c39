//! Errors of the demo.

use std::io;
use std::path::PathBuf;

use octavo_client::ClientError;
use thiserror::Error;
use tokio::task::JoinError;

use crate::cluster::Refusal;

/// Reason why the demo ended early, or failed at its end.
#[derive(Debug, Error)]
pub enum DemoError {
    /// A program or the simulated driver is missing.
    #[error("no {name} in {}", .directory.display())]
    ProgramMissing {
        /// Its name.
        name: &'static str,
        /// The searched directory.
        directory: PathBuf,
    },
    /// The directory of scenarios cannot be read.
    #[error("cannot read the machines in {}", .directory.display())]
    Machines {
        /// The directory.
        directory: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// There is nothing to simulate.
    #[error("no scenario (NAME.yaml) in {}", .0.display())]
    NoMachines(PathBuf),
    /// The directory for the simulated machines cannot be created or removed.
    #[error("cannot create or remove a directory for the simulated machines")]
    Folder(#[source] io::Error),
    /// A file of a simulated machine cannot be written.
    #[error("cannot write {}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The simulated API server does not start.
    #[error("cannot start the simulated API server")]
    Cluster(#[source] io::Error),
    /// The simulated API server or a simulated kubelet has failed.
    #[error("the simulated API server or a simulated kubelet failed")]
    Server(#[source] JoinError),
    /// An object of the demo is refused by the simulated API server.
    #[error("the simulated API server refused an object of the demo: {0}")]
    Object(Refusal),
    /// A file of the demo is invalid.
    #[error("demo/{file}: {message}")]
    Data {
        /// The file.
        file: &'static str,
        /// The error.
        message: String,
    },
    /// A simulated machine cannot be created.
    #[error("cannot create the machine {machine}: {message}")]
    Prepare {
        /// Its name.
        machine: String,
        /// Output of the simulation.
        message: String,
    },
    /// A command of the tour failed.
    #[error("octavo {command}: {message}")]
    Command {
        /// Its arguments.
        command: &'static str,
        /// Its error message.
        message: String,
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
    #[error("{name} exited early ({how}); last lines of its log:\n{log}")]
    Died {
        /// Its name.
        name: String,
        /// Its exit status.
        how: String,
        /// Its last lines.
        log: String,
    },
    /// The aggregator does not report its address.
    #[error("the aggregator did not log its address; its log:\n{log}")]
    NoAddress {
        /// Its last lines.
        log: String,
    },
    /// The aggregator did not report the expected fleet.
    #[error("the aggregator does not show the fleet correctly: {}", .0.join("; "))]
    FleetMismatch(Vec<String>),
    /// The aggregator does not answer.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The output could not be printed.
    #[error("cannot print the output")]
    Print(#[source] io::Error),
}

impl DemoError {
    /// Returns advice about the error.
    pub fn advice(&self) -> Option<&'static str> {
        match self {
            Self::ProgramMissing { .. } => Some(
                "run `make demo` in a source checkout of Octavo to build the programs, or specify \
                 their directory with --programs",
            ),
            Self::Machines { .. } | Self::NoMachines(_) => {
                Some("specify a directory with scenarios with --machines, or omit it")
            }
            Self::Folder(_) | Self::File { .. } => {
                Some("free some disk space, or set TMPDIR to a writable directory")
            }
            Self::Prepare { .. } => {
                Some("correct the scenario; tests/nvml-sim/README.md describes the format")
            }
            Self::Start { .. } => Some(
                "check that the program is built for this machine; rebuild it with `make \
                      demo`",
            ),
            Self::Client(error) => error.advice(),
            Self::Cluster(_)
            | Self::Server(_)
            | Self::Object(_)
            | Self::Data { .. }
            | Self::Command { .. }
            | Self::Died { .. }
            | Self::NoAddress { .. }
            | Self::FleetMismatch(_)
            | Self::Print(_) => None,
        }
    }
}
