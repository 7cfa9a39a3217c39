//! Errors of the command line, and their messages.

mod mig_parted;
mod pod_selection;
mod policy_change;

use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use octavo_client::{ClientError, RequestError};
use octavo_demo::{DemoError, SimulationError};
use octavo_engine::durable::DurableError;
use octavo_engine::store::{LockHolder, StoreError};
use octavo_files::inventory::InventoryError;
use octavo_files::label_set::LabelsError;
use octavo_files::layouts::LayoutWriteError;
use octavo_fleet::estimate::profile_devices::ProfileDevicesError;
use octavo_fleet::startup::StartupProgress;
use octavo_generate::GenerateError;
use octavo_kube::client::ConnectError;
use octavo_kube::hardware_profiles::WriteError;
use octavo_kube::validation::ValidationError;
use octavo_model::inventory::NvmlState;
use octavo_model::text::first_names;
use octavo_node::node_object::is_demand_layout;
use octavo_planner::layout::ExportError;
use octavo_support_bundle::ContentsError;
use octavo_toolkit::error::chain;
use thiserror::Error;

use crate::Report;

pub(crate) use self::mig_parted::MigPartedError;
pub(crate) use self::pod_selection::PodSelectionError;
pub(crate) use self::policy_change::PolicyChangeError;

