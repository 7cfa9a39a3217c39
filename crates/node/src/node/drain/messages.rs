//! Messages about drains.

use std::fmt;

use octavo_model::reason::Reason;

use super::{
    Answer, Blocker, BlockerName, DrainEvent, DrainStatus, ListError, Phase, PodObservations,
    Scope, Stage,
};
use crate::node::event_deduplicator::{Event, event};

/// Message for a missing permission.
pub(super) const MISSING_PERMISSION: &str = "the agent may not list pods or create pods/eviction: set agent.drain.policy of the chart, \
     or kubectl apply -k deploy/options/drain";

/// Message between two attempts.
pub(super) const BACKOFF: &str = "the drain is retried after a backoff";

/// Reason why a pod still exists between two attempts without an eviction.
pub(super) const NEXT_ATTEMPT: &str = "is evicted by the next attempt";

/// Maximum length of a blocker's reason, and maximum number of blockers listed.
const MAX_REASON_CHARS: usize = 300;
const MAX_LISTED: usize = 12;

impl Phase {
    /// Returns the error that no pod causes, if there is one.
    pub(super) fn message(self, heard: &PodObservations) -> Option<String> {
        let forbidden = heard
            .answers
            .values()
            .any(|answer| *answer == Answer::Forbidden);
        match (&heard.trouble, self) {
            (_, Self::GaveUp) => Some(BACKOFF.to_owned()),
            (Some(ListError::Forbidden), _) => Some(MISSING_PERMISSION.to_owned()),
            (Some(ListError::Other(trouble)), _) => Some(trouble.clone()),
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
            Stage::Listing => "looks at the pods in the way",
            Stage::Refused => "evicts nothing",
            Stage::Tainting => "waits for its taint on the Node",
            Stage::Evicting => "evicts pods",
            Stage::GaveUp => "gave up",
            Stage::Waiting => "waits for its next attempt",
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
    let mut shown: Vec<String> = all
        .iter()
        .take(MAX_LISTED)
        .map(ToString::to_string)
        .collect();
    let more = all.len().saturating_sub(MAX_LISTED);
    shown.extend((more > 0).then(|| format!("and {more} more")));
    shown.join(between)
}

impl From<DrainEvent> for Event {
    fn from(news: DrainEvent) -> Self {
        let who = |waits_for: &[Blocker]| list_blockers(waits_for).unwrap_or_default();
        match news {
            DrainEvent::Began {
                scope,
                devices,
                pods,
            } => {
                let whom = match scope {
                    Scope::Affected => "the pods in the way are evicted",
                    Scope::Node => {
                        "all pods of the node that may be evicted are, for some are in the way"
                    }
                };
                let message = format!("{}: {whom}: {}", devices.join(", "), join_first(&pods, ", "));
                event(Reason::DrainBegan, message)
            }
            DrainEvent::Ended => event(
                Reason::DrainEnded,
                "nothing is in the way any more; new pods may come".to_owned(),
            ),
            DrainEvent::Withdrawn => event(
                Reason::DrainEnded,
                "something else is asked of the node; new pods may come".to_owned(),
            ),
            DrainEvent::Interrupted => event(
                Reason::DrainEnded,
                "nothing can be changed now: the driver does not answer, the Node is gone, or the agent ends; new pods may come"
                    .to_owned(),
            ),
            DrainEvent::GaveUp {
                after,
                retry,
                waits_for,
            } => {
                let rest = list_blockers(&waits_for).map_or_else(
                    || "a change of a device does not end".to_owned(),
                    |all| format!("blocked by {all}"),
                );
                let (after, retry) = (after.as_secs(), retry.as_secs());
                let message = format!("gave up after {after} s, next attempt in {retry} s: {rest}");
                event(Reason::DrainGaveUp, message)
            }
            DrainEvent::Refused { waits_for } => {
                let message = format!("nothing can be evicted: blocked by {}", who(&waits_for));
                event(Reason::DrainRefused, message)
            }
            DrainEvent::Forbidden => event(Reason::DrainRefused, MISSING_PERMISSION.to_owned()),
        }
    }
}
