//! Stale-while-revalidate cache for values that are slow to compute.
//!
//! One computation runs at a time, on a blocking thread. Concurrent requests, including the one that started the
//! computation, receive the previous value or, if that one is too old, wait for the result for a limited time or until
//! it is there.
//!
//! moka and `quick_cache` never return an expired value while a new one is computed.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, OwnedMutexGuard, watch};
use tokio::task::{JoinError, JoinHandle, spawn_blocking};
use tokio::time::{Instant, timeout};

/// Cached value, and the lock for recomputing it. The lock guards the state that is retained between computations.
/// Clones share the cache.
#[derive(Debug)]
pub(super) struct StaleWhileRevalidate<T, W = ()> {
    last: Arc<watch::Sender<Option<Cached<T>>>>,
    pub(super) state: Arc<Mutex<W>>,
}

/// Result of one computation.
#[derive(Debug)]
pub(super) struct Cached<T> {
    pub(super) value: T,
    /// Completion time. The value ages from then on: if a computation took longer than the value's lifetime, all
    /// waiting requests would otherwise repeat it one after the other.
    pub(super) done: Instant,
}

/// Freshness of the last value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Freshness {
    /// Returned without recomputing.
    Fresh,
    /// Returned while a new value is computed.
    Stale,
    /// Returned if a new value is not there after [`MAX_WAIT`].
    Overdue,
    /// Not returned.
    Expired,
}

/// Time for which a request waits for a new value instead of an overdue one: short enough for a page, and longer than most
/// computations.
pub(super) const MAX_WAIT: Duration = Duration::from_millis(200);

impl Freshness {
    /// Treats any older value as expired, for callers that wait for a fresh value.
    pub(super) fn require_fresh(self) -> Self {
        match self {
            Self::Fresh => Self::Fresh,
            Self::Stale | Self::Overdue | Self::Expired => Self::Expired,
        }
    }
}

impl<T, W> StaleWhileRevalidate<T, W> {
    /// Creates an empty cache.
    pub(super) fn new(work: W) -> Self {
        Self { last: Arc::default(), state: Arc::new(Mutex::new(work)) }
    }
}

impl<T, W: Default> Default for StaleWhileRevalidate<T, W> {
    fn default() -> Self {
        Self::new(W::default())
    }
}

impl<T, W> Clone for StaleWhileRevalidate<T, W> {
    fn clone(&self) -> Self {
        Self { last: Arc::clone(&self.last), state: Arc::clone(&self.state) }
    }
}

impl<T: Clone + Send + Sync + 'static, W: Send + 'static> StaleWhileRevalidate<T, W> {
    /// Returns the last value if `fit` accepts it. Otherwise computes a new one with `compute`, which receives the
    /// previous value. Fails if `compute` panics.
    pub(super) async fn current(
        &self,
        fit: impl Fn(&Cached<T>) -> Freshness,
        compute: impl FnOnce(&mut W, Option<T>) -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        let fitting = |wanted: Freshness| self.last(|last| fit(last) == wanted);
        if let Some(made) = fitting(Freshness::Fresh) {
            return Ok(made);
        }
        if let Some(before) = fitting(Freshness::Stale) {
            let Ok(work) = Arc::clone(&self.state).try_lock_owned() else {
                return Ok(before);
            };
            // Another task may have computed it in the meantime.
            return Ok(fitting(Freshness::Fresh).unwrap_or_else(|| {
                drop(self.spawn_compute(work, compute));
                before
            }));
        }
        let overdue = fitting(Freshness::Overdue);
        let computing = async {
            let work = Arc::clone(&self.state).lock_owned().await;
            // Another task may have computed it in the meantime.
            match fitting(Freshness::Fresh) {
                Some(made) => Ok(made),
                None => self.spawn_compute(work, compute).await,
            }
        };
        match overdue {
            Some(before) => {
                let computed = timeout(MAX_WAIT, computing).await;
                computed.unwrap_or_else(|_late| Ok(self.last(|_| true).unwrap_or(before)))
            }
            None => computing.await,
        }
    }

    fn spawn_compute(
        &self,
        mut work: OwnedMutexGuard<W>,
        compute: impl FnOnce(&mut W, Option<T>) -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let last = Arc::clone(&self.last);
        spawn_blocking(move || {
            let before = last.borrow().as_ref().map(|last| last.value.clone());
            let made = compute(&mut work, before);
            last.send_replace(Some(Cached { value: made.clone(), done: Instant::now() }));
            made
        })
    }

