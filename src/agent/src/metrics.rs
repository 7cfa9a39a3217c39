//! Metrics of the agent's layouts: how each device's change ended, how long it took, and the state of the devices.
//!
//! Time spent in calls to the driver is measured separately, so that the difference is Octavo's own share. There is no
//! series per device. Each pod that blocks a layout has one, up to a limit.

pub mod claims;
mod dcgm;
mod family_writer;
mod layout_status;
pub mod serve;
pub mod usage;
pub mod vendors;

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use octavo_engine::engine::Round;
use octavo_engine::executor::Outcome;
use octavo_model::id::PciAddress;
use octavo_model::reason::Reason;
use octavo_model::reported::Reported;
use octavo_planner::reconcile::{ApplyState, ChangeOutcome, NodeLayoutStatus};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tokio::time::Instant;

use self::layout_status::StatusCollector;

/// Metric family with one label, whose values are words defined here.
type LabeledFamily<M> = Family<[(&'static str, &'static str); 1], M>;

/// Counters of a node's layouts. Cheap to clone: clones share their state.
#[derive(Debug, Clone)]
pub struct LayoutMetrics {
    results: LabeledFamily<Counter>,
    duration: Histogram,
    hardware: Histogram,
    destroyed: Counter,
    created: Counter,
    retries: Counter,
    rollbacks: Counter,
    drift: Counter,
    blocked: Counter<f64, AtomicU64>,
    states: LabeledFamily<Gauge>,
    layout_status: StatusCollector,
    last: Arc<Mutex<LastStates>>,
}

/// States of the devices at the last scan.
#[derive(Debug, Default)]
struct LastStates {
    states: BTreeMap<PciAddress, Reported<Reason>>,
    /// Time up to which blocked devices are counted.
    since: Option<Instant>,
}

/// Buckets from a single call to the longest time that a change and its rollback may take.
const BUCKETS: [f64; 13] =
    [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0];

impl Default for LayoutMetrics {
    fn default() -> Self {
        let new = Self {
            results: LabeledFamily::default(),
            duration: Histogram::new(BUCKETS),
            hardware: Histogram::new(BUCKETS),
            destroyed: Counter::default(),
            created: Counter::default(),
            retries: Counter::default(),
            rollbacks: Counter::default(),
            drift: Counter::default(),
            blocked: Counter::default(),
            states: LabeledFamily::default(),
            layout_status: StatusCollector::default(),
            last: Arc::default(),
        };
        // Initialize all series to 0, so that the first event shows as an increase.
        for reason in ChangeOutcome::REASONS {
            drop(new.results.get_or_create(&[("result", reason.as_str())]));
        }
        for reason in ApplyState::REASONS {
            drop(new.states.get_or_create(&[("state", reason.as_str())]));
        }
        new
    }
}

impl LayoutMetrics {
    /// Records the results of a round.
    pub fn record_round(&self, round: &Round) {
        for outcome in &round.outcomes {
            self.record_outcome(outcome);
        }
        self.drift.inc_by(count(round.drifted.len()));
    }

    fn record_outcome(&self, outcome: &Outcome) {
        let result = [("result", outcome.result.reason().as_str())];
        self.results.get_or_create(&result).inc();
        self.duration.observe(outcome.took.as_secs_f64());
        self.hardware.observe(outcome.driver_time.as_secs_f64());
        let work = outcome.work;
        self.destroyed.inc_by(work.destroyed.into());
        self.created.inc_by(work.created.into());
        self.retries.inc_by(work.retries.into());
        self.rollbacks.inc_by(work.rollbacks.into());
    }

