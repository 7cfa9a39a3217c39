//! Notes about drafts.

use std::fmt;

use octavo_model::id::TypeName;

use crate::cluster::Taint;

/// Note about a draft.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DraftNote {
    /// A node with several types is excluded.
    MixedNode {
        /// Node name.
        node: String,
        /// Types of its devices.
        has: String,
    },
    /// A node with unidentified devices is excluded.
    Unknown(String),
    /// A node without devices is excluded.
    NodeWithoutDevices(String),
    /// A requested node does not exist.
    NodeNotFound(String),
    /// A node without Octavo's type label is excluded, because the selector would not match it.
    UnlabeledNode(String),
    /// No node has Octavo's label, so the profile selects by a vendor's label.
    VendorLabel {
        /// Key of the label.
        key: String,
        /// Value of the label.
        value: String,
    },
    /// A node is excluded because its label differs from the selector.
    NodeWithOtherLabel {
        /// Node name.
        node: String,
        /// Key in the selector.
        key: String,
        /// Value in the selector.
        value: String,
    },
    /// The profile also reaches nodes that were not selected.
    AdditionalNodes {
        /// Number of these nodes.
        nodes: usize,
        /// Their type.
        type_name: TypeName,
    },
    /// A taint is not tolerated by default, because it keeps workloads away on purpose.
    NotTolerated(Taint),
    /// A taint is not tolerated, as the user requested.
    NotToleratedByRequest(Taint),
}

impl fmt::Display for DraftNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MixedNode { node, has } => write!(
                f,
                "{node} is excluded: it is mixed ({has}), so a workload there could get any of its types"
            ),
            Self::Unknown(node) => write!(
                f,
                "{node} is excluded: the type of its devices is unknown; label it with octavo.dev/type-override"
            ),
            Self::NodeWithoutDevices(node) => {
                write!(f, "{node} is excluded: it has no accelerator")
            }
            Self::NodeNotFound(node) => {
                write!(f, "{node} is excluded: it does not exist in the cluster")
            }
            Self::UnlabeledNode(node) => write!(
                f,
                "{node} is excluded: it lacks the label octavo.dev/type, which its agent sets; without the label, \
                 no workload would be scheduled there"
            ),
            Self::VendorLabel { key, value } => write!(
                f,
                "no agent has labeled these nodes with octavo.dev/type, so the profile selects by {key}={value}; \
                 that value changes when devices are shared or partitioned: recreate the profile after an \
                 agent runs there"
            ),
            Self::NodeWithOtherLabel { node, key, value } => write!(
                f,
                "{node} is excluded: its label differs from {key}={value}, and a selector can contain only one of \
                 them"
            ),
            Self::AdditionalNodes { nodes: 1, type_name } => {
                write!(f, "one more node has the type {type_name}: the profile also selects it")
            }
            Self::AdditionalNodes { nodes, type_name } => write!(
                f,
                "{nodes} more nodes have the type {type_name}: the profile also selects them"
            ),
            Self::NotTolerated(taint) => {
                write!(f, "the taint {taint} is not tolerated: it keeps workloads away on purpose")
            }
            Self::NotToleratedByRequest(taint) => write!(
                f,
                "the taint {taint} is not tolerated, as requested: the profile does not match nodes with it"
            ),
        }
    }
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
