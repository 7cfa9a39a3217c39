//! Texts of figures.

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

/// Formats a number with commas between the thousands: `4,000`.
pub fn count(count: usize) -> String {
    group_thousands(&count.to_string())
}
