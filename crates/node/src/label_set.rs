//! A set of labels.

use std::collections::BTreeMap;
use std::fmt;

use octavo_model::label::{LabelKey, LabelValue};

/// Labels ordered by key. Prints one `key=value` per line, which is also the format of an NFD feature file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LabelSet {
    labels: BTreeMap<LabelKey, LabelValue>,
}

impl LabelSet {
    /// Returns the value of `key`.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.labels.get(key).map(LabelValue::as_str)
    }

    /// Sets the value of `key`.
    #[must_use]
    pub fn with(mut self, key: LabelKey, value: LabelValue) -> Self {
        self.labels.insert(key, value);
        self
    }

    /// Returns keys and values, ordered by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.labels.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Returns the number of labels.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Returns true if there are no labels.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }
}

impl FromIterator<(LabelKey, LabelValue)> for LabelSet {
    fn from_iter<I: IntoIterator<Item = (LabelKey, LabelValue)>>(labels: I) -> Self {
        Self { labels: labels.into_iter().collect() }
    }
}

impl fmt::Display for LabelSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.iter().try_for_each(|(key, value)| writeln!(f, "{key}={value}"))
    }
}

/// Helpers for tests elsewhere in the crate.
#[cfg(test)]
pub(crate) mod tests_support {
    use super::LabelSet;

    /// Builds a label set from keys and values that are known to be valid.
    pub(crate) fn label_set(labels: &[(&str, &str)]) -> LabelSet {
        labels.iter().map(|(key, value)| (key.parse().unwrap(), value.parse().unwrap())).collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::label_set::tests_support::label_set;

    #[test]
    fn label_set_prints_in_key_order() {
        let set = label_set(&[("b.example/x", "2"), ("a.example/y", ""), ("a.example/x", "1")]);
        assert_eq!(set.to_string(), "a.example/x=1\na.example/y=\nb.example/x=2\n");
        assert_eq!((set.len(), set.is_empty()), (3, false));
        assert_eq!(set.get("b.example/x"), Some("2"));
        assert_eq!(set.get("c.example/x"), None);
    }
}
