//! Kubernetes label selectors. Source of the grammar: Kubernetes, "Labels and Selectors".
//!
//! ```text
//! selector    = [ requirement *( "," requirement ) ]
//! requirement = key | "!" key | key ( "=" | "==" | "!=" ) value | key ( "in" | "notin" ) "(" value *( "," value ) ")"
//! ```
//! A value can be empty. As in Kubernetes, `!=` and `notin` also select label sets without the key. The operators `<`
//! and `>` are not supported, because none of Octavo's labels is a number to compare.
//!
//! `kube::core::Selector` is not used: it cannot be parsed from text, and it matches only a `BTreeMap<String, String>` (kube 5.0).

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use octavo_model::label::{LabelError, LabelKey, LabelValue};
use octavo_node::label_set::LabelSet;
use thiserror::Error;

/// Label selector. All requirements must hold; without any, every label set matches.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Selector(Vec<Requirement>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: LabelKey,
    condition: Condition,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Condition {
    Exists,
    DoesNotExist,
    In(BTreeSet<LabelValue>),
    NotIn(BTreeSet<LabelValue>),
}

/// Error of parsing a selector. Columns count characters from 1.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SelectorError {
    /// Unexpected text.
    #[error("at column {column}: expected {expected}, found {found}")]
    Expected {
        /// Column.
        column: usize,
        /// Expected text.
        expected: &'static str,
        /// Actual text.
        found: String,
    },
    /// Key or value that Kubernetes would reject.
    #[error("at column {column}")]
    Label {
        /// Column of its first character.
        column: usize,
        /// Reason.
        source: LabelError,
    },
}

impl Selector {
    /// Returns whether the selector matches everything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether the selector matches `labels`.
    pub fn matches(&self, labels: &LabelSet) -> bool {
        self.0.iter().all(|requirement| {
            let value = labels.get(requirement.key.as_str());
            let is_in = |values: &BTreeSet<LabelValue>| {
                value.is_some_and(|value| values.iter().any(|one| one.as_str() == value))
            };
            match &requirement.condition {
                Condition::Exists => value.is_some(),
                Condition::DoesNotExist => value.is_none(),
                Condition::In(values) => is_in(values),
                Condition::NotIn(values) => !is_in(values),
            }
        })
    }
}

impl FromStr for Selector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        let mut reader = Parser { text, at: 0 };
        let mut requirements = Vec::new();
        if reader.peek().is_none() {
            return Ok(Self(requirements));
        }
        loop {
            requirements.push(reader.requirement()?);
            match reader.peek() {
                None => return Ok(Self(requirements)),
                Some(',') => reader.skip(1),
                Some(_) => return Err(reader.expected("a comma or the end")),
            }
        }
    }
}

/// Scanner from left to right; `at` is always a character boundary.
#[derive(Debug)]
struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn requirement(&mut self) -> Result<Requirement, SelectorError> {
        if self.peek() == Some('!') {
            self.skip(1);
            let key = self.key()?;
            let must = Condition::DoesNotExist;
            return Ok(Requirement { key, condition: must });
        }
        let key = self.key()?;
        let must = match self.peek() {
            None | Some(',') => Condition::Exists,
            Some('=') => {
                self.skip(1);
                // `==` is one operator, so whitespace is not allowed within it.
                if self.rest().starts_with('=') {
                    self.skip(1);
                }
                Condition::In(BTreeSet::from([self.value()?]))
            }
            Some('!') if self.rest().starts_with("!=") => {
                self.skip(2);
                Condition::NotIn(BTreeSet::from([self.value()?]))
            }
            Some(_) => self.set()?,
        };
        Ok(Requirement { key, condition: must })
    }

    fn set(&mut self) -> Result<Condition, SelectorError> {
        let must = match self.word() {
            "in" => Condition::In,
            "notin" => Condition::NotIn,
            _ => return Err(self.expected("one of = == != in notin, a comma or the end")),
        };
        self.peek();
        self.skip(self.word().len());
        if self.peek() != Some('(') {
            return Err(self.expected("values in parentheses"));
        }
        self.skip(1);
        if self.peek() == Some(')') {
            return Err(self.expected("a value"));
        }
        let mut values = BTreeSet::new();
        loop {
            values.insert(self.value()?);
            match self.peek() {
                Some(',') => self.skip(1),
                Some(')') => {
                    self.skip(1);
                    return Ok(must(values));
                }
                _ => return Err(self.expected("a comma or a closing parenthesis")),
            }
        }
    }

    fn key(&mut self) -> Result<LabelKey, SelectorError> {
        self.peek();
        if self.word().is_empty() {
            return Err(self.expected("a label's key"));
        }
        self.label()
    }

    fn value(&mut self) -> Result<LabelValue, SelectorError> {
        self.peek();
        self.label()
    }

    /// Parses the current word as a key or a value.
    fn label<T: FromStr<Err = LabelError>>(&mut self) -> Result<T, SelectorError> {
        let word = self.word();
        let label = word
            .parse()
            .map_err(|source| SelectorError::Label { column: self.column(), source })?;
        self.skip(word.len());
        Ok(label)
    }

    /// The text up to the next blank or operator.
    fn word(&self) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|c: char| is_blank(c) || "=!(),<>".contains(c));
        end.and_then(|end| rest.get(..end)).unwrap_or(rest)
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// Skips blanks and returns the next character.
    fn peek(&mut self) -> Option<char> {
        let rest = self.rest();
        let blanks = rest.len().saturating_sub(rest.trim_start_matches(is_blank).len());
        self.skip(blanks);
        self.rest().chars().next()
    }

    /// Skips this number of bytes.
    fn skip(&mut self, bytes: usize) {
        self.at = self.at.saturating_add(bytes);
    }

    fn column(&self) -> usize {
        let before = self.text.get(..self.at).unwrap_or(self.text);
        before.chars().count().saturating_add(1)
    }

    fn expected(&self, expected: &'static str) -> SelectorError {
        let word: String = self.word().chars().take(64).collect();
        let found = match self.rest().chars().next() {
            None => "the end".to_owned(),
            Some(sign) if word.is_empty() => format!("{:?}", sign.to_string()),
            Some(_) => format!("{word:?}"),
        };
        SelectorError::Expected { column: self.column(), expected, found }
    }
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

