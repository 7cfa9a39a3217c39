//! Builder for labels and notes. A later value replaces an earlier one and its notes.

use std::collections::BTreeMap;
use std::fmt;

use octavo_model::label::{LabelKey, LabelValue};

use crate::labels::{CompiledLabels, Note, Omission};

/// Labels and notes collected so far.
#[derive(Debug, Default)]
pub(super) struct LabelsBuilder {
    labels: BTreeMap<LabelKey, LabelValue>,
    notes: Vec<Note>,
}

impl LabelsBuilder {
    pub(super) fn put<T: fmt::Display + ?Sized>(&mut self, key: &str, value: &T) {
        self.put_parts(key, &value.to_string(), "");
    }

    /// Sets a label to `head` followed by `tail`; truncates the head if both are too long.
    pub(super) fn put_parts(&mut self, key: &str, head: &str, tail: &str) {
        let Ok(key) = key.parse::<LabelKey>() else {
            return self.omit(key, Omission::InvalidKey);
        };
        self.notes.retain(|note| !note.is_about(&key));
        let value = LabelValue::from_parts(head, tail);
        let original = format!("{head}{tail}");
        if value.as_str() != original {
            self.notes.push(Note::Truncated { key: key.clone(), original, value: value.clone() });
        }
        self.labels.insert(key, value);
    }

    /// Notes that a label is omitted and removes any value set earlier, because that value is unknown too.
    pub(super) fn omit(&mut self, key: &str, reason: Omission) {
        self.labels.retain(|known, _| known.as_str() != key);
        self.notes.retain(
            |note| !matches!(note, Note::Truncated { key: cut, .. } if cut.as_str() == key),
        );
        self.note(Note::Omitted { key: key.to_owned(), reason });
    }

    /// Adds a note unless it already exists.
    pub(super) fn note(&mut self, note: Note) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    pub(super) fn finish(self) -> CompiledLabels {
        CompiledLabels { labels: self.labels.into_iter().collect(), notes: self.notes }
    }
}
