//! The record of a policy on a node: the annotation `octavo.dev/policy`.
//!
//! It is written with labels, taints and layout in one request, so everything that a policy sets has a record.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use octavo_fleet::cluster::Taint;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::validation::is_reserved;

/// Annotation of a Node with the record.
pub const RECORD_ANNOTATION: &str = "octavo.dev/policy";
/// Label of a Node that chooses its layout.
pub const LAYOUT_LABEL: &str = "octavo.dev/layout";
/// Annotation of a Node that replaces the drain settings of its agent.
pub const DRAIN_ANNOTATION: &str = "octavo.dev/drain";
/// Finalizer of a policy.
pub const FINALIZER: &str = "octavo.dev/policy";
/// Annotation of a policy that approves changes of instances: their identifiers, separated by commas.
pub const APPROVAL_ANNOTATION: &str = "octavo.dev/approve";
/// Annotation of a policy that requests an earlier revision.
pub const ROLLBACK_ANNOTATION: &str = "octavo.dev/rollback-to";

/// Values that a policy set on a node.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeRecord {
    /// Name of the policy.
    pub policy: String,
    /// UID of the policy.
    pub uid: String,
    /// Revision of the policy.
    pub revision: String,
    /// Number of the roll-out that changed the node.
    pub rollout: i64,
    /// Time of the change.
    pub since: Timestamp,
    /// Value of the label `octavo.dev/layout`.
    pub layout: Option<String>,
    /// True if the agent already reported this layout when the label changed to it, for example because the label changes back, or if a
    /// layout was withdrawn. The report is then that of an earlier choice for a while.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub was_reported: bool,
    /// Labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Taints.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
    /// Value of the annotation `octavo.dev/drain`.
    pub drain: Option<String>,
    /// Times in the last hour at which the node got other instances for pending pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Timestamp>,
    /// Times in the last hour at which pods of the node were chosen for eviction, one for each pod.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evictions: Vec<Timestamp>,
    /// Layout of the last change that was withdrawn. Without it, an outdated record would look like the end of a withdrawal.
    pub withdrawn: Option<String>,
}

/// Content of the annotation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// The node has none.
    Absent,
    /// Another program changed it to a text that is no record.
    Invalid,
    /// A record.
    Valid(Box<NodeRecord>),
}

/// Largest number of a roll-out, far above any that a controller reaches. A forged record must not use up the numbers.
const MAX_ROLLOUT: i64 = 1 << 53;

/// Time in which an agent notices a changed label and reports about it. Source: the agent waits until a label is stable for 2 s.
const REPORT_DELAY: SignedDuration = SignedDuration::from_secs(10);

impl NodeRecord {
    /// Returns whether the report of the agent is about this record.
    pub(crate) fn is_reliable(&self, now: Timestamp) -> bool {
        self.unreliable_until().is_none_or(|until| until <= now)
    }

    /// Returns whether the record is so new that a pod that used the node before may still be ending. Such a pod blocks a change for a
    /// moment.
    pub(crate) fn is_recent(&self, now: Timestamp) -> bool {
        self.since.saturating_add(REPORT_DELAY).is_ok_and(|until| until > now)
    }

    /// Time until which the report of the agent can be that of an earlier choice; `None` if it cannot be.
    pub(crate) fn unreliable_until(&self) -> Option<Timestamp> {
        self.was_reported.then(|| self.since.saturating_add(REPORT_DELAY).ok()).flatten()
    }
}

impl Record {
    /// Parses the annotation. A record with a number or keys that no policy can set was not written by the controller.
    pub fn parse(annotation: Option<&str>) -> Self {
        let Some(text) = annotation else { return Self::Absent };
        let Ok(record) = serde_json::from_str::<NodeRecord>(text) else { return Self::Invalid };
        if !(1..=MAX_ROLLOUT).contains(&record.rollout) {
            return Self::Invalid;
        }
        let taints = record.taints.iter().map(|taint| &taint.key);
        if record.labels.keys().chain(taints).any(|key| is_reserved(key)) {
            return Self::Invalid;
        }
        Self::Valid(Box::new(record))
    }

    /// The record, if it is that of the policy with this UID.
    pub fn of(&self, uid: &str) -> Option<&NodeRecord> {
        self.valid().filter(|record| record.uid == uid)
    }

    /// The record, if there is a valid one.
    pub fn valid(&self) -> Option<&NodeRecord> {
        match self {
            Self::Valid(record) => Some(record),
            Self::Absent | Self::Invalid => None,
        }
    }
}
