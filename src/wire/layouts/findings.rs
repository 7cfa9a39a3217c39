//! Collector for errors and warnings while parsing a file, with limits, and checks of the keys of a mapping.

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

/// Description of a mapping and its known keys.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    /// Description for messages, such as "a rule".
    pub(super) what: &'static str,
    /// All known keys.
    pub(super) keys: &'static [&'static str],
}

impl Findings {
    pub(super) fn error(&mut self, place: Place, problem: LayoutProblem) {
        // Keeps one error more than is reported, to detect that there are more.
        if self.errors.len() <= LayoutProblem::MOST {
            self.errors.push(LayoutError::new(place, problem));
        }
    }

    pub(super) fn warning(&mut self, place: Place, problem: WarningProblem) {
        if self.warnings.len() < LayoutProblem::MOST {
            self.warnings.push(LayoutWarning::new(place, problem));
        }
    }

    /// Returns the layouts with the warnings, or all errors.
    pub(super) fn finish(mut self, layouts: Option<Layouts>) -> Result<Parsed, Vec<LayoutError>> {
        let warnings = std::mem::take(&mut self.warnings);
        let layouts = self.whole(layouts)?;
        Ok(Parsed { layouts, warnings })
    }

    /// Returns the parsed value if there are no errors.
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

    /// Adds an error for a value of the wrong type.
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

    /// Returns the entries of a mapping. Unknown keys are reported as errors, and the remaining entries are still
    /// returned.
    pub(super) fn mapping<'n>(&mut self, node: &'n Node, shape: Shape) -> Option<&'n [Entry]> {
        let Value::Map(entries) = &node.value else {
            self.wrong_kind(node, shape.what, "a mapping");
            return None;
        };
        self.known(entries, shape);
        Some(entries)
    }

    /// Reports unknown keys.
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

    /// Returns the value of a required key. A missing key is reported.
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

/// Returns the value of a key.
pub(super) fn value_of<'n>(entries: &'n [Entry], key: &str) -> Option<&'n Node> {
    let entry = entries.iter().find(|entry| *entry.key == *key);
    entry.map(|entry| &*entry.value)
}

/// Reports whether `name` is a valid label value.
pub(super) fn is_label_value(name: &str) -> bool {
    let bytes = name.as_bytes();
    let end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let inner = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    bytes.len() <= 63 && end(bytes.first()) && end(bytes.last()) && bytes.iter().all(inner)
}
