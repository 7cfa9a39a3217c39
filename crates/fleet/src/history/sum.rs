//! Sum of several series: the history of a node, a type or the fleet.

use super::chunk::GAP;
use super::metric::Metric;
use super::series::Series;
use super::window::Window;

/// One metric of several devices over a window: the sum of their power, the highest temperature, otherwise the mean. The
/// mean of memory is weighted by the devices' memory. Devices without a value at a step do not count for this step.
#[derive(Debug, Clone)]
pub struct SeriesSum {
    metric: Metric,
    window: Window,
    units: Vec<UnitSum>,
    /// Values of one series, reused.
    values: Vec<u8>,
}

/// Values by point.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Points {
    /// In the metric's unit; `None` is a gap.
    pub values: Vec<Option<u32>>,
    /// Number of devices with a value.
    pub devices: Vec<u32>,
}

/// Sum of one stored step.
#[derive(Debug, Clone, Copy, Default)]
struct UnitSum {
    sum: u64,
    weight: u64,
    devices: u32,
}

impl SeriesSum {
    /// Creates a sum without devices.
    pub fn new(metric: Metric, window: Window) -> Self {
        let units = window.points().saturating_mul(window.units_per_point());
        Self { metric, window, units: vec![UnitSum::default(); units], values: vec![GAP; units] }
    }

    /// Returns the points of the sum of `series`.
    pub fn of<'a>(
        metric: Metric,
        window: Window,
        series: impl IntoIterator<Item = &'a Series>,
    ) -> Points {
        let mut sum = Self::new(metric, window);
        series.into_iter().for_each(|series| sum.add(series));
        sum.points()
    }

    /// Adds a device or partition.
    pub fn add(&mut self, series: &Series) {
        self.values.fill(GAP);
        series.read(self.metric, self.window.span(), self.window.start_unit(), &mut self.values);
        let weight = match self.metric {
            Metric::Memory => series.memory().get(),
            Metric::Utilization | Metric::Power | Metric::Temperature | Metric::Allocation => 1,
        };
        for (unit, value) in self.units.iter_mut().zip(&self.values) {
            if *value != GAP {
                unit.add(u64::from(*value), weight, self.metric);
            }
        }
    }

    /// Returns the values by point.
    pub fn points(&self) -> Points {
        let mut points = Points::default();
        for units in self.units.chunks(self.window.units_per_point()) {
            points.values.push(self.value(units));
            points.devices.push(units.iter().map(|unit| unit.devices).max().unwrap_or_default());
        }
        points
    }

    fn value(&self, units: &[UnitSum]) -> Option<u32> {
        let units = units.iter().filter(|unit| unit.devices > 0);
        let sum = units.clone().fold(0_u64, |sum, unit| sum.saturating_add(unit.sum));
        let scaled = sum.saturating_mul(u64::from(self.metric.precision()));
        let value = match self.metric {
            Metric::Temperature => units.map(|unit| unit.sum).max(),
            Metric::Power => divided(scaled, u64::try_from(units.count()).ok()?),
            Metric::Utilization | Metric::Memory | Metric::Allocation => {
                divided(scaled, units.fold(0, |sum, unit| sum.saturating_add(unit.weight)))
            }
        };
        value.map(|value| u32::try_from(value).unwrap_or(u32::MAX))
    }
}

impl UnitSum {
    fn add(&mut self, value: u64, weight: u64, metric: Metric) {
        self.sum = if metric.is_maximum() {
            self.sum.max(value)
        } else {
            self.sum.saturating_add(value.saturating_mul(weight))
        };
        self.weight = self.weight.saturating_add(weight);
        self.devices = self.devices.saturating_add(1);
    }
}

/// Quotient, rounded to the nearest.
fn divided(sum: u64, by: u64) -> Option<u64> {
    sum.saturating_add(by / 2).checked_div(by)
}
