//! When who has what is told again: seldom, but at once when somebody should know.

use std::collections::BTreeSet;
use std::time::Duration;

use super::usage::{Alarm, alarms, told};
use crate::domain::sharing::usage::Usage;

/// Between two tellings without an alarm at least this long.
pub const USAGE_EVERY: Duration = Duration::from_secs(15);
/// Tenants of a device that are told.
pub const MOST_TOLD: usize = 64;

/// What was told last, and when. Times are since the program began.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pace {
    last: Option<(Usage, BTreeSet<Alarm>, Duration)>,
}

/// What is to be done about usage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Nothing that anybody would see has changed.
    Nothing,
    /// Tell it now.
    Tell,
    /// Look again after this long: it is news, and too soon.
    Wait(Duration),
}

impl Pace {
    /// What is to be done about `usage` at `now`.
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
