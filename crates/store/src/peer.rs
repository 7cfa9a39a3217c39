//! Connection of a client, as known to the handlers of its requests.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use tokio::sync::Notify;

/// Connection of a request; an extension of every request.
#[derive(Debug, Clone)]
pub struct Peer(Arc<State>);

#[derive(Debug)]
struct State {
    address: SocketAddr,
    /// Whether the client has sent a request.
    has_sent_request: AtomicBool,
    streams: AtomicUsize,
    flood: OnceLock<&'static str>,
    ended: Notify,
}

/// Active stream that keeps the connection alive until dropped.
#[derive(Debug)]
pub struct ActiveStream(Peer);

impl Peer {
    /// Creates the state of a new connection.
    pub fn new(address: SocketAddr) -> Self {
        Self(Arc::new(State {
            address,
            has_sent_request: AtomicBool::new(false),
            streams: AtomicUsize::new(0),
            flood: OnceLock::new(),
            ended: Notify::new(),
        }))
    }

    /// Address of the client.
    pub fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// Records that the client sent a request.
    pub fn record_request(&self) {
        self.0.has_sent_request.store(true, Ordering::Relaxed);
    }

    /// Returns whether the client has ever sent a request.
    pub fn has_sent_request(&self) -> bool {
        self.0.has_sent_request.load(Ordering::Relaxed)
    }

    /// Registers an accepted stream.
    pub fn open_stream(&self) -> ActiveStream {
        self.0.streams.fetch_add(1, Ordering::Relaxed);
        ActiveStream(self.clone())
    }

    /// Returns whether a stream is active.
    pub fn has_streams(&self) -> bool {
        self.0.streams.load(Ordering::Relaxed) > 0
    }

    /// Records the kind of flood for which the connection ends; the first one applies.
    pub fn record_flood(&self, reason: &'static str) {
        let _first = self.0.flood.set(reason);
    }

    /// Returns the kind of flood for which the connection ends.
    pub fn flood(&self) -> Option<&'static str> {
        self.0.flood.get().copied()
    }

    /// Returns whether both are the same connection.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Closes the connection with all its streams, without waiting for unread data.
    pub fn close(&self) {
        self.0.ended.notify_one();
    }

    /// Waits until [`close`](Self::close) is called.
    pub async fn ended(&self) {
        self.0.ended.notified().await;
    }
}

impl Drop for ActiveStream {
    fn drop(&mut self) {
        self.0.0.streams.fetch_sub(1, Ordering::Relaxed);
    }
}
