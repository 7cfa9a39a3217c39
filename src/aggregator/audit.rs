//! Audit log: changes and refusals, one log line each, with the target `octavo::audit` and stable field names.
//!
//! Every change is logged. Unauthenticated clients can cause any number of refusals, so at most ten per identity and
//! minute are logged; the next logged one reports how many were dropped. No line contains a token or another secret,
//! because callers pass names only.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tracing::info;

/// Writer of the audit log. Clones share the rate limits.
#[derive(Debug, Clone, Default)]
pub struct Audit(Arc<Mutex<Ledger>>);

/// Refused request.
#[derive(Debug, Clone, Copy)]
pub struct Refusal<'a> {
    /// Caller; empty if unknown.
    pub who: &'a str,
    /// Address of the client.
    pub peer: &'a str,
    /// HTTP method.
    pub verb: &'a str,
    /// Path.
    pub object: &'a str,
    /// Reason.
    pub why: &'a str,
}

/// Change, or an attempt at one.
#[derive(Debug, Clone, Copy)]
pub struct Change<'a> {
    /// Caller.
    pub who: &'a str,
    /// Operation: `create`, `apply`.
    pub verb: &'a str,
    /// Kind, namespace and name of the object.
    pub object: &'a str,
    /// Previous state; empty if there was none or nothing was created.
    pub before: &'a str,
    /// New state, desired state, or the reason for the failure.
    pub after: &'a str,
    /// Reason that the caller gave.
    pub why: &'a str,
}

/// Outcome of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// About to be made; another line reports the outcome.
    Begun,
    /// Made.
    Done,
    /// Already in the desired state; nothing was written.
    Unchanged,
    /// Dry run accepted by the API server.
    DryRun,
    /// Dry run rejected or not answered by the API server.
    DryRunFailed,
    /// Failed.
    Failed,
    /// Unknown: the request may or may not have taken effect.
    Unknown,
}

/// Recently logged refusals.
#[derive(Debug, Default)]
struct Ledger {
    /// By identity: start of the interval, logged refusals, dropped refusals.
    lately: BTreeMap<String, (Instant, u32, u32)>,
}

/// Limit of logged refusals per identity in each [`SPAN`].
const MOST_TOLD: u32 = 10;
const SPAN: Duration = Duration::from_mins(1);
/// Limit of identities with a rate limit of their own; all others share one.
const MOST_IDENTITIES: usize = 1000;
/// Maximum length of a field, in characters.
const LONGEST: usize = 512;
/// Maximum length of the `before` and `after` fields, in characters; they hold objects as text.
const LONGEST_STATE: usize = 8192;

impl Audit {
    /// Logs a refusal, or counts it if the rate limit is reached.
    pub fn refused(&self, refusal: &Refusal<'_>) {
        let identity = if refusal.who.is_empty() {
            refusal.peer
        } else {
            refusal.who
        };
        let mut ledger = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(untold) = ledger.tells(identity, Instant::now()) else {
            return;
        };
        drop(ledger);
        info!(
            target: "octavo::audit",
            who = line(refusal.who, LONGEST),
            peer = refusal.peer,
            verb = line(refusal.verb, LONGEST),
            object = line(refusal.object, LONGEST),
            outcome = "refused",
            why = line(refusal.why, LONGEST),
            untold,
            "audit"
        );
    }

    /// Logs a change.
    pub fn changed(&self, change: &Change<'_>, outcome: Outcome) {
        info!(
            target: "octavo::audit",
            who = line(change.who, LONGEST),
            verb = line(change.verb, LONGEST),
            object = line(change.object, LONGEST),
            outcome = outcome.as_str(),
            before = line(change.before, LONGEST_STATE),
            after = line(change.after, LONGEST_STATE),
            why = line(change.why, LONGEST),
            "audit"
        );
    }
}

impl Outcome {
    fn as_str(self) -> &'static str {
        match self {
            Self::Begun => "begun",
            Self::Done => "done",
            Self::Unchanged => "unchanged",
            Self::DryRun => "dry-run",
            Self::DryRunFailed => "dry-run-not-done",
            Self::Failed => "not-done",
            Self::Unknown => "unknown",
        }
    }
}

impl Ledger {
    /// Applies the rate limit of the identity. Returns the number of dropped refusals if this one is to be logged.
    fn tells(&mut self, identity: &str, now: Instant) -> Option<u32> {
        let known = self.lately.contains_key(identity);
        if !known && self.lately.len() >= MOST_IDENTITIES {
            self.lately
                .retain(|_, (since, ..)| now.duration_since(*since) < SPAN);
        }
        let shared = !known && self.lately.len() >= MOST_IDENTITIES;
        let identity = if shared { "" } else { identity };
        let entry = self.lately.entry(identity.to_owned());
        let (since, told, untold) = entry.or_insert((now, 0, 0));
        if now.duration_since(*since) >= SPAN {
            (*since, *told) = (now, 0);
        }
        if *told >= MOST_TOLD {
            *untold = untold.saturating_add(1);
            return None;
        }
        *told = told.saturating_add(1);
        Some(std::mem::take(untold))
    }
}

/// Truncates external text and replaces control characters, so that it fits on one line.
fn line(text: &str, longest: usize) -> String {
    let text = text.chars().take(longest);
    text.map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_one_identity_ten_refusals_are_told_in_a_minute_and_then_how_many_were_not() {
        let mut ledger = Ledger::default();
        let start = Instant::now();
        let told = (0..100).filter_map(|_| ledger.tells("ada", start));
        assert_eq!(told.collect::<Vec<_>>(), vec![0; 10]);
        assert_eq!(ledger.tells("bob", start), Some(0), "others are told of");
        assert_eq!(ledger.tells("ada", start + SPAN), Some(90));
        assert_eq!(ledger.tells("ada", start + SPAN), Some(0));
    }

    #[test]
    fn however_many_identities_come_what_is_kept_is_bounded() {
        let mut ledger = Ledger::default();
        let start = Instant::now();
        let mut told = 0;
        for number in 0..10_000 {
            told += u32::from(ledger.tells(&number.to_string(), start).is_some());
        }
        assert!(ledger.lately.len() <= MOST_IDENTITIES + 1);
        assert_eq!(told, 1000 + MOST_TOLD);
        assert_eq!(ledger.tells("later", start + SPAN), Some(0));
        assert!(ledger.lately.len() <= 2);
    }

    #[test]
    fn a_field_is_one_line_and_has_an_end() {
        assert_eq!(line("a\nb\x1b[2J", 512), "a b [2J");
        assert_eq!(line(&"x".repeat(9000), LONGEST).len(), LONGEST);
    }
}
