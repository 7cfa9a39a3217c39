//! Many values of one thing.

use std::fmt;

/// Values of several runs, sorted.
pub(crate) struct Spread(Vec<f64>);

impl Spread {
    pub(crate) fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        Self(values)
    }

    /// The value that so many in a hundred do not exceed.
    pub(crate) fn at(&self, percent: usize) -> f64 {
        let place = (self.0.len() * percent).div_ceil(100).max(1) - 1;
        self.0[place]
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [middle, high, most] = [50, 99, 100].map(|percent| self.at(percent));
        write!(f, "{middle:.0} / {high:.0} / {most:.0}")
    }
}
