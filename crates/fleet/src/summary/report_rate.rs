//! Rate limit for usage reports: infrequent, except when an alarm changes. Sensors of an idle device fluctuate;
//! such a change alone causes no report.

use std::collections::BTreeSet;
use std::time::Duration;

use octavo_node::sharing::usage::Usage;

use super::usage::{Alarm, alarms, usage_for_report};

/// Minimum interval between two reports without a change of alarms.
pub const MIN_REPORT_INTERVAL: Duration = Duration::from_secs(15);
/// Maximum number of tenants reported per device.
pub const MAX_REPORTED_TENANTS: usize = 64;
/// Minimum change of a device's power draw that causes a report, in watts.
const POWER_DEAD_BAND_WATTS: u32 = 10;
/// Minimum change of a device's temperature that causes a report, in degrees Celsius.
const TEMPERATURE_DEAD_BAND_CELSIUS: u32 = 3;

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
            if is_same(last, &rounded) {
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

/// Returns whether two reports differ at most by fluctuations of sensors.
fn is_same(last: &Usage, new: &Usage) -> bool {
    let mut new = new.clone();
    for (last, new) in last.devices.iter().zip(&mut new.devices) {
        settle(last.power_watts, &mut new.power_watts, POWER_DEAD_BAND_WATTS);
        settle(
            last.temperature_celsius,
            &mut new.temperature_celsius,
            TEMPERATURE_DEAD_BAND_CELSIUS,
        );
    }
    *last == new
}

/// Replaces a value by the last one if they differ by less than `band`.
fn settle(last: Option<u32>, new: &mut Option<u32>, band: u32) {
    if let (Some(before), Some(after)) = (last, *new)
        && before.abs_diff(after) < band
    {
        *new = last;
    }
}
