//! Messages about drains.

use std::fmt;

use octavo_model::reason::Reason;

use super::{
    Blocker, BlockerName, DrainEvent, DrainStatus, EvictionResult, ListError, Phase,
    PodObservations, Scope, Stage,
};
use crate::node_object::event_deduplicator::{Event, event};

/// Message for a missing permission.
pub(super) const MISSING_PERMISSION: &str = "the agent lacks the permission to list pods or to create \
 pods/eviction: set agent.drain.policy or agent.drain.allowPolicies of the chart, or run kubectl apply -k deploy/options/drain";

/// Message between two attempts.
pub(super) const BACKOFF: &str = "the drain is retried after a delay";

/// Reason why a pod still exists between two attempts without an eviction.
pub(super) const NEXT_ATTEMPT: &str = "will be evicted by the next attempt";

/// Maximum length of a blocker's reason, and maximum number of blockers listed.
const MAX_REASON_CHARS: usize = 300;
const MAX_LISTED: usize = 12;

impl Phase {
    /// Returns the error that no pod causes, if there is one.
    pub(super) fn message(self, observations: &PodObservations) -> Option<String> {
        let forbidden =
            observations.answers.values().any(|result| *result == EvictionResult::Forbidden);
        match (&observations.error, self) {
            (_, Self::GaveUp) => Some(BACKOFF.to_owned()),
            (Some(ListError::Forbidden), _) => Some(MISSING_PERMISSION.to_owned()),
            (Some(ListError::Other(error)), _) => Some(error.clone()),
            (None, _) => forbidden.then(|| MISSING_PERMISSION.to_owned()),
        }
    }
}

impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason: String = self.reason.chars().take(MAX_REASON_CHARS).collect();
        match &self.name {
            BlockerName::Pod(name) => write!(f, "pod {name}: {reason}"),
            BlockerName::Process(name) => write!(f, "{name}: {reason}"),
        }
    }
}

impl fmt::Display for DrainStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let phase = match self.phase {
            Stage::Listing => "is listing the blocking pods",
            Stage::Refused => "cannot evict pods",
            Stage::Tainting => "is waiting for its taint on the Node",
            Stage::Evicting => "is evicting pods",
            Stage::GaveUp => "gave up",
            Stage::Waiting => "is waiting for the next attempt",
        };
        write!(f, "drain ({}) {phase}", self.policy)?;
        let rest = [self.message.clone(), list_blockers(&self.waits_for)];
        let rest: Vec<String> = rest.into_iter().flatten().collect();
        if rest.is_empty() {
            return Ok(());
        }
        write!(f, ": {}", rest.join("; "))
    }
}

/// Lists the blockers, if there are any.
fn list_blockers(waits_for: &[Blocker]) -> Option<String> {
    (!waits_for.is_empty()).then(|| join_first(waits_for, "; "))
}

/// Joins the first elements, and adds the number of omitted ones.
fn join_first(all: &[impl ToString], between: &str) -> String {
    let mut shown: Vec<String> = all.iter().take(MAX_LISTED).map(ToString::to_string).collect();
    let more = all.len().saturating_sub(MAX_LISTED);
    shown.extend((more > 0).then(|| format!("and {more} more")));
    shown.join(between)
}

impl From<DrainEvent> for Event {
    fn from(drain_event: DrainEvent) -> Self {
        let who = |waits_for: &[Blocker]| list_blockers(waits_for).unwrap_or_default();
        match drain_event {
            DrainEvent::Began { scope, devices, pods } => {
                let whom = match scope {
                    Scope::Affected => "the blocking pods are evicted",
                    Scope::Node => {
                        "all evictable pods of the node are evicted, because some of them block the change"
                    }
                };
                let message =
                    format!("{}: {whom}: {}", devices.join(", "), join_first(&pods, ", "));
                event(Reason::DrainBegan, message)
            }
            DrainEvent::Ended => event(
                Reason::DrainEnded,
                "nothing blocks the change any longer; new pods can be scheduled",
            ),
            DrainEvent::Withdrawn => event(
                Reason::DrainEnded,
                "the desired layout has changed; new pods can be scheduled",
            ),
            DrainEvent::Interrupted => event(
                Reason::DrainEnded,
                "no change is possible now: the driver does not respond, the Node was deleted, drains were \
                 disabled, or the agent is stopping; new pods can be scheduled",
            ),
            DrainEvent::GaveUp { after, retry, waits_for } => {
                let rest = list_blockers(&waits_for).map_or_else(
                    || "the change of a device does not finish".to_owned(),
                    |all| format!("blocked by {all}"),
                );
                let (after, retry) = (after.as_secs(), retry.as_secs());
                let message = format!("gave up after {after} s, next attempt in {retry} s: {rest}");
                event(Reason::DrainGaveUp, message)
            }
            DrainEvent::Refused { waits_for } => {
                let message = format!("no pod can be evicted: blocked by {}", who(&waits_for));
                event(Reason::DrainRefused, message)
            }
            DrainEvent::Forbidden => event(Reason::DrainRefused, MISSING_PERMISSION),
        }
    }
}
