//! Errors of the command line, and their messages.

mod demo;
mod mig_parted;

use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use octavo_documents::estimates::ProfileDevicesError;
use octavo_documents::inventory::ReadError;
use octavo_documents::labels::LabelsError;
use octavo_documents::node_resources::AllocatableError;
use octavo_documents::slo::RowsError;
use octavo_engine::durable::DurableError;
use octavo_engine::store::{LockHolder, StoreError};
use octavo_files::checkpoint::CheckpointError;
use octavo_files::layouts::LayoutWriteError;
use octavo_kube::client::ConnectError;
use octavo_kube::hardware_profiles::WriteError;
use octavo_model::inventory::NvmlState;
use octavo_planner::layout::ExportError;
use octavo_toolkit::error::chain;
use thiserror::Error;

pub use self::demo::DemoError;
pub use self::mig_parted::MigPartedError;
use super::client::{ClientError, RequestError};
use super::simulated::SimulationError;

/// Reason why a command failed. The message names the action and its object; the cause follows in the chain.
#[derive(Debug, Error)]
pub enum CliError {
    /// A file could not be read.
    #[error("cannot read {what} from {place}")]
    Read {
        /// What was being read.
        what: &'static str,
        /// The file, or `standard input`.
        place: String,
        /// The cause.
        source: io::Error,
    },
    /// A recorded inventory cannot be used.
    #[error("cannot use the inventory in {place}")]
    Inventory {
        /// The file, or `standard input`.
        place: String,
        /// The cause.
        source: ReadError,
    },
    /// A scenario cannot be simulated.
    #[error("cannot use the machine in {place}")]
    Simulate {
        /// The file, or `standard input`.
        place: String,
        /// The cause.
        source: SimulationError,
    },
    /// No layout has this name.
    #[error("there is no layout {name} in {place}; {}", known_names(.known))]
    NoSuchLayout {
        /// The name.
        name: String,
        /// The file, or another source of the layouts.
        place: String,
        /// The existing names, the nearest first.
        known: Vec<String>,
    },
    /// A driver call did not return in time.
    #[error("the NVIDIA driver has not returned from {0} within --timeout")]
    DriverTimeout(&'static str),
    /// The state directory cannot be used.
    #[error("cannot use the state directory")]
    State(#[source] StoreError),
    /// A checkpoint cannot be used here, or not be created.
    #[error("cannot use the checkpoint in {place}")]
    Checkpoint {
        /// The file, or another source.
        place: String,
        /// The cause.
        source: CheckpointError,
    },
    /// A file could not be written.
    #[error(transparent)]
    Write(DurableError),
    /// An error of mig-parted's commands.
    #[error(transparent)]
    MigParted(#[from] MigPartedError),
    /// The agent's socket cannot be used.
    #[error("cannot speak to the agent through {}", .socket.display())]
    Agent {
        /// The socket.
        socket: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The connection to the agent broke.
    #[error("the agent of this node no longer answers")]
    AgentGone {
        /// The cause.
        source: io::Error,
    },
    /// The agent does not respond in time.
    #[error("the agent of this node did not answer within {} s", .0.as_secs())]
    AgentTimeout(Duration),
    /// The agent refused the request.
    #[error("the agent of this node refused: {0}")]
    AgentRefused(String),
    /// There is no agent whose choice could be forgotten.
    #[error("no agent runs on this node, or not with this state directory")]
    NoAgent,
    /// The node's state cannot be expressed as a layout.
    #[error("cannot export what this node has")]
    Export(#[source] ExportError),
    /// A layout cannot be written in the requested dialect.
    #[error("cannot write these layouts in this dialect")]
    Dialect(#[source] LayoutWriteError),
    /// The Node to compare with cannot be used.
    #[error("cannot use the Node in {place}")]
    Node {
        /// The file, or `standard input`.
        place: String,
        /// The cause.
        source: AllocatableError,
    },
    /// Measured rows cannot be used.
    #[error("cannot use the rows in {place}")]
    Rows {
        /// The file, or `standard input`.
        place: String,
        /// The cause.
        source: RowsError,
    },
    /// A hardware profile cannot be used for estimates.
    #[error("nothing can be estimated for the profile {name}")]
    ProfileNotEstimable {
        /// Its name.
        name: String,
        /// The cause.
        source: ProfileDevicesError,
    },
    /// The labels to compare with cannot be used.
    #[error("cannot use the labels in {place}")]
    Labels {
        /// The file, or `standard input`.
        place: String,
        /// The cause.
        source: LabelsError,
    },
    /// The configured library does not exist.
    #[error("there is no NVML library at {}", .0.display())]
    LibraryMissing(PathBuf),
    /// The hardware could not be read.
    #[error("cannot read the hardware of this machine")]
    Observe(#[source] Box<dyn Error>),
    /// The client of an aggregator failed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A request for usage failed; the agent of a node can answer it too.
    #[error("cannot get {url}")]
    UsageRequest {
        /// The URL.
        url: String,
        /// The cause.
        source: Box<RequestError>,
    },
    /// The namespace of a new profile is not known.
    #[error("in which namespace? the profiles that are there do not tell")]
    NoNamespace,
    /// The cluster cannot be reached.
    #[error("cannot reach a cluster to make the profile in")]
    Connect(#[source] ConnectError),
    /// A profile was not created.
    #[error("the profile was not made")]
    Profile(#[source] Box<WriteError>),
    /// The demo failed.
    #[error("the demo failed")]
    Demo(#[from] DemoError),
    /// The asynchronous runtime did not start.
    #[error("cannot start the program's event loop")]
    Runtime(#[source] io::Error),
    /// A value could not be serialized in the requested format.
    #[error("cannot write the result in this form")]
    Serialize(#[source] Box<dyn Error>),
    /// The result could not be printed.
    #[error("cannot print the result")]
    Print(#[source] io::Error),
}

impl CliError {
    /// Returns advice about the error, if there is any.
    fn advice(&self) -> Option<&'static str> {
        match self {
            Self::Read { .. } => Some("check the path; a dash reads standard input"),
            Self::Inventory { .. } => {
                Some("record one with `octavo inspect -o json`, or correct the value named above")
            }
            Self::Simulate {
                source: SimulationError::ProgramMissing { .. },
                ..
            } => Some(
                "start `octavo` from a checkout after `cargo build --workspace`, or record the machine with `octavo inspect -o json`",
            ),
            Self::Simulate { .. } => {
                Some("correct the scenario; tests/nvml-sim/README.md describes it")
            }
            Self::Labels { .. } => Some(
                "give what `octavo labels` printed, a feature file, or `kubectl get node -o json`",
            ),
            Self::LibraryMissing(_) => Some(
                "give the path of libnvidia-ml.so.1, or leave --nvml-library out to search for it",
            ),
            Self::UsageRequest { source, .. } if source.is_unreachable() => Some(
                "say with --server or OCTAVO_SERVER where the aggregator is; on a node, `octavo top --here` asks its agent, without one",
            ),
            Self::Client(error) => error.advice(),
            Self::UsageRequest { source, .. } => source.advice(),
            Self::Demo(error) => error.advice(),
            Self::NoSuchLayout { .. } => Some(
                "name one of these; -f gives a file, and without it they are generated for the node",
            ),
            Self::Dialect(_) => Some("write them in the other dialect, with --dialect"),
            Self::State(StoreError::Locked { by, .. }) => Some(locked(by.as_ref())),
            Self::DriverTimeout(call) => Some(NvmlState::remedy_of_stall(call)),
            Self::State(_) => Some("run as root, or give another folder with --state-dir"),
            Self::Agent { .. } => Some("run as root, or as the user that the agent runs as"),
            Self::NoAgent => Some(
                "ask within the pod of its agent, `kubectl exec -n octavo-system POD -- octavo ...`, or name the agent's folder with \
                 --state-dir",
            ),
            Self::AgentGone { .. } | Self::AgentTimeout(_) => Some(
                "look at the agent's log; what was begun is in its journal and is taken up again",
            ),
            Self::NoNamespace => Some(
                "say it with --namespace; OpenDataHub's own is opendatahub or redhat-ods-applications",
            ),
            Self::Connect(_) => {
                Some("give your kubeconfig with --kubeconfig, or look first with --dry-run")
            }
            Self::Profile(error) => profile_advice(error),
            Self::Checkpoint { .. }
            | Self::Write(_)
            | Self::MigParted(_)
            | Self::AgentRefused(_)
            | Self::Export(_)
            | Self::Observe(_)
            | Self::Runtime(_)
            | Self::Serialize(_)
            | Self::Node { .. }
            | Self::Rows { .. }
            | Self::ProfileNotEstimable { .. }
            | Self::Print(_) => None,
        }
    }
}

/// Returns advice for when another process is changing this node.
fn locked(by: Option<&LockHolder>) -> &'static str {
    match by.map(|by| by.by.as_str()) {
        Some("agent") => {
            "use `octavo apply`, which asks the agent; one that has just started accepts commands after its first round"
        }
        Some(_) => "run this again when it has ended",
        None => {
            "run this again when it has ended, or use `octavo apply`, which asks a running agent"
        }
    }
}

/// Formats the nearest few of many names.
fn known_names(known: &[String]) -> String {
    const SHOWN: usize = 12;
    let names: Vec<&str> = known.iter().take(SHOWN).map(String::as_str).collect();
    let more = known.len().saturating_sub(SHOWN);
    match (names.as_slice(), more) {
        ([], _) => "it has none".to_owned(),
        (_, 0) => format!("it has {}", names.join(", ")),
        (_, more) => format!("it has {} and {more} more", names.join(", ")),
    }
}

/// Formats an error for standard error: the message, each cause on a line of its own, and advice.
pub fn explain(error: &CliError) -> String {
    let mut text = format!("error: {error}\n");
    let mut cause = error.source();
    while let Some(error) = cause {
        // A cause of several lines (YAML errors quote the position) keeps its shape below the first.
        let message = error.to_string().replace('\n', "\n    ");
        text.push_str("  because: ");
        text.push_str(message.trim_end());
        text.push('\n');
        cause = error.source();
    }
    if let Some(advice) = error.advice() {
        text.push_str("  try: ");
        text.push_str(advice);
        text.push('\n');
    }
    text
}

/// Formats an error on one line, without advice.
pub(super) fn brief(error: &CliError) -> String {
    super::text::printable(&chain(error))
}

/// Returns advice about a profile that was not created.
fn profile_advice(error: &WriteError) -> Option<&'static str> {
    match error {
        WriteError::Taken { ours: true, .. } => Some(
            "give the new one another name with --name, or put it in the place of that one with --replace",
        ),
        WriteError::Taken { ours: false, .. } => {
            Some("give the new one another name with --name, or change that one by hand")
        }
        WriteError::NoKind => {
            Some("--dry-run prints the profile, for the aggregator's --profiles file")
        }
        WriteError::Refused { .. } | WriteError::TimedOut(_) => None,
    }
}
