//! Leader election by a Lease: decides which of several replicas writes. Pure: the time is an argument.
//!
//! `octavo_kube::lease` executes each [`LeaderElector::step`] and reports the result. Every candidate measures time by its own clock
//! and uses elapsed time only, so clocks need not agree:
//!
//! * The holder counts from when it *sent* the write request, and stops writing [`EXPIRY_MARGIN`] before the lease expires.
//! * Other candidates count from when they *observed* the last change, which is never earlier.
//!
//! Therefore no candidate acquires the Lease while another still writes. Source of the object's semantics: Kubernetes,
//! `coordination.k8s.io/v1`, Lease; of the algorithm: `client-go/tools/leaderelection`.
//!
//! kube has no leader election. The libraries for it execute the requests themselves and read the clock, so the rule of two
//! candidates could be tested only in real time.

use std::time::Duration;

/// Lease duration. After its holder is killed, no candidate writes for this long.
pub const LEASE_DURATION: Duration = Duration::from_secs(15);
/// Time before expiry at which the holder stops writing; covers requests in flight and differences in clock rate.
pub const EXPIRY_MARGIN: Duration = Duration::from_secs(5);
/// Interval at which the holder renews the Lease.
const RENEW_INTERVAL: Duration = Duration::from_secs(4);
/// Interval between reads by other candidates, and delay after a failure.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);
/// Maximum lease duration accepted from other holders, so that a manually created Lease cannot block writers longer.
const MAX_LEASE_DURATION: Duration = Duration::from_mins(10);

/// An observed state of the Lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedLease {
    /// Identity of the holder; `None` if the Lease is free.
    pub holder: Option<String>,
    /// Lease duration requested by the holder.
    pub duration: Option<Duration>,
    /// Resource version; changes with every write.
    pub version: String,
}

/// The next action of a candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Do nothing for this duration.
    Wait(Duration),
    /// Read the Lease, then call [`LeaderElector::record_observation`].
    Read,
    /// Create the Lease with this candidate as holder, then call [`LeaderElector::record_write`].
    Create,
    /// Write this candidate as holder if the Lease still has this version, then call [`LeaderElector::record_write`].
    Write {
        /// Expected resource version.
        version: String,
        /// True if the holder changes.
        is_takeover: bool,
    },
}

/// A candidate in the election.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaderElector {
    identity: String,
    /// Prefix of the identities of processes that have ended.
    ended: Option<String>,
    known: LeaseState,
    /// Time of the next action.
    due: Duration,
    /// Time until which this candidate may write.
    held_until: Option<Duration>,
}

/// Last known state of the Lease.
#[derive(Debug, Clone, PartialEq, Eq)]
enum LeaseState {
    /// Unknown, or no longer known.
    Unknown,
    /// The Lease does not exist.
    Absent,
    /// This candidate holds the Lease.
    Held { version: String },
    /// The Lease has no holder, or has expired.
    Free { version: String },
    /// Another candidate holds the Lease, which expires at `known_expiry` unless it changes.
    HeldByOther { version: String, free: Duration },
}

impl LeaderElector {
    /// Creates a candidate with this identity, which must be unique.
    pub fn new(identity: String) -> Self {
        Self {
            identity,
            ended: None,
            known: LeaseState::Unknown,
            due: Duration::ZERO,
            held_until: None,
        }
    }

    /// Acquires the Lease of a holder whose identity begins with `prefix` without waiting for its expiry: its process has ended. A write
    /// of that process that is still in flight has an older version, and fails.
    #[must_use]
    pub fn with_ended(self, prefix: String) -> Self {
        Self { ended: Some(prefix), ..self }
    }

    /// Returns the identity of this candidate.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Returns how long this candidate may write without a further renewal; `None` if it does not hold the Lease.
    pub fn remaining_hold(&self, now: Duration) -> Option<Duration> {
        let left = self.held_until?.checked_sub(now)?;
        (!left.is_zero()).then_some(left)
    }

