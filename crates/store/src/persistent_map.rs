//! Persistent ordered map for one writer and many readers.
//!
//! Entries are stored in shared chunks. A clone copies the pointers to the chunks, an update copies the affected chunk,
//! and two clones are compared chunk by chunk. A hundred thousand nodes need a few hundred pointers.
//!
//! `imbl::OrdMap` was measured and is not used: with 10,000 entries it needs 6 times the memory, and reading all entries takes 5
//! times as long (docs/performance.md, "Own code instead of a library"). It also cannot compare two clones chunk by chunk.

use std::sync::Arc;

/// Entry with a key.
pub trait Keyed {
    /// Type of the key, which determines the order.
    type Key: Ord + ?Sized;

    /// Returns the key.
    fn key(&self) -> &Self::Key;
}

/// Persistent ordered map. Cheap to clone.
#[derive(Debug)]
pub struct PersistentMap<T> {
    /// Nonempty chunks in order.
    chunks: Vec<Arc<Vec<Arc<T>>>>,
    len: usize,
}

/// Maximum length of a chunk; a longer one is split in half.
const MAX_CHUNK_LEN: usize = 256;

impl<T> Clone for PersistentMap<T> {
    fn clone(&self) -> Self {
        Self { chunks: self.chunks.clone(), len: self.len }
    }
}

impl<T> Default for PersistentMap<T> {
    fn default() -> Self {
        Self { chunks: Vec::new(), len: 0 }
    }
}

impl<T: Keyed> PersistentMap<T> {
    /// Number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the map is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the entry with this key.
    pub fn get(&self, key: &T::Key) -> Option<&Arc<T>> {
        let chunk = self.chunks.get(self.chunk_of(key))?;
        let at = chunk.binary_search_by(|entry| entry.key().cmp(key)).ok()?;
        chunk.get(at)
    }

    /// Iterates over all entries in order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<T>> {
        self.chunks.iter().flat_map(|chunk| chunk.iter())
    }

    /// Inserts `entry`; returns the previous entry with its key.
    pub fn insert(&mut self, entry: Arc<T>) -> Option<Arc<T>> {
        let last = self.chunks.len().saturating_sub(1);
        let index = self.chunk_of(entry.key()).min(last);
        let Some(chunk) = self.chunks.get_mut(index) else {
            self.chunks.push(Arc::new(vec![entry]));
            self.len = 1;
            return None;
        };
        let chunk = Arc::make_mut(chunk);
        match chunk.binary_search_by(|known| known.key().cmp(entry.key())) {
            Ok(at) => chunk.get_mut(at).map(|place| std::mem::replace(place, entry)),
            Err(at) => {
                chunk.insert(at, entry);
                self.len = self.len.saturating_add(1);
                if chunk.len() > MAX_CHUNK_LEN {
                    let upper = chunk.split_off(MAX_CHUNK_LEN / 2);
                    self.chunks.insert(index.saturating_add(1), Arc::new(upper));
                }
                None
            }
        }
    }

    /// Removes the entry with this key.
    pub fn remove(&mut self, key: &T::Key) -> Option<Arc<T>> {
        let index = self.chunk_of(key);
        let chunk = self.chunks.get_mut(index)?;
        let at = chunk.binary_search_by(|entry| entry.key().cmp(key)).ok()?;
        let chunk = Arc::make_mut(chunk);
        let gone = chunk.remove(at);
        if chunk.is_empty() {
            self.chunks.remove(index);
        }
        self.len = self.len.saturating_sub(1);
        Some(gone)
    }

    /// Compares the map with `old`: returns new or replaced entries, and removed ones. Shared chunks are skipped.
    pub fn since<'a>(&'a self, old: &'a Self) -> Difference<'a, T> {
        let mut difference = Difference::default();
        let mut now = self.unshared(old).peekable();
        let mut before = old.unshared(self).peekable();
        loop {
            match (before.peek(), now.peek()) {
                (None, None) => return difference,
                (Some(_), None) => difference.removed.extend(before.next()),
                (None, Some(_)) => difference.changed.extend(now.next()),
                (Some(was), Some(is)) => match was.key().cmp(is.key()) {
                    std::cmp::Ordering::Less => difference.removed.extend(before.next()),
                    std::cmp::Ordering::Greater => difference.changed.extend(now.next()),
                    std::cmp::Ordering::Equal => {
                        if !Arc::ptr_eq(was, is) {
                            difference.changed.push(is);
                        }
                        before.next();
                        now.next();
                    }
                },
            }
        }
    }

    /// Entries of chunks that are not shared with `other`.
    fn unshared<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = &'a Arc<T>> {
        let mut theirs: Vec<*const Vec<Arc<T>>> = other.chunks.iter().map(Arc::as_ptr).collect();
        theirs.sort_unstable();
        let shared =
            move |chunk: &&Arc<Vec<Arc<T>>>| theirs.binary_search(&Arc::as_ptr(chunk)).is_err();
        self.chunks.iter().filter(shared).flat_map(|chunk| chunk.iter())
    }

    /// Index of the chunk that would contain `key`.
    fn chunk_of(&self, key: &T::Key) -> usize {
        self.chunks.partition_point(|chunk| chunk.last().is_some_and(|last| last.key() < key))
    }
}