    /// Records the current status of the node.
    pub fn record_status(&self, status: &NodeLayoutStatus) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        self.advance_counters(&mut last);
        self.layout_status.set(status);
        let devices = status.devices.iter();
        let by_device: BTreeMap<PciAddress, Reported<Reason>> =
            devices.map(|device| (device.pci, device.state.clone())).collect();
        // Repaired drift is counted by the round that repairs it; drift that is left alone is counted when it is
        // found.
        let left = by_device.iter().filter(|(pci, state)| {
            **state == Reason::Drifted
                && last.states.get(pci).is_some_and(|before| before != *state)
        });
        self.drift.inc_by(count(left.count()));
        for reason in ApplyState::REASONS {
            let there = by_device.values().filter(|state| **state == reason).count();
            let gauge = self.states.get_or_create(&[("state", reason.as_str())]);
            gauge.set(i64::try_from(there).unwrap_or(i64::MAX));
        }
        last.states = by_device;
    }

    /// Advances the counters that grow with time to the present.
    fn advance_counters(&self, last: &mut LastStates) {
        let now = Instant::now();
        let since = last.since.replace(now).unwrap_or(now);
        let blocked = last.states.values().filter(|state| **state == Reason::Blocked);
        let blocked = u32::try_from(blocked.count()).unwrap_or(u32::MAX);
        let span = now.saturating_duration_since(since);
        self.blocked.inc_by(span.as_secs_f64() * f64::from(blocked));
    }

    /// Registers all metrics.
    pub fn registry(&self) -> Registry {
        let mut registry = Registry::with_prefix("octavo");
        self.register_results(&mut registry);
        registry.register(
            "instances_destroyed",
            "Number of GPU instances destroyed",
            self.destroyed.clone(),
        );
        registry.register(
            "instances_created",
            "Number of GPU instances created",
            self.created.clone(),
        );
        registry.register(
            "retries",
            "Number of driver calls retried after a temporary error",
            self.retries.clone(),
        );
        registry.register(
            "rollbacks",
            "Number of device changes that were rolled back, including failed rollbacks",
            self.rollbacks.clone(),
        );
        registry.register(
            "drift",
            "Number of times a device was found changed by another process",
            self.drift.clone(),
        );
        registry.register(
            "blocked_seconds",
            "Total time devices were blocked, in seconds, summed over all devices",
            self.blocked.clone(),
        );
        registry.register(
            "layout_state",
            "Number of devices that the selected layout covers, by layout state",
            self.states.clone(),
        );
        registry.register_collector(Box::new(self.layout_status.clone()));
        registry
    }

    fn register_results(&self, registry: &mut Registry) {
        registry.register(
            "applies",
            "Number of completed device changes, by result",
            self.results.clone(),
        );
        registry.register(
            "apply_duration_seconds",
            "Duration of a device change, from its first action to its last, in seconds",
            self.duration.clone(),
        );
        registry.register(
            "apply_hardware_seconds",
            "Time that a device change spent in driver calls, in seconds",
            self.hardware.clone(),
        );
    }

    /// Brings the time-based counters up to date for a scrape.
    fn refresh(&self) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        self.advance_counters(&mut last);
    }
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use octavo_planner::reconcile::{DeviceLayoutStatus, OperationCounts};
    use octavo_toolkit::telemetry::exposition;
    use tokio::time::advance;

    use super::*;

    fn text(applies: &LayoutMetrics) -> String {
        applies.refresh();
        exposition::write(&applies.registry(), std::iter::empty()).unwrap().1
    }

    #[track_caller]
    fn check_samples(applies: &LayoutMetrics, samples: &[&str]) {
        let text = text(applies);
        for sample in samples {
            assert!(text.lines().any(|line| line == *sample), "{sample}\n{text}");
        }
    }

    fn status(states: &[&'static str]) -> NodeLayoutStatus {
        let device = |(number, state): (u8, &&'static str)| {
            DeviceLayoutStatus::new(
                PciAddress::new(0, number, 0, 0).unwrap(),
                format!("GPU {number}"),
                Reported::parse(state),
            )
        };
        NodeLayoutStatus {
            devices: (0..).zip(states).map(device).collect(),
            ..NodeLayoutStatus::default()
        }
    }

    #[test]
    fn round_outcomes_are_counted_per_device() {
        let applies = LayoutMetrics::default();
        let outcome = |result| Outcome {
            pci: PciAddress::new(0, 7, 0, 0).unwrap(),
            result,
            work: OperationCounts { destroyed: 2, created: 3, retries: 4, rollbacks: 1 },
            took: Duration::from_millis(300),
            driver_time: Duration::from_millis(200),
        };
        let failed = ChangeOutcome::Failed { reason: String::new(), rollback: None };
        applies.record_round(&Round {
            outcomes: vec![outcome(ChangeOutcome::Applied), outcome(failed)],
            drifted: vec![PciAddress::new(0, 7, 0, 0).unwrap()],
            ..Round::default()
        });
        check_samples(
            &applies,
            &[
                "octavo_applies_total{result=\"applied\"} 1",
                "octavo_applies_total{result=\"failed\"} 1",
                "octavo_applies_total{result=\"blocked\"} 0",
                "octavo_instances_destroyed_total 4",
                "octavo_instances_created_total 6",
                "octavo_retries_total 8",
                "octavo_rollbacks_total 2",
                "octavo_drift_total 1",
                "octavo_apply_duration_seconds_sum 0.6",
                "octavo_apply_hardware_seconds_sum 0.4",
                "octavo_apply_duration_seconds_count 2",
                "octavo_apply_duration_seconds_bucket{le=\"0.25\"} 0",
            ],
        );
    }

    #[tokio::test(start_paused = true)]
    async fn blocked_seconds_include_time_until_scrape() {
        let applies = LayoutMetrics::default();
        applies.record_status(&status(&["applied", "blocked", "blocked"]));
        advance(Duration::from_secs(5)).await;
        check_samples(
            &applies,
            &[
                "octavo_layout_state{state=\"blocked\"} 2",
                "octavo_layout_state{state=\"applied\"} 1",
                "octavo_layout_state{state=\"failed\"} 0",
                "octavo_blocked_seconds_total 10.0",
            ],
        );
        advance(Duration::from_secs(1)).await;
        applies.record_status(&status(&["applied", "applied", "blocked"]));
        advance(Duration::from_secs(1)).await;
        applies.record_status(&status(&["applied", "applied", "applied"]));
        advance(Duration::from_mins(1)).await;
        check_samples(&applies, &["octavo_blocked_seconds_total 13.0"]);
    }

    #[tokio::test(start_paused = true)]
    async fn unrepaired_drift_is_counted_once() {
        let applies = LayoutMetrics::default();
        for states in [["applied"], ["drifted"], ["drifted"]] {
            applies.record_status(&status(&states));
        }
        check_samples(&applies, &["octavo_drift_total 1"]);
    }

    #[test]
    fn every_metric_is_documented() {
        let page = include_str!("../../../docs/reference/metrics.md");
        let text = text(&LayoutMetrics::default());
        let types: Vec<&str> =
            text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
        assert_eq!(types.len(), 15, "{types:?}");
        for family in types {
            let (name, _) = family.split_once(' ').unwrap();
            let entry = format!("\n### `{name}`\n");
            assert!(page.contains(&entry), "docs/reference/metrics.md does not list {name}");
        }
    }
}
