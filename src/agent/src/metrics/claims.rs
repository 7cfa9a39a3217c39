//! Metrics of resource claims: the kubelet's calls, and the claims on this node.

use std::time::Duration;

use octavo_dra::claims::ClaimState;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::{BUCKETS, LabeledFamily};

const CALLS: [&str; 2] = [PREPARE, UNPREPARE];
/// Value of the label `call` for Prepare.
pub(crate) const PREPARE: &str = "prepare";
/// Value of the label `call` for Unprepare.
pub(crate) const UNPREPARE: &str = "unprepare";

/// Histograms with one label.
type HistogramFamily = Family<[(&'static str, &'static str); 1], Histogram, fn() -> Histogram>;

/// Metrics of the claims of a node. Clones share their state.
#[derive(Debug, Clone)]
pub struct ClaimMetrics {
    calls: Family<[(&'static str, &'static str); 2], Counter>,
    duration: HistogramFamily,
    claims: LabeledFamily<Gauge>,
}

impl Default for ClaimMetrics {
    fn default() -> Self {
        let new = Self {
            calls: Family::default(),
            duration: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            claims: LabeledFamily::default(),
        };
        // Initialize all series to 0, so that the first call shows as an increase.
        for call in CALLS {
            for result in ["success", "error"] {
                drop(new.calls.get_or_create(&[("call", call), ("result", result)]));
            }
            drop(new.duration.get_or_create(&[("call", call)]));
        }
        new.set_claims(&[]);
        new
    }
}

impl ClaimMetrics {
    /// Sets the states of the claims on this node.
    pub(crate) fn set_claims(&self, states: &[ClaimState]) {
        for (word, state) in
            [("preparing", ClaimState::Preparing), ("prepared", ClaimState::Prepared)]
        {
            let number = states.iter().filter(|one| **one == state).count();
            let gauge = self.claims.get_or_create(&[("state", word)]);
            gauge.set(i64::try_from(number).unwrap_or(i64::MAX));
        }
    }

    /// Records a call of the kubelet for one claim.
    pub(crate) fn record(&self, call: &'static str, succeeded: bool, took: Duration) {
        let result = if succeeded { "success" } else { "error" };
        self.calls.get_or_create(&[("call", call), ("result", result)]).inc();
        self.duration.get_or_create(&[("call", call)]).observe(took.as_secs_f64());
    }

    /// Registers all metrics.
    pub fn registry(&self) -> Registry {
        let mut registry = Registry::with_prefix("octavo");
        registry.register(
            "claim_calls",
            "Number of calls of the kubelet to prepare or release a resource claim, by result",
            self.calls.clone(),
        );
        registry.register(
            "claim_call_duration_seconds",
            "Duration of a call of the kubelet to prepare or release a resource claim, in seconds",
            self.duration.clone(),
        );
        registry.register(
            "claims",
            "Number of resource claims on this node, by state",
            self.claims.clone(),
        );
        registry
    }
}

#[cfg(test)]
mod tests {
    use octavo_toolkit::telemetry::exposition;

    use super::*;

    #[test]
    fn calls_are_counted_by_result_and_every_metric_is_documented() {
        let metrics = ClaimMetrics::default();
        metrics.set_claims(&[ClaimState::Prepared, ClaimState::Prepared]);
        metrics.record(PREPARE, true, Duration::from_millis(300));
        metrics.record(PREPARE, false, Duration::from_secs(40));
        metrics.record(UNPREPARE, true, Duration::ZERO);
        let text = exposition::write(&metrics.registry(), std::iter::empty()).unwrap().1;
        for sample in [
            "octavo_claim_calls_total{call=\"prepare\",result=\"success\"} 1",
            "octavo_claim_calls_total{call=\"prepare\",result=\"error\"} 1",
            "octavo_claim_calls_total{call=\"unprepare\",result=\"error\"} 0",
            "octavo_claim_call_duration_seconds_sum{call=\"prepare\"} 40.3",
            "octavo_claims{state=\"prepared\"} 2",
            "octavo_claims{state=\"preparing\"} 0",
        ] {
            assert!(text.lines().any(|line| line == sample), "{sample}\n{text}");
        }
        let page = include_str!("../../../../docs/reference/metrics.md");
        for family in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
            let (name, _) = family.split_once(' ').unwrap();
            let entry = format!("\n### `{name}");
            assert!(page.contains(&entry), "docs/reference/metrics.md does not list {name}");
        }
    }
}
