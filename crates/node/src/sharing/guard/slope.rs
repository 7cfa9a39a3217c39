//! Growth rate of memory usage, by linear regression over recent readings.

use std::collections::VecDeque;
use std::time::Duration;

use octavo_model::quantity::Mebibytes;

/// Readings older than this are dropped.
const WINDOW: Duration = Duration::from_mins(10);
/// Maximum number of readings.
const MAX_READINGS: usize = 60;
/// Minimum number of readings; fewer do not give a meaningful line.
const MIN_READINGS: usize = 6;
/// Minimum time that the readings must cover.
const MIN_SPAN: Duration = Duration::from_secs(30);
/// Minimum coefficient of determination. A single step, as at program start, reaches three quarters.
const MIN_R_SQUARED: f64 = 0.8;
/// Exhaustion later than this is not reported.
const HORIZON: Duration = Duration::from_hours(1);

/// Used memory at each reading.
#[derive(Debug, Clone, Default)]
pub(super) struct GrowthRate(VecDeque<(Duration, u64)>);

impl GrowthRate {
    /// Adds a reading.
    pub(super) fn add(&mut self, now: Duration, used: Mebibytes) {
        self.0.push_back((now, used.get()));
        while self.0.len() > MAX_READINGS
            || self.0.front().is_some_and(|(at, _)| now.saturating_sub(*at) > WINDOW)
        {
            self.0.pop_front();
        }
    }

    /// Seconds until `free` is exhausted; `None` if usage does not rise, does not rise steadily, was not observed for
    /// long enough, or lasts for more than an hour.
    pub(super) fn seconds_until_exhausted(&self, free: Mebibytes) -> Option<u64> {
        let (first, last) = self.0.front().zip(self.0.back())?;
        let span = last.0.saturating_sub(first.0);
        if self.0.len() < MIN_READINGS || span < MIN_SPAN {
            return None;
        }
        let points = self.0.iter().map(|(at, used)| {
            let x = at.saturating_sub(first.0).as_secs_f64();
            (x, difference(*used, first.1))
        });
        let count = f64::from(u32::try_from(self.0.len()).ok()?);
        let (x_sum, y_sum) =
            points.clone().fold((0.0, 0.0), |(x_sum, y_sum), (x, y)| (x_sum + x, y_sum + y));
        let (x_mean, y_mean) = (x_sum / count, y_sum / count);
        let (xx, xy, yy) = points.fold((0.0, 0.0, 0.0), |(xx, xy, yy), (x, y)| {
            let (x, y) = (x - x_mean, y - y_mean);
            (xx + x * x, xy + x * y, yy + y * y)
        });
        let slope = xy / xx;
        let fit = xy * xy / (xx * yy);
        if !(slope > 0.0 && fit >= MIN_R_SQUARED) {
            return None;
        }
        let seconds = difference(free.get(), 0) / slope;
        let lasts = Duration::try_from_secs_f64(seconds).ok()?;
        (lasts <= HORIZON).then_some(lasts.as_secs())
    }
}

/// Difference in MiB. No device has more than 32 bits can express.
fn difference(one: u64, other: u64) -> f64 {
    let number = |number: u64| f64::from(u32::try_from(number).unwrap_or(u32::MAX));
    number(one) - number(other)
}
