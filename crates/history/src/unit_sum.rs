//! Sum of one metric of several devices at one step.

use octavo_model::quantity::Mebibytes;

use crate::metric::Metric;

/// Sum over devices: of values in steps of the metric's precision, or the highest value if the metric is a maximum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct UnitSum {
    pub(crate) sum: u64,
    pub(crate) weight: u64,
    pub(crate) devices: u32,
}

impl UnitSum {
    /// Adds the stored value of a device.
    pub(crate) fn add(&mut self, metric: Metric, value: u8, weight: u64) {
        let sum = u64::from(value).saturating_mul(if metric.is_maximum() { 1 } else { weight });
        self.merge(metric, Self { sum, weight, devices: 1 });
    }

    /// Adds the sum of other devices.
    pub(crate) fn merge(&mut self, metric: Metric, other: Self) {
        self.sum = if metric.is_maximum() {
            self.sum.max(other.sum)
        } else {
            self.sum.saturating_add(other.sum)
        };
        self.weight = self.weight.saturating_add(other.weight);
        self.devices = self.devices.saturating_add(other.devices);
    }
}

/// Weight of a device with this memory in a mean.
pub(crate) fn weight(metric: Metric, memory: Mebibytes) -> u64 {
    match metric {
        Metric::Memory => memory.get(),
        Metric::Utilization | Metric::Power | Metric::Temperature | Metric::Allocation => 1,
    }
}

/// Quotient, rounded to the nearest; `None` if `by` is 0.
pub(crate) fn divided(sum: u64, by: u64) -> Option<u64> {
    sum.saturating_add(by / 2).checked_div(by)
}
