//! Comparison of strategies over several traces.

use std::collections::BTreeMap;
use std::time::Duration;

use octavo_model::profile::ProfileName;
use serde::Serialize;

use super::run::{Discipline, Options, Outcome, pool_acceptance, run};
use super::series::TimeSeries;
use super::strategy::Strategy;
use super::trace::Job;
use crate::fleet::Fleet;

/// Comparison of strategies on a fleet, as a document.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TraceReport {
    /// Mix or file.
    pub trace: String,
    /// Number of GPUs that support a requested profile.
    pub gpus: usize,
    /// Number of their slices.
    pub slices: u32,
    /// Figures of the strategies.
    #[serde(flatten)]
    pub comparison: Comparison,
}

/// Figures of several strategies for the same traces.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Comparison {
    /// Number of measured requests of each trace.
    pub requests: usize,
    /// Acceptance of one pool with as many slices, without devices and placements; absent if requests wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool_acceptance: Option<MeanAndDeviation>,
    /// Figures of each strategy.
    pub strategies: Vec<StrategyResult>,
}

impl Comparison {
    /// Highest acceptance of a strategy.
    pub fn best_acceptance(&self) -> f64 {
        self.strategies.iter().map(|one| one.acceptance.mean).fold(0.0, f64::max)
    }
}

/// Figures of one strategy.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StrategyResult {
    /// The strategy.
    pub strategy: Strategy,
    /// Share of the requests that got an instance, from 0 to 1.
    pub acceptance: MeanAndDeviation,
    /// Created and destroyed instances per accepted request.
    pub operations_per_request: MeanAndDeviation,
    /// Share of the slices in use, from 0 to 1.
    pub utilization: MeanAndDeviation,
    /// Share of the slices that are free and that a random request cannot use, from 0 to 1.
    pub fragmentation: MeanAndDeviation,
    /// Waiting time of all requests.
    pub wait: WaitingTime,
    /// Waiting time by profile.
    pub wait_by_profile: BTreeMap<ProfileName, WaitingTime>,
    /// Slices of the fleet over the time of the first trace.
    #[serde(skip)]
    pub series: TimeSeries,
}

/// Mean and standard deviation over the traces.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MeanAndDeviation {
    /// Mean.
    pub mean: f64,
    /// Standard deviation of the sample; 0 for one trace.
    pub standard_deviation: f64,
}

/// Waiting time over all traces.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitingTime {
    /// Mean in seconds.
    pub mean_seconds: f64,
    /// 95th percentile in seconds.
    pub p95_seconds: f64,
}

/// Runs every strategy on every trace.
pub fn compare(
    fleet: &Fleet,
    traces: &[Vec<Job>],
    strategies: &[Strategy],
    discipline: Discipline,
    warm_up: usize,
) -> Comparison {
    let pooled = traces.iter().map(|jobs| pool_acceptance(fleet, jobs, warm_up));
    let strategies = strategies.iter().map(|strategy| {
        let options = Options { strategy: *strategy, discipline, warm_up };
        let outcomes = traces.iter().map(|jobs| run(fleet.clone(), jobs, options));
        StrategyResult::new(*strategy, &outcomes.collect::<Vec<_>>())
    });
    Comparison {
        requests: traces.iter().map(Vec::len).max().unwrap_or(0).saturating_sub(warm_up),
        strategies: strategies.collect(),
        pool_acceptance: (discipline == Discipline::Loss).then(|| MeanAndDeviation::new(pooled)),
    }
}

impl StrategyResult {
    /// Returns whether the acceptance differs from the best one by at most the standard deviation.
    pub fn is_best(&self, best: f64) -> bool {
        self.acceptance.mean + self.acceptance.standard_deviation >= best
    }

    fn new(strategy: Strategy, outcomes: &[Outcome]) -> Self {
        let spread =
            |figure: fn(&Outcome) -> f64| MeanAndDeviation::new(outcomes.iter().map(figure));
        let mut waits: BTreeMap<ProfileName, Vec<Duration>> = BTreeMap::new();
        for (profile, times) in outcomes.iter().flat_map(|outcome| &outcome.waits) {
            waits.entry(profile.clone()).or_default().extend(times);
        }
        Self {
            strategy,
            acceptance: spread(Outcome::acceptance),
            operations_per_request: spread(Outcome::operations_per_request),
            utilization: spread(Outcome::utilization),
            fragmentation: spread(Outcome::fragmentation),
            wait: WaitingTime::new(waits.values().flatten().copied().collect()),
            wait_by_profile: waits
                .into_iter()
                .map(|(profile, times)| (profile, WaitingTime::new(times)))
                .collect(),
            series: outcomes.first().map(|first| first.series.clone()).unwrap_or_default(),
        }
    }
}

impl MeanAndDeviation {
    fn new(values: impl Iterator<Item = f64>) -> Self {
        let values: Vec<f64> = values.collect();
        let count = as_f64(values.len());
        let mean = values.iter().sum::<f64>() / count.max(1.0);
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        Self { mean, standard_deviation: (squares / (count - 1.0).max(1.0)).sqrt() }
    }
}

impl WaitingTime {
    fn new(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let sum: f64 = times.iter().map(Duration::as_secs_f64).sum();
        let last = times.len().saturating_sub(1);
        let at = times.len().saturating_mul(95).div_ceil(100).saturating_sub(1).min(last);
        Self {
            mean_seconds: sum / as_f64(times.len()).max(1.0),
            p95_seconds: times.get(at).map_or(0.0, Duration::as_secs_f64),
        }
    }
}

fn as_f64(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}
