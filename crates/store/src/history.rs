//! The history of the devices as shared by its writer and its readers.

mod query;
mod search;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use octavo_fleet::history::{DeviceSample, History};
use octavo_model::id::NodeName;

pub use self::query::{Grouping, Query};
pub use self::search::Search;

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

    /// Records the samples of all nodes at this time, once per step.
    pub fn record<'a>(
        &self,
        time: Timestamp,
        reports: impl Iterator<Item = (&'a NodeName, &'a [DeviceSample])>,
    ) {
        let seconds = u64::try_from(time.as_second()).unwrap_or_default();
        self.lock().record(seconds, reports);
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
