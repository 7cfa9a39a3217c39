//! Sum of several series: the history of a node, a type or the fleet.

use crate::chunk::GAP;
use crate::metric::Metric;
use crate::series::Series;
use crate::totals::TotalSeries;
use crate::unit_sum::{UnitSum, divided, weight};
use crate::window::Window;

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
        let weight = weight(self.metric, series.memory());
        for (unit, value) in self.units.iter_mut().zip(&self.values) {
            if *value != GAP {
                unit.add(self.metric, *value, weight);
            }
        }
    }

    /// Returns the values of several groups by point.
    pub(crate) fn of_totals<'a>(
        metric: Metric,
        window: Window,
        groups: impl IntoIterator<Item = &'a TotalSeries>,
    ) -> Points {
        let mut sum = Self::new(metric, window);
        for group in groups {
            sum.add_total(group);
        }
        sum.points()
    }

    /// Adds the devices of a group.
    fn add_total(&mut self, total: &TotalSeries) {
        let (metric, start, units) = (self.metric, self.window.start_unit(), &mut self.units);
        total.for_each(metric, self.window.span(), start, |unit, sum| {
            let place = unit.checked_sub(start).and_then(|place| usize::try_from(place).ok());
            if let Some(unit) = place.and_then(|place| units.get_mut(place)) {
                unit.merge(metric, sum);
            }
        });
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
