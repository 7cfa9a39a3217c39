//! Rate-limited and cached requests to the API server.
//!
//! Peers trigger these requests, so their number is bounded. Answers are cached, grants longer than denials. Concurrent
//! questions about the same key share one request. The number of running requests and the number of waiting ones are
//! limited. After a failure, the API server is asked at most once a second. The aggregator uses this for agents'
//! tokens, [`guard`](super::guard) for HTTP readers.
//!
//! moka has the cache and shares requests, but it cancels a request together with the client that started it, has no limit of
//! waiting requests, and reads its own clock, so expiry could be tested only in real time.

use std::collections::{BTreeMap, VecDeque};
use std::error::Error;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aws_lc_rs::digest::{Context, SHA256};
use octavo_toolkit::error::chain;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tracing::{info, warn};

/// Time to live of a cached grant.
const GRANT_TTL: Duration = Duration::from_mins(1);
/// Time to live of a cached denial.
const DENIAL_TTL: Duration = Duration::from_secs(5);
/// Capacity of the cache of denials, which is separate from that of grants.
pub const MAX_DENIALS: usize = 1000;
/// Maximum number of concurrent requests.
pub const MAX_CONCURRENT: usize = 16;
/// Maximum number of running and queued requests together.
pub const MAX_PENDING: usize = 4096;
/// Pause after a failed request.
pub const PAUSE: Duration = Duration::from_secs(1);
/// Time limit of waiting for an answer, including the queue. Shorter than the timeout of a connection without a stream.
pub const LOOKUP_TIMEOUT: Duration = Duration::from_secs(8);

/// SHA-256 of a cache key, so that the cache contains no secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fingerprint([u8; 32]);

/// Log messages for the loss and return of the API server.
#[derive(Debug, Clone, Copy)]
pub struct LogMessages {
    /// The failed operation: `agents' tokens cannot be reviewed`.
    pub failed: &'static str,
    /// The consequence.
    pub consequence: &'static str,
    /// The recovery.
    pub recovered: &'static str,
}

/// Reachability of the API server. Clones share the state.
#[derive(Debug, Clone)]
pub struct ApiServerHealth(Arc<(LogMessages, Mutex<Option<Instant>>)>);

/// Cached lookup with a grant of type `G` or a denial of type `B`. Clones share the cache.
#[derive(Debug)]
pub struct CachedLookup<G, B>(Arc<Shared<G, B>>);

#[derive(Debug)]
struct Shared<G, B> {
    health: ApiServerHealth,
    slots: Semaphore,
    known: Mutex<LookupState<G, B>>,
    /// Running requests.
    tasks: Mutex<JoinSet<()>>,
}

/// Cached answers and pending requests.
#[derive(Debug)]
struct LookupState<G, B> {
    grants: Cache<G>,
    denials: Cache<B>,
    pending: BTreeMap<Fingerprint, PendingLookup<G, B>>,
}

/// Result of a request; `None` if the API server did not answer.
type LookupResult<G, B> = Option<Result<G, B>>;

/// Receiver for the result of a pending request; holds `None` until then.
type PendingLookup<G, B> = watch::Receiver<Option<LookupResult<G, B>>>;

impl Fingerprint {
    /// Hashes the texts with their lengths, so that moving text between parts changes the hash.
    pub fn from_parts<'a>(parts: impl IntoIterator<Item = &'a str>) -> Self {
        let mut context = Context::new(&SHA256);
        for part in parts {
            let length = u64::try_from(part.len()).unwrap_or(u64::MAX);
            context.update(&length.to_be_bytes());
            context.update(part.as_bytes());
        }
        let mut bytes = [0; 32];
        bytes.copy_from_slice(context.finish().as_ref());
        Self(bytes)
    }
}

impl ApiServerHealth {
    /// Assumes that the API server is reachable until a request fails.
    pub fn new(words: LogMessages) -> Self {
        Self(Arc::new((words, Mutex::new(None))))
    }

    /// Returns whether the pause after a failure is still running.
    fn is_paused(&self, now: Instant) -> bool {
        self.last_failure().is_some_and(|at| now.duration_since(at) < PAUSE)
    }

