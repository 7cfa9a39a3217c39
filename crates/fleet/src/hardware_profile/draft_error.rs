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
    #[error("no node has devices of type {0}; `octavo availability` lists the types there are")]
    NoNodeOfType(TypeName),
    /// The nodes have several types.
    #[error("these nodes have {} types, {}: a profile's selector cannot say \"this or that\". Make one for each; or give all these nodes a label of your own, such as class=large, and a profile that selects by it", .0.len(), format_types(.0))]
    SeveralTypes(Vec<TypeName>),
    /// The nodes have several device resources, or none.
    #[error("{}", format_resources(.0))]
    AmbiguousResource(Vec<String>),
    /// No node has the requested resource.
    #[error("none of these nodes gives out {0}")]
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
    let shown: Vec<String> = notes
        .iter()
        .take(MAX_SHOWN_NOTES)
        .map(ToString::to_string)
        .collect();
    match (
        shown.is_empty(),
        notes.len().saturating_sub(MAX_SHOWN_NOTES),
    ) {
        (true, _) => String::new(),
        (false, 0) => format!(": {}", shown.join("; ")),
        (false, more) => format!(": {}; and {more} more", shown.join("; ")),
    }
}

/// Hint on how to find usable nodes.
fn lookup_hint(notes: &[DraftNote]) -> &'static str {
    if notes.is_empty() {
        "`octavo availability` lists the types there are"
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
        return "these nodes give out no device yet: look for the device plugin with `octavo doctor`".to_owned();
    }
    format!(
        "these nodes give out {} resources, {}: say which one with resource=NAME",
        all.len(),
        all.join(", ")
    )
}

/// Taints of the nodes, as a clause of an error message.
fn format_known_taints(known: &[String]) -> String {
    if known.is_empty() {
        return ": they have none that keeps work off".to_owned();
    }
    format!("; they have {}", known.join(", "))
}
