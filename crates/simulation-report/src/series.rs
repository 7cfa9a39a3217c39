//! Charts of slices over the simulated time: one for each strategy, on the same scale.

use std::fmt::Write;
use std::time::Duration;

use octavo_demand::simulation::{Sample, StrategyResult, TimeSeries};
use octavo_model::text::group_thousands;

use crate::text::duration;

/// Width of a chart in its own units.
const WIDTH: f64 = 1_000.0;
/// Height of a chart in its own units.
const HEIGHT: f64 = 100.0;

/// Charts of all strategies.
#[derive(Debug)]
pub(crate) struct SeriesCharts {
    /// Number of slices: the upper end of the scale.
    pub(crate) top: String,
    /// Time at the right end.
    pub(crate) end: String,
    /// True if results count from a later time than the first request.
    pub(crate) has_warm_up: bool,
    /// Charts of the strategies.
    pub(crate) charts: Vec<SeriesChart>,
}

/// Chart of a strategy.
#[derive(Debug)]
pub(crate) struct SeriesChart {
    /// Strategy.
    pub(crate) name: &'static str,
    /// Description for screen readers.
    pub(crate) description: String,
    /// Area of all slices.
    pub(crate) all: String,
    /// Area of slices in use and fragmented slices.
    pub(crate) occupied: String,
    /// Area of slices in use.
    pub(crate) used: String,
    /// Position of the end of the warm-up.
    pub(crate) warm_up_end: Option<String>,
    /// Lowest and highest sampled number of slices in use, fragmented and otherwise free.
    pub(crate) ranges: [String; 3],
}

impl SeriesCharts {
    /// Charts of these results; `None` if no time passes.
    pub(crate) fn new(results: &[StrategyResult], slices: u32) -> Option<Self> {
        let all = results.iter().map(|one| &one.series);
        let end = all.clone().map(|series| series.end).max().filter(|end| !end.is_zero())?;
        let slices = f64::from(slices);
        let scale = (end, slices);
        let charts = results.iter().map(|one| SeriesChart::new(one, scale));
        Some(Self {
            top: group_thousands(&slices.to_string()),
            end: duration(end),
            has_warm_up: all.clone().any(|series| !series.measured_from.is_zero()),
            charts: charts.collect(),
        })
    }
}

impl SeriesChart {
    fn new(result: &StrategyResult, (end, slices): (Duration, f64)) -> Self {
        let series = &result.series;
        let x = |time: Duration| time.as_secs_f64() / end.as_secs_f64() * WIDTH;
        let area = |value: fn(&Sample) -> f64| area(series, x, |one| value(one) / slices * HEIGHT);
        let ranges = [
            range(series, |one| one.used),
            range(series, |one| one.fragmented),
            range(series, |one| one.free),
        ];
        let [used, fragmented, free] = &ranges;
        let from = series.measured_from;
        Self {
            name: result.strategy.into(),
            description: format!(
                "Range of the samples: {used} in use, {fragmented} fragmented, {free} free"
            ),
            all: area(Sample::slices),
            occupied: area(|one| one.used + one.fragmented),
            used: area(|one| one.used),
            warm_up_end: (!from.is_zero()).then(|| format!("{:.1}", x(from))),
            ranges,
        }
    }
}

/// Path of the area below a step function, whose steps have equal widths.
fn area(
    series: &TimeSeries,
    x: impl Fn(Duration) -> f64,
    height: impl Fn(&Sample) -> f64,
) -> String {
    let mut path = format!("M0 {HEIGHT}");
    let mut last = String::new();
    for (number, sample) in (0_u32..).zip(&series.samples) {
        let y = format!("{:.1}", (HEIGHT - height(sample)).max(0.0));
        if y != last {
            // A string accepts all writes.
            let _written = write!(path, "H{:.1}V{y}", x(series.step.saturating_mul(number)));
            last = y;
        }
    }
    let _written = write!(path, "H{:.1}V{HEIGHT}Z", x(series.end));
    path
}

/// Lowest and highest value of the samples after the warm-up: `12 to 34`, or `12` if it does not change.
fn range(series: &TimeSeries, value: fn(&Sample) -> f64) -> String {
    let times = (0_u32..).map(|number| series.step.saturating_mul(number));
    let samples = times.zip(&series.samples).filter(|(time, _)| *time >= series.measured_from);
    let values = samples.map(|(_, sample)| value(sample));
    let (lowest, highest) = values
        .fold((f64::INFINITY, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)));
    if lowest.is_infinite() {
        return "-".to_owned();
    }
    let [lowest, highest] = [lowest, highest].map(|end| group_thousands(&format!("{end:.0}")));
    if lowest == highest { lowest } else { format!("{lowest} to {highest}") }
}