/// Reason why a command failed. The message names the action and its object; the cause follows in the chain.
#[derive(Debug, Error)]
pub(crate) enum CliError {
    /// The input was rejected, for the reasons in the notes of the report.
    #[error("{}", .0.notes)]
    Rejected(Box<Report>),
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
        source: InventoryError,
    },
    /// A scenario cannot be simulated.
    #[error("cannot use the machine in {place}")]
    Simulate {
        /// The file, or `standard input`.
        place: String,
        /// The cause.
        source: SimulationError,
    },
    /// A checkpoint, a Node or measured rows cannot be used.
    #[error("cannot use the {what} in {place}")]
    Document {
        /// The kind of document.
        what: &'static str,
        /// The file, or another source.
        place: String,
        /// The cause.
        source: Box<dyn Error>,
    },
    /// No layout has this name.
    #[error("no layout {name} in {place}; {}", known_names(.known))]
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
    /// A file could not be written.
    #[error(transparent)]
    Write(DurableError),
    /// An error of mig-parted's commands.
    #[error(transparent)]
    MigParted(#[from] MigPartedError),
    /// The agent's socket cannot be used.
    #[error("cannot connect to the agent through {}", .socket.display())]
    Agent {
        /// The socket.
        socket: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The connection to the agent broke.
    #[error("the agent of this node no longer responds")]
    AgentGone {
        /// The cause.
        source: io::Error,
    },
    /// The agent does not respond in time.
    #[error("the agent of this node did not respond within {} s", .0.as_secs())]
    AgentTimeout(Duration),
    /// The agent refused the request.
    #[error("the agent of this node rejected the request: {0}")]
    AgentRefused(String),
    /// There is no agent whose choice could be forgotten.
    #[error("no agent runs on this node with this state directory")]
    NoAgent,
    /// The node's state cannot be expressed as a layout.
    #[error("cannot export the partitions of this node")]
    Export(#[source] ExportError),
    /// A layout cannot be written in the requested dialect.
    #[error("cannot write these layouts in this format")]
    Dialect(#[source] LayoutWriteError),
    /// A hardware profile cannot be used for estimates.
    #[error("cannot estimate for the profile {name}")]
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
    #[error("no NVML library at {}", .0.display())]
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
    #[error("no namespace for the profile: the existing profiles do not determine one")]
    NoNamespace,
    /// The cluster cannot be reached.
    #[error("cannot connect to a cluster to create the profile")]
    Connect(#[source] ConnectError),
    /// The cluster for generated manifests cannot be reached.
    #[error("cannot connect to a cluster to apply the manifests")]
    ApplyConnect(#[source] ConnectError),
    /// A profile was not created.
    #[error("cannot create the profile")]
    Profile(#[source] Box<WriteError>),
    /// Nodes were not validated.
    #[error(transparent)]
    Validation(#[from] ValidationError),
    /// A policy was not changed.
    #[error(transparent)]
    PolicyChange(#[from] PolicyChangeError),
    /// Not all nodes have reported since the start of the aggregator.
    #[error("cannot generate from an incomplete fleet: {0}")]
    FleetIncomplete(StartupProgress),
    /// The state of the cluster is outdated.
    #[error("the aggregator has an outdated state of the cluster: {0}")]
    ClusterOutdated(String),
    /// No manifests can be generated.
    #[error("cannot generate manifests")]
    Generate(#[source] GenerateError),
    /// A directory cannot be created.
    #[error("cannot create the directory {}", .path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The fleet has no node of this name.
    #[error("the fleet has no node {0}")]
    NoSuchNode(String),
    /// The pod of `octavo demand` was not found.
    #[error(transparent)]
    PodSelection(#[from] PodSelectionError),
    /// A file of a support bundle cannot be added.
    #[error(transparent)]
    SupportBundle(#[from] ContentsError),
    /// The user stopped the command before the archive was written.
    #[error("interrupted; {} was not written", .file.display())]
    Interrupted {
        /// The archive.
        file: PathBuf,
    },
    /// The demo failed.
    #[error("the demo failed")]
    Demo(#[source] DemoError),
    /// The asynchronous runtime did not start.
    #[error("cannot start the program's event loop")]
    Runtime(#[source] io::Error),
    /// A value could not be serialized in the requested format.
    #[error("cannot write the result in this format")]
    Serialize(#[source] Box<dyn Error>),
    /// The result could not be printed.
    #[error("cannot print the result")]
    Print(#[source] io::Error),
}

impl From<DemoError> for CliError {
    fn from(error: DemoError) -> Self {
        if let DemoError::Client(error) = error {
            return Self::Client(error);
        }
        if let DemoError::Print(error) = error {
            return Self::Print(error);
        }
        Self::Demo(error)
    }
}

impl CliError {
    /// Creates the error of a document that cannot be used.
    pub(crate) fn document(
        what: &'static str,
        place: String,
        source: impl Error + 'static,
    ) -> Self {
        Self::Document { what, place, source: Box::new(source) }
    }

    /// Creates the error of rejected input, with the reasons.
    pub(crate) fn rejected(reasons: String) -> Self {
        Self::Rejected(Box::new(Report::failed(reasons)))
    }

    /// Returns the report of the error.
    pub(crate) fn into_report(self) -> Report {
        if let Self::Rejected(report) = self { *report } else { Report::failed(explain(&self)) }
    }

    /// Returns advice about the error, if there is any.
    fn advice(&self) -> Option<&'static str> {
        match self {
            Self::Read { .. } => Some("check the path; a dash reads standard input"),
            Self::Inventory { .. } => {
                Some("record one with `octavo inspect -o json`, or correct the value named above")
            }
            Self::Simulate { source: SimulationError::ProgramMissing { .. }, .. } => Some(
                "start `octavo` from a checkout after `cargo build --workspace`, or record the machine with `octavo inspect -o json`",
            ),
            Self::Simulate { .. } => {
                Some("correct the scenario; tests/nvml-sim/README.md describes it")
            }
            Self::Labels { .. } => Some(
                "use output of `octavo labels` or `kubectl get node -o json`, or a feature file",
            ),
            Self::LibraryMissing(_) => Some(
                "specify the path of libnvidia-ml.so.1, or omit --nvml-library to search for it",
            ),
            Self::UsageRequest { source, .. } if source.is_unreachable() => Some(
                "specify the aggregator with --server or OCTAVO_SERVER; on a node, `octavo top \
                 --here` uses the agent instead",
            ),
            Self::Client(error) => error.advice(),
            Self::UsageRequest { source, .. } => source.advice(),
            Self::Demo(error) => error.advice(),
            Self::NoSuchLayout { name, .. } => Some(advice_of_unknown_layout(name)),
            Self::Dialect(_) => Some("use the other format with --dialect"),
            Self::State(StoreError::Locked { by, .. }) => Some(locked(by.as_ref())),
            Self::DriverTimeout(call) => Some(NvmlState::remedy_of_stall(call)),
            Self::State(_) => Some("run as root, or specify another directory with --state-dir"),
            Self::Agent { .. } => Some("run as root, or as the user of the agent"),
            Self::NoAgent => Some(
                "run the command in the agent's pod (`kubectl exec -n octavo-system POD -- octavo \
                 ...`), or specify the agent's directory with --state-dir",
            ),
            Self::FleetIncomplete(_) | Self::ClusterOutdated(_) => Some("retry in a minute"),
            Self::AgentGone { .. } | Self::AgentTimeout(_) => Some(
                "check the agent's log; the change is recorded in the journal and resumes later",
            ),
            Self::SupportBundle(ContentsError::TemporaryFile(_)) => {
                Some("specify a directory with free space in TMPDIR")
            }
            Self::NoSuchNode(_) => Some("`octavo nodes -o name` lists the nodes of the fleet"),
            Self::PodSelection(error) => Some(error.advice()),
            Self::NoNamespace => {
                Some("specify --namespace; OpenDataHub uses opendatahub or redhat-ods-applications")
            }
            Self::Connect(_) => Some(NO_CLUSTER_FOR_PROFILE),
            Self::ApplyConnect(error) => Some(error.advice()),
            Self::Profile(error) => profile_advice(error),
            Self::PolicyChange(error) => error.advice(),
            Self::Validation(error) => Some(error.advice()),
            Self::Rejected(_)
            | Self::Document { .. }
            | Self::Write(_)
            | Self::MigParted(_)
            | Self::Generate(_)
            | Self::Directory { .. }
            | Self::AgentRefused(_)
            | Self::Interrupted { .. }
            | Self::Export(_)
            | Self::Observe(_)
            | Self::Runtime(_)
            | Self::Serialize(_)
            | Self::SupportBundle(ContentsError::Serialize(_))
            | Self::ProfileNotEstimable { .. }
            | Self::Print(_) => None,
        }
    }
}

/// Returns advice for when another process is changing this node.
fn locked(by: Option<&LockHolder>) -> &'static str {
    match by.map(|by| by.by.as_str()) {
        Some("agent") => {
            "use `octavo apply`, which sends the request to the agent; an agent that just started \
             accepts commands after its first scan"
        }
        Some(_) => "retry after it has exited",
        None => {
            "retry after it has exited, or use `octavo apply`, which sends the request to a \
             running agent"
        }
    }
}

/// Advice if no cluster can be reached to create a profile.
const NO_CLUSTER_FOR_PROFILE: &str =
    "specify your kubeconfig with --kubeconfig, or preview the profile with --dry-run";

fn advice_of_unknown_layout(name: &str) -> &'static str {
    if is_demand_layout(name) {
        return "the annotation octavo.dev/instances of the Node lists the exact instances of this layout, and only the \
                agent plans it: see the annotation octavo.dev/status";
    }
    "use one of these, or specify a layout file with -f; without -f, the layouts are generated for the node"
}

/// Formats the nearest few of many names.
fn known_names(known: &[String]) -> String {
    const SHOWN: usize = 12;
    match known {
        [] => "the file has no layouts".to_owned(),
        known => format!("available: {}", first_names(known, SHOWN)),
    }
}

/// Formats an error for standard error, with advice.
pub(crate) fn explain(error: &CliError) -> String {
    octavo_toolkit::error::explain(error, error.advice())
}

/// Formats an error on one line, without advice.
pub(super) fn brief(error: &CliError) -> String {
    super::text::printable(&chain(error))
}

/// Returns advice about a profile that was not created.
fn profile_advice(error: &WriteError) -> Option<&'static str> {
    match error {
        WriteError::Taken { ours: true, .. } => {
            Some("choose another name with --name, or replace the existing profile with --replace")
        }
        WriteError::Taken { ours: false, .. } => {
            Some("choose another name with --name, or edit the existing profile manually")
        }
        WriteError::NoKind => {
            Some("--dry-run prints the profile, for the aggregator's --profiles file")
        }
        WriteError::Refused { .. } | WriteError::TimedOut(_) => None,
    }
}
