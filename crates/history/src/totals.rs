//! Totals of the fleet and of each type, added up while samples are recorded.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use octavo_model::id::TypeName;

use crate::SAMPLES_PER_MINUTE;
use crate::chunk::GAP;
use crate::metric::Metric;
use crate::sample::{DeviceSample, Sample};
use crate::total_log::TotalLog;
use crate::unit_sum::{UnitSum, divided, weight};
use crate::window::Span;

/// Maximum number of types with totals, because peers choose the types.
pub(crate) const MAX_TYPES: usize = 256;

/// Totals of the fleet and of each type; `None` is the unknown type.
#[derive(Debug, Clone, Default)]
pub(crate) struct Totals {
    /// `None` before the first sample, and if there is no room for it.
    pub(crate) fleet: Option<TotalSeries>,
    pub(crate) types: BTreeMap<Option<TypeName>, TotalSeries>,
    /// Last step in which a type had no totals or lost them, because there were too many.
    pub(crate) last_partial: Option<u32>,
}

/// Sums of the step that is being recorded.
#[derive(Debug, Clone, Default)]
pub(crate) struct StepTotals {
    fleet: MetricSums,
    types: BTreeMap<Option<TypeName>, MetricSums>,
    is_partial: bool,
}

/// Sum of each metric, in the order of [`Metric::ALL`].
type MetricSums = [UnitSum; Metric::ALL.len()];

/// History of the totals of a group of devices.
#[derive(Debug, Clone)]
pub(crate) struct TotalSeries {
    /// First and last step with a sample.
    first: u32,
    last: u32,
    metrics: [MetricTotals; Metric::ALL.len()],
}

/// History of one metric of a group.
#[derive(Debug, Clone, Default)]
struct MetricTotals {
    samples: TotalLog,
    minutes: TotalLog,
    /// The last minute, which is not in `minutes` yet.
    open: OpenMinute,
}

/// Sum of the samples of a minute.
#[derive(Debug, Clone, Copy, Default)]
struct OpenMinute {
    minute: u32,
    sum: UnitSum,
    samples: u32,
}

impl StepTotals {
    /// Adds a device. Partitions are parts of their device.
    pub(crate) fn add(&mut self, of: &DeviceSample) {
        if of.key.partition.is_some() {
            return;
        }
        add(&mut self.fleet, of);
        if let Some(sums) = self.types.get_mut(&of.type_name) {
            add(sums, of);
        } else if self.types.len() < MAX_TYPES {
            add(self.types.entry(of.type_name.clone()).or_default(), of);
        } else {
            self.is_partial = true;
        }
    }
}

fn add(sums: &mut MetricSums, of: &DeviceSample) {
    let Sample(values) = of.sample;
    for ((metric, value), sum) in Metric::ALL.into_iter().zip(values).zip(sums) {
        if value != GAP {
            sum.add(metric, value, weight(metric, of.memory));
        }
    }
}

impl Totals {
    /// Adds a step, and removes old values. Uses at most `limit` bytes: removes types without a recent sample first, then
    /// the types that were added last, then the fleet.
    pub(crate) fn record(&mut self, step: u32, of: StepTotals, limit: usize) {
        if of.is_partial {
            self.last_partial = Some(step);
        }
        if of.fleet.iter().any(|sum| sum.devices > 0) {
            let fleet = self.fleet.get_or_insert_with(|| TotalSeries::new(step));
            fleet.record(step, &of.fleet);
        }
        let average = self.bytes().checked_div(self.types.len()).unwrap_or_default();
        let mut room = limit.saturating_sub(self.bytes());
        for (name, sums) in of.types {
            if let Some(series) = self.types.get_mut(&name) {
                series.record(step, &sums);
                continue;
            }
            let mut series = TotalSeries::new(step);
            series.record(step, &sums);
            // A new series needs as much room as an average one, because it will grow.
            let size = series.bytes(name.as_ref()).max(average);
            if size <= room && self.types.len() < MAX_TYPES {
                room = room.saturating_sub(size);
                self.types.insert(name, series);
            } else {
                self.last_partial = Some(step);
            }
        }
        self.drop_outdated(step);
        self.enforce(step, limit);
    }

