//! Rate limit for usage reports: infrequent, except when an alarm changes.

use std::collections::BTreeSet;
use std::time::Duration;

use super::usage::{Alarm, alarms, told};
use crate::domain::sharing::usage::Usage;

/// Minimum interval between two reports without a change of alarms.
pub const USAGE_EVERY: Duration = Duration::from_secs(15);
/// Maximum number of tenants reported per device.
pub const MOST_TOLD: usize = 64;

/// Last report and its time, measured from program start.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pace {
    last: Option<(Usage, BTreeSet<Alarm>, Duration)>,
}

/// Next action of the reporter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Nothing relevant has changed.
    Nothing,
    /// Report immediately.
    Tell,
    /// Check again after this delay: there is a change, but it is too early to report it.
    Wait(Duration),
}

impl Pace {
    /// Decides about `usage` at `now`.
    pub fn look(&mut self, now: Duration, usage: &Usage) -> Step {
        let rounded = told(usage, MOST_TOLD);
        let alarms = alarms(usage);
        if let Some((last, before, at)) = &self.last
            && *before == alarms
        {
            if *last == rounded {
                return Step::Nothing;
            }
            let left = USAGE_EVERY.saturating_sub(now.saturating_sub(*at));
            if !left.is_zero() {
                return Step::Wait(left);
            }
        }
        self.last = Some((rounded, alarms, now));
        Step::Tell
    }
}
