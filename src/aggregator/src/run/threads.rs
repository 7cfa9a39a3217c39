//! The aggregator's threads, with detection of threads that end unexpectedly.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tokio::sync::watch;
use tracing::warn;

use super::StartError;

/// A running aggregator. Dropping it stops it.
#[derive(Debug)]
pub struct RunningAggregator {
    ready: watch::Sender<bool>,
    stop: watch::Sender<bool>,
    /// Disconnected when all threads have ended.
    ended: mpsc::Receiver<()>,
    /// Name of a thread that ended without being stopped.
    failed: watch::Receiver<Option<&'static str>>,
}

/// Started threads and their shared channels.
#[derive(Debug)]
pub(super) struct Threads {
    stop: watch::Sender<bool>,
    failed: watch::Sender<Option<&'static str>>,
    alive: mpsc::Sender<()>,
    ended: mpsc::Receiver<()>,
}

/// Guard that each thread holds until it ends.
#[derive(Debug)]
struct ThreadGuard {
    name: &'static str,
    stopped: watch::Receiver<bool>,
    fails: watch::Sender<Option<&'static str>>,
    /// Disconnects the receiver when the last thread drops it.
    _ended: mpsc::Sender<()>,
}

impl Drop for ThreadGuard {
    fn drop(&mut self) {
        if !*self.stopped.borrow() {
            self.fails.send_replace(Some(self.name));
        }
    }
}

/// Time limit of the shutdown.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

impl RunningAggregator {
    /// Resolves with the name of a thread that ended without being stopped. If it panicked, the panic is in the log.
    pub async fn failed(&self) -> &'static str {
        let mut failed = self.failed.clone();
        let name = failed.wait_for(Option::is_some).await;
        match name.ok().and_then(|name| *name) {
            Some(name) => name,
            None => std::future::pending().await,
        }
    }

    /// Ends all connections and threads within five seconds; returns whether all ended in time.
    pub fn stop(self) -> bool {
        self.ready.send_replace(false);
        self.stop.send_replace(true);
        match self.ended.recv_timeout(STOP_TIMEOUT) {
            Err(mpsc::RecvTimeoutError::Disconnected) => true,
            Ok(()) | Err(mpsc::RecvTimeoutError::Timeout) => {
                warn!(timeout = ?STOP_TIMEOUT, "some tasks did not stop in time; exiting without them");
                false
            }
        }
    }
}

impl Threads {
    /// Creates an empty set of threads.
    pub(super) fn new() -> Self {
        let (alive, ended) = mpsc::channel();
        Self { stop: watch::Sender::new(false), failed: watch::Sender::new(None), alive, ended }
    }

    /// Receiver that becomes true at shutdown.
    pub(super) fn stopped(&self) -> watch::Receiver<bool> {
        self.stop.subscribe()
    }

    /// Runs the closure in a new thread.
    pub(super) fn spawn(
        &self,
        name: &'static str,
        run: impl FnOnce() + Send + 'static,
    ) -> Result<(), StartError> {
        let alive = ThreadGuard {
            name,
            stopped: self.stopped(),
            fails: self.failed.clone(),
            _ended: self.alive.clone(),
        };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(|| {
            // Dropped on return and on panic.
            let _alive = alive;
            run();
        });
        match thread {
            Ok(_until_it_ends) => Ok(()),
            Err(source) => Err(StartError::Thread { name, source }),
        }
    }

    /// Converts the threads to a running aggregator.
    pub(super) fn running(self, ready: watch::Sender<bool>) -> RunningAggregator {
        RunningAggregator {
            ready,
            stop: self.stop,
            ended: self.ended,
            failed: self.failed.subscribe(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running(threads: Threads) -> RunningAggregator {
        threads.running(watch::Sender::new(true))
    }

    #[tokio::test]
    async fn panicked_thread_is_named() {
        let threads = Threads::new();
        let mut stopped = threads.stopped();
        let good = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build();
            let until = stopped.wait_for(|stopped| *stopped);
            let _stopped = runtime.unwrap().block_on(until).is_ok();
        };
        threads.spawn("good", good).unwrap();
        threads.spawn("bad", || panic!("on purpose")).unwrap();
        let running = running(threads);
        assert_eq!(running.failed().await, "bad");
        assert!(running.stop());
    }
}
