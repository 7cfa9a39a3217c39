//! Leader election by a Lease: decides which of several replicas writes. Pure: the time is an argument.
//!
//! `k8s::lease` executes each [`Election::step`] and reports the result. Every candidate measures time by its own clock
//! and uses elapsed time only, so clocks need not agree:
//!
//! * The holder counts from when it *sent* the write request, and stops writing [`MARGIN`] before the lease expires.
//! * Other candidates count from when they *observed* the last change, which is never earlier.
//!
//! Therefore no candidate acquires the Lease while another still writes. Source of the object's semantics: Kubernetes,
//! `coordination.k8s.io/v1`, Lease; of the algorithm: `client-go/tools/leaderelection`.

use std::time::Duration;

/// Lease duration. After its holder is killed, no candidate writes for this long.
pub const DURATION: Duration = Duration::from_secs(15);
/// Time before expiry at which the holder stops writing; covers requests in flight and differences in clock rate.
pub const MARGIN: Duration = Duration::from_secs(5);
/// Interval at which the holder renews the Lease.
const RENEW: Duration = Duration::from_secs(4);
/// Interval between reads by other candidates, and delay after a failure.
const RETRY: Duration = Duration::from_secs(2);
/// Maximum lease duration accepted from other holders, so that a manually created Lease cannot block writers longer.
const LONGEST: Duration = Duration::from_mins(10);

/// An observed state of the Lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sight {
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
    /// Read the Lease, then call [`Election::saw`].
    Read,
    /// Create the Lease with this candidate as holder, then call [`Election::wrote`].
    Create,
    /// Write this candidate as holder if the Lease still has this version, then call [`Election::wrote`].
    Write {
        /// Expected resource version.
        version: String,
        /// True if the holder changes.
        is_taken: bool,
    },
}

/// A candidate in the election.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Election {
    me: String,
    known: Known,
    /// Time of the next action.
    due: Duration,
    /// Time until which this candidate may write.
    until: Option<Duration>,
}

/// Last known state of the Lease.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Known {
    /// Unknown, or no longer known.
    Nothing,
    /// The Lease does not exist.
    Absent,
    /// This candidate holds the Lease.
    Ours { version: String },
    /// The Lease has no holder, or has expired.
    Free { version: String },
    /// Another candidate holds the Lease, which expires at `free` unless it changes.
    Others { version: String, free: Duration },
}

impl Election {
    /// Creates a candidate with this identity, which must be unique.
    pub fn new(me: String) -> Self {
        Self {
            me,
            known: Known::Nothing,
            due: Duration::ZERO,
            until: None,
        }
    }

    /// Returns the identity of this candidate.
    pub fn me(&self) -> &str {
        &self.me
    }

    /// Returns how long this candidate may write without a further renewal; `None` if it does not hold the Lease.
    pub fn holds(&self, now: Duration) -> Option<Duration> {
        let left = self.until?.checked_sub(now)?;
        (!left.is_zero()).then_some(left)
    }

    /// Returns the next action.
    pub fn step(&self, now: Duration) -> Step {
        if self.due > now {
            return Step::Wait(self.due.saturating_sub(now));
        }
        let write = |version: &String, is_taken| Step::Write {
            version: version.clone(),
            is_taken,
        };
        match &self.known {
            Known::Absent => Step::Create,
            Known::Ours { version } => write(version, false),
            Known::Free { version } => write(version, true),
            // The current state of another holder's Lease is known only after reading it again.
            Known::Nothing | Known::Others { .. } => Step::Read,
        }
    }

    /// Records an observed state of the Lease; `None` if it does not exist.
    pub fn saw(&mut self, now: Duration, sight: Option<Sight>) {
        self.due = now;
        let Some(sight) = sight else {
            self.known = Known::Absent;
            return;
        };
        let Sight {
            holder,
            duration,
            version,
        } = sight;
        self.known = match holder.filter(|holder| !holder.is_empty()) {
            None => Known::Free { version },
            Some(holder) if holder == self.me => Known::Ours { version },
            Some(_) => {
                // Another candidate holds the Lease, so this one no longer does.
                self.until = None;
                let since_before = self.free(&version);
                let promised = duration.unwrap_or(DURATION).min(LONGEST);
                let free = since_before.unwrap_or_else(|| now.saturating_add(promised));
                if free <= now {
                    Known::Free { version }
                } else {
                    self.due = now.saturating_add(RETRY);
                    Known::Others { version, free }
                }
            }
        };
    }

    /// Records a successful write, requested at `asked`, with its resulting version.
    pub fn wrote(&mut self, asked: Duration, version: String) {
        self.until = Some(asked.saturating_add(DURATION).saturating_sub(MARGIN));
        self.due = asked.saturating_add(RENEW);
        self.known = Known::Ours { version };
    }

    /// Records a write conflict: another candidate changed the Lease first.
    pub fn outrun(&mut self, now: Duration) {
        self.known = Known::Nothing;
        self.due = now;
    }

    /// Records a missing or failed response. Whether a write succeeded is unknown, so the Lease is read again.
    pub fn failed(&mut self, now: Duration) {
        if !matches!(self.known, Known::Others { .. }) {
            self.known = Known::Nothing;
        }
        self.due = now.saturating_add(RETRY);
    }

    /// Stops writing. Returns the version of the Lease to release, if this candidate held it.
    pub fn resign(&mut self) -> Option<String> {
        let held = self.until.take().is_some();
        match std::mem::replace(&mut self.known, Known::Nothing) {
            Known::Ours { version } if held => Some(version),
            Known::Ours { .. }
            | Known::Nothing
            | Known::Absent
            | Known::Free { .. }
            | Known::Others { .. } => None,
        }
    }

    /// Returns when this version of another holder's Lease expires, if it was observed before.
    fn free(&self, version: &str) -> Option<Duration> {
        match &self.known {
            Known::Others {
                version: known,
                free,
            } if known == version => Some(*free),
            Known::Others { .. }
            | Known::Nothing
            | Known::Absent
            | Known::Ours { .. }
            | Known::Free { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests;
