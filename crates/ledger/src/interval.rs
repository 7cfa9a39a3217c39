//! Intervals: a part of a device with one holder, for a while.

use std::sync::Arc;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use octavo_model::id::NodeName;

use crate::device::Device;
use crate::part::Part;

/// Seconds of a day.
const DAY_SECONDS: i64 = 86_400;

/// A day in UTC, counted from 1970-01-01.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day(pub i32);

/// A part of a device with one holder, from `start` until before `end`, within one day.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interval {
    /// The device.
    pub device: Arc<Device>,
    /// Start, in seconds since 1970.
    pub start: i64,
    /// End, in seconds since 1970.
    pub end: i64,
    /// Distinguishes the parts of a device that have the same start.
    pub slot: u32,
    /// The part.
    pub part: Part,
    /// True if no report covers the interval, but the reports before and after it show the same allocation.
    pub inferred: bool,
    /// Utilization of the part.
    pub utilization: Utilization,
}

/// Key of an interval. A later interval with the same key replaces it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct IntervalKey {
    /// The device.
    pub device: Arc<Device>,
    /// Start, in seconds since 1970.
    pub start: i64,
    /// Number among the parts with this start.
    pub slot: u32,
}

/// Summarized utilization.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Utilization {
    /// Sum of the percentages of all seconds in which it is known.
    pub percent_seconds: i64,
    /// Number of these seconds.
    pub seconds: i64,
}

impl Day {
    /// Day of a time in seconds since 1970.
    pub fn of(seconds: i64) -> Self {
        Self(i32::try_from(seconds.div_euclid(DAY_SECONDS)).unwrap_or(i32::MAX))
    }

    /// Start of the day in seconds since 1970.
    pub fn start(self) -> i64 {
        i64::from(self.0).saturating_mul(DAY_SECONDS)
    }

    /// End of the day in seconds since 1970.
    pub fn end(self) -> i64 {
        self.start().saturating_add(DAY_SECONDS)
    }

    /// The day of a date.
    pub fn from_date(date: Date) -> Self {
        let start = date.to_zoned(TimeZone::UTC).map(|start| start.timestamp());
        Self::of(start.unwrap_or(Timestamp::MAX).as_second())
    }

    /// Start of the day.
    pub fn start_time(self) -> Timestamp {
        Timestamp::from_second(self.start()).unwrap_or(Timestamp::MAX)
    }

    /// End of the day.
    pub fn end_time(self) -> Timestamp {
        Timestamp::from_second(self.end()).unwrap_or(Timestamp::MAX)
    }

    /// The date.
    pub fn date(self) -> Date {
        self.start_time().to_zoned(TimeZone::UTC).date()
    }

    /// First day of its month.
    #[must_use]
    pub fn first_of_month(self) -> Self {
        Self::from_date(self.date().first_of_month())
    }
}

impl Interval {
    /// The key.
    pub fn key(&self) -> IntervalKey {
        IntervalKey { device: Arc::clone(&self.device), start: self.start, slot: self.slot }
    }

    /// The day.
    pub fn day(&self) -> Day {
        Day::of(self.start)
    }

    /// Position in the order of nodes, devices and times.
    pub(crate) fn position(&self) -> (&NodeName, &str, i64, u32) {
        (&self.device.node, self.device.id.as_str(), self.start, self.slot)
    }

    /// Length in seconds.
    pub fn seconds(&self) -> i64 {
        self.end.saturating_sub(self.start)
    }
}

impl Utilization {
    /// Adds `seconds` with this utilization.
    pub(crate) fn add(&mut self, percent: Option<u8>, seconds: i64) {
        if let Some(percent) = percent {
            let sum = i64::from(percent).saturating_mul(seconds);
            self.percent_seconds = self.percent_seconds.saturating_add(sum);
            self.seconds = self.seconds.saturating_add(seconds);
        }
    }
}
