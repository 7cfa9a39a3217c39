//! The thread that waits for hardware events.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;
use std::{io, thread};

use octavo_model::driver_link::Event;
use tokio::time::Instant;

use super::{Message, Shared, Worker};
use crate::error::{DriverError, Remedy};
use crate::{EventSource, EventWait};

/// Minimum time between two waits, so that neither an event storm nor a driver that returns immediately uses a whole
/// CPU.
const MIN_WAIT_INTERVAL: Duration = Duration::from_millis(100);

/// Pause after an event source failed.
const RESTART_DELAY: Duration = Duration::from_mins(1);

/// State of the events thread.
pub(super) enum EventsThreadState {
    /// It does not run.
    None,
    /// It runs and holds the library.
    Listening { thread: EventsThread },
    /// It has ended and is not restarted before this time.
    Paused { until: Instant },
}

/// A thread that waits on one event source until it is stopped or the source fails.
#[derive(Debug)]
pub(super) struct EventsThread {
    stop: Arc<AtomicBool>,
}

impl EventsThread {
    /// Starts the thread. It sends a message to `self_sender` after it has dropped `source`.
    pub(super) fn spawn(
        mut source: Box<dyn EventSource>,
        driver_generation: u64,
        shared: Arc<Shared>,
        outbox: Sender<Message>,
    ) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let listen = move || {
            let mut error = None;
            while error.is_none() && !stopped.load(Ordering::Relaxed) {
                let began = Instant::now();
                match source.wait() {
                    Ok(EventWait::Changed) => shared.notify_change(),
                    Ok(EventWait::Xids(xids)) => shared.publish_xids(&xids),
                    Ok(EventWait::TimedOut) => {}
                    Err(failure) => error = Some(failure),
                }
                if error.is_none() {
                    // The driver queues events meanwhile. An early wakeup is harmless.
                    thread::park_timeout(MIN_WAIT_INTERVAL.saturating_sub(began.elapsed()));
                }
            }
            drop(source);
            // At program shutdown the worker is gone and the message is not needed.
            let _gone = outbox.send(Message::EventsEnded { driver_generation, error });
        };
        thread::Builder::new().name("nvml-events".to_owned()).spawn(listen)?;
        Ok(Self { stop })
    }

    /// Stops the thread after its current wait.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Worker {
    /// Starts the events thread if it does not run and the driver supports events.
    pub(super) fn start_events_thread(&mut self) {
        let may_start = match &self.events {
            EventsThreadState::None => true,
            EventsThreadState::Listening { .. } => false,
            EventsThreadState::Paused { until } => *until <= Instant::now(),
        };
        let Some(driver) = self.driver.as_mut().filter(|_| may_start) else {
            return;
        };
        let pause = EventsThreadState::Paused { until: Instant::now() + RESTART_DELAY };
        self.events = match driver.events(&self.shared.calls) {
            Ok(Some(source)) => {
                let shared = Arc::clone(&self.shared);
                EventsThread::spawn(
                    source,
                    self.driver_generation,
                    shared,
                    self.self_sender.clone(),
                )
                .map_or(pause, |thread| EventsThreadState::Listening { thread })
            }
            Ok(None) | Err(_) => pause,
        };
    }

    pub(super) fn events_ended(&mut self, driver_generation: u64, error: Option<DriverError>) {
        self.events = EventsThreadState::Paused { until: Instant::now() + RESTART_DELAY };
        let lost = error.filter(|error| error.remedy() == Remedy::Reinitialize);
        if self.driver.is_none() {
            self.events = EventsThreadState::None;
            if self.is_released() {
                self.confirm_release();
            } else if self.next_search.is_none() {
                // A search that became due meanwhile was postponed.
                self.apply_link_event(Event::TimerElapsed);
            }
        } else if let Some(error) = lost.filter(|_| driver_generation == self.driver_generation) {
            self.apply_link_event(Event::Lost(error.to_string()));
        } else if error.is_some() {
            self.shared.notify_change();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, mpsc};

    use octavo_model::inventory::Inventory;
    use tokio::sync::watch;

    use super::*;
    use crate::{CallRecord, DriverError, NvmlCode};

    /// Returns immediately this many times and then fails.
    struct ImmediateEvents(u32);

    impl EventSource for ImmediateEvents {
        fn wait(&mut self) -> Result<EventWait, DriverError> {
            self.0 = self
                .0
                .checked_sub(1)
                .ok_or(DriverError { call: "nvmlEventSetWait_v2", code: NvmlCode::Nvml(1) })?;
            Ok(EventWait::TimedOut)
        }
    }

    #[test]
    fn immediate_returns_are_rate_limited() {
        let nothing = Inventory::default();
        let shared = Arc::new(Shared {
            calls: CallRecord::new(Duration::ZERO),
            latest: watch::Sender::new(Arc::new(nothing)),
            state: watch::Sender::default(),
            xids: Mutex::default(),
            type_override: Mutex::default(),
        });
        let (outbox, inbox) = mpsc::channel();
        let began = Instant::now();
        EventsThread::spawn(Box::new(ImmediateEvents(4)), 1, shared, outbox).unwrap();
        assert!(matches!(inbox.recv(), Ok(Message::EventsEnded { driver_generation: 1, .. })));
        assert!(began.elapsed() >= 4 * MIN_WAIT_INTERVAL);
    }
}
