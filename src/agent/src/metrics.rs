//! Metrics of the agent's layouts: how each device's change ended, how long it took, and the state of the devices.
//!
//! Time spent in calls to the driver is measured separately, so that the difference is Octavo's own share. There is no
//! series per device. Each pod that blocks a layout has one, up to a limit.

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
    standing: StatusCollector,
    last: Arc<Mutex<LastStates>>,
}

/// States of the devices at the last scan.
#[derive(Debug, Default)]
struct LastStates {
    states: BTreeMap<PciAddress, &'static str>,
    /// Time up to which blocked devices are counted.
    since: Option<Instant>,
}

/// Buckets from a single call to the longest time that a change and its rollback may take.
const BUCKETS: [f64; 13] = [
    0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0,
];

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
            standing: StatusCollector::default(),
            last: Arc::default(),
        };
        // Initialize all series to 0, so that the first event shows as an increase.
        for word in ChangeOutcome::WORDS {
            drop(new.results.get_or_create(&[("result", word)]));
        }
        for word in ApplyState::WORDS {
            drop(new.states.get_or_create(&[("state", word)]));
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
        let result = [("result", outcome.ending.as_str())];
        self.results.get_or_create(&result).inc();
        self.duration.observe(outcome.took.as_secs_f64());
        self.hardware.observe(outcome.hardware.as_secs_f64());
        let work = outcome.work;
        self.destroyed.inc_by(work.destroyed.into());
        self.created.inc_by(work.created.into());
        self.retries.inc_by(work.retries.into());
        self.rollbacks.inc_by(work.rollbacks.into());
    }

    /// Records the current status of the node.
    pub fn stands(&self, status: &NodeLayoutStatus) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        self.advance_counters(&mut last);
        self.standing.set(status);
        let devices = status.devices.iter();
        let stand: BTreeMap<PciAddress, &'static str> =
            devices.map(|device| (device.pci, device.state)).collect();
        // Repaired drift is counted by the round that repairs it; drift that is left alone is counted when it is
        // found.
        let left = stand.iter().filter(|(pci, state)| {
            Reason::Drifted.is(state) && last.states.get(pci).is_some_and(|before| before != *state)
        });
        self.drift.inc_by(count(left.count()));
        for word in ApplyState::WORDS {
            let there = stand.values().filter(|state| **state == word).count();
            let gauge = self.states.get_or_create(&[("state", word)]);
            gauge.set(i64::try_from(there).unwrap_or(i64::MAX));
        }
        last.states = stand;
    }

    /// Advances the counters that grow with time to the present.
    fn advance_counters(&self, last: &mut LastStates) {
        let now = Instant::now();
        let since = last.since.replace(now).unwrap_or(now);
        let blocked = last
            .states
            .values()
            .filter(|state| Reason::Blocked.is(state));
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
            "GPU instances that were destroyed",
            self.destroyed.clone(),
        );
        registry.register(
            "instances_created",
            "GPU instances that were created",
            self.created.clone(),
        );
        registry.register(
            "retries",
            "Calls that were made again because the driver said that they may work later",
            self.retries.clone(),
        );
        registry.register(
            "rollbacks",
            "Changes of one device that could not be ended, and what it had was brought back or tried to be",
            self.rollbacks.clone(),
        );
        registry.register(
            "drift",
            "Times that a device was found changed by somebody else",
            self.drift.clone(),
        );
        registry.register(
            "blocked_seconds",
            "How long devices were blocked, all of them added up",
            self.blocked.clone(),
        );
        registry.register(
            "layout_state",
            "Devices that a layout asks something of, by how they stand",
            self.states.clone(),
        );
        registry.register_collector(Box::new(self.standing.clone()));
        registry
    }

    fn register_results(&self, registry: &mut Registry) {
        registry.register(
            "applies",
            "Changes of one device that have ended, by how",
            self.results.clone(),
        );
        registry.register(
            "apply_duration_seconds",
            "How long the change of one device took, from its first action to its last",
            self.duration.clone(),
        );
        registry.register(
            "apply_hardware_seconds",
            "How much of that was spent in calls to the driver",
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

    use octavo_planner::reconcile::{DeviceStatus, OperationCounts};
    use octavo_toolkit::telemetry::exposition;
    use tokio::time::advance;

    use super::*;

    fn text(applies: &LayoutMetrics) -> String {
        applies.refresh();
        exposition::write(&applies.registry(), std::iter::empty())
            .unwrap()
            .1
    }

    #[track_caller]
    fn tells(applies: &LayoutMetrics, samples: &[&str]) {
        let text = text(applies);
        for sample in samples {
            assert!(text.lines().any(|line| line == *sample), "{sample}\n{text}");
        }
    }

    fn status(states: &[&'static str]) -> NodeLayoutStatus {
        let device = |(number, state): (u8, &&'static str)| DeviceStatus {
            pci: PciAddress::new(0, number, 0, 0).unwrap(),
            name: format!("GPU {number}"),
            state,
            message: String::new(),
            is_held: false,
            holders: Vec::new(),
            waits_for_holders: false,
            progress: None,
        };
        NodeLayoutStatus {
            devices: (0..).zip(states).map(device).collect(),
            ..NodeLayoutStatus::default()
        }
    }

    #[test]
    fn round_outcomes_are_counted_per_device() {
        let applies = LayoutMetrics::default();
        let outcome = |ending| Outcome {
            pci: PciAddress::new(0, 7, 0, 0).unwrap(),
            ending,
            work: OperationCounts {
                destroyed: 2,
                created: 3,
                retries: 4,
                rollbacks: 1,
            },
            took: Duration::from_millis(300),
            hardware: Duration::from_millis(200),
        };
        let failed = ChangeOutcome::Failed {
            reason: String::new(),
            rollback: None,
        };
        applies.record_round(&Round {
            outcomes: vec![outcome(ChangeOutcome::Applied), outcome(failed)],
            drifted: vec![PciAddress::new(0, 7, 0, 0).unwrap()],
            ..Round::default()
        });
        tells(
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
        applies.stands(&status(&["applied", "blocked", "blocked"]));
        advance(Duration::from_secs(5)).await;
        tells(
            &applies,
            &[
                "octavo_layout_state{state=\"blocked\"} 2",
                "octavo_layout_state{state=\"applied\"} 1",
                "octavo_layout_state{state=\"failed\"} 0",
                "octavo_blocked_seconds_total 10.0",
            ],
        );
        advance(Duration::from_secs(1)).await;
        applies.stands(&status(&["applied", "applied", "blocked"]));
        advance(Duration::from_secs(1)).await;
        applies.stands(&status(&["applied", "applied", "applied"]));
        advance(Duration::from_mins(1)).await;
        tells(&applies, &["octavo_blocked_seconds_total 13.0"]);
    }

    #[tokio::test(start_paused = true)]
    async fn unrepaired_drift_is_counted_once() {
        let applies = LayoutMetrics::default();
        for states in [["applied"], ["drifted"], ["drifted"]] {
            applies.stands(&status(&states));
        }
        tells(&applies, &["octavo_drift_total 1"]);
    }

    #[test]
    fn every_metric_is_documented() {
        let page = include_str!("../../../docs/metrics.md");
        let text = text(&LayoutMetrics::default());
        let types: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE "))
            .collect();
        assert_eq!(types.len(), 15, "{types:?}");
        for told in types {
            let (name, _) = told.split_once(' ').unwrap();
            let entry = format!("| `{name}` |");
            assert!(page.contains(&entry), "docs/metrics.md has no line {entry}");
        }
    }
}
