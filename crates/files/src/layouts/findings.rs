//! Collector for errors and warnings while parsing a file, with limits, and checks of the keys of a mapping.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as BTreeEntry;
use std::fmt;

use octavo_model::label::LabelValue;
use octavo_model::similar_names;
use octavo_model::source_position::SourcePosition;
use octavo_planner::layout::Layouts;

use super::ParsedLayouts;
use super::error::{LayoutError, LayoutProblem, LayoutWarning, WarningProblem};
use super::node::{Entry, Value, YamlNode, quoted};

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

/// A mapping of the file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mapping<'n> {
    pub(super) position: SourcePosition,
    pub(super) entries: &'n [Entry],
    /// Description for messages, such as "a rule".
    pub(super) what: &'static str,
}

impl Findings {
    pub(super) fn error(&mut self, position: SourcePosition, problem: LayoutProblem) {
        // Keeps one error more than is reported, to detect that there are more.
        if self.errors.len() <= LayoutProblem::MAX_ERRORS {
            self.errors.push(LayoutError::new(position, problem));
        }
    }

    pub(super) fn warning(&mut self, position: SourcePosition, problem: WarningProblem) {
        if self.warnings.len() < LayoutProblem::MAX_ERRORS {
            self.warnings.push(LayoutWarning::new(position, problem));
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
                errors.sort_by_key(LayoutError::position);
                if more && let Some(last) = errors.pop() {
                    errors.push(LayoutError::new(last.position(), LayoutProblem::TooManyErrors));
                }
                Err(errors)
            }
        }
    }

    /// Adds an error for a value of the wrong type.
    pub(super) fn wrong_kind(
        &mut self,
        node: &YamlNode,
        what: &'static str,
        expected: &'static str,
    ) {
        let found = node.describe();
        self.error(node.position, LayoutProblem::WrongKind { what, expected, found });
    }

    /// Returns `value`, which was parsed from `node`. An absent value is reported as one of the wrong type.
    pub(super) fn expect<T>(
        &mut self,
        value: Option<T>,
        node: &YamlNode,
        what: &'static str,
        expected: &'static str,
    ) -> Option<T> {
        if value.is_none() {
            self.wrong_kind(node, what, expected);
        }
        value
    }

    /// Returns a parsed value. An error is reported.
    pub(super) fn accept<T>(
        &mut self,
        value: Result<T, impl Into<LayoutProblem>>,
        position: SourcePosition,
    ) -> Option<T> {
        value.map_err(|problem| self.error(position, problem.into())).ok()
    }

    /// Reports a list or mapping without entries, and returns whether there are any.
    pub(super) fn not_empty(
        &mut self,
        node: &YamlNode,
        what: &'static str,
        example: &'static str,
    ) -> bool {
        let is_empty = match &node.value {
            Value::Scalar(_) => false,
            Value::List(items) => items.is_empty(),
            Value::Map(entries) => entries.is_empty(),
        };
        if is_empty {
            self.error(node.position, LayoutProblem::Empty { what, example });
        }
        !is_empty
    }

    /// Adds a value to those seen before. A duplicate is reported, and `false` returned.
    pub(super) fn unique<T: Ord + fmt::Display>(
        &mut self,
        seen: &mut BTreeMap<T, SourcePosition>,
        value: T,
        position: SourcePosition,
    ) -> bool {
        match seen.entry(value) {
            BTreeEntry::Vacant(new) => {
                new.insert(position);
                true
            }
            BTreeEntry::Occupied(known) => {
                let (value, first) = (known.key().to_string(), *known.get());
                self.error(position, LayoutProblem::DuplicateValue { value, first });
                false
            }
        }
    }

    /// Returns the mapping. Unknown keys are reported as errors, and the remaining entries are still returned.
    pub(super) fn mapping<'n>(
        &mut self,
        node: &'n YamlNode,
        shape: MappingShape,
    ) -> Option<Mapping<'n>> {
        let entries = self.expect(node.entries(), node, shape.what, "a mapping")?;
        for entry in entries.iter().filter(|entry| !shape.keys.contains(&&*entry.key)) {
            let problem = LayoutProblem::UnknownKey {
                key: quoted(&entry.key),
                within: shape.what,
                nearest: similar_names::closest(&entry.key, shape.keys.iter().copied()),
                known: shape.keys,
            };
            self.error(entry.position, problem);
        }
        Some(Mapping { position: node.position, entries, what: shape.what })
    }

    /// Returns the value of a required key. A missing key is reported.
    pub(super) fn required<'n>(
        &mut self,
        mapping: Mapping<'n>,
        key: &'static str,
        example: &'static str,
    ) -> Option<&'n YamlNode> {
        let found = mapping.get(key);
        if found.is_none() {
            let problem = LayoutProblem::MissingKey { key, within: mapping.what, example };
            self.error(mapping.position, problem);
        }
        found
    }
}

impl<'n> Mapping<'n> {
    /// Returns the entry of a key.
    pub(super) fn entry(&self, key: &str) -> Option<&'n Entry> {
        self.entries.iter().find(|entry| *entry.key == *key)
    }

    /// Returns the value of a key.
    pub(super) fn get(&self, key: &str) -> Option<&'n YamlNode> {
        self.entry(key).map(|entry| &*entry.value)
    }

    /// Returns the value of a key. A null value counts as absent.
    pub(super) fn non_null(&self, key: &str) -> Option<&'n YamlNode> {
        self.get(key).filter(|node| !node.is_null())
    }
}

/// Reports whether `name` is a valid label value that is not empty.
pub(super) fn is_label_value(name: &str) -> bool {
    !name.is_empty() && name.parse::<LabelValue>().is_ok()
}
