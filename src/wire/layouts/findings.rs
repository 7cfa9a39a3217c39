//! What was found while a file is read: errors and warnings, bounded; and the keys that a mapping may have.

use super::Parsed;
use super::error::{LayoutError, LayoutProblem, LayoutWarning, WarningProblem};
use super::tree::{Entry, Node, Value, quoted};
use crate::domain::layout::{Layouts, Place};
use crate::domain::near;

/// Errors and warnings of one file.
#[derive(Debug, Default)]
pub(super) struct Findings {
    errors: Vec<LayoutError>,
    warnings: Vec<LayoutWarning>,
}

/// A mapping's name and the keys that it may have.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    /// In words for a person: "a rule".
    pub(super) what: &'static str,
    /// All keys.
    pub(super) keys: &'static [&'static str],
}

impl Findings {
    pub(super) fn error(&mut self, place: Place, problem: LayoutProblem) {
        // One more than is told says that there are more.
        if self.errors.len() <= LayoutProblem::MOST {
            self.errors.push(LayoutError::new(place, problem));
        }
    }

    pub(super) fn warning(&mut self, place: Place, problem: WarningProblem) {
        if self.warnings.len() < LayoutProblem::MOST {
            self.warnings.push(LayoutWarning::new(place, problem));
        }
    }

    /// What `parse` says.
    pub(super) fn finish(mut self, layouts: Option<Layouts>) -> Result<Parsed, Vec<LayoutError>> {
        let warnings = std::mem::take(&mut self.warnings);
        let layouts = self.whole(layouts)?;
        Ok(Parsed { layouts, warnings })
    }

    /// What was read, if nothing is wrong with it.
    pub(super) fn whole<T>(self, read: Option<T>) -> Result<T, Vec<LayoutError>> {
        let mut errors = self.errors;
        match read {
            Some(read) if errors.is_empty() => Ok(read),
            Some(_) | None => {
                let more = errors.len() > LayoutProblem::MOST;
                errors.sort_by_key(LayoutError::place);
                if more && let Some(last) = errors.pop() {
                    errors.push(LayoutError::new(last.place(), LayoutProblem::More));
                }
                Err(errors)
            }
        }
    }

    /// A value that is not of the kind it must be.
    pub(super) fn wrong_kind(&mut self, node: &Node, what: &'static str, expected: &'static str) {
        let found = node.in_words();
        self.error(
            node.place,
            LayoutProblem::WrongKind {
                what,
                expected,
                found,
            },
        );
    }

    /// The entries of a mapping whose keys are all known; an unknown key is an error, and the others are still read.
    pub(super) fn mapping<'n>(&mut self, node: &'n Node, shape: Shape) -> Option<&'n [Entry]> {
        let Value::Map(entries) = &node.value else {
            self.wrong_kind(node, shape.what, "a mapping");
            return None;
        };
        self.known(entries, shape);
        Some(entries)
    }

    /// Complains of unknown keys.
    pub(super) fn known(&mut self, entries: &[Entry], shape: Shape) {
        for entry in entries {
            if !shape.keys.contains(&&*entry.key) {
                let problem = LayoutProblem::UnknownKey {
                    key: quoted(&entry.key),
                    within: shape.what,
                    nearest: near::meant(&entry.key, shape.keys.iter().copied()),
                    known: shape.keys,
                };
                self.error(entry.place, problem);
            }
        }
    }

    /// The value of a key that must be there.
    pub(super) fn needed<'n>(
        &mut self,
        (place, entries): (Place, &'n [Entry]),
        within: &'static str,
        (key, example): (&'static str, &'static str),
    ) -> Option<&'n Node> {
        let found = value_of(entries, key);
        if found.is_none() {
            let problem = LayoutProblem::MissingKey {
                key,
                within,
                example,
            };
            self.error(place, problem);
        }
        found
    }
}

/// The value of a key.
pub(super) fn value_of<'n>(entries: &'n [Entry], key: &str) -> Option<&'n Node> {
    let entry = entries.iter().find(|entry| *entry.key == *key);
    entry.map(|entry| &*entry.value)
}

/// Whether a node label can have this value.
pub(super) fn is_label_value(name: &str) -> bool {
    let bytes = name.as_bytes();
    let end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let inner = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    bytes.len() <= 63 && end(bytes.first()) && end(bytes.last()) && bytes.iter().all(inner)
}
