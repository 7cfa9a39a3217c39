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
pub struct AuditLog(Arc<Mutex<RefusalLimiter>>);

/// Refused request.
#[derive(Debug, Clone, Copy)]
pub struct Refusal<'a> {
    /// Caller; empty if unknown.
    pub caller: &'a str,
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
    pub caller: &'a str,
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
    Started,
    /// Made.
    Succeeded,
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
struct RefusalLimiter {
    /// By identity: start of the interval, logged refusals, dropped refusals.
    recent: BTreeMap<String, (Instant, u32, u32)>,
}

/// Limit of logged refusals per identity in each [`RATE_INTERVAL`].
const MAX_LOGGED: u32 = 10;
const RATE_INTERVAL: Duration = Duration::from_mins(1);
/// Limit of identities with a rate limit of their own; all others share one.
const MAX_IDENTITIES: usize = 1000;
/// Maximum length of a field, in characters.
const MAX_FIELD_CHARS: usize = 512;
/// Maximum length of the `before` and `after` fields, in characters; they hold objects as text.
const MAX_STATE_CHARS: usize = 8192;

impl AuditLog {
    /// Logs a refusal, or counts it if the rate limit is reached.
    pub fn refused(&self, refusal: &Refusal<'_>) {
        let identity = if refusal.caller.is_empty() { refusal.peer } else { refusal.caller };
        let mut limiter = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(dropped) = limiter.admit(identity, Instant::now()) else {
            return;
        };
        drop(limiter);
        info!(
            target: "octavo::audit",
            who = single_line(refusal.caller, MAX_FIELD_CHARS),
            peer = refusal.peer,
            verb = single_line(refusal.verb, MAX_FIELD_CHARS),
            object = single_line(refusal.object, MAX_FIELD_CHARS),
            outcome = "refused",
            why = single_line(refusal.why, MAX_FIELD_CHARS),
            untold = dropped,
            "audit"
        );
    }

    /// Logs a change.
    pub fn log_change(&self, change: &Change<'_>, outcome: Outcome) {
        info!(
            target: "octavo::audit",
            who = single_line(change.caller, MAX_FIELD_CHARS),
            verb = single_line(change.verb, MAX_FIELD_CHARS),
            object = single_line(change.object, MAX_FIELD_CHARS),
            outcome = outcome.as_str(),
            before = single_line(change.before, MAX_STATE_CHARS),
            after = single_line(change.after, MAX_STATE_CHARS),
            why = single_line(change.why, MAX_FIELD_CHARS),
            "audit"
        );
    }
}

impl Outcome {
    fn as_str(self) -> &'static str {
        match self {
            Self::Started => "begun",
            Self::Succeeded => "done",
            Self::Unchanged => "unchanged",
            Self::DryRun => "dry-run",
            Self::DryRunFailed => "dry-run-not-done",
            Self::Failed => "not-done",
            Self::Unknown => "unknown",
        }
    }
}

impl RefusalLimiter {
    /// Applies the rate limit of the identity. Returns the number of dropped refusals if this one is to be logged.
    fn admit(&mut self, identity: &str, now: Instant) -> Option<u32> {
        let known = self.recent.contains_key(identity);
        if !known && self.recent.len() >= MAX_IDENTITIES {
            self.recent.retain(|_, (since, ..)| now.duration_since(*since) < RATE_INTERVAL);
        }
        let shared = !known && self.recent.len() >= MAX_IDENTITIES;
        let identity = if shared { "" } else { identity };
        let entry = self.recent.entry(identity.to_owned());
        let (since, logged, suppressed) = entry.or_insert((now, 0, 0));
        if now.duration_since(*since) >= RATE_INTERVAL {
            (*since, *logged) = (now, 0);
        }
        if *logged >= MAX_LOGGED {
            *suppressed = suppressed.saturating_add(1);
            return None;
        }
        *logged = logged.saturating_add(1);
        Some(std::mem::take(suppressed))
    }
}

/// Truncates external text and replaces control characters, so that it fits on one line.
fn single_line(text: &str, longest: usize) -> String {
    let text = text.chars().take(longest);
    text.map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_rate_limited_per_identity() {
        let mut limiter = RefusalLimiter::default();
        let start = Instant::now();
        let admitted = (0..100).filter_map(|_| limiter.admit("ada", start));
        assert_eq!(admitted.collect::<Vec<_>>(), vec![0; 10]);
        assert_eq!(limiter.admit("bob", start), Some(0), "refusals of other users are logged");
        assert_eq!(limiter.admit("ada", start + RATE_INTERVAL), Some(90));
        assert_eq!(limiter.admit("ada", start + RATE_INTERVAL), Some(0));
    }

    #[test]
    fn number_of_tracked_identities_is_bounded() {
        let mut limiter = RefusalLimiter::default();
        let start = Instant::now();
        let mut admitted = 0;
        for number in 0..10_000 {
            admitted += u32::from(limiter.admit(&number.to_string(), start).is_some());
        }
        assert!(limiter.recent.len() <= MAX_IDENTITIES + 1);
        assert_eq!(admitted, 1000 + MAX_LOGGED);
        assert_eq!(limiter.admit("later", start + RATE_INTERVAL), Some(0));
        assert!(limiter.recent.len() <= 2);
    }

    #[test]
    fn field_is_truncated_to_one_line() {
        assert_eq!(single_line("a\nb\x1b[2J", 512), "a b [2J");
        assert_eq!(single_line(&"x".repeat(9000), MAX_FIELD_CHARS).len(), MAX_FIELD_CHARS);
    }
}
