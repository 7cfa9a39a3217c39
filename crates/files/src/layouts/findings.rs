//! Collector for errors and warnings while parsing a file, with limits, and checks of the keys of a mapping.

use octavo_model::similar_names;
use octavo_model::source_position::SourcePosition;
use octavo_planner::layout::Layouts;

use super::ParsedLayouts;
use super::error::{LayoutError, LayoutProblem, LayoutWarning, WarningProblem};
use super::node::{Entry, Node, Value, quoted};

/// Errors and warnings of one file.
#[derive(Debug, Default)]
pub(super) struct Findings {
    errors: Vec<LayoutError>,
    warnings: Vec<LayoutWarning>,
}

/// Description of a mapping and its known keys.
#[derive(Debug, Clone, Copy)]
pub(super) struct MappingShape {
    /// Description for messages, such as "a rule".
    pub(super) what: &'static str,
    /// All known keys.
    pub(super) keys: &'static [&'static str],
}

impl Findings {
    pub(super) fn error(&mut self, place: SourcePosition, problem: LayoutProblem) {
        // Keeps one error more than is reported, to detect that there are more.
        if self.errors.len() <= LayoutProblem::MAX_ERRORS {
            self.errors.push(LayoutError::new(place, problem));
        }
    }

    pub(super) fn warning(&mut self, place: SourcePosition, problem: WarningProblem) {
        if self.warnings.len() < LayoutProblem::MAX_ERRORS {
            self.warnings.push(LayoutWarning::new(place, problem));
        }
    }

    /// Returns the layouts with the warnings, or all errors.
    pub(super) fn into_parsed(
        mut self,
        layouts: Option<Layouts>,
    ) -> Result<ParsedLayouts, Vec<LayoutError>> {
        let warnings = std::mem::take(&mut self.warnings);
        let layouts = self.into_result(layouts)?;
        Ok(ParsedLayouts { layouts, warnings })
    }

    /// Returns the parsed value if there are no errors.
    pub(super) fn into_result<T>(self, read: Option<T>) -> Result<T, Vec<LayoutError>> {
        let mut errors = self.errors;
        match read {
            Some(read) if errors.is_empty() => Ok(read),
            Some(_) | None => {
                let more = errors.len() > LayoutProblem::MAX_ERRORS;
                errors.sort_by_key(LayoutError::place);
                if more && let Some(last) = errors.pop() {
                    errors.push(LayoutError::new(last.place(), LayoutProblem::TooManyErrors));
                }
                Err(errors)
            }
        }
    }

    /// Adds an error for a value of the wrong type.
    pub(super) fn wrong_kind(&mut self, node: &Node, what: &'static str, expected: &'static str) {
        let found = node.describe();
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
    pub(super) fn mapping<'n>(
        &mut self,
        node: &'n Node,
        shape: MappingShape,
    ) -> Option<&'n [Entry]> {
        let Value::Map(entries) = &node.value else {
            self.wrong_kind(node, shape.what, "a mapping");
            return None;
        };
        self.check_keys(entries, shape);
        Some(entries)
    }

    /// Reports unknown keys.
    pub(super) fn check_keys(&mut self, entries: &[Entry], shape: MappingShape) {
        for entry in entries {
            if !shape.keys.contains(&&*entry.key) {
                let problem = LayoutProblem::UnknownKey {
                    key: quoted(&entry.key),
                    within: shape.what,
                    nearest: similar_names::closest(&entry.key, shape.keys.iter().copied()),
                    known: shape.keys,
                };
                self.error(entry.place, problem);
            }
        }
    }

    /// Returns the value of a required key. A missing key is reported.
    pub(super) fn required<'n>(
        &mut self,
        (place, entries): (SourcePosition, &'n [Entry]),
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
