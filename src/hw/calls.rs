//! Which driver calls are running right now, so that somebody else can say when one does not return.
//!
//! NVML can hang inside the kernel, where nothing can interrupt it; the thread that called it is gone until it returns.
//! So the thread writes down what it is about to call, and readers compare the time. The clock starts anew with every
//! call: a driver that answers slowly is slow, only one that does not answer is stalled. While devices are changed there
//! may be a thread for each, and so a call for each.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::domain::id::PciAddress;

/// The record of the calls in flight, shared by the threads that call and those that watch.
#[derive(Debug, Clone)]
pub struct CallWatch {
    record: Arc<Mutex<Record>>,
    deadline: Duration,
}

#[derive(Debug, Default)]
struct Record {
    /// By serial, so the oldest is the first.
    running: BTreeMap<u64, InFlight>,
    started: u64,
    overran: bool,
}

/// A call that has begun and not returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InFlight {
    /// The NVML function.
    pub function: &'static str,
    /// The device it was asked about.
    pub device: Option<PciAddress>,
    /// Tells two calls of the same function apart.
    pub serial: u64,
    since: Instant,
}

impl CallWatch {
    /// A record with no call in flight; a call is overdue after `deadline`.
    pub fn new(deadline: Duration) -> Self {
        Self {
            record: Arc::default(),
            deadline,
        }
    }

    /// Makes a call, and has it on record until it returns.
    pub fn during<T>(
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
            let call = InFlight {
                function,
                device,
                serial,
                since,
            };
            record.running.insert(serial, call);
            (serial, since)
        };
        let answer = call();
        let mut record = self.lock();
        record.running.remove(&serial);
        record.overran |= since.elapsed() >= self.deadline;
        drop(record);
        answer
    }

    /// The call that has been running for longer than the deadline; of several the oldest.
    pub fn stalled(&self) -> Option<InFlight> {
        self.running(self.deadline)
    }

    /// The call that has been running for at least this long; of several the oldest.
    pub fn running(&self, least: Duration) -> Option<InFlight> {
        self.oldest().filter(|call| call.since.elapsed() >= least)
    }

    /// How long to wait until [`Self::stalled`] can have changed from `None`.
    pub fn patience(&self) -> Duration {
        self.oldest().map_or(self.deadline, |call| {
            self.deadline.saturating_sub(call.since.elapsed())
        })
    }

    /// After this time, a call that has not returned counts as stalled.
    pub fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Calls that began earlier are overdue earlier, as all have the same time.
    fn oldest(&self) -> Option<InFlight> {
        let record = self.lock();
        record.running.first_key_value().map(|(_, call)| *call)
    }

    /// Whether a call has overrun its deadline and returned since this was asked last.
    pub(crate) fn take_overran(&self) -> bool {
        std::mem::take(&mut self.lock().overran)
    }

    /// A panic while the record is held leaves a record that is still true, so poison is of no interest.
    fn lock(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_on_record_until_it_returns() {
        let calls = CallWatch::new(Duration::ZERO);
        let during = calls.during("nvmlInit_v2", None, || calls.stalled());
        assert_eq!(during.map(|call| call.function), Some("nvmlInit_v2"));
        assert_eq!(calls.stalled(), None);
        assert!(calls.take_overran());
        assert!(!calls.take_overran());
    }

    #[test]
    fn of_several_calls_the_oldest_is_told_until_it_returns() {
        let calls = CallWatch::new(Duration::ZERO);
        let stalled = || calls.stalled().map(|call| call.function);
        calls.during("nvmlGpuInstanceDestroy", None, || {
            std::thread::scope(|scope| {
                let other = || calls.during("nvmlDeviceSetMigMode", None, stalled);
                let told = scope.spawn(other).join();
                assert_eq!(told.ok().flatten(), Some("nvmlGpuInstanceDestroy"));
            });
            assert_eq!(stalled(), Some("nvmlGpuInstanceDestroy"));
        });
        assert_eq!(stalled(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn patience_ends_with_the_call_that_is_overdue_first() {
        let calls = CallWatch::new(Duration::from_secs(10));
        assert_eq!(calls.patience(), Duration::from_secs(10));
        let (mut first, mut second) = (Duration::ZERO, Duration::ZERO);
        // The record is what is tested, and a paused clock only goes on where a test awaits.
        let first_since = Instant::now();
        tokio::time::advance(Duration::from_secs(4)).await;
        calls.during("nvmlDeviceSetMigMode", None, || {
            let serial = 0;
            let older = InFlight {
                function: "nvmlGpuInstanceDestroy",
                device: None,
                serial,
                since: first_since,
            };
            calls.lock().running.insert(serial, older);
            first = calls.patience();
            calls.lock().running.remove(&serial);
            second = calls.patience();
        });
        assert_eq!([first, second], [6, 10].map(Duration::from_secs));
    }

    #[test]
    fn a_call_within_its_deadline_is_not_stalled() {
        let calls = CallWatch::new(Duration::from_hours(1));
        assert_eq!(calls.during("nvmlInit_v2", None, || calls.stalled()), None);
        assert!(!calls.take_overran());
    }
}
