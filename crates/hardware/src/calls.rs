//! Record of running driver calls, so that other threads can report a call that does not return.
//!
//! NVML can hang inside the kernel, where it cannot be interrupted, and its thread is lost until the call returns. The
//! calling thread therefore records each call before making it, and readers compare its start time with the deadline.
//! The time starts with each call: a slow driver is not stalled, only one that does not return is. While devices are
//! being changed, each may have its own thread and call.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use octavo_model::id::PciAddress;
use tokio::time::Instant;

/// Record of the calls in flight, shared by the calling and the observing threads.
#[derive(Debug, Clone)]
pub struct CallRecord {
    record: Arc<Mutex<Record>>,
    deadline: Duration,
}

#[derive(Debug, Default)]
struct Record {
    /// By serial number, so the oldest call is first.
    running: BTreeMap<u64, RunningCall>,
    started: u64,
    has_overrun: bool,
}

/// A call that has started and not returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunningCall {
    /// The NVML function.
    pub function: &'static str,
    /// The device that the call concerns.
    pub device: Option<PciAddress>,
    /// Distinguishes two calls of the same function.
    pub serial: u64,
    since: Instant,
}

impl CallRecord {
    /// Creates an empty record in which a call is overdue after `deadline`.
    pub fn new(deadline: Duration) -> Self {
        Self { record: Arc::default(), deadline }
    }

    /// Runs `call` and records it until it returns.
    pub fn record<T>(
        &self,
        function: &'static str,
        device: Option<PciAddress>,
        call: impl FnOnce() -> T,
    ) -> T {
        let (serial, since) = {
            let mut record = self.lock();
            record.started = record.started.wrapping_add(1);
            let serial = record.started;
            let since = Instant::now();
            let call = RunningCall { function, device, serial, since };
            record.running.insert(serial, call);
            (serial, since)
        };
        let result = call();
        let mut record = self.lock();
        record.running.remove(&serial);
        record.has_overrun |= since.elapsed() >= self.deadline;
        drop(record);
        result
    }

    /// Returns the oldest call that has been running longer than the deadline.
    pub fn stalled(&self) -> Option<RunningCall> {
        self.running_for(self.deadline)
    }

    /// Returns the oldest call that has been running for at least `least`.
    pub fn running_for(&self, least: Duration) -> Option<RunningCall> {
        self.oldest().filter(|call| call.since.elapsed() >= least)
    }

    /// Returns the time until [`Self::stalled`] can change from `None`.
    pub fn time_to_stall(&self) -> Duration {
        self.oldest()
            .map_or(self.deadline, |call| self.deadline.saturating_sub(call.since.elapsed()))
    }

    /// Returns the time after which a running call counts as stalled.
    pub fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Returns the oldest call, which is overdue first because all calls have the same deadline.
    fn oldest(&self) -> Option<RunningCall> {
        let record = self.lock();
        record.running.first_key_value().map(|(_, call)| *call)
    }

    /// Returns whether a call has overrun its deadline and returned since the last call of this method.
    pub(crate) fn take_overran(&self) -> bool {
        std::mem::take(&mut self.lock().has_overrun)
    }

    /// Ignores poison: a panic while the record is locked leaves it valid.
    fn lock(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_is_recorded_until_it_returns() {
        let calls = CallRecord::new(Duration::ZERO);
        let during = calls.record("nvmlInit_v2", None, || calls.stalled());
        assert_eq!(during.map(|call| call.function), Some("nvmlInit_v2"));
        assert_eq!(calls.stalled(), None);
        assert!(calls.take_overran());
        assert!(!calls.take_overran());
    }

    #[test]
    fn oldest_stalled_call_is_reported() {
        let calls = CallRecord::new(Duration::ZERO);
        let stalled = || calls.stalled().map(|call| call.function);
        calls.record("nvmlGpuInstanceDestroy", None, || {
            std::thread::scope(|scope| {
                let other = || calls.record("nvmlDeviceSetMigMode", None, stalled);
                let stalled = scope.spawn(other).join();
                assert_eq!(stalled.ok().flatten(), Some("nvmlGpuInstanceDestroy"));
            });
            assert_eq!(stalled(), Some("nvmlGpuInstanceDestroy"));
        });
        assert_eq!(stalled(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn time_until_stall_follows_the_oldest_call() {
        let calls = CallRecord::new(Duration::from_secs(10));
        assert_eq!(calls.time_to_stall(), Duration::from_secs(10));
        let (mut first, mut second) = (Duration::ZERO, Duration::ZERO);
        // The clock is paused and advances only at an await, so the test manipulates the record directly.
        let first_since = Instant::now();
        tokio::time::advance(Duration::from_secs(4)).await;
        calls.record("nvmlDeviceSetMigMode", None, || {
            let serial = 0;
            let older = RunningCall {
                function: "nvmlGpuInstanceDestroy",
                device: None,
                serial,
                since: first_since,
            };
            calls.lock().running.insert(serial, older);
            first = calls.time_to_stall();
            calls.lock().running.remove(&serial);
            second = calls.time_to_stall();
        });
        assert_eq!([first, second], [6, 10].map(Duration::from_secs));
    }

    #[test]
    fn call_within_its_deadline_is_not_stalled() {
        let calls = CallRecord::new(Duration::from_hours(1));
        assert_eq!(calls.record("nvmlInit_v2", None, || calls.stalled()), None);
        assert!(!calls.take_overran());
    }
}
