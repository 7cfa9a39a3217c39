//! The aggregator's threads: how they are started and stopped, and that one does not end unnoticed.

use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tokio::sync::watch;
use tracing::warn;

use super::StartError;

/// An aggregator that runs. It stops when it is told to, or dropped.
#[derive(Debug)]
pub struct Running {
    grpc: SocketAddr,
    http: SocketAddr,
    ready: watch::Sender<bool>,
    stop: watch::Sender<bool>,
    /// Disconnected when all threads have ended.
    ended: mpsc::Receiver<()>,
    /// The thread that ended although nobody stopped it.
    failed: watch::Receiver<Option<&'static str>>,
}

/// The threads that were started, and what they have in common.
#[derive(Debug)]
pub(super) struct Threads {
    stop: watch::Sender<bool>,
    fails: watch::Sender<Option<&'static str>>,
    alive: mpsc::Sender<()>,
    ended: mpsc::Receiver<()>,
}

/// What each thread holds until it ends.
#[derive(Debug)]
struct Alive {
    name: &'static str,
    stopped: watch::Receiver<bool>,
    fails: watch::Sender<Option<&'static str>>,
    /// Disconnects the other end when the last thread has dropped it.
    _ended: mpsc::Sender<()>,
}

impl Drop for Alive {
    fn drop(&mut self) {
        if !*self.stopped.borrow() {
            self.fails.send_replace(Some(self.name));
        }
    }
}

/// How long stopping may take.
const STOP_WITHIN: Duration = Duration::from_secs(5);

impl Running {
    /// Where agents connect.
    pub fn grpc(&self) -> SocketAddr {
        self.grpc
    }

    /// Where people and programs connect.
    pub fn http(&self) -> SocketAddr {
        self.http
    }

    /// Resolves with the name of a thread that ended although nobody stopped it; its panic, if it was one, is in the log.
    pub async fn failed(&self) -> &'static str {
        let mut failed = self.failed.clone();
        let name = failed.wait_for(Option::is_some).await;
        match name.ok().and_then(|name| *name) {
            Some(name) => name,
            None => std::future::pending().await,
        }
    }

    /// Ends all connections and threads, within five seconds; says whether it could.
    pub fn stop(self) -> bool {
        self.ready.send_replace(false);
        self.stop.send_replace(true);
        match self.ended.recv_timeout(STOP_WITHIN) {
            Err(mpsc::RecvTimeoutError::Disconnected) => true,
            Ok(()) | Err(mpsc::RecvTimeoutError::Timeout) => {
                warn!("not everything ended within {STOP_WITHIN:?}; it is left");
                false
            }
        }
    }
}

impl Threads {
    /// None yet.
    pub(super) fn new() -> Self {
        let (alive, ended) = mpsc::channel();
        Self {
            stop: watch::Sender::new(false),
            fails: watch::Sender::new(None),
            alive,
            ended,
        }
    }

    /// Becomes true when all shall end.
    pub(super) fn stopped(&self) -> watch::Receiver<bool> {
        self.stop.subscribe()
    }

    /// Runs it in a thread of its own.
    pub(super) fn spawn(
        &self,
        name: &'static str,
        run: impl FnOnce() + Send + 'static,
    ) -> Result<(), StartError> {
        let alive = Alive {
            name,
            stopped: self.stopped(),
            fails: self.fails.clone(),
            _ended: self.alive.clone(),
        };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(|| {
            // Dropped when it returns and when it panics.
            let _alive = alive;
            run();
        });
        match thread {
            Ok(_until_it_ends) => Ok(()),
            Err(source) => Err(StartError::Thread { name, source }),
        }
    }

    /// The aggregator whose threads they are, which serves agents and people there.
    pub(super) fn running(
        self,
        (grpc, http): (SocketAddr, SocketAddr),
        ready: watch::Sender<bool>,
    ) -> Running {
        Running {
            grpc,
            http,
            ready,
            stop: self.stop,
            ended: self.ended,
            failed: self.fails.subscribe(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running(threads: Threads) -> Running {
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        threads.running((nowhere, nowhere), watch::Sender::new(true))
    }

    #[tokio::test]
    async fn a_thread_that_panics_is_named() {
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