    fn drop_outdated(&mut self, step: u32) {
        for series in self.types.values_mut().chain(&mut self.fleet) {
            series.drop_outdated(step);
        }
        self.types.retain(|_, series| !series.is_empty());
        self.fleet.take_if(|series| series.is_empty());
    }

    fn enforce(&mut self, step: u32, limit: usize) {
        let mut bytes = self.bytes();
        while bytes > limit {
            let first =
                self.types.iter().min_by_key(|(_, series)| (series.last, Reverse(series.first)));
            let Some((name, series)) = first else {
                self.fleet = None;
                return;
            };
            self.last_partial = Some(step);
            bytes = bytes.saturating_sub(series.bytes(name.as_ref()));
            let name = name.clone();
            self.types.remove(&name);
        }
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        let fleet = self.fleet.as_ref().map_or(0, |series| series.bytes(None));
        self.types
            .iter()
            .fold(fleet, |sum, (name, series)| sum.saturating_add(series.bytes(name.as_ref())))
    }
}

impl TotalSeries {
    fn new(step: u32) -> Self {
        Self { first: step, last: step, metrics: Default::default() }
    }

    fn record(&mut self, step: u32, sums: &MetricSums) {
        self.last = step;
        for ((metric, sum), totals) in Metric::ALL.into_iter().zip(sums).zip(&mut self.metrics) {
            if sum.devices > 0 {
                totals.record(metric, step, *sum);
            }
        }
    }

    fn drop_outdated(&mut self, step: u32) {
        let oldest_minute = Span::Day.first_step(step) / SAMPLES_PER_MINUTE;
        for totals in &mut self.metrics {
            totals.samples.drop_before(Span::Hour.first_step(step));
            totals.minutes.drop_before(oldest_minute);
            if totals.open.minute < oldest_minute {
                totals.open = OpenMinute::default();
            }
        }
    }

    /// Returns whether no value is left.
    fn is_empty(&self) -> bool {
        self.metrics.iter().all(|totals| totals.minutes.is_empty() && totals.open.samples == 0)
    }

    /// Calls `visit` with the unit and the sum of each value from unit `from` of the span on, and possibly of some before.
    pub(crate) fn for_each(
        &self,
        metric: Metric,
        span: Span,
        from: u32,
        mut visit: impl FnMut(u32, UnitSum),
    ) {
        let Some(totals) = self.metrics.get(metric as usize) else { return };
        match span {
            Span::Hour => totals.samples.for_each_from(from, visit),
            Span::Day => {
                totals.minutes.for_each_from(from, &mut visit);
                if totals.open.samples > 0 {
                    visit(totals.open.minute, totals.open.value(metric));
                }
            }
        }
    }

    fn bytes(&self, name: Option<&TypeName>) -> usize {
        let logs = self.metrics.iter().flat_map(|totals| [&totals.samples, &totals.minutes]);
        let fixed = size_of::<(Option<TypeName>, Self)>();
        let fixed = fixed.saturating_add(name.map_or(0, |name| name.as_str().len()));
        logs.fold(fixed, |sum, log| sum.saturating_add(log.bytes()))
    }
}

impl MetricTotals {
    fn record(&mut self, metric: Metric, step: u32, sum: UnitSum) {
        self.samples.push(step, sum);
        let minute = step / SAMPLES_PER_MINUTE;
        if self.open.minute != minute {
            if self.open.samples > 0 {
                self.minutes.push(self.open.minute, self.open.value(metric));
            }
            self.open = OpenMinute { minute, ..OpenMinute::default() };
        }
        self.open.sum.merge(metric, sum);
        self.open.samples = self.open.samples.saturating_add(1);
    }
}

impl OpenMinute {
    /// Value of the minute. For a mean, sum and weight are those of all samples, so that devices count by their number of
    /// samples.
    fn value(self, metric: Metric) -> UnitSum {
        let samples = u64::from(self.samples);
        let devices = divided(self.sum.devices.into(), samples).unwrap_or_default();
        let devices = u32::try_from(devices).unwrap_or(u32::MAX).max(1);
        let sum = match metric {
            Metric::Power => divided(self.sum.sum, samples).unwrap_or_default(),
            Metric::Utilization | Metric::Memory | Metric::Temperature | Metric::Allocation => {
                self.sum.sum
            }
        };
        UnitSum { sum, devices, ..self.sum }
    }
}