    /// Returns the next action.
    pub fn step(&self, now: Duration) -> Step {
        if self.due > now {
            return Step::Wait(self.due.saturating_sub(now));
        }
        let write = |version: &String, is_taken| Step::Write {
            version: version.clone(),
            is_takeover: is_taken,
        };
        match &self.known {
            LeaseState::Absent => Step::Create,
            LeaseState::Held { version } => write(version, false),
            LeaseState::Free { version } => write(version, true),
            // The current state of another holder's Lease is known only after reading it again.
            LeaseState::Unknown | LeaseState::HeldByOther { .. } => Step::Read,
        }
    }

    /// Records an observed state of the Lease; `None` if it does not exist.
    pub fn record_observation(&mut self, now: Duration, observed: Option<ObservedLease>) {
        self.due = now;
        let Some(observed) = observed else {
            self.known = LeaseState::Absent;
            return;
        };
        let ObservedLease { holder, duration, version } = observed;
        self.known = match holder.filter(|holder| !holder.is_empty()) {
            None => LeaseState::Free { version },
            Some(holder) if holder == self.identity => LeaseState::Held { version },
            Some(holder) if self.has_ended(&holder) => LeaseState::Free { version },
            Some(_) => {
                // Another candidate holds the Lease, so this one no longer does.
                self.held_until = None;
                let since_before = self.known_expiry(&version);
                let promised = duration.unwrap_or(LEASE_DURATION).min(MAX_LEASE_DURATION);
                let free = since_before.unwrap_or_else(|| now.saturating_add(promised));
                if free <= now {
                    LeaseState::Free { version }
                } else {
                    self.due = now.saturating_add(RETRY_INTERVAL);
                    LeaseState::HeldByOther { version, free }
                }
            }
        };
    }

    /// Records a successful write, requested at `sent_at`, with its resulting version.
    pub fn record_write(&mut self, sent_at: Duration, version: String) {
        self.held_until =
            Some(sent_at.saturating_add(LEASE_DURATION).saturating_sub(EXPIRY_MARGIN));
        self.due = sent_at.saturating_add(RENEW_INTERVAL);
        self.known = LeaseState::Held { version };
        // Another process with the same prefix has acquired the Lease after this one, so it is alive.
        self.ended = None;
    }

    /// Records a write conflict: another candidate changed the Lease first.
    pub fn record_conflict(&mut self, now: Duration) {
        self.known = LeaseState::Unknown;
        self.due = now;
    }

    /// Records a missing or failed response. Whether a write succeeded is unknown, so the Lease is read again.
    pub fn record_failure(&mut self, now: Duration) {
        if !matches!(self.known, LeaseState::HeldByOther { .. }) {
            self.known = LeaseState::Unknown;
        }
        self.due = now.saturating_add(RETRY_INTERVAL);
    }

    /// Stops writing. Returns the version of the Lease to release, if this candidate held it.
    pub fn resign(&mut self) -> Option<String> {
        let held = self.held_until.take().is_some();
        match std::mem::replace(&mut self.known, LeaseState::Unknown) {
            LeaseState::Held { version } if held => Some(version),
            LeaseState::Held { .. }
            | LeaseState::Unknown
            | LeaseState::Absent
            | LeaseState::Free { .. }
            | LeaseState::HeldByOther { .. } => None,
        }
    }

    fn has_ended(&self, holder: &str) -> bool {
        self.ended.as_ref().is_some_and(|prefix| holder.starts_with(prefix))
    }

    /// Returns when this version of another holder's Lease expires, if it was observed before.
    fn known_expiry(&self, version: &str) -> Option<Duration> {
        match &self.known {
            LeaseState::HeldByOther { version: known, free } if known == version => Some(*free),
            LeaseState::HeldByOther { .. }
            | LeaseState::Unknown
            | LeaseState::Absent
            | LeaseState::Held { .. }
            | LeaseState::Free { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests;
