//! Texts of usage and cost: hours, shares, names of groups.

use octavo_fleet::availability::UnitType;
use octavo_ledger::Dimension;
use octavo_ledger::report::{Hours, Usage};
use octavo_model::text::{group_thousands, printable};

/// State of device hours as it is drawn: CSS class, fill pattern, word.
pub type StateStyle = (&'static str, Option<&'static str>, &'static str);

/// Device hours by state, as they are drawn.
pub fn states(hours: &Hours) -> [(StateStyle, f64); 4] {
    [
        (("in-use", None, "used"), hours.used),
        (("idle-hours", Some("idle-lines"), "idle"), hours.idle),
        (("free", None, "unallocated"), hours.unallocated),
        (("unknown", None, "unknown"), hours.unknown),
    ]
}

/// Formats hours with a decimal and a comma between thousands: `1,234.5`.
pub fn hours(hours: f64) -> String {
    let text = format!("{hours:.1}");
    if hours > 0.0 && text == "0.0" { "< 0.1".to_owned() } else { group_thousands(&text) }
}

/// Share in percent: `12 %`.
pub fn share(part: f64, whole: f64) -> String {
    if whole <= 0.0 {
        return "0 %".to_owned();
    }
    let percent = part / whole * 100.0;
    if percent > 0.0 && percent < 1.0 { "< 1 %".to_owned() } else { format!("{percent:.0} %") }
}

/// Mean utilization in percent; `-` if it is not known.
pub fn utilization(usage: &Usage) -> String {
    let percent = usage.utilization_percent;
    percent.map_or_else(|| "-".to_owned(), |percent| format!("{percent:.0} %"))
}

/// Name of a group, and a note on it.
pub fn group_name(dimension: Dimension, value: Option<&str>) -> (String, String) {
    match (dimension, value) {
        (Dimension::Type, Some(value)) => {
            let known = value.parse().map(|name| UnitType::Known(name).product_name());
            match known {
                Ok(product) => (product, value.to_owned()),
                Err(_) => (printable(value), String::new()),
            }
        }
        (_, Some(value)) => (printable(value), String::new()),
        (Dimension::Type, None) => ("Unknown type".to_owned(), String::new()),
        (Dimension::Team, None) => {
            ("No team".to_owned(), "pods without a team, and hours without a pod".to_owned())
        }
        (Dimension::Profile, None) => ("No profile".to_owned(), String::new()),
        (_, None) => ("No pod".to_owned(), "unallocated or unknown".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_and_shares_are_short_and_never_round_something_to_nothing() {
        for (value, text) in [
            (0.0, "0.0"),
            (0.01, "< 0.1"),
            (12.34, "12.3"),
            (999.96, "1,000.0"),
            (1_234_567.8, "1,234,567.8"),
        ] {
            assert_eq!(hours(value), text);
        }
        assert_eq!(share(0.0, 10.0), "0 %");
        assert_eq!(share(0.01, 10.0), "< 1 %");
        assert_eq!(share(1.0, 0.0), "0 %");
        assert_eq!(share(2.5, 10.0), "25 %");
    }
}
