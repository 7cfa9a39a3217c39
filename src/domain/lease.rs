//! Which of several programs is the one that writes: an election by a Lease that all of them see. Pure: time is an argument.
//!
//! Called by `k8s::lease`, which carries out what [`Election::step`] says and tells what came of it. Each reckons by its own clock,
//! and by how much time went by alone, so clocks need not agree:
//!
//! * Who holds it counts from when it *asked* for that, and stops [`MARGIN`] before the promise ends.
//! * Who wants it counts from when it *saw* the last change of it, which was never sooner.
//!
//! So nobody takes it while another one still writes. Source of the object's meaning: Kubernetes, `coordination.k8s.io/v1`, Lease;
//! of the rule: `client-go/tools/leaderelection`.

use std::time::Duration;

/// For how long it is taken: for so long nobody writes after its holder was killed.
pub const DURATION: Duration = Duration::from_secs(15);
/// How long before it ends its holder does not write any more: for requests on their way, and for clocks that are not equally fast.
pub const MARGIN: Duration = Duration::from_secs(5);
/// How long its holder waits before it says again that it holds it.
const RENEW: Duration = Duration::from_secs(4);
/// How long is waited before it is looked at again: by those who do not hold it, and after a failure.
const RETRY: Duration = Duration::from_secs(2);
/// What somebody else may have promised at most. Nobody writes for longer because of a Lease that a person made.
const LONGEST: Duration = Duration::from_mins(10);

/// The Lease as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sight {
    /// Who holds it; `None` where nobody does.
    pub holder: Option<String>,
    /// For how long it was taken.
    pub duration: Option<Duration>,
    /// Changes whenever it is written.
    pub version: String,
}

/// What is to be done next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Nothing for so long.
    Wait(Duration),
    /// Read it: [`Election::saw`].
    Read,
    /// Make it, with us as its holder: [`Election::wrote`].
    Create,
    /// Write us into it, if it still has this version: [`Election::wrote`].
    Write {
        /// The version.
        version: String,
        /// Whether somebody else held it before.
        is_taken: bool,
    },
}

/// One who wants to be the one that writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Election {
    me: String,
    known: Known,
    /// When there is something to do.
    due: Duration,
    /// Until when we are the one.
    until: Option<Duration>,
}

/// What is known of the Lease.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Known {
    /// Nothing, or nothing any more.
    Nothing,
    /// It is not there.
    Absent,
    /// We are its holder.
    Ours { version: String },
    /// It is nobody's.
    Free { version: String },
    /// It is somebody else's, unless it stays as it is until then.
    Others { version: String, free: Duration },
}

impl Election {
    /// Of the one that is called this, which no other one may be.
    pub fn new(me: String) -> Self {
        Self {
            me,
            known: Known::Nothing,
            due: Duration::ZERO,
            until: None,
        }
    }

    /// Who we are.
    pub fn me(&self) -> &str {
        &self.me
    }

    /// For how long we are the one that writes, if nothing is heard any more; `None` where we are not.
    pub fn holds(&self, now: Duration) -> Option<Duration> {
        let left = self.until?.checked_sub(now)?;
        (!left.is_zero()).then_some(left)
    }

    /// What is to be done now.
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
            // What somebody else's is now is known only once it was read again.
            Known::Nothing | Known::Others { .. } => Step::Read,
        }
    }

    /// It was read, and is so; `None` where it is not there.
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
                // Whoever holds it now, we do not.
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

    /// It was written, asked for at this time, and has this version now.
    pub fn wrote(&mut self, asked: Duration, version: String) {
        self.until = Some(asked.saturating_add(DURATION).saturating_sub(MARGIN));
        self.due = asked.saturating_add(RENEW);
        self.known = Known::Ours { version };
    }

    /// Somebody else was faster: it is another one than was known.
    pub fn outrun(&mut self, now: Duration) {
        self.known = Known::Nothing;
        self.due = now;
    }

    /// There was no answer, or a refusal. Whether it was written is not known: it is read again.
    pub fn failed(&mut self, now: Duration) {
        if !matches!(self.known, Known::Others { .. }) {
            self.known = Known::Nothing;
        }
        self.due = now.saturating_add(RETRY);
    }

    /// From now on we write nothing any more. The version to be given back, where we held it.
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

    /// When that version of somebody else's is free, where it was seen before.
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
