//! Monotonic time of the aggregator, convertible to the time of day.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

/// Clock that starts with the process. Ages are differences of [`Moment`]s, so setting the machine's clock cannot make
/// stale data look fresh.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    start: Instant,
    wall: Timestamp,
}

/// Point in time of one [`Clock`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Moment(Duration);

impl Clock {
    /// Starts a clock.
    pub fn start() -> Self {
        Self { start: Instant::now(), wall: Timestamp::now() }
    }

    /// Returns the current time.
    pub fn now(&self) -> Moment {
        Moment(self.start.elapsed())
    }

    /// Converts `moment` to the time of day, by the machine's clock as of [`start`](Self::start).
    pub fn wall(&self, moment: Moment) -> Timestamp {
        self.wall.checked_add(moment.0).unwrap_or(Timestamp::MAX)
    }
}

impl Moment {
    /// Creates a moment from milliseconds since the clock's start.
    pub fn from_millis(millis: u64) -> Self {
        Self(Duration::from_millis(millis))
    }

    /// Moment at this time since the clock's start.
    pub fn after_start(time: Duration) -> Self {
        Self(time)
    }

    /// Time since the clock's start.
    pub fn since_start(self) -> Duration {
        self.0
    }

    /// Milliseconds since the clock's start.
    pub fn as_millis(self) -> u64 {
        u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX)
    }

    /// Subtracts `age`, saturating at the clock's start.
    #[must_use]
    pub fn before(self, age: Duration) -> Self {
        Self(self.0.saturating_sub(age))
    }

    /// Time from this moment to `later`; zero if `later` is earlier.
    pub fn age(self, later: Self) -> Duration {
        later.0.saturating_sub(self.0)
    }
}