    /// Returns the last value if `will_do` accepts it.
    pub(super) fn last(&self, will_do: impl Fn(&Cached<T>) -> bool) -> Option<T> {
        let last = self.last.borrow();
        let last = last.as_ref().filter(|last| will_do(last))?;
        Some(last.value.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests a value of at least `current`; accepts one of at least `meanwhile` while a new one is computed.
    async fn ask(
        cache: &StaleWhileRevalidate<u64>,
        current: u64,
        meanwhile: u64,
    ) -> Result<u64, JoinError> {
        let fit = |last: &Cached<u64>| match last.value {
            made if made >= current => Freshness::Fresh,
            made if made >= meanwhile => Freshness::Stale,
            _ => Freshness::Expired,
        };
        cache.current(fit, move |(), _| current).await
    }

    /// Polls the request once.
    fn is_pending(request: &mut (impl Future + Unpin)) -> bool {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        std::pin::Pin::new(request).poll(&mut context).is_pending()
    }

    async fn is_waiting(asking: impl Future) -> bool {
        timeout(Duration::from_secs(1), asking).await.is_err()
    }

    #[tokio::test(start_paused = true)]
    async fn fresh_value_is_reused_and_expired_value_is_recomputed() {
        let cache: StaleWhileRevalidate<u64> = StaleWhileRevalidate::default();
        assert_eq!(ask(&cache, 2, 2).await.unwrap(), 2);
        assert_eq!(ask(&cache, 1, 1).await.unwrap(), 2);
        assert_eq!(ask(&cache, 3, 3).await.unwrap(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn stale_value_is_returned_while_revalidating() {
        let cache: StaleWhileRevalidate<u64> = StaleWhileRevalidate::default();
        assert_eq!(ask(&cache, 1, 1).await.unwrap(), 1);
        assert_eq!(ask(&cache, 2, 1).await.unwrap(), 1);
        drop(cache.state.lock().await);
        assert_eq!(ask(&cache, 1, 1).await.unwrap(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_callers_get_the_stale_value_or_wait() {
        let cache: StaleWhileRevalidate<u64> = StaleWhileRevalidate::default();
        assert_eq!(ask(&cache, 1, 1).await.unwrap(), 1);
        let work = Arc::clone(&cache.state).lock_owned().await;
        assert_eq!(ask(&cache, 2, 1).await.unwrap(), 1);
        let mut waits = Box::pin(ask(&cache, 2, 2));
        assert!(is_waiting(&mut waits).await);
        drop(work);
        assert_eq!(waits.await.unwrap(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn overdue_value_is_returned_if_a_new_one_takes_too_long() {
        let cache: StaleWhileRevalidate<u64> = StaleWhileRevalidate::default();
        assert_eq!(ask(&cache, 1, 1).await.unwrap(), 1);
        let request = async |value: u64| {
            let fit = |last: &Cached<u64>| match last.value {
                made if made == value => Freshness::Fresh,
                _ => Freshness::Overdue,
            };
            cache.current(fit, move |(), _| value).await.unwrap()
        };
        assert_eq!(request(2).await, 2);
        let work = Arc::clone(&cache.state).lock_owned().await;
        let start = Instant::now();
        assert_eq!(request(3).await, 2);
        assert_eq!(start.elapsed().as_millis(), MAX_WAIT.as_millis());
        drop(work);
        assert_eq!(request(3).await, 3);
    }

    #[tokio::test(start_paused = true)]
    async fn overdue_value_is_computed_after_its_request_has_returned() {
        let cache: StaleWhileRevalidate<u64> = StaleWhileRevalidate::default();
        assert_eq!(ask(&cache, 1, 1).await.unwrap(), 1);
        let (finish, finished) = std::sync::mpsc::channel::<()>();
        let compute = move |(): &mut (), _| {
            let _closed = finished.recv();
            2
        };
        // The clock stands still while a blocking thread works, so the request is dropped instead of timed out.
        let mut request = Box::pin(cache.current(|_| Freshness::Overdue, compute));
        assert!(is_pending(&mut request));
        drop(request);
        drop(finish);
        drop(cache.state.lock().await);
        assert_eq!(cache.last(|_| true), Some(2));
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_callers_share_one_computation() {
        let cache: StaleWhileRevalidate<u64> = StaleWhileRevalidate::default();
        let work = Arc::clone(&cache.state).lock_owned().await;
        let mut first = Box::pin(ask(&cache, 7, 7));
        assert!(is_waiting(&mut first).await);
        let fit = |last: &Cached<u64>| match last.value {
            7 => Freshness::Fresh,
            _ => Freshness::Expired,
        };
        let second = cache.current(fit, |(), _| panic!("the value is computed twice"));
        let mut second = Box::pin(second);
        assert!(is_waiting(&mut second).await);
        drop(work);
        assert_eq!(first.await.unwrap(), 7);
        assert_eq!(second.await.unwrap(), 7);
    }

    #[tokio::test(start_paused = true)]
    async fn failed_computation_is_retried_by_the_next_caller() {
        let cache: StaleWhileRevalidate<u64> = StaleWhileRevalidate::default();
        let failed = cache.current(|_| Freshness::Fresh, |(), _| panic!("intended by the test"));
        assert!(failed.await.is_err());
        assert_eq!(ask(&cache, 7, 7).await.unwrap(), 7);
    }
}
