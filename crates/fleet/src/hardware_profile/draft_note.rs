//! Text of notes about drafts.

use std::fmt;

use octavo_model::id::TypeName;

use super::draft::DraftNote;

/// Maximum number of notes in an error message.
const MAX_SHOWN_NOTES: usize = 5;

impl fmt::Display for DraftNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MixedNode { node, has } => write!(
                f,
                "{node} is left out: it is mixed ({has}), and a workload there could get either"
            ),
            Self::Unknown(node) => write!(
                f,
                "{node} is left out: nobody knows the type of its devices; label it with octavo.dev/type-override"
            ),
            Self::NodeWithoutDevices(node) => {
                write!(f, "{node} is left out: it has no accelerator")
            }
            Self::NodeNotFound(node) => {
                write!(f, "{node} is left out: the cluster has no such node")
            }
            Self::UnlabeledNode(node) => write!(
                f,
                "{node} is left out: it lacks the label octavo.dev/type, which its agent writes; without it nothing would be placed there"
            ),
            Self::VendorLabel { key, value } => write!(
                f,
                "no agent has labeled these nodes with octavo.dev/type, so the profile selects by {key}={value}; that value changes when devices are shared or partitioned: create the profile again once an agent runs there"
            ),
            Self::NodeWithOtherLabel { node, key, value } => write!(
                f,
                "{node} is left out: it has another label than {key}={value}, and a selector cannot name both"
            ),
            Self::AdditionalNodes {
                nodes: 1,
                type_name,
            } => write!(
                f,
                "one more node has the type {type_name}: the profile reaches it too"
            ),
            Self::AdditionalNodes { nodes, type_name } => write!(
                f,
                "{nodes} more nodes have the type {type_name}: the profile reaches them too"
            ),
            Self::NotTolerated(taint) => write!(
                f,
                "the taint {taint} is not tolerated: it keeps work off on purpose"
            ),
            Self::NotToleratedByRequest(taint) => write!(
                f,
                "the taint {taint} is not tolerated, as was said: nodes with it are not reached"
            ),
        }
    }
}

/// Reasons why nodes were excluded, limited to the first few.
pub(super) fn format_reasons(notes: &[DraftNote]) -> String {
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
pub(super) fn lookup_hint(notes: &[DraftNote]) -> &'static str {
    if notes.is_empty() {
        "`octavo availability` lists the types there are"
    } else {
        "`kubectl get nodes -L octavo.dev/type` shows which nodes have a type"
    }
}

pub(super) fn format_types(all: &[TypeName]) -> String {
    let all: Vec<&str> = all.iter().map(TypeName::as_str).collect();
    all.join(", ")
}

pub(super) fn format_resources(all: &[String]) -> String {
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
pub(super) fn format_known_taints(known: &[String]) -> String {
    if known.is_empty() {
        return ": they have none that keeps work off".to_owned();
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
