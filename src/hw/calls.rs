//! Which driver call is running right now, so that somebody else can say when one does not return.
//!
//! NVML can hang inside the kernel, where nothing can interrupt it; the thread that called it is gone until it returns.
//! So the thread writes down what it is about to call, and readers compare the time. The clock starts anew with every
//! call: a driver that answers slowly is slow, only one that does not answer is stalled.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::domain::id::PciAddress;

/// The record of the call in flight, shared by the thread that calls and those that watch.
#[derive(Debug, Clone)]
pub struct CallWatch {
    record: Arc<Mutex<Record>>,
    deadline: Duration,
}

#[derive(Debug, Default)]
struct Record {
    current: Option<InFlight>,
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
        let since = Instant::now();
        {
            let mut record = self.lock();
            record.started = record.started.wrapping_add(1);
            record.current = Some(InFlight {
                function,
                device,
                serial: record.started,
                since,
            });
        }
        let answer = call();
        let mut record = self.lock();
        record.current = None;
        record.overran |= since.elapsed() >= self.deadline;
        drop(record);
        answer
    }

    /// The call that has been running for longer than the deadline.
    pub fn stalled(&self) -> Option<InFlight> {
        let current = self.lock().current;
        current.filter(|call| call.since.elapsed() >= self.deadline)
    }

    /// How long to wait until [`Self::stalled`] can have changed from `None`.
    pub fn patience(&self) -> Duration {
        let current = self.lock().current;
        current.map_or(self.deadline, |call| {
            self.deadline.saturating_sub(call.since.elapsed())
        })
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
    fn a_call_within_its_deadline_is_not_stalled() {
        let calls = CallWatch::new(Duration::from_hours(1));
        assert_eq!(calls.during("nvmlInit_v2", None, || calls.stalled()), None);
        assert!(!calls.take_overran());
    }
}
