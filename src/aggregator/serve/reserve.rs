//! Connections beyond the limit, kept for probes.
//!
//! When every connection is taken, a liveness probe that is refused would end the program. So a few more are accepted that
//! answer nothing but probes. They cannot be used up either: one too many ends the oldest of them.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use tokio::time::{Duration, Instant};

use crate::aggregator::peer::Peer;

/// Connections of the reserve at once.
const PLACES: usize = 32;

/// The same line is logged no more often: clients that cause it must not fill a disk.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// The open connections of the reserve, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Reserve(Mutex<VecDeque<Peer>>);

impl Reserve {
    /// Adds a connection, and ends the oldest one where there is no place left. Returns whether it ended one.
    pub(super) fn enter(&self, peer: Peer) -> bool {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.push_back(peer);
        let oldest = (open.len() > PLACES).then(|| open.pop_front()).flatten();
        if let Some(oldest) = &oldest {
            oldest.end();
        }
        oldest.is_some()
    }

    /// Removes a connection that has ended.
    pub(super) fn leave(&self, peer: &Peer) {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|other| !other.is_same(peer));
    }
}

/// Lets a log line pass at most every [`LOG_INTERVAL`].
#[derive(Debug, Default)]
pub(super) struct LogLimit(Mutex<Option<Instant>>);

impl LogLimit {
    /// Whether the line may be logged now.
    pub(super) fn passes(&self) -> bool {
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
    async fn one_connection_too_many_ends_the_oldest_of_the_reserve() {
        let address: SocketAddr = "192.0.2.1:9".parse().unwrap();
        let reserve = Reserve::default();
        let peers: Vec<Peer> = (0..=PLACES).map(|_| Peer::new(address)).collect();
        let (first, rest) = peers.split_first().unwrap();
        reserve.enter(first.clone());
        for peer in rest.iter().skip(1) {
            assert!(!reserve.enter(peer.clone()));
        }
        reserve.leave(&rest[1]);
        assert!(!reserve.enter(rest[0].clone()));
        assert!(reserve.enter(rest[1].clone()));
        timeout(Duration::from_mins(1), first.ended())
            .await
            .unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_line_passes_at_most_every_ten_seconds() {
        let limit = LogLimit::default();
        assert!(limit.passes() && !limit.passes());
        advance(LOG_INTERVAL).await;
        assert!(limit.passes());
    }
}
