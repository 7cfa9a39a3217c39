//! A set of labels, and what differs between two.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::domain::labels::{LabelKey, LabelValue};

/// Labels, in the order of their keys. Prints one `key=value` a line, which is also the form of an NFD feature file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LabelSet {
    labels: BTreeMap<LabelKey, LabelValue>,
}

/// What differs in one label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// It is new.
    Added {
        /// The key.
        key: LabelKey,
        /// Its value.
        value: LabelValue,
    },
    /// It has another value.
    Changed {
        /// The key.
        key: LabelKey,
        /// The value it had.
        from: LabelValue,
        /// The value it has.
        to: LabelValue,
    },
    /// It is gone.
    Removed {
        /// The key.
        key: LabelKey,
        /// The value it had.
        value: LabelValue,
    },
}

impl LabelSet {
    /// The value under `key`.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.iter()
            .find_map(|(found, value)| (found == key).then_some(value))
    }

    /// Keys and values, ordered by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.labels
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }
}

impl FromIterator<(LabelKey, LabelValue)> for LabelSet {
    fn from_iter<I: IntoIterator<Item = (LabelKey, LabelValue)>>(labels: I) -> Self {
        Self {
            labels: labels.into_iter().collect(),
        }
    }
}

impl fmt::Display for LabelSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.iter()
            .try_for_each(|(key, value)| writeln!(f, "{key}={value}"))
    }
}

/// What leads from `old` to `new`, ordered by key; empty when they are equal.
pub fn diff(old: &LabelSet, new: &LabelSet) -> Vec<Change> {
    let keys: BTreeSet<&LabelKey> = old.labels.keys().chain(new.labels.keys()).collect();
    keys.into_iter()
        .filter_map(|key| change(key, old.labels.get(key), new.labels.get(key)))
        .collect()
}

fn change(key: &LabelKey, old: Option<&LabelValue>, new: Option<&LabelValue>) -> Option<Change> {
    let key = key.clone();
    match (old.cloned(), new.cloned()) {
        (None, Some(value)) => Some(Change::Added { key, value }),
        (Some(value), None) => Some(Change::Removed { key, value }),
        (Some(from), Some(to)) if from != to => Some(Change::Changed { key, from, to }),
        (Some(_) | None, Some(_) | None) => None,
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Added { key, value } => write!(f, "+ {key}={value}"),
            Self::Changed { key, from, to } => write!(f, "~ {key}={to} (was {from})"),
            Self::Removed { key, value } => write!(f, "- {key}={value}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::labels::tests_support::label_set;

    #[test]
    fn a_set_prints_its_labels_in_order() {
        let set = label_set(&[
            ("b.example/x", "2"),
            ("a.example/y", ""),
            ("a.example/x", "1"),
        ]);
        assert_eq!(
            set.to_string(),
            "a.example/x=1\na.example/y=\nb.example/x=2\n"
        );
        assert_eq!((set.len(), set.is_empty()), (3, false));
        assert_eq!(set.get("b.example/x"), Some("2"));
        assert_eq!(set.get("c.example/x"), None);
    }

    #[test]
    fn a_diff_names_what_leads_from_one_set_to_the_other() {
        let old = label_set(&[("same", "1"), ("changed", "1"), ("gone", "1")]);
        let new = label_set(&[("same", "1"), ("changed", "2"), ("new", "1")]);
        let text: Vec<String> = diff(&old, &new).iter().map(Change::to_string).collect();
        assert_eq!(text, ["~ changed=2 (was 1)", "- gone=1", "+ new=1"]);
        assert_eq!(diff(&new, &new), []);
    }
}
