//! Reasons why no profile can be drafted, and notes about drafts.

use octavo_model::id::TypeName;
use thiserror::Error;

use super::finding::format_types;
use super::user_changes::CountError;
use crate::cluster::Taint;

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

/// Note about a draft.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DraftNote {
    /// A node with several types is excluded.
    #[error(
        "{node} is excluded: it is mixed ({has}), so a workload there could get any of its types"
    )]
    MixedNode {
        /// Node name.
        node: String,
        /// Types of its devices.
        has: String,
    },
    /// A node with unidentified devices is excluded.
    #[error(
        "{0} is excluded: the type of its devices is unknown; label it with octavo.dev/type-override"
    )]
    Unknown(String),
    /// A node without devices is excluded.
    #[error("{0} is excluded: it has no accelerator")]
    NodeWithoutDevices(String),
    /// A requested node does not exist.
    #[error("{0} is excluded: it does not exist in the cluster")]
    NodeNotFound(String),
    /// A node without Octavo's type label is excluded, because the selector would not match it.
    #[error(
        "{0} is excluded: it lacks the label octavo.dev/type, which its agent sets; without the label, no workload \
         would be scheduled there"
    )]
    UnlabeledNode(String),
    /// No node has Octavo's label, so the profile selects by a vendor's label.
    #[error(
        "no agent has labeled these nodes with octavo.dev/type, so the profile selects by {key}={value}; that value \
         changes when devices are shared or partitioned: recreate the profile after an agent runs there"
    )]
    VendorLabel {
        /// Key of the label.
        key: String,
        /// Value of the label.
        value: String,
    },
    /// A node is excluded because its label differs from the selector.
    #[error(
        "{node} is excluded: its label differs from {key}={value}, and a selector can contain only one of them"
    )]
    NodeWithOtherLabel {
        /// Node name.
        node: String,
        /// Key in the selector.
        key: String,
        /// Value in the selector.
        value: String,
    },
    /// The profile also reaches nodes that were not selected.
    #[error("{}", format_additional_nodes(*nodes, type_name))]
    AdditionalNodes {
        /// Number of these nodes.
        nodes: usize,
        /// Their type.
        type_name: TypeName,
    },
    /// A taint is not tolerated by default, because it keeps workloads away on purpose.
    #[error("the taint {0} is not tolerated: it keeps workloads away on purpose")]
    NotTolerated(Taint),
    /// A taint is not tolerated, as the user requested.
    #[error(
        "the taint {0} is not tolerated, as requested: the profile does not match nodes with it"
    )]
    NotToleratedByRequest(Taint),
}

fn format_additional_nodes(nodes: usize, type_name: &TypeName) -> String {
    match nodes {
        1 => format!("one more node has the type {type_name}: the profile also selects it"),
        _ => format!("{nodes} more nodes have the type {type_name}: the profile also selects them"),
    }
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

/// Types of a mixed node: `4x nvidia-a100-80gb, 4x nvidia-v100-16gb`.
pub(super) fn format_devices(held: &[(&Option<TypeName>, &u64)]) -> String {
    let one = |(name, count): &(&Option<TypeName>, &u64)| {
        let name = name.as_ref().map_or("unknown", TypeName::as_str);
        format!("{count}x {name}")
    };
    let all: Vec<String> = held.iter().map(one).collect();
    all.join(", ")
}
