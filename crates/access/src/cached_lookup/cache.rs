//! Bounded cache with expiry, keyed by fingerprints.
//!
//! Not a library: expiry follows tokio's clock, which tests control. moka has a clock of its own, and `quick_cache` has
//! no expiry.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use super::Fingerprint;

/// Cache whose entries all have the same time to live, so the oldest entry expires first.
#[derive(Debug)]
pub(super) struct Cache<V> {
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
    pub(super) fn new(ttl: Duration, capacity: usize) -> Self {
        Self { ttl, capacity, entries: BTreeMap::new(), order: VecDeque::new(), count: 0 }
    }

    /// Returns the value unless it has expired.
    pub(super) fn get(&self, key: &Fingerprint, now: Instant) -> Option<V> {
        let (_, came, value) = self.entries.get(key)?;
        (now.duration_since(*came) < self.ttl).then(|| value.clone())
    }

    /// Inserts a value and evicts expired entries, then the oldest ones beyond the capacity.
    pub(super) fn insert(&mut self, key: Fingerprint, value: V, now: Instant) {
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

    pub(super) fn len(&self) -> usize {
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
        assert_eq!(cache.get(&key(1), at(50)), None, "it was the oldest");
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
