//! Whether the agent lives and whether it has begun to serve, for those who ask over HTTP.
//!
//! A driver that hangs and an API server that is away are told elsewhere: to start the agent again would mend neither.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// The loop's pulse. Clones are the same.
#[derive(Debug, Clone)]
pub struct Pulse {
    began: Instant,
    /// Milliseconds after that.
    last: Arc<AtomicU64>,
    ready: Arc<AtomicBool>,
    patience: Duration,
}

/// No turn of the loop takes longer: every wait in it has an end.
const LONGEST_TURN: Duration = Duration::from_mins(2);

impl Pulse {
    /// Of a loop that turns at least this often.
    pub fn new(interval: Duration) -> Self {
        Self {
            began: Instant::now(),
            last: Arc::default(),
            ready: Arc::default(),
            patience: interval.saturating_mul(2).saturating_add(LONGEST_TURN),
        }
    }

    /// Of an agent that has no loop: there is nothing that could stand still.
    pub fn still() -> Self {
        Self::new(Duration::MAX)
    }

    /// The loop turns.
    pub fn beat(&self) {
        let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(now, Ordering::Relaxed);
    }

    /// What there is to say has been said once.
    pub fn serves(&self) {
        self.ready.store(true, Ordering::Relaxed);
    }

    /// Whether the loop turned not long ago.
    pub fn is_alive(&self) -> bool {
        let last = Duration::from_millis(self.last.load(Ordering::Relaxed));
        self.began.elapsed().saturating_sub(last) < self.patience
    }

    /// Whether what there is to say has been said once.
    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_loop_that_stands_still_is_not_alive_until_it_turns_again() {
        let pulse = Pulse::new(Duration::from_secs(10));
        assert!(pulse.is_alive() && !pulse.is_ready());
        tokio::time::advance(Duration::from_secs(139)).await;
        assert!(pulse.is_alive());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(!pulse.is_alive());
        pulse.beat();
        pulse.serves();
        assert!(pulse.is_alive() && pulse.is_ready());
    }
}
