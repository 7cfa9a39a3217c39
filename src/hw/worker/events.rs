//! The thread that waits for hardware events.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;

use tokio::time::Instant;

use super::{Message, Shared, Worker};
use crate::domain::driver_link::Event;
use crate::hw::error::{DriverError, Remedy};
use crate::hw::{EventSource, Heard};

/// Minimum time between two waits, so that neither an event storm nor a driver that returns immediately uses a whole
/// CPU.
const PACE: Duration = Duration::from_millis(100);

/// Pause after an event source failed.
const EVENTS_PAUSE: Duration = Duration::from_mins(1);

/// State of the events thread.
pub(super) enum Events {
    /// It does not run.
    None,
    /// It runs and holds the library.
    Listening { thread: Thread },
    /// It has ended and is not restarted before this time.
    Paused { until: Instant },
}

/// A thread that waits on one event source until it is stopped or the source fails.
#[derive(Debug)]
pub(super) struct Thread {
    stop: Arc<AtomicBool>,
}

impl Thread {
    /// Starts the thread. It sends a message to `outbox` after it has dropped `source`.
    pub(super) fn spawn(
        mut source: Box<dyn EventSource>,
        life: u64,
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
                    Ok(Heard::Something) => shared.say_news(),
                    Ok(Heard::Xids(xids)) => shared.say_xids(&xids),
                    Ok(Heard::Nothing) => {}
                    Err(failure) => error = Some(failure),
                }
                if error.is_none() {
                    // The driver queues events meanwhile. An early wakeup is harmless.
                    thread::park_timeout(PACE.saturating_sub(began.elapsed()));
                }
            }
            drop(source);
            // At program shutdown the worker is gone and the message is not needed.
            let _gone = outbox.send(Message::EventsEnded { life, error });
        };
        thread::Builder::new()
            .name("nvml-events".to_owned())
            .spawn(listen)?;
        Ok(Self { stop })
    }

    /// Stops the thread after its current wait.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Worker {
    /// Starts the events thread if it does not run and the driver supports events.
    pub(super) fn listen(&mut self) {
        let may_start = match &self.events {
            Events::None => true,
            Events::Listening { .. } => false,
            Events::Paused { until } => *until <= Instant::now(),
        };
        let Some(driver) = self.driver.as_mut().filter(|_| may_start) else {
            return;
        };
        let pause = Events::Paused {
            until: Instant::now() + EVENTS_PAUSE,
        };
        self.events = match driver.events(&self.shared.calls) {
            Ok(Some(source)) => {
                let shared = Arc::clone(&self.shared);
                Thread::spawn(source, self.life, shared, self.outbox.clone())
                    .map_or(pause, |thread| Events::Listening { thread })
            }
            Ok(None) | Err(_) => pause,
        };
    }

    pub(super) fn events_ended(&mut self, life: u64, error: Option<DriverError>) {
        self.events = Events::Paused {
            until: Instant::now() + EVENTS_PAUSE,
        };
        let lost = error.filter(|error| error.remedy() == Remedy::Reinitialise);
        if self.driver.is_none() {
            self.events = Events::None;
            if self.is_released() {
                self.confirm_release();
            } else if self.due.is_none() {
                // A search that became due meanwhile was postponed.
                self.feed(Event::Due);
            }
        } else if let Some(error) = lost.filter(|_| life == self.life) {
            self.feed(Event::Lost(error.to_string()));
        } else if error.is_some() {
            self.shared.say_news();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, mpsc};

    use tokio::sync::watch;

    use super::*;
    use crate::domain::inventory::{Inventory, Machine, NvmlState};
    use crate::hw::{CallWatch, Code, DriverError};

    /// Returns immediately this many times and then fails.
    struct Hasty(u32);

    impl EventSource for Hasty {
        fn wait(&mut self) -> Result<Heard, DriverError> {
            self.0 = self.0.checked_sub(1).ok_or(DriverError {
                call: "nvmlEventSetWait_v2",
                code: Code::UNINITIALIZED,
            })?;
            Ok(Heard::Nothing)
        }
    }

    #[test]
    fn a_driver_that_does_not_wait_does_not_take_a_processor() {
        let nothing = Inventory {
            neuron: None,
            machine: Machine::default(),
            nvml: NvmlState::Loading,
            devices: Vec::new(),
        };
        let shared = Arc::new(Shared {
            calls: CallWatch::new(Duration::ZERO),
            latest: watch::Sender::new(Arc::new(nothing)),
            pulse: watch::Sender::default(),
            xids: Mutex::default(),
            naming: Mutex::default(),
        });
        let (outbox, inbox) = mpsc::channel();
        let began = Instant::now();
        Thread::spawn(Box::new(Hasty(4)), 1, shared, outbox).unwrap();
        assert!(matches!(
            inbox.recv(),
            Ok(Message::EventsEnded { life: 1, .. })
        ));
        assert!(began.elapsed() >= 4 * PACE);
    }
}