/// Difference between two maps, in order.
#[derive(Debug)]
pub struct Difference<'a, T> {
    /// New or replaced entries.
    pub changed: Vec<&'a Arc<T>>,
    /// Removed entries.
    pub removed: Vec<&'a Arc<T>>,
}

impl<T> Default for Difference<'_, T> {
    fn default() -> Self {
        Self { changed: Vec::new(), removed: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, PartialEq, Eq)]
    struct Entry(u16, u8);

    impl Keyed for Entry {
        type Key = u16;

        fn key(&self) -> &u16 {
            &self.0
        }
    }

    fn entries(roster: &PersistentMap<Entry>) -> Vec<(u16, u8)> {
        roster.iter().map(|entry| (entry.0, entry.1)).collect()
    }

    fn operations() -> impl Strategy<Value = Vec<(u16, Option<u8>)>> {
        prop::collection::vec((0_u16..900, prop::option::weighted(0.7, any::<u8>())), 0..2500)
    }

    fn play(
        roster: &mut PersistentMap<Entry>,
        model: &mut BTreeMap<u16, u8>,
        operations: &[(u16, Option<u8>)],
    ) {
        for (key, value) in operations {
            let (was, expected) = match value {
                Some(value) => {
                    (roster.insert(Arc::new(Entry(*key, *value))), model.insert(*key, *value))
                }
                None => (roster.remove(key), model.remove(key)),
            };
            assert_eq!(was.map(|entry| entry.1), expected);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn clones_are_stable_and_differences_are_exact(
            first in operations(),
            then in operations(),
        ) {
            let (mut roster, mut model) = (PersistentMap::default(), BTreeMap::new());
            play(&mut roster, &mut model, &first);
            let (old, before) = (roster.clone(), model.clone());
            play(&mut roster, &mut model, &then);

            let listed = |model: &BTreeMap<u16, u8>| model.iter().map(|(k, v)| (*k, *v)).collect::<Vec<_>>();
            prop_assert_eq!(entries(&roster), listed(&model));
            prop_assert_eq!(entries(&old), listed(&before));
            prop_assert_eq!(roster.len(), model.len());
            for key in 0..900 {
                prop_assert_eq!(roster.get(&key).map(|entry| entry.1), model.get(&key).copied());
            }

            let difference = roster.since(&old);
            let gone: Vec<u16> = difference.removed.iter().map(|entry| entry.0).collect();
            let expected: Vec<u16> = before.keys().filter(|key| !model.contains_key(key)).copied().collect();
            prop_assert_eq!(gone, expected);
            let changed: BTreeMap<u16, u8> = difference.changed.iter().map(|entry| (entry.0, entry.1)).collect();
            for (key, value) in &model {
                prop_assert!(before.get(key) == Some(value) || changed.contains_key(key));
            }
            for (key, value) in &changed {
                prop_assert_eq!(model.get(key), Some(value));
            }
        }
    }

    #[test]
    fn update_copies_one_chunk() {
        let mut roster = PersistentMap::default();
        for key in 0..10_000 {
            roster.insert(Arc::new(Entry(key, 0)));
        }
        let old = roster.clone();
        roster.insert(Arc::new(Entry(5000, 1)));
        assert_eq!(
            roster.unshared(&old).count(),
            roster
                .chunks
                .iter()
                .find(|chunk| chunk.iter().any(|entry| entry.0 == 5000))
                .unwrap()
                .len()
        );
        let difference = roster.since(&old);
        assert_eq!(difference.changed, [&Arc::new(Entry(5000, 1))]);
        assert!(difference.removed.is_empty());
    }
}
