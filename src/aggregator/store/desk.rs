//! The store as the ingest thread's tasks share it.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::Store;
use crate::aggregator::clock::{Clock, Moment};
use crate::aggregator::fleet::Fleet;
use crate::aggregator::stats::Stats;
use crate::aggregator::view::View;
use crate::config::aggregator::FleetSettings;

/// A [`Store`] with a clock. It is held for the length of a call and never while waiting.
#[derive(Debug)]
pub struct Desk {
    store: Mutex<Store>,
    readers: watch::Receiver<Fleet>,
    clock: Clock,
    sweeps: Duration,
    /// There is something to publish.
    due: Notify,
}

/// Bounds of how often nodes are looked at: ten times within the bound of staleness.
const SWEEPS: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(1)];

impl Desk {
    /// A desk with an empty fleet.
    pub fn new(settings: FleetSettings, stats: Stats) -> Self {
        let (store, readers) = Store::new(settings, stats);
        let [shortest, longest] = SWEEPS;
        Self {
            store: Mutex::new(store),
            readers,
            clock: Clock::start(),
            sweeps: (settings.stale_after() / 10).clamp(shortest, longest),
            due: Notify::new(),
        }
    }

    /// What readers are given.
    pub fn view(&self) -> View {
        View::new(self.readers.clone(), self.clock)
    }

    /// Does something with the store, now.
    pub fn with<T>(&self, act: impl FnOnce(&mut Store, Moment) -> T) -> T {
        let mut store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.now();
        let done = act(&mut store, now);
        if store.due(now).is_some() {
            self.due.notify_one();
        }
        done
    }

    /// Publishes what could not be published at once, and sweeps. Never returns.
    pub async fn keep(&self) {
        let mut sweeps = interval(self.sweeps);
        sweeps.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = sweeps.tick() => self.with(Store::sweep),
                () = self.due.notified() => {
                    if let Some(wait) = self.with(|store, now| store.due(now)) {
                        // The pace of publishing; what changes meanwhile is published with it.
                        sleep(wait).await;
                        self.with(Store::publish);
                    }
                }
            }
        }
    }
}
