//! Events of the hardware profile stream, one JSON object per event.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::document::ProfileRow;

/// What happened to hardware profiles, or to what is free for them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(
    tag = "kind",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one at a time, and it is almost always a profile"
)]
pub enum ProfileEvent {
    /// A profile that is new or has changed, be it only in what is free for it.
    Profile {
        /// As in a list.
        profile: ProfileRow,
    },
    /// A profile that is no more, or is none of those that were asked for any more.
    Removed {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// What kind of object it was.
        object_kind: String,
    },
    /// All that is known has been sent. It comes too when `notice` is another than before.
    Synced {
        /// Grows with each change, for as long as the aggregator runs.
        revision: u64,
        /// Why what is told may not be how it is now; absent while it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        notice: Option<String>,
    },
}

impl ProfileEvent {
    /// Name of the event in the stream.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Profile { .. } => "profile",
            Self::Removed { .. } => "removed",
            Self::Synced { .. } => "synced",
        }
    }
}
