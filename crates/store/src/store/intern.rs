//! Deduplication of contents that many nodes have in common.
//!
//! Equal nodes have equal labels, and equal devices have equal profiles, so a fleet has few distinct contents. Contents
//! are compared byte by byte, because digest collisions can be constructed.

use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque, btree_map};
use std::sync::Arc;

use octavo_node::label_set::LabelSet;
use octavo_stream::protocol::{Change, Content, PartKey, Parts};
use octavo_stream::status::{Catalogs, StatusError, profile_parts};

/// Contents in use, with the parsed labels of those that contain labels.
#[derive(Debug, Default)]
pub(super) struct ContentInterner {
    known: BTreeMap<ContentKey, Option<Arc<LabelSet>>>,
    /// Bytes added since the last purge.
    fresh: usize,
    /// Profile catalogs decoded last, with their parts; at most [`MAX_CATALOGS`].
    catalogs: VecDeque<(Parts, Arc<Catalogs>)>,
}

/// Content ordered by digest, for speed, and then by its bytes.
#[derive(Debug)]
struct ContentKey(Content);

/// Number of new bytes that triggers a purge, so that an agent with constantly changing labels cannot fill the memory
/// between two sweeps.
const MAX_FRESH_BYTES: usize = 16 * 1024 * 1024;

/// Number of distinct profile catalogs that stay decoded: more than a fleet has models of GPUs, and few enough for catalogs
/// of the maximum size.
const MAX_CATALOGS: usize = 16;
/// Maximum size of the catalogs of a status that stay decoded, in bytes.
const MAX_CACHED_BYTES: usize = 32 * 1024;

const PROFILES: &str = "profiles/";

impl ContentInterner {
    /// Replaces contents by known equal ones.
    pub(super) fn deduplicated(&self, parts: Parts) -> Parts {
        let known =
            parts.iter().filter_map(|(key, content)| Some((key.clone(), self.find(key, content)?)));
        let changed: Vec<(PartKey, Content)> = known.collect();
        if changed.is_empty() {
            return parts;
        }
        parts.apply(&Change { changed, removed: Vec::new() })
    }

    /// Replaces changed contents by known equal ones.
    pub(super) fn deduplicate(&self, change: &mut Change) {
        for (key, content) in &mut change.changed {
            if let Some(known) = self.find(key, content) {
                *content = known;
            }
        }
    }

    /// Stores the contents of an accepted status; returns its labels, shared with equal nodes.
    pub(super) fn insert(&mut self, parts: &Parts, labels: LabelSet) -> Arc<LabelSet> {
        if self.fresh > MAX_FRESH_BYTES {
            self.purge();
        }
        for (key, content) in parts.iter() {
            if key.as_str().starts_with(PROFILES) {
                self.entry(content);
            }
        }
        let Some(content) = parts.get(PartKey::LABELS) else {
            return Arc::new(labels);
        };
        Arc::clone(self.entry(content).get_or_insert_with(|| Arc::new(labels)))
    }

    /// Returns the decoded profile catalogs of a status.
    pub(super) fn catalogs(&mut self, parts: &Parts) -> Result<Arc<Catalogs>, StatusError> {
        let mut known = self.catalogs.iter();
        if let Some((_, catalogs)) =
            known.find(|(of, _)| profile_parts(of).eq(profile_parts(parts)))
        {
            return Ok(Arc::clone(catalogs));
        }
        let catalogs = Arc::new(Catalogs::decode(parts)?);
        let sizes = profile_parts(parts).map(|(_, content)| content.bytes().len());
        // Decoded catalogs can need many times the memory of their bytes.
        if sizes.sum::<usize>() <= MAX_CACHED_BYTES {
            self.catalogs.truncate(MAX_CATALOGS - 1);
            let profiles =
                profile_parts(parts).map(|(key, content)| (key.clone(), content.clone()));
            self.catalogs.push_front((profiles.collect(), Arc::clone(&catalogs)));
        }
        Ok(catalogs)
    }

    fn entry(&mut self, content: &Content) -> &mut Option<Arc<LabelSet>> {
        let entry = self.known.entry(ContentKey(content.clone()));
        if matches!(entry, btree_map::Entry::Vacant(_)) {
            self.fresh = self.fresh.saturating_add(content.bytes().len());
        }
        entry.or_default()
    }

    /// Drops contents that are not used elsewhere.
    pub(super) fn purge(&mut self) {
        self.fresh = 0;
        self.known.retain(|content, _| Arc::strong_count(content.0.shared()) > 1);
    }

    /// Number of contents.
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    fn find(&self, key: &PartKey, content: &Content) -> Option<Content> {
        let key = key.as_str();
        if key != PartKey::LABELS && !key.starts_with(PROFILES) {
            return None;
        }
        let (known, _) = self.known.get_key_value(&ContentKey(content.clone()))?;
        Some(known.0.clone())
    }
}

impl Ord for ContentKey {
    fn cmp(&self, other: &Self) -> Ordering {
        let (one, two) = (&self.0, &other.0);
        let digests = one.digest().cmp(&two.digest());
        digests.then_with(|| one.bytes().cmp(two.bytes()))
    }
}

impl PartialOrd for ContentKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for ContentKey {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for ContentKey {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_bounded_between_sweeps() {
        let mut interned = ContentInterner::default();
        let mut content = vec![0; 256 * 1024];
        for number in 0_u32..1000 {
            content[..4].copy_from_slice(&number.to_le_bytes());
            let part = (PartKey::labels(), Content::new(content.clone()));
            interned.insert(&[part].into_iter().collect(), LabelSet::default());
        }
        assert!(interned.len() <= 66, "{}", interned.len());
    }

    #[test]
    fn decoded_catalogs_are_those_of_the_status_and_bounded() {
        let mut interned = ContentInterner::default();
        for number in (0..40).chain(0..40) {
            let part = (format!("profiles/{number}").parse().unwrap(), Content::new(Vec::new()));
            let parts: Parts = [part].into_iter().collect();
            let decoded = interned.catalogs(&parts).unwrap();
            assert_eq!(*decoded, Catalogs::decode(&parts).unwrap());
            assert!(Arc::ptr_eq(&decoded, &interned.catalogs(&parts).unwrap()));
            assert!(interned.catalogs.len() <= MAX_CATALOGS);
        }
    }
}
