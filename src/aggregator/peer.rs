//! The other end of a connection, as those who answer its requests know it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::Notify;

/// The connection a request came on; an extension of every request.
#[derive(Debug, Clone)]
pub struct Peer(Arc<State>);

#[derive(Debug)]
struct State {
    address: SocketAddr,
    /// Whether it has made a request.
    spoke: AtomicBool,
    streams: AtomicUsize,
    ended: Notify,
}

/// A stream that is worth a connection; it counts until it is dropped.
#[derive(Debug)]
pub struct Live(Peer);

impl Peer {
    pub(super) fn new(address: SocketAddr) -> Self {
        Self(Arc::new(State {
            address,
            spoke: AtomicBool::new(false),
            streams: AtomicUsize::new(0),
            ended: Notify::new(),
        }))
    }

    /// Where it comes from.
    pub fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// It made a request.
    pub(super) fn speaks(&self) {
        self.0.spoke.store(true, Ordering::Relaxed);
    }

    /// Whether it ever made one.
    pub(super) fn spoke(&self) -> bool {
        self.0.spoke.load(Ordering::Relaxed)
    }

    /// A stream begins that was let in.
    pub(super) fn stream(&self) -> Live {
        self.0.streams.fetch_add(1, Ordering::Relaxed);
        Live(self.clone())
    }

    /// Whether there is such a stream now.
    pub(super) fn has_streams(&self) -> bool {
        self.0.streams.load(Ordering::Relaxed) > 0
    }

    /// Whether both are the same connection.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Ends the connection with everything on it, read or not.
    pub fn end(&self) {
        self.0.ended.notify_one();
    }

    /// Waits until somebody ends it.
    pub(super) async fn ended(&self) {
        self.0.ended.notified().await;
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.0.0.streams.fetch_sub(1, Ordering::Relaxed);
    }
}
