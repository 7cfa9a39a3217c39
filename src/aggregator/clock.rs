//! The aggregator's time: one that never goes back, told as the time of day.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

/// Started with the process. Ages are differences of [`Moment`]s, so a clock of the machine that is set makes nothing look
/// fresh that is not.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    start: Instant,
    wall: Timestamp,
}

/// A point in time of one [`Clock`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Moment(Duration);

impl Clock {
    /// A clock that starts now.
    pub fn start() -> Self {
        Self {
            start: Instant::now(),
            wall: Timestamp::now(),
        }
    }

    /// Now.
    pub fn now(&self) -> Moment {
        Moment(self.start.elapsed())
    }

    /// The time of day at `moment`, by the machine's clock as it stood when this one was started.
    pub fn wall(&self, moment: Moment) -> Timestamp {
        self.wall.checked_add(moment.0).unwrap_or(Timestamp::MAX)
    }
}

impl Moment {
    /// From milliseconds since the clock's start.
    pub fn from_millis(millis: u64) -> Self {
        Self(Duration::from_millis(millis))
    }

    /// Milliseconds since the clock's start.
    pub fn as_millis(self) -> u64 {
        u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX)
    }

    /// The moment so long before this one; the clock's start at the earliest.
    #[must_use]
    pub fn before(self, age: Duration) -> Self {
        Self(self.0.saturating_sub(age))
    }

    /// How long before `later` it was; nothing where it was after.
    pub fn age(self, later: Self) -> Duration {
        later.0.saturating_sub(self.0)
    }
}
