//! Texts of figures.

use std::time::Duration;

use octavo_demand::simulation::MeanAndDeviation;
use octavo_model::text::group_thousands;

/// Formats a share: `94.0 %`.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// Formats a share with its standard deviation in percentage points, if there is one: `94.0 % ± 1.7`.
pub fn share(value: MeanAndDeviation) -> String {
    if value.standard_deviation > 0.0 {
        format!("{} ± {:.1}", percent(value.mean), value.standard_deviation * 100.0)
    } else {
        percent(value.mean)
    }
}

/// Formats a waiting time: `2,940 s`.
pub fn seconds(seconds: f64) -> String {
    format!("{} s", group_thousands(&format!("{seconds:.0}")))
}

/// Formats a duration, rounded to a tenth: `45 s`, `1.5 h`, `2.9 d`.
pub fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    let (unit, name) = match duration.as_secs() {
        0..60 => (1.0, "s"),
        60..3_600 => (60.0, "min"),
        3_600..172_800 => (3_600.0, "h"),
        _ => (86_400.0, "d"),
    };
    let number = group_thousands(&format!("{:.1}", seconds / unit));
    format!("{} {name}", number.strip_suffix(".0").unwrap_or(&number))
}

/// Formats a number with commas between the thousands: `4,000`.
pub fn count(count: usize) -> String {
    group_thousands(&count.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_rounded_to_a_tenth() {
        for (seconds, expected) in [
            (0, "0 s"),
            (59, "59 s"),
            (90, "1.5 min"),
            (5_400, "1.5 h"),
            (43_200, "12 h"),
            (250_000, "2.9 d"),
            (3_155_760_000, "36,525 d"),
        ] {
            assert_eq!(duration(Duration::from_secs(seconds)), expected);
        }
    }
}