/// Formats the selector so that parsing returns the same selector.
impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Requirement { key, condition: must }) in self.0.iter().enumerate() {
            if index > 0 {
                write!(f, ",")?;
            }
            match must {
                Condition::Exists => write!(f, "{key}")?,
                Condition::DoesNotExist => write!(f, "!{key}")?,
                Condition::In(values) => write!(f, "{key} in ({})", list(values))?,
                Condition::NotIn(values) => write!(f, "{key} notin ({})", list(values))?,
            }
        }
        Ok(())
    }
}

/// Formats a list of values. A single empty value is written as two, because `()` contains none.
fn list(values: &BTreeSet<LabelValue>) -> String {
    let all: Vec<&str> = values.iter().map(LabelValue::as_str).collect();
    match all.join(",") {
        empty if empty.is_empty() => ",".to_owned(),
        list => list,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> LabelSet {
        let pairs = pairs.iter();
        pairs.map(|(key, value)| (key.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn matches_like_kubernetes() {
        let here = labels(&[("a", "1"), ("x.dev/b", ""), ("in", "notin")]);
        for (selector, expected) in [
            ("", true),
            (" ", true),
            ("a", true),
            ("c", false),
            ("!a", false),
            ("! c", true),
            ("a=1", true),
            ("a == 1", true),
            ("a==2", false),
            ("a!=1", false),
            ("a != 2", true),
            ("c!=1", true),
            ("c=", false),
            ("x.dev/b=", true),
            ("x.dev/b=,a", true),
            ("a in (2, 1)", true),
            ("a in (2)", false),
            ("a in(1)", true),
            ("c in (1)", false),
            ("a notin (2,3)", true),
            ("a notin (1)", false),
            ("c notin (1)", true),
            ("x.dev/b in (,)", true),
            ("in in (notin)", true),
            ("in,a = 1 , !c", true),
            ("a,c", false),
        ] {
            let selector: Selector = selector.parse().unwrap_or_else(|e| panic!("{selector}: {e}"));
            assert_eq!(selector.matches(&here), expected, "{selector}");
        }
    }

    #[test]
    fn error_names_the_column() {
        for (selector, expected) in [
            ("a=1,", "at column 5: expected a label's key, found the end"),
            (",a", "at column 1: expected a label's key, found \",\""),
            ("!", "at column 2: expected a label's key, found the end"),
            ("!a=1", "at column 3: expected a comma or the end, found \"=\""),
            ("a==b==c", "at column 5: expected a comma or the end, found \"=\""),
            (
                "a b",
                "at column 3: expected one of = == != in notin, a comma or the end, found \"b\"",
            ),
            (
                "a>1",
                "at column 2: expected one of = == != in notin, a comma or the end, found \">\"",
            ),
            ("a in 1", "at column 6: expected values in parentheses, found \"1\""),
            ("a in ()", "at column 7: expected a value, found \")\""),
            ("a in (1", "at column 8: expected a comma or a closing parenthesis, found the end"),
            ("a in (1 2)", "at column 9: expected a comma or a closing parenthesis, found \"2\""),
            ("é=1", "at column 1: \"é\" is not a label key such as octavo.dev/type"),
            ("é=1,b", "at column 1: \"é\" is not a label key such as octavo.dev/type"),
            (
                "a=-",
                "at column 3: \"-\" is not a label value: at most 63 characters of A-Z a-z 0-9 - _ . that start and end with a letter or digit",
            ),
        ] {
            let error = selector.parse::<Selector>().unwrap_err();
            assert_eq!(octavo_toolkit::error::chain(&error), expected, "{selector}");
        }
    }

    fn value() -> impl Strategy<Value = LabelValue> {
        "[a-zA-Z0-9]?|[a-z][a-z0-9._-]{0,5}[A-Z0-9]".prop_map(|text| text.parse().unwrap())
    }

    fn any_selector() -> impl Strategy<Value = Selector> {
        let values = || prop::collection::btree_set(value(), 1..4);
        let must = prop_oneof![
            Just(Condition::Exists),
            Just(Condition::DoesNotExist),
            values().prop_map(Condition::In),
            values().prop_map(Condition::NotIn),
        ];
        let key = "([a-z]{1,3}\\.dev/)?([a-z][a-zA-Z0-9._-]{0,5}[a-z]|in|notin)";
        let requirement = (key, must)
            .prop_map(|(key, must)| Requirement { key: key.parse().unwrap(), condition: must });
        prop::collection::vec(requirement, 0..4).prop_map(Selector)
    }

    proptest! {
        #[test]
        fn display_round_trips(selector in any_selector()) {
            prop_assert_eq!(selector.to_string().parse::<Selector>().unwrap(), selector);
        }

        #[test]
        fn arbitrary_text_does_not_panic(text in "\\PC{0,40}|[ab=!(), in]{0,20}") {
            if let Ok(selector) = text.parse::<Selector>() {
                prop_assert_eq!(selector.to_string().parse::<Selector>().unwrap(), selector);
            }
        }
    }
}
