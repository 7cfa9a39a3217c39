//! Stale-while-revalidate cache for values that are slow to compute.
//!
//! One computation runs at a time, on a blocking thread. Concurrent requests, including the one that started the
//! computation, receive the previous value or, if that one is too old, wait for the result.

use std::sync::Arc;

use tokio::sync::{Mutex, OwnedMutexGuard, watch};
use tokio::task::{JoinError, JoinHandle, spawn_blocking};
use tokio::time::Instant;

/// Cached value, and the lock for recomputing it. The lock guards the state that is retained between computations.
/// Clones share the cache.
#[derive(Debug)]
pub(super) struct Kept<T, W = ()> {
    last: Arc<watch::Sender<Option<Last<T>>>>,
    pub(super) work: Arc<Mutex<W>>,
}

/// Result of one computation.
#[derive(Debug)]
pub(super) struct Last<T> {
    pub(super) made: T,
    /// Completion time. The value ages from then on: if a computation took longer than the value's lifetime, all
    /// waiting requests would otherwise repeat it one after the other.
    pub(super) done: Instant,
}

/// Freshness of the last value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fit {
    /// Returned without recomputing.
    Current,
    /// Returned while a new value is computed.
    Meanwhile,
    /// Not returned.
    Old,
}

impl Fit {
    /// Treats a stale value as expired, for callers that wait for a fresh value.
    pub(super) fn or_wait(self) -> Self {
        match self {
            Self::Current => Self::Current,
            Self::Meanwhile | Self::Old => Self::Old,
        }
    }
}

impl<T, W> Kept<T, W> {
    /// Creates an empty cache.
    pub(super) fn new(work: W) -> Self {
        Self {
            last: Arc::default(),
            work: Arc::new(Mutex::new(work)),
        }
    }
}

impl<T, W: Default> Default for Kept<T, W> {
    fn default() -> Self {
        Self::new(W::default())
    }
}

impl<T, W> Clone for Kept<T, W> {
    fn clone(&self) -> Self {
        Self {
            last: Arc::clone(&self.last),
            work: Arc::clone(&self.work),
        }
    }
}

impl<T: Clone + Send + Sync + 'static, W: Send + 'static> Kept<T, W> {
    /// Returns the last value if `fit` accepts it. Otherwise computes a new one with `maker`, which receives the
    /// previous value. Fails if `maker` panics.
    pub(super) async fn current(
        &self,
        fit: impl Fn(&Last<T>) -> Fit,
        maker: impl FnOnce(&mut W, Option<T>) -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        let fitting = |wanted: &[Fit]| self.last(|last| wanted.contains(&fit(last)));
        if let Some(made) = fitting(&[Fit::Current]) {
            return Ok(made);
        }
        let before = fitting(&[Fit::Meanwhile]);
        let work = Arc::clone(&self.work);
        let work = match (work.try_lock_owned(), &before) {
            (Ok(work), _) => work,
            (Err(_somebody_makes_it), Some(before)) => return Ok(before.clone()),
            (Err(_somebody_makes_it), None) => Arc::clone(&self.work).lock_owned().await,
        };
        // Another task may have computed it in the meantime.
        if let Some(made) = fitting(&[Fit::Current]) {
            return Ok(made);
        }
        let making = self.make(work, maker);
        match before {
            Some(before) => Ok(before),
            None => making.await,
        }
    }

    fn make(
        &self,
        mut work: OwnedMutexGuard<W>,
        maker: impl FnOnce(&mut W, Option<T>) -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let last = Arc::clone(&self.last);
        // The value is cached even if no request waits for it any more.
        spawn_blocking(move || {
            let before = last.borrow().as_ref().map(|last| last.made.clone());
            let made = maker(&mut work, before);
            last.send_replace(Some(Last {
                made: made.clone(),
                done: Instant::now(),
            }));
            made
        })
    }

    /// Returns the last value if `will_do` accepts it.
    pub(super) fn last(&self, will_do: impl Fn(&Last<T>) -> bool) -> Option<T> {
        let last = self.last.borrow();
        let last = last.as_ref().filter(|last| will_do(last))?;
        Some(last.made.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    /// Requests a value of at least `current`; accepts one of at least `meanwhile` while a new one is computed.
    async fn ask(kept: &Kept<u64>, current: u64, meanwhile: u64) -> Result<u64, JoinError> {
        let fit = |last: &Last<u64>| match last.made {
            made if made >= current => Fit::Current,
            made if made >= meanwhile => Fit::Meanwhile,
            _ => Fit::Old,
        };
        kept.current(fit, move |(), _| current).await
    }

    async fn is_waiting(asking: impl Future) -> bool {
        timeout(Duration::from_secs(1), asking).await.is_err()
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_current_is_told_again_and_what_is_old_is_made_anew() {
        let kept: Kept<u64> = Kept::default();
        assert_eq!(ask(&kept, 2, 2).await.unwrap(), 2);
        assert_eq!(ask(&kept, 1, 1).await.unwrap(), 2);
        assert_eq!(ask(&kept, 3, 3).await.unwrap(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_where_what_was_made_before_is_told_and_it_is_made_all_the_same() {
        let kept: Kept<u64> = Kept::default();
        assert_eq!(ask(&kept, 1, 1).await.unwrap(), 1);
        assert_eq!(ask(&kept, 2, 1).await.unwrap(), 1);
        drop(kept.work.lock().await);
        assert_eq!(ask(&kept, 1, 1).await.unwrap(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn while_it_is_made_others_are_given_what_was_made_before_or_wait() {
        let kept: Kept<u64> = Kept::default();
        assert_eq!(ask(&kept, 1, 1).await.unwrap(), 1);
        let work = Arc::clone(&kept.work).lock_owned().await;
        assert_eq!(ask(&kept, 2, 1).await.unwrap(), 1);
        let mut waits = Box::pin(ask(&kept, 2, 2));
        assert!(is_waiting(&mut waits).await);
        drop(work);
        assert_eq!(waits.await.unwrap(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn all_who_wait_are_given_what_one_of_them_makes() {
        let kept: Kept<u64> = Kept::default();
        let work = Arc::clone(&kept.work).lock_owned().await;
        let mut first = Box::pin(ask(&kept, 7, 7));
        assert!(is_waiting(&mut first).await);
        let fit = |last: &Last<u64>| match last.made {
            7 => Fit::Current,
            _ => Fit::Old,
        };
        let second = kept.current(fit, |(), _| panic!("it is there already"));
        let mut second = Box::pin(second);
        assert!(is_waiting(&mut second).await);
        drop(work);
        assert_eq!(first.await.unwrap(), 7);
        assert_eq!(second.await.unwrap(), 7);
    }

    #[tokio::test(start_paused = true)]
    async fn what_fails_is_an_error_and_made_by_who_asks_next() {
        let kept: Kept<u64> = Kept::default();
        let failed = kept.current(|_| Fit::Current, |(), _| panic!("as a test wants it"));
        assert!(failed.await.is_err());
        assert_eq!(ask(&kept, 7, 7).await.unwrap(), 7);
    }
}
