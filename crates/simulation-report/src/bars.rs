//! Charts with a row for each strategy, as tables: the row has the marks and their values.

use octavo_demand::simulation::{Comparison, StrategyResult, WaitingTime};

use crate::text::{percent, seconds, share};

/// Distance of the ends of the scale of accepted requests, which does not begin at 0.
const ACCEPTANCE_STEP: f64 = 0.05;

/// Chart of a figure.
#[derive(Debug)]
pub(crate) struct BarChart {
    /// Figure.
    pub(crate) caption: String,
    /// Meaning of the marks.
    pub(crate) description: String,
    /// Names of the values.
    pub(crate) columns: &'static [&'static str],
    /// Both ends of the scale.
    pub(crate) axis: [String; 2],
    /// Legend: CSS class and word.
    pub(crate) legend: &'static [(&'static str, &'static str)],
    /// Rows of the strategies.
    pub(crate) rows: Vec<Row>,
}

/// Row of a strategy.
#[derive(Debug)]
pub(crate) struct Row {
    /// Strategy.
    pub(crate) name: &'static str,
    /// True if the best mean is within the standard deviation.
    pub(crate) is_best: bool,
    /// Marks in the order in which they are drawn.
    pub(crate) marks: Vec<Mark>,
    /// Values as text.
    pub(crate) values: Vec<String>,
}

