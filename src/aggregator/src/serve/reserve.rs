//! Reserved connections for probes beyond the limit.
//!
//! When all connections are in use, a refused liveness probe would restart the program. A few more connections are
//! therefore accepted for probes only. They cannot be exhausted either: a new one closes the oldest.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use octavo_store::peer::Peer;
use tokio::time::{Duration, Instant};

/// Maximum number of reserved connections.
const MAX_PROBE_CONNECTIONS: usize = 32;

/// Minimum interval between equal log lines, because clients that cause them must not fill a disk.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Open reserved connections, the oldest first.
#[derive(Debug, Default)]
pub(super) struct ProbeConnections(Mutex<VecDeque<Peer>>);

impl ProbeConnections {
    /// Adds a connection, and closes the oldest one if there are too many. Returns whether it closed one.
    pub(super) fn enter(&self, peer: Peer) -> bool {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.push_back(peer);
        let oldest = (open.len() > MAX_PROBE_CONNECTIONS).then(|| open.pop_front()).flatten();
        if let Some(oldest) = &oldest {
            oldest.close();
        }
        oldest.is_some()
    }

    /// Removes a connection that has ended.
    pub(super) fn leave(&self, peer: &Peer) {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|other| !other.is_same(peer));
    }
}

/// Rate limit of a log line: one per [`LOG_INTERVAL`].
#[derive(Debug, Default)]
pub(super) struct LogLimit(Mutex<Option<Instant>>);

impl LogLimit {
    /// Returns whether the line may be logged now.
    pub(super) fn allow(&self) -> bool {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let passes = last.is_none_or(|at| at.elapsed() >= LOG_INTERVAL);
        if passes {
            *last = Some(Instant::now());
        }
        passes
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use tokio::time::{advance, timeout};

    use super::*;

    #[tokio::test]
    async fn excess_probe_connection_closes_the_oldest() {
        let address: SocketAddr = "192.0.2.1:9".parse().unwrap();
        let reserve = ProbeConnections::default();
        let peers: Vec<Peer> = (0..=MAX_PROBE_CONNECTIONS).map(|_| Peer::new(address)).collect();
        let (first, rest) = peers.split_first().unwrap();
        reserve.enter(first.clone());
        for peer in rest.iter().skip(1) {
            assert!(!reserve.enter(peer.clone()));
        }
        reserve.leave(&rest[1]);
        assert!(!reserve.enter(rest[0].clone()));
        assert!(reserve.enter(rest[1].clone()));
        timeout(Duration::from_mins(1), first.ended()).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn log_line_is_rate_limited() {
        let limit = LogLimit::default();
        assert!(limit.allow() && !limit.allow());
        advance(LOG_INTERVAL).await;
        assert!(limit.allow());
    }
}
