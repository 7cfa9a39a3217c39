//! The store as shared by the tasks of the ingest thread.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::{Store, StoreLimits};
use crate::clock::{Clock, Moment};
use crate::fleet::Fleet;
use crate::stats::Stats;
use crate::view::FleetView;

/// A [`Store`] with a clock. It is locked for the duration of a call, and never across an await.
#[derive(Debug)]
pub struct SharedStore {
    store: Mutex<Store>,
    readers: watch::Receiver<Fleet>,
    clock: Clock,
    sweep_interval: Duration,
    /// Signals that a publication is due.
    due: Notify,
}

/// Bounds of the interval between sweeps, which is a tenth of the staleness bound.
const SWEEP_INTERVAL_BOUNDS: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(1)];

impl SharedStore {
    /// Creates a store with an empty fleet.
    pub fn new(limits: StoreLimits, stats: Stats) -> Self {
        let (store, readers) = Store::new(limits, stats);
        let [shortest, longest] = SWEEP_INTERVAL_BOUNDS;
        Self {
            store: Mutex::new(store),
            readers,
            clock: Clock::start(),
            sweep_interval: (limits.stale_after / 10).clamp(shortest, longest),
            due: Notify::new(),
        }
    }

    /// Returns a view for readers.
    pub fn view(&self) -> FleetView {
        let history = self.with(|store, _| store.history().clone());
        FleetView::new(self.readers.clone(), self.clock).with_history(history)
    }

    /// Runs `act` with the store and the current time.
    pub fn with<T>(&self, act: impl FnOnce(&mut Store, Moment) -> T) -> T {
        let mut store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.now();
        let done = act(&mut store, now);
        if store.due(now).is_some() {
            self.due.notify_one();
        }
        done
    }

    /// Publishes delayed changes, sweeps and records the history. Never returns.
    pub async fn run_maintenance(&self) {
        let mut sweeps = interval(self.sweep_interval);
        sweeps.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = sweeps.tick() => {
                    self.with(Store::sweep);
                    self.record_history().await;
                }
                () = self.due.notified() => {
                    if let Some(wait) = self.with(|store, now| store.due(now)) {
                        // Changes during the delay are published together.
                        sleep(wait).await;
                        self.with(Store::publish);
                    }
                }
            }
        }
    }

    /// Adds the last report of each node to the history, once per step. A stale node has a gap.
    async fn record_history(&self) {
        let due = self.with(|store, now| {
            let step = store.history().next_step(self.clock.wall(now))?;
            Some((step, store.history().clone(), store.samples(now)))
        });
        if let Some((step, history, samples)) = due {
            history.record(step, &samples).await;
            self.with(|store, _| store.measure_history());
        }
    }
}
