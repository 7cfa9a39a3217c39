//! Who did what, and who was refused what: one line of the log each, with the target `octavo::audit` and fields that do not change
//! their names.
//!
//! A change always has its line. Refusals are what strangers can cause at will, so of one identity ten are told in a minute, and the
//! next one that is says how many were not. No line has a token or another secret in it: who writes one is given names only.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tracing::info;

/// Writes such lines. Clones count together.
#[derive(Debug, Clone, Default)]
pub struct Audit(Arc<Mutex<Ledger>>);

/// Somebody was refused something.
#[derive(Debug, Clone, Copy)]
pub struct Refusal<'a> {
    /// Who, as far as that is known.
    pub who: &'a str,
    /// From where.
    pub peer: &'a str,
    /// What they wanted to do: a method.
    pub verb: &'a str,
    /// With what: a path.
    pub object: &'a str,
    /// Why not.
    pub why: &'a str,
}

/// Somebody changed something, or tried to.
#[derive(Debug, Clone, Copy)]
pub struct Change<'a> {
    /// Who.
    pub who: &'a str,
    /// What they did: `create`, `apply`.
    pub verb: &'a str,
    /// With what: kind, namespace and name.
    pub object: &'a str,
    /// What there was; empty where there was nothing, or where nothing was made.
    pub before: &'a str,
    /// What there is, what there shall be, or why it is not.
    pub after: &'a str,
    /// Why, as they say.
    pub why: &'a str,
}

/// What a change came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It is about to be made; another line says what came of it.
    Begun,
    /// It was made.
    Done,
    /// It was there already, and nothing was written.
    Unchanged,
    /// It was tried, and the API server would take it.
    DryRun,
    /// It was tried, and the API server would not take it or did not answer.
    DryRunFailed,
    /// It could not be made.
    Failed,
    /// Nobody knows whether it was made.
    Unknown,
}

/// Refusals that were told of late.
#[derive(Debug, Default)]
struct Ledger {
    /// By identity: since when, how many were told, how many were not.
    lately: BTreeMap<String, (Instant, u32, u32)>,
}

/// Refusals of one identity that are told in [`SPAN`].
const MOST_TOLD: u32 = 10;
const SPAN: Duration = Duration::from_mins(1);
/// Identities that are told apart; what more there are count as one.
const MOST_IDENTITIES: usize = 1000;
/// Characters of a field that are logged.
const LONGEST: usize = 512;
/// Characters of what there was and is: objects as text.
const LONGEST_STATE: usize = 8192;

impl Audit {
    /// Tells of a refusal, or counts it.
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

    /// Tells of a change.
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
    /// Whether one more refusal of this identity is told, and then how many were not since the last one.
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

/// The beginning of what somebody else said, on one line.
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