/// Mark of a row; positions and widths in percent.
#[derive(Debug)]
pub(crate) enum Mark {
    /// Rectangle.
    Bar { class: &'static str, x: String, width: String },
    /// Horizontal line with a tick at both ends.
    Whisker { from: String, to: String },
    /// Vertical line through all rows: the acceptance of one pool.
    Pool { x: String },
    /// Vertical line in this row.
    Tick { x: String },
    /// Dot.
    Dot { x: String },
}

/// Legend of slices.
pub(crate) const SLICES: &[(&str, &str)] =
    &[("in-use", "in use"), ("fragmented", "fragmented"), ("free", "free")];

/// Accepted requests with their standard deviation, and the acceptance of one pool.
pub(crate) fn acceptance(comparison: &Comparison) -> BarChart {
    let pool = comparison.pool_acceptance.map(|pool| pool.mean);
    let all = comparison.strategies.iter().map(|one| one.acceptance);
    let lowest = all.clone().map(|one| one.mean - one.standard_deviation);
    let highest = all.map(|one| one.mean + one.standard_deviation).chain(pool);
    let step = |value: f64| value / ACCEPTANCE_STEP;
    let low = step(lowest.fold(1.0, f64::min) - 0.001).floor().max(0.0) * ACCEPTANCE_STEP;
    let high = step(highest.fold(0.0, f64::max)).ceil() * ACCEPTANCE_STEP;
    let scale = Scale { low, high: high.max(low + ACCEPTANCE_STEP).min(1.0) };
    let best = comparison.best_acceptance();
    let rows = comparison.strategies.iter().map(|one| {
        let (mean, deviation) = (one.acceptance.mean, one.acceptance.standard_deviation);
        let (from, to) = (scale.at(mean - deviation), scale.at(mean + deviation));
        let whisker = (deviation > 0.0).then_some(Mark::Whisker { from, to });
        let pool = pool.map(|pool| Mark::Pool { x: scale.at(pool) });
        let dot = Mark::Dot { x: scale.at(mean) };
        Row {
            name: one.strategy.into(),
            is_best: one.is_best(best),
            marks: pool.into_iter().chain(whisker).chain([dot]).collect(),
            values: vec![share(one.acceptance)],
        }
    });
    let axis = [scale.low, scale.high].map(|end| format!("{:.0} %", end * 100.0));
    let mut description =
        "Dot: mean share of the requests. Bold: the best mean is within one standard deviation."
            .to_owned();
    if comparison.strategies.iter().any(|one| one.acceptance.standard_deviation > 0.0) {
        description.push_str(" Whisker: standard deviation over the runs.");
    }
    if let Some(pool) = pool {
        let pool = format!(" Dashed line: one pool of as many slices, {}.", percent(pool));
        description.push_str(&pool);
    }
    let [start, _] = &axis;
    if scale.low > 0.0 {
        let start = format!(" The scale begins at {start}.");
        description.push_str(&start);
    }
    BarChart {
        caption: "Accepted requests".to_owned(),
        description,
        columns: &["Accepted"],
        axis,
        legend: &[],
        rows: rows.collect(),
    }
}

/// Operations per accepted request.
pub(crate) fn operations(comparison: &Comparison) -> BarChart {
    let value = |one: &StrategyResult| one.operations_per_request.mean;
    let scale = Scale::from_zero(comparison.strategies.iter().map(value));
    let rows = comparison.strategies.iter().map(|one| Row {
        name: one.strategy.into(),
        is_best: false,
        marks: vec![scale.bar("value", 0.0, value(one))],
        values: vec![format!("{:.2}", value(one))],
    });
    BarChart {
        caption: "Operations per accepted request".to_owned(),
        description: "Created and destroyed instances.".to_owned(),
        columns: &["Operations"],
        axis: ["0".to_owned(), format!("{:.2}", scale.high)],
        legend: &[],
        rows: rows.collect(),
    }
}

/// Shares of the slices that were in use and fragmented.
pub(crate) fn slices(comparison: &Comparison) -> BarChart {
    let scale = Scale { low: 0.0, high: 1.0 };
    let rows = comparison.strategies.iter().map(|one| {
        let (used, fragmented) = (one.utilization.mean, one.fragmentation.mean);
        let both = used + fragmented;
        Row {
            name: one.strategy.into(),
            is_best: false,
            marks: vec![
                scale.bar("free", both, 1.0),
                scale.bar("fragmented", used, both),
                scale.bar("in-use", 0.0, used),
            ],
            values: vec![percent(used), percent(fragmented)],
        }
    });
    BarChart {
        caption: "Slices".to_owned(),
        description:
            "Mean shares of all slices. Fragmented: free, but a random request cannot use them."
                .to_owned(),
        columns: &["In use", "Fragmented"],
        axis: ["0 %".to_owned(), "100 %".to_owned()],
        legend: SLICES,
        rows: rows.collect(),
    }
}

/// Waiting times of all requests, and of those for each profile, on the same scale.
pub(crate) fn waiting_times(comparison: &Comparison) -> Vec<BarChart> {
    let strategies = &comparison.strategies;
    let all = strategies.iter().map(|one| ("All requests".to_owned(), one, one.wait));
    let by_profile = strategies.iter().flat_map(|one| {
        let profiles = one.wait_by_profile.iter();
        profiles.map(move |(profile, wait)| (profile.to_string(), one, *wait))
    });
    let times: Vec<(String, &StrategyResult, WaitingTime)> = all.chain(by_profile).collect();
    let longest = times.iter().map(|(_, _, wait)| wait.p95_seconds.max(wait.mean_seconds));
    let scale = Scale::from_zero(longest);
    let mut charts: Vec<BarChart> = Vec::new();
    for (caption, result, wait) in times {
        let row = Row {
            name: result.strategy.into(),
            is_best: false,
            marks: vec![
                scale.bar("value", 0.0, wait.mean_seconds),
                Mark::Tick { x: scale.at(wait.p95_seconds) },
            ],
            values: vec![seconds(wait.mean_seconds), seconds(wait.p95_seconds)],
        };
        match charts.iter_mut().find(|chart| chart.caption == caption) {
            Some(chart) => chart.rows.push(row),
            None => charts.push(BarChart {
                caption,
                description: String::new(),
                columns: &["Mean", "p95"],
                axis: ["0 s".to_owned(), seconds(scale.high)],
                legend: &[],
                rows: vec![row],
            }),
        }
    }
    charts
}

/// Scale of a chart.
#[derive(Debug, Clone, Copy)]
struct Scale {
    low: f64,
    high: f64,
}

impl Scale {
    /// Scale from 0 to the highest value, or to 1 if all are 0.
    fn from_zero(values: impl Iterator<Item = f64>) -> Self {
        let highest = values.fold(0.0, f64::max);
        Self { low: 0.0, high: if highest > 0.0 { highest } else { 1.0 } }
    }

    /// Position of a value in percent.
    fn at(self, value: f64) -> String {
        format!("{:.2}", self.position(value))
    }

    fn bar(self, class: &'static str, from: f64, to: f64) -> Mark {
        let (from, to) = (self.position(from), self.position(to));
        Mark::Bar { class, x: format!("{from:.2}"), width: format!("{:.2}", (to - from).max(0.0)) }
    }

    fn position(self, value: f64) -> f64 {
        let length = self.high - self.low;
        if length > 0.0 { ((value - self.low) / length * 100.0).clamp(0.0, 100.0) } else { 0.0 }
    }
}
