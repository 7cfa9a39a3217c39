//! Audit: who used and changed what, as a chain of entries that shows later modifications.
//!
//! ```text
//!  AuditEvent --ChainHead--> entry 7: {"seq":7,"time":…,"previous":<hash of 6>,"kind":…}, hash of 7
//!                                        |
//!                                        v
//!                                  entry 8: {"seq":8,"time":…,"previous":<hash of 7>,"kind":…}, hash of 8
//! ```
//!
//! An entry is one line of JSON. Its hash is the SHA-256 of the previous hash and the entry, in lower-case hexadecimal digits. An
//! entry contains its number, its time and the previous hash. An entry that is changed, removed, inserted or moved therefore breaks
//! the chain. A chain can begin with any entry, because old entries are deleted.

mod chain;
mod verify;

use jiff::Timestamp;
use octavo_fleet::changes::ChangeKind;
use serde::Serialize;
use serde_with::skip_serializing_none;
use strum::{EnumDiscriminants, EnumString, IntoStaticStr, VariantNames};

pub use self::chain::{AuditEntry, ChainHead, ZERO_HASH, export_line};
pub use self::verify::{ChainError, ChainSummary, ChainVerifier};
use crate::part::UsageState;

/// An event that is to be appended to the chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRecord {
    /// Time of the event.
    pub time: Timestamp,
    /// Identifies the event, so that it is appended once although an append is repeated.
    pub source: String,
    /// The event.
    pub event: AuditEvent,
}

/// A recorded event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, EnumDiscriminants)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[strum_discriminants(name(AuditKind), derive(EnumString, IntoStaticStr, VariantNames))]
#[strum_discriminants(strum(serialize_all = "kebab-case"))]
#[strum_discriminants(doc = "Kind of an event; its word is the value of the field `kind`.")]
pub enum AuditEvent {
    /// A change that a user requested.
    Change(ChangeEvent),
    /// A refused request.
    Refusal(RefusalEvent),
    /// Usage of a device by a container on a day that is over.
    Usage(UsageEvent),
    /// A change of a node's layout or partitions, or the drain for it.
    Node(NodeEvent),
    /// A decision about the roll-out of a policy.
    Policy(PolicyEvent),
}

/// A change that a user requested, or an attempt at one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ChangeEvent {
    /// User; empty if the user is not known.
    pub user: String,
    /// Operation.
    pub verb: ChangeVerb,
    /// Namespace of the object.
    pub namespace: String,
    /// Kind, namespace and name of the object.
    pub object: String,
    /// Outcome.
    pub outcome: ChangeOutcome,
    /// Previous state; empty if there was none or nothing was created.
    pub before: String,
    /// New state, desired state, or the reason for the failure.
    pub after: String,
    /// Reason that the user gave.
    pub reason: String,
}

/// Operation of a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, IntoStaticStr)]
#[serde(into = "&'static str")]
#[strum(serialize_all = "kebab-case")]
pub enum ChangeVerb {
    /// Creation of an object.
    Create,
    /// Replacement of an existing object.
    Replace,
}

/// Outcome of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, IntoStaticStr)]
#[serde(into = "&'static str")]
#[strum(serialize_all = "kebab-case")]
pub enum ChangeOutcome {
    /// About to be made; another entry reports the outcome.
    #[strum(serialize = "begun")]
    Started,
    /// Made.
    #[strum(serialize = "done")]
    Succeeded,
    /// Already in the desired state; nothing was written.
    Unchanged,
    /// Dry run accepted by the API server.
    DryRun,
    /// Dry run rejected or not answered by the API server.
    #[strum(serialize = "dry-run-not-done")]
    DryRunFailed,
    /// Failed.
    #[strum(serialize = "not-done")]
    Failed,
    /// Unknown: the request may or may not have taken effect.
    Unknown,
}

/// A refused request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RefusalEvent {
    /// User; empty if the user is not known.
    pub user: String,
    /// Address of the client.
    pub peer: String,
    /// HTTP method or operation.
    pub verb: String,
    /// Path or object.
    pub object: String,
    /// Reason for the refusal.
    pub reason: String,
    /// Number of earlier refusals of the same client that the rate limit omitted.
    pub omitted: u32,
}

/// Usage of a device by a container on one day, in one state.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UsageEvent {
    /// Namespace of the pod; empty if the kubelet does not report it.
    pub namespace: String,
    /// Name of the pod; empty if the kubelet does not report it.
    pub pod: String,
    /// UID of the pod; empty if it is not known.
    pub uid: String,
    /// Name of the container.
    pub container: String,
    /// Resource claim that was allocated the device.
    pub claim: Option<String>,
    /// Kind and name of the workload that owns the pod, such as `Job/train`.
    pub workload: Option<String>,
    /// Team.
    pub team: Option<String>,
    /// Node.
    pub node: String,
    /// UUID of the device; its PCI address or name if it has none.
    pub device: String,
    /// Type; absent for an unidentified device.
    #[serde(rename = "type")]
    pub type_name: Option<String>,
    /// UUID of the MIG partition.
    pub partition: Option<String>,
    /// Profile of the partition.
    pub profile: Option<String>,
    /// Start of the first interval.
    pub from: Timestamp,
    /// End of the last interval.
    pub until: Timestamp,
    /// Seconds within this time in which the container had the device in this state.
    pub seconds: i64,
    /// Seconds of these that are inferred from the reports before and after a gap.
    pub inferred_seconds: i64,
    /// `used` or `idle`.
    pub state: UsageState,
    /// True if earlier entries of the same day exist: late reports have changed its usage.
    pub corrected: bool,
}

/// A change of a node, as its agent reported it.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeEvent {
    /// Node.
    pub node: String,
    /// Changed property: the layout, its state, the partitions or the drain.
    pub property: ChangeKind,
    /// Changed devices; absent if the change concerns the node.
    pub object: Option<String>,
    /// Previous value; absent if there was none.
    pub before: Option<String>,
    /// New value; absent if there is none.
    pub after: Option<String>,
    /// Reason or further detail.
    pub message: Option<String>,
}

/// A new state of a policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyEvent {
    /// Policy.
    pub policy: String,
    /// Revision of the policy.
    pub revision: String,
    /// Previous state.
    pub before: String,
    /// New state, such as `RollingOut`, `Paused`, `Stopped` and `RolledBack`.
    pub after: String,
    /// Number of applied and selected nodes, and the reason.
    pub message: String,
}

/// Selection of entries.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AuditQuery {
    /// Time of the first entry.
    pub from: Option<Timestamp>,
    /// Time after that of the last entry.
    pub until: Option<Timestamp>,
    /// Only entries about this namespace.
    pub namespace: Option<String>,
    /// Only entries of this kind.
    pub kind: Option<AuditKind>,
}

impl AuditEvent {
    /// Namespace that the event is about.
    pub fn namespace(&self) -> Option<&str> {
        let namespace = match self {
            Self::Change(change) => &change.namespace,
            Self::Usage(usage) => &usage.namespace,
            Self::Refusal(_) | Self::Node(_) | Self::Policy(_) => return None,
        };
        Some(namespace.as_str()).filter(|namespace| !namespace.is_empty())
    }

    /// The kind.
    pub fn kind(&self) -> AuditKind {
        self.into()
    }
}