    fn answered(&self) {
        if self.last_failure().take().is_some() {
            info!("{}", self.0.0.recovered);
        }
    }

    fn failed(&self, error: &dyn Error) {
        if self.last_failure().replace(Instant::now()).is_none() {
            let LogMessages { failed: away, consequence: meanwhile, .. } = self.0.0;
            warn!(error = chain(error), "{away}; {meanwhile}");
        }
    }

    /// Time of the last failure, cleared by the next answer.
    fn last_failure(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.1.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<G, B> Clone for CachedLookup<G, B> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<G, B> CachedLookup<G, B>
where
    G: Clone + Send + Sync + 'static,
    B: Clone + Send + Sync + 'static,
{
    /// Creates an empty cache of at most `most_good` grants; the oldest is evicted first.
    pub fn new(health: ApiServerHealth, most_good: usize) -> Self {
        let known = LookupState {
            grants: Cache::new(GRANT_TTL, most_good),
            denials: Cache::new(DENIAL_TTL, MAX_DENIALS),
            pending: BTreeMap::new(),
        };
        Self(Arc::new(Shared {
            health,
            slots: Semaphore::new(MAX_CONCURRENT),
            known: Mutex::new(known),
            tasks: Mutex::default(),
        }))
    }

    /// Returns the cached answer for `key`, or the answer of `question`; `None` if the API server does not answer in
    /// time.
    pub async fn get_or_request<F, E>(&self, key: Fingerprint, question: F) -> Option<Result<G, B>>
    where
        F: Future<Output = Result<Result<G, B>, E>> + Send + 'static,
        E: Error + Send + 'static,
    {
        let mut open = match self.cached_or_pending(key, question) {
            Ok(result) => return result,
            Err(open) => open,
        };
        let result = timeout(LOOKUP_TIMEOUT, open.wait_for(Option::is_some)).await;
        match result {
            Ok(Ok(result)) => result.clone().flatten(),
            Ok(Err(_gone)) => None,
            Err(_late) => None,
        }
    }

    /// Returns the numbers of cached denials and of pending requests.
    pub fn sizes(&self) -> (usize, usize) {
        let known = self.0.known();
        (known.denials.len(), known.pending.len())
    }

    /// Returns the cached answer, or the receiver of the pending one.
    fn cached_or_pending<F, E>(
        &self,
        key: Fingerprint,
        question: F,
    ) -> Result<Option<Result<G, B>>, PendingLookup<G, B>>
    where
        F: Future<Output = Result<Result<G, B>, E>> + Send + 'static,
        E: Error + Send + 'static,
    {
        let now = Instant::now();
        let mut known = self.0.known();
        if let Some(good) = known.grants.get(&key, now) {
            return Ok(Some(Ok(good)));
        }
        if let Some(bad) = known.denials.get(&key, now) {
            return Ok(Some(Err(bad)));
        }
        if let Some(open) = known.pending.get(&key) {
            return Err(open.clone());
        }
        if known.pending.len() >= MAX_PENDING || self.0.health.is_paused(now) {
            return Ok(None);
        }
        let (sender, receiver) = watch::channel(None);
        known.pending.insert(key, receiver.clone());
        drop(known);
        // A separate task: the first requester may disconnect while others wait for the same answer.
        let shared = Arc::clone(&self.0);
        let mut tasks = self.0.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            let result = shared.answer(question).await;
            shared.remember(key, result.as_ref());
            sender.send_replace(Some(result));
        });
        Err(receiver)
    }
}

impl<G: Clone, B: Clone> Shared<G, B> {
    async fn answer<F, E>(&self, question: F) -> Option<Result<G, B>>
    where
        F: Future<Output = Result<Result<G, B>, E>>,
        E: Error + 'static,
    {
        let _slot = self.slots.acquire().await.ok()?;
        // Requests that queued while the API server failed need not each run into the same failure.
        if self.health.is_paused(Instant::now()) {
            return None;
        }
        match question.await {
            Ok(result) => {
                self.health.answered();
                Some(result)
            }
            Err(error) => {
                self.health.failed(&error);
                None
            }
        }
    }

