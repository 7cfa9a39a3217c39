//! Persistent ordered map for one writer and many readers.
//!
//! Entries are stored in shared chunks. A clone copies the pointers to the chunks, an update copies the affected chunk,
//! and two clones are compared chunk by chunk. A hundred thousand nodes need a few hundred pointers.
//!
//! Each chunk has an index of its entries, so that a reader of all entries need not visit each of them: they are far apart in memory.
//!
//! `imbl::OrdMap` was measured and is not used: with 10,000 entries it needs 6 times the memory, and reading all entries takes 5
//! times as long (docs/performance.md, "Own code instead of a library"). It also cannot compare two clones chunk by chunk.

use std::fmt;
use std::sync::Arc;

/// Entry with a key.
pub trait Keyed: Sized {
    /// Type of the key, which determines the order.
    type Key: Ord + ?Sized;
    /// Index of a chunk of entries.
    type Index: ChunkIndex<Self>;

    /// Returns the key.
    fn key(&self) -> &Self::Key;
}

/// Properties of the entries of one chunk, in their order.
pub trait ChunkIndex<T>: Clone + Default + fmt::Debug {
    /// Adds `entry` at this position.
    fn insert(&mut self, at: usize, entry: &T);

    /// Replaces the entry `old` at this position by `new`.
    fn replace(&mut self, at: usize, old: &T, new: &T);

    /// Removes the entry `old` at this position.
    fn remove(&mut self, at: usize, old: &T);
}

/// Persistent ordered map. Cheap to clone.
#[derive(Debug)]
pub struct PersistentMap<T: Keyed> {
    /// Nonempty chunks in order.
    chunks: Vec<Arc<Chunk<T>>>,
    len: usize,
}

/// Consecutive entries of a map, with their index.
#[derive(Debug)]
pub struct Chunk<T: Keyed> {
    entries: Vec<Arc<T>>,
    index: T::Index,
}

/// Maximum length of a chunk; a longer one is split in half.
const MAX_CHUNK_LEN: usize = 256;

impl<T: Keyed> Clone for PersistentMap<T> {
    fn clone(&self) -> Self {
        Self { chunks: self.chunks.clone(), len: self.len }
    }
}

impl<T: Keyed> Default for PersistentMap<T> {
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
        chunk.entries.get(chunk.find(key).ok()?)
    }

    /// Iterates over all entries in order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<T>> {
        self.chunks().flat_map(|chunk| chunk.entries.iter())
    }

    /// Iterates over the chunks in order.
    pub fn chunks(&self) -> impl Iterator<Item = &Chunk<T>> {
        self.chunks.iter().map(AsRef::as_ref)
    }

    /// Number of entries whose key is at most `key`.
    pub fn count_up_to(&self, key: &T::Key) -> usize {
        let index = self.chunk_of(key);
        let before = self
            .chunks()
            .take(index)
            .fold(0_usize, |sum, chunk| sum.saturating_add(chunk.entries.len()));
        let chunk = self.chunks.get(index);
        let within =
            chunk.map_or(0, |chunk| chunk.entries.partition_point(|entry| entry.key() <= key));
        before.saturating_add(within)
    }

    /// Inserts `entry`; returns the previous entry with its key.
    pub fn insert(&mut self, entry: Arc<T>) -> Option<Arc<T>> {
        let last = self.chunks.len().saturating_sub(1);
        let index = self.chunk_of(entry.key()).min(last);
        let Some(chunk) = self.chunks.get_mut(index) else {
            self.chunks.push(Arc::new(Chunk::new(vec![entry])));
            self.len = 1;
            return None;
        };
        let chunk = Arc::make_mut(chunk);
        match chunk.find(entry.key()) {
            Ok(at) => chunk.replace(at, entry),
            Err(at) => {
                chunk.insert(at, entry);
                self.len = self.len.saturating_add(1);
                if chunk.entries.len() > MAX_CHUNK_LEN {
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
        let at = chunk.find(key).ok()?;
        let chunk = Arc::make_mut(chunk);
        let gone = chunk.remove(at);
        if chunk.entries.is_empty() {
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
        let mut theirs: Vec<*const Chunk<T>> = other.chunks.iter().map(Arc::as_ptr).collect();
        theirs.sort_unstable();
        let shared =
            move |chunk: &&Arc<Chunk<T>>| theirs.binary_search(&Arc::as_ptr(chunk)).is_err();
        self.chunks.iter().filter(shared).flat_map(|chunk| chunk.entries.iter())
    }

    /// Index of the chunk that would contain `key`.
    fn chunk_of(&self, key: &T::Key) -> usize {
        self.chunks.partition_point(|chunk| {
            let last = chunk.entries.last();
            last.is_some_and(|last| last.key() < key)
        })
    }
}

impl<T: Keyed> Chunk<T> {
    fn new(entries: Vec<Arc<T>>) -> Self {
        let mut index = T::Index::default();
        for (at, entry) in entries.iter().enumerate() {
            index.insert(at, entry);
        }
        Self { entries, index }
    }

    /// Entries in order.
    pub fn entries(&self) -> &[Arc<T>] {
        &self.entries
    }

    /// Index of the entries.
    pub fn index(&self) -> &T::Index {
        &self.index
    }

    /// Position of the entry with this key, or where it would be inserted.
    fn find(&self, key: &T::Key) -> Result<usize, usize> {
        self.entries.binary_search_by(|entry| entry.key().cmp(key))
    }

    fn insert(&mut self, at: usize, entry: Arc<T>) {
        self.index.insert(at, &entry);
        self.entries.insert(at, entry);
    }

    fn replace(&mut self, at: usize, entry: Arc<T>) -> Option<Arc<T>> {
        let place = self.entries.get_mut(at)?;
        self.index.replace(at, place, &entry);
        Some(std::mem::replace(place, entry))
    }

    fn remove(&mut self, at: usize) -> Arc<T> {
        let old = self.entries.remove(at);
        self.index.remove(at, &old);
        old
    }

    /// Removes the entries from this position on, and returns them.
    fn split_off(&mut self, at: usize) -> Self {
        let upper = self.entries.split_off(at);
        *self = Self::new(std::mem::take(&mut self.entries));
        Self::new(upper)
    }
}

impl<T: Keyed> Clone for Chunk<T> {
    fn clone(&self) -> Self {
        Self { entries: self.entries.clone(), index: self.index.clone() }
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
        type Index = Vec<u8>;

        fn key(&self) -> &u16 {
            &self.0
        }
    }

    /// The values of the entries.
    impl ChunkIndex<Entry> for Vec<u8> {
        fn insert(&mut self, at: usize, entry: &Entry) {
            self.insert(at, entry.1);
        }

        fn replace(&mut self, at: usize, old: &Entry, new: &Entry) {
            assert_eq!(std::mem::replace(&mut self[at], new.1), old.1);
        }

        fn remove(&mut self, at: usize, old: &Entry) {
            assert_eq!(self.remove(at), old.1);
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
                prop_assert_eq!(roster.count_up_to(&key), model.range(..=key).count());
            }
            for chunk in roster.chunks().chain(old.chunks()) {
                let values: Vec<u8> = chunk.entries().iter().map(|entry| entry.1).collect();
                prop_assert_eq!(chunk.index(), &values);
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
                .find(|chunk| chunk.entries.iter().any(|entry| entry.0 == 5000))
                .unwrap()
                .entries
                .len()
        );
        let difference = roster.since(&old);
        assert_eq!(difference.changed, [&Arc::new(Entry(5000, 1))]);
        assert!(difference.removed.is_empty());
    }
}
