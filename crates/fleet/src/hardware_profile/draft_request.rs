//! Request for a draft of a profile.

use std::collections::BTreeSet;

use octavo_model::id::TypeName;

use super::ProfileKey;
use super::user_changes::CountOverride;

/// Request for a draft.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DraftRequest {
    /// Nodes to cover; all if empty.
    pub nodes: BTreeSet<String>,
    /// Type to cover.
    pub type_name: Option<TypeName>,
    /// Resource to request, if the nodes have several.
    pub resource: Option<String>,
    /// Namespace and name; the name defaults to one derived from the type.
    pub key: ProfileKey,
    /// Display name.
    pub display_name: Option<String>,
    /// Counts that override the drafted ones.
    pub counts: Vec<CountOverride>,
    /// Taints to tolerate, in their text form; `None` for the default selection.
    pub tolerate: Option<BTreeSet<String>>,
}
