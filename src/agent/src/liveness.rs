//! Liveness and readiness of the agent, for the HTTP probes.
//!
//! A hanging driver and an unreachable API server are reported elsewhere: restarting the agent would fix neither.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// Heartbeat of the main loop. Clones share their state.
#[derive(Debug, Clone)]
pub struct Liveness {
    began: Instant,
    /// Time of the last beat, in milliseconds since `began`.
    last: Arc<AtomicU64>,
    ready: Arc<AtomicBool>,
    limit: Duration,
}

/// Maximum duration of an iteration of the loop: every wait in it has a timeout.
const MAX_ITERATION: Duration = Duration::from_mins(2);

impl Liveness {
    /// Creates the heartbeat of a loop that runs at least once per `interval`.
    pub fn new(interval: Duration) -> Self {
        Self {
            began: Instant::now(),
            last: Arc::default(),
            ready: Arc::default(),
            limit: interval.saturating_mul(2).saturating_add(MAX_ITERATION),
        }
    }

    /// Creates the heartbeat of an agent without a loop, which is always alive.
    pub fn always_alive() -> Self {
        Self::new(Duration::MAX)
    }

    /// Records an iteration of the loop.
    pub fn beat(&self) {
        let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(now, Ordering::Relaxed);
    }

    /// Marks the agent as ready: everything was published once.
    pub fn mark_ready(&self) {
        self.ready.store(true, Ordering::Relaxed);
    }

    /// Returns whether the loop ran recently.
    pub fn is_alive(&self) -> bool {
        let last = Duration::from_millis(self.last.load(Ordering::Relaxed));
        self.began.elapsed().saturating_sub(last) < self.limit
    }

    /// Returns whether everything was published once.
    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn stalled_loop_is_not_alive_until_next_iteration() {
        let liveness = Liveness::new(Duration::from_secs(10));
        assert!(liveness.is_alive() && !liveness.is_ready());
        tokio::time::advance(Duration::from_secs(139)).await;
        assert!(liveness.is_alive());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(!liveness.is_alive());
        liveness.beat();
        liveness.mark_ready();
        assert!(liveness.is_alive() && liveness.is_ready());
    }
}