    fn remember(&self, key: Fingerprint, result: Option<&Result<G, B>>) {
        let now = Instant::now();
        let mut known = self.known();
        known.pending.remove(&key);
        match result {
            Some(Ok(good)) => known.grants.insert(key, good.clone(), now),
            Some(Err(bad)) => known.denials.insert(key, bad.clone(), now),
            None => {}
        }
    }

    fn known(&self) -> MutexGuard<'_, LookupState<G, B>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Cache whose entries all have the same time to live, so the oldest entry expires first.
#[derive(Debug)]
struct Cache<V> {
    ttl: Duration,
    capacity: usize,
    /// Latest value of each key, with its sequence number.
    entries: BTreeMap<Fingerprint, (u64, Instant, V)>,
    /// Insertions in order. A key that was inserted twice appears twice; its older record has no effect.
    order: VecDeque<(u64, Instant, Fingerprint)>,
    /// Number of insertions.
    count: u64,
}

impl<V: Clone> Cache<V> {
    fn new(ttl: Duration, capacity: usize) -> Self {
        Self { ttl, capacity, entries: BTreeMap::new(), order: VecDeque::new(), count: 0 }
    }

    /// Returns the value unless it has expired.
    fn get(&self, key: &Fingerprint, now: Instant) -> Option<V> {
        let (_, came, value) = self.entries.get(key)?;
        (now.duration_since(*came) < self.ttl).then(|| value.clone())
    }

    /// Inserts a value and evicts expired entries, then the oldest ones beyond the capacity.
    fn insert(&mut self, key: Fingerprint, value: V, now: Instant) {
        self.count = self.count.wrapping_add(1);
        self.entries.insert(key, (self.count, now, value));
        self.order.push_back((self.count, now, key));
        while let Some(&(number, came, oldest)) = self.order.front() {
            let expired = now.duration_since(came) >= self.ttl;
            if !expired && self.order.len() <= self.capacity {
                break;
            }
            self.order.pop_front();
            let entry = self.entries.get(&oldest);
            if entry.is_some_and(|(last, ..)| *last == number) {
                self.entries.remove(&oldest);
            }
        }
    }

    fn len(&self) -> usize {
        debug_assert!(self.entries.len() <= self.order.len());
        self.order.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u8) -> Fingerprint {
        Fingerprint([number; 32])
    }

    #[test]
    fn entries_expire_and_the_oldest_is_evicted() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut cache = Cache::new(Duration::from_mins(1), 3);
        cache.insert(key(1), "one", at(0));
        assert_eq!(cache.get(&key(1), at(59)), Some("one"));
        assert_eq!(cache.get(&key(1), at(60)), None);
        cache.insert(key(2), "two", at(30));
        cache.insert(key(3), "three", at(40));
        cache.insert(key(4), "four", at(50));
        assert_eq!(cache.get(&key(1), at(50)), None, "the oldest entry is retained");
        assert_eq!(cache.get(&key(2), at(50)), Some("two"));
        // A second insertion renews the entry, and expiry of the first one does not remove it.
        cache.insert(key(2), "again", at(80));
        cache.insert(key(5), "five", at(95));
        assert_eq!(cache.get(&key(2), at(120)), Some("again"));
        cache.insert(key(6), "six", at(300));
        assert_eq!(cache.len(), 1);
    }

    #[test]
    fn cache_size_is_bounded() {
        let start = Instant::now();
        let mut cache = Cache::new(Duration::from_mins(1), 10);
        for number in 0..10_000_u32 {
            let [.., high, low] = number.to_be_bytes();
            let mut bytes = [high; 32];
            bytes[0] = low;
            cache.insert(Fingerprint(bytes), number, start);
            assert!(cache.len() <= 10);
        }
        // The bound also holds for repeated insertions of the same key.
        for number in 0..100 {
            cache.insert(key(1), number, start);
            assert!(cache.len() <= 10);
        }
        assert_eq!(cache.get(&key(1), start), Some(99));
    }
}
