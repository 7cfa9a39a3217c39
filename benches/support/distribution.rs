//! Percentiles of repeated measurements.

use std::fmt;

/// Sorted values of several runs. It displays the 50th and 99th percentile and the maximum.
pub(crate) struct Distribution(Vec<f64>);

impl Distribution {
    pub(crate) fn new(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        Self(values)
    }

    /// Returns the smallest value that at least `percent` percent of the values do not exceed.
    pub(crate) fn percentile(&self, percent: usize) -> f64 {
        let index = (self.0.len() * percent).div_ceil(100).max(1) - 1;
        self.0[index]
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [p50, p99, maximum] = [50, 99, 100].map(|percent| self.percentile(percent));
        write!(f, "{p50:.0} / {p99:.0} / {maximum:.0}")
    }
}
