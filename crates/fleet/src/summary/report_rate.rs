//! Rate limit for usage reports: infrequent, except when an alarm changes.

use std::collections::BTreeSet;
use std::time::Duration;

use octavo_node::sharing::usage::Usage;

use super::usage::{Alarm, alarms, usage_for_report};

/// Minimum interval between two reports without a change of alarms.
pub const MIN_REPORT_INTERVAL: Duration = Duration::from_secs(15);
/// Maximum number of tenants reported per device.
pub const MAX_REPORTED_TENANTS: usize = 64;

/// Last report and its time, measured from program start.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReportRate {
    last: Option<(Usage, BTreeSet<Alarm>, Duration)>,
}

/// Next action of the reporter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReportAction {
    /// Nothing relevant has changed.
    Nothing,
    /// Report immediately.
    Report,
    /// Check again after this delay: there is a change, but it is too early to report it.
    Wait(Duration),
}

impl ReportRate {
    /// Decides about `usage` at `now`.
    pub fn next_action(&mut self, now: Duration, usage: &Usage) -> ReportAction {
        let rounded = usage_for_report(usage, MAX_REPORTED_TENANTS);
        let alarms = alarms(usage);
        if let Some((last, before, at)) = &self.last
            && *before == alarms
        {
            if *last == rounded {
                return ReportAction::Nothing;
            }
            let left = MIN_REPORT_INTERVAL.saturating_sub(now.saturating_sub(*at));
            if !left.is_zero() {
                return ReportAction::Wait(left);
            }
        }
        self.last = Some((rounded, alarms, now));
        ReportAction::Report
    }
}
