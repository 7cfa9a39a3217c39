//! The history of the devices as shared by its writer and its readers.

mod query;
mod search;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use octavo_history::{DeviceSample, History};
use octavo_model::id::NodeName;
use tokio::task::yield_now;

pub use self::query::{Grouping, Query};
pub use self::search::Search;

/// Samples of a node's devices and partitions.
pub type NodeSamples = (NodeName, Arc<[DeviceSample]>);

/// Nodes that are recorded while the history is locked.
const NODES_PER_BATCH: usize = 50;

/// The current history. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct SharedHistory(Arc<Mutex<History>>);

impl SharedHistory {
    /// Creates an empty history of at most this number of bytes; 0 turns it off.
    pub fn new(bytes: usize) -> Self {
        Self(Arc::new(Mutex::new(History::new(bytes))))
    }

    /// Returns the history. It does not change, and is locked only to clone it.
    pub fn current(&self) -> History {
        self.lock().clone()
    }

    /// Step to record at this time; `None` if it is not newer than the last one, or the history is turned off.
    pub fn next_step(&self, time: Timestamp) -> Option<u32> {
        self.lock().next_step(u64::try_from(time.as_second()).unwrap_or_default())
    }

    /// Records the samples of all nodes in a step that [`Self::next_step`] returned. There must be only one recording at
    /// a time.
    pub async fn record(&self, step: u32, reports: &[NodeSamples]) {
        // Readers wait for the lock, and other tasks share this thread.
        for batch in reports.chunks(NODES_PER_BATCH) {
            let batch = batch.iter().map(|(node, samples)| (node, &**samples));
            self.lock().record_nodes(step, batch);
            yield_now().await;
        }
        let outdated = self.lock().outdated(step);
        for batch in outdated.chunks(NODES_PER_BATCH) {
            self.lock().seal(step, batch);
            yield_now().await;
        }
        self.lock().finish(step);
    }

    fn lock(&self) -> MutexGuard<'_, History> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Time of day of a number of seconds since 1970.
pub fn timestamp(seconds: u64) -> Timestamp {
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use octavo_history::{Sample, SeriesKey};
    use octavo_model::id::PciAddress;
    use octavo_model::quantity::Mebibytes;

    use super::*;

    #[tokio::test]
    async fn all_batches_of_a_step_are_recorded_once() {
        let history = SharedHistory::new(1 << 20);
        let sample = DeviceSample {
            key: SeriesKey { device: PciAddress::new(0, 1, 0, 0).unwrap(), partition: None },
            type_name: None,
            memory: Mebibytes::default(),
            sample: Sample::new([Some(40); 5]),
        };
        let samples: Arc<[DeviceSample]> = Arc::new([sample]);
        let reports: Vec<NodeSamples> = (0..120)
            .map(|number| (format!("node-{number}").parse().unwrap(), Arc::clone(&samples)))
            .collect();
        let time = timestamp(1_800_000_000);
        let step = history.next_step(time).unwrap();
        history.record(step, &reports).await;
        assert_eq!(history.current().status().series, 120);
        assert_eq!(history.next_step(time), None);
        // All nodes disappear, and their values are too old after two days.
        let later = history.next_step(timestamp(1_800_200_000)).unwrap();
        history.record(later, &[]).await;
        assert_eq!(history.current().status().series, 0);
    }
}
