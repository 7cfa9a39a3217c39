//! Reasons why no profile can be drafted.

use octavo_model::id::TypeName;
use thiserror::Error;

use super::draft_note::DraftNote;
use super::user_changes::CountError;

/// Maximum number of notes in an error message.
const MAX_SHOWN_NOTES: usize = 5;

/// Reason why no profile can be drafted.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DraftError {
    /// There is no usable node.
    #[error("none of these nodes can be used{}; {}", format_reasons(.0), lookup_hint(.0))]
    NoUsableNode(Vec<DraftNote>),
    /// No node has devices of the requested type.
    #[error("no node has devices of type {0}; `octavo availability` lists the available types")]
    NoNodeOfType(TypeName),
    /// The nodes have several types.
    #[error("these nodes have {} types, {}, but a profile can select only one. Create a profile for each type, or \
     add a label of your own to all these nodes, such as class=large, and create a profile that selects by it", .0.len(), format_types(.0))]
    SeveralTypes(Vec<TypeName>),
    /// The nodes have several device resources, or none.
    #[error("{}", format_resources(.0))]
    AmbiguousResource(Vec<String>),
    /// No node has the requested resource.
    #[error("none of these nodes has the resource {0}")]
    NoSuchResource(String),
    /// A count is invalid.
    #[error(transparent)]
    Counts(#[from] CountError),
    /// No node has the named taint.
    #[error("none of these nodes has the taint {named:?}{}", format_known_taints(.known))]
    NoSuchTaint {
        /// Taint as named by the user.
        named: String,
        /// Taints of the nodes.
        known: Vec<String>,
    },
}

/// Reasons why nodes were excluded, limited to the first few.
fn format_reasons(notes: &[DraftNote]) -> String {
    let shown: Vec<String> = notes.iter().take(MAX_SHOWN_NOTES).map(ToString::to_string).collect();
    match (shown.is_empty(), notes.len().saturating_sub(MAX_SHOWN_NOTES)) {
        (true, _) => String::new(),
        (false, 0) => format!(": {}", shown.join("; ")),
        (false, more) => format!(": {}; and {more} more", shown.join("; ")),
    }
}

/// Hint on how to find usable nodes.
fn lookup_hint(notes: &[DraftNote]) -> &'static str {
    if notes.is_empty() {
        "`octavo availability` lists the available types"
    } else {
        "`kubectl get nodes -L octavo.dev/type` shows which nodes have a type"
    }
}

fn format_types(all: &[TypeName]) -> String {
    let all: Vec<&str> = all.iter().map(TypeName::as_str).collect();
    all.join(", ")
}

fn format_resources(all: &[String]) -> String {
    if all.is_empty() {
        return "these nodes advertise no devices yet: check the device plugin with `octavo doctor`".to_owned();
    }
    format!(
        "these nodes advertise {} resources, {}: select one with resource=NAME",
        all.len(),
        all.join(", ")
    )
}

/// Taints of the nodes, as a clause of an error message.
fn format_known_taints(known: &[String]) -> String {
    if known.is_empty() {
        return ": they have no taint that keeps workloads away".to_owned();
    }
    format!("; they have {}", known.join(", "))
}
