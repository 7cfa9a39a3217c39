//! Text form of time and speed intervals: `16 to 38 days`, `12.5 to 35.2 tokens/s`.
//!
//! Used by both pages and the command line. Two digits suffice for estimates with an uncertainty of a factor of two.

use super::Interval;

const MINUTE: f64 = 60.0;
const HOUR: f64 = 3600.0;
const DAY: f64 = 86_400.0;
const YEAR: f64 = 365.25 * DAY;

/// Formats a time interval, each bound in the unit that makes it short.
pub fn time(seconds: Interval) -> String {
    format_range(in_short_unit(seconds.low()), in_short_unit(seconds.high()))
}

/// Formats a speed interval in tokens per second.
pub fn format_speed(tokens: Interval) -> String {
    let (low, high) = (format_number(tokens.low()), format_number(tokens.high()));
    format_range((low, "tokens/s"), (high, "tokens/s"))
}

/// Formats an interval of two numbers with their units; a common unit is written once.
pub fn format_range(low: (String, &str), high: (String, &str)) -> String {
    let (low, low_unit) = low;
    let (high, unit) = high;
    match (low == high, low_unit == unit) {
        (true, true) => format!("{high} {unit}"),
        (false, true) => format!("{low} to {high} {unit}"),
        (_, false) => format!("{low} {low_unit} to {high} {unit}"),
    }
}

fn in_short_unit(seconds: f64) -> (String, &'static str) {
    let (of, unit) = match seconds {
        small if small < 2.0 * MINUTE => (1.0, "s"),
        small if small < 2.0 * HOUR => (MINUTE, "min"),
        small if small < 2.0 * DAY => (HOUR, "h"),
        small if small < 2.0 * YEAR => (DAY, "days"),
        _ => (YEAR, "years"),
    };
    (format_number(seconds / of), unit)
}

/// Formats a number with two or three digits; a positive number is never shown as zero.
fn format_number(number: f64) -> String {
    match number {
        tiny if tiny < 0.01 => "less than 0.01".to_owned(),
        small if small < 1.0 => format!("{small:.2}"),
        small if small < 10.0 => format!("{small:.1}"),
        large if large < 1e6 => format!("{large:.0}"),
        huge => format!("{huge:.1e}"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn interval(low: f64, high: f64) -> Interval {
        Interval::new(low, high).unwrap()
    }

    #[test]
    fn time_uses_the_unit_with_the_shortest_text() {
        for (low, high, expected) in [
            (1.0, 1.0, "1.0 s"),
            (30.0, 90.0, "30 to 90 s"),
            (100.0, 1000.0, "100 s to 17 min"),
            (1.4e6, 3.3e6, "16 to 38 days"),
            (90_000.0, 170_000.0, "25 to 47 h"),
            (1e-9, 1e12, "less than 0.01 s to 31688 years"),
            (1e19, 1e20, "3.2e11 to 3.2e12 years"),
        ] {
            assert_eq!(time(interval(low, high)), expected);
        }
    }

    #[test]
    fn speeds_keep_two_digits() {
        assert_eq!(format_speed(interval(0.123, 0.5)), "0.12 to 0.50 tokens/s");
        assert_eq!(format_speed(interval(16.75, 47.4)), "17 to 47 tokens/s");
        assert_eq!(format_speed(interval(5.0, 5.0)), "5.0 tokens/s");
    }

    proptest! {
        #[test]
        fn any_engine_value_is_formatted_briefly(low in 1e-300..1e300_f64, more in 1.0..1e8_f64) {
            let both = interval(low, low * more);
            for text in [time(both), format_speed(both)] {
                prop_assert!(text.len() < 60, "{}", text);
            }
        }
    }
}
