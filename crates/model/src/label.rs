//! Label keys and values, valid by construction. Source: Kubernetes, "Labels and Selectors", syntax and character set.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;

use serde_with::{DeserializeFromStr, SerializeDisplay};
use thiserror::Error;

use crate::id::is_subdomain;
use crate::label_shortening;

/// A label key: a name, usually with a DNS prefix, such as `octavo.dev/type`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, SerializeDisplay, DeserializeFromStr)]
pub struct LabelKey(String);

/// A label value, possibly empty.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, SerializeDisplay, DeserializeFromStr)]
pub struct LabelValue(String);

/// A string that Kubernetes would reject in a label.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LabelError {
    /// The string is not a valid key.
    #[error("{0:?} is not a label key such as octavo.dev/type")]
    Key(String),
    /// The string is not a valid value.
    #[error(
        "{0:?} is not a label value: at most 63 characters of A-Z a-z 0-9 - _ . that start and end with a letter \
         or digit"
    )]
    Value(String),
}

impl LabelKey {
    /// Returns the key as a string.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Allows lookups by `&str` without allocating a key. Keys are ordered as their strings are.
impl Borrow<str> for LabelKey {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl FromStr for LabelKey {
    type Err = LabelError;

    fn from_str(text: &str) -> Result<Self, LabelError> {
        let valid = match text.split_once('/') {
            Some((prefix, name)) => is_subdomain(prefix) && is_name(name),
            None => is_name(text),
        };
        if valid { Ok(Self(text.to_owned())) } else { Err(LabelError::Key(text.to_owned())) }
    }
}

impl fmt::Display for LabelKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl LabelValue {
    /// Returns the value as a string.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Joins `head` and `tail` into one value, unchanged if that is valid. Otherwise drops invalid characters,
    /// truncates the head and appends a hash of the original head. A tail that is valid by itself is retained
    /// completely.
    pub fn from_parts(head: &str, tail: &str) -> Self {
        let whole = format!("{head}{tail}");
        if is_value(&whole) {
            return Self(whole);
        }
        let allowed =
            |text: &str| -> String { text.chars().filter(|c| is_allowed_char(*c)).collect() };
        let keeps_tail = tail.len() <= label_shortening::MAX_LABEL_LENGTH / 2
            && tail.chars().all(is_allowed_char)
            && tail.ends_with(|c: char| c.is_ascii_alphanumeric());
        let (head, tail) = if keeps_tail { (head, tail) } else { (&*whole, "") };
        // Hash the original head, so that values that differ only in dropped characters remain distinct.
        Self(label_shortening::shorten(&allowed(head), head, tail))
    }
}

impl FromStr for LabelValue {
    type Err = LabelError;

    fn from_str(text: &str) -> Result<Self, LabelError> {
        if is_value(text) {
            Ok(Self(text.to_owned()))
        } else {
            Err(LabelError::Value(text.to_owned()))
        }
    }
}

impl fmt::Display for LabelValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

fn is_value(text: &str) -> bool {
    text.is_empty() || is_name(text)
}

fn is_name(text: &str) -> bool {
    let end = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    text.len() <= label_shortening::MAX_LABEL_LENGTH
        && end(text.chars().next())
        && end(text.chars().next_back())
        && text.chars().all(is_allowed_char)
}

fn is_allowed_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn keys_follow_kubernetes_rules() {
        let long = format!("nvidia.com/{}", "k".repeat(63));
        for key in ["octavo.dev/type", "nvidia.com/mig-1g.10gb.me.count", "name", &long] {
            assert!(key.parse::<LabelKey>().is_ok(), "{key}");
        }
        let long = format!("{long}k");
        for key in [
            "",
            "/name",
            "a/",
            "a/b/c",
            "A.b/name",
            "a..b/name",
            "-a/name",
            "a/-name",
            "a/na me",
            "a/mig+me",
            &long,
        ] {
            assert_eq!(key.parse::<LabelKey>(), Err(LabelError::Key(key.to_owned())));
        }
    }

    #[test]
    fn values_follow_kubernetes_rules() {
        for value in ["", "8", "NVIDIA-A100-SXM4-80GB", &"v".repeat(63)] {
            assert!(value.parse::<LabelValue>().is_ok(), "{value}");
        }
        for value in ["-", "a-", ".a", "a b", "a+b", "a=b", "é", &"v".repeat(64)] {
            assert!(value.parse::<LabelValue>().is_err(), "{value}");
        }
    }

    #[track_caller]
    fn fits(head: &str, tail: &str, expected: &str) {
        assert_eq!(LabelValue::from_parts(head, tail).as_str(), expected);
    }

    #[test]
    fn valid_values_are_unchanged() {
        fits("", "", "");
        fits("NVIDIA-L4", "", "NVIDIA-L4");
        let server = "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition";
        let tail = "-MIG-1g.24gb-SHARED";
        assert_eq!(server.len() + tail.len(), 63);
        fits(server, tail, &format!("{server}{tail}"));
    }

    #[test]
    fn long_model_is_truncated_and_suffix_retained() {
        let max_q = "NVIDIA-RTX-PRO-6000-Blackwell-Max-Q-Workstation-Edition";
        fits(
            max_q,
            "-MIG-1g.24gb",
            "NVIDIA-RTX-PRO-6000-Blackwell-Max-Q-Workst-3b0955aa-MIG-1g.24gb",
        );
        fits(
            max_q,
            "-MIG-1g.24gb.me.all-SHARED",
            "NVIDIA-RTX-PRO-6000-Blackwel-3b0955aa-MIG-1g.24gb.me.all-SHARED",
        );
    }

    #[test]
    fn invalid_characters_are_removed_and_hashed() {
        fits("To-Be-Filled-By-O.E.M.", "", "To-Be-Filled-By-O.E.M-b6498781");
        assert_ne!(LabelValue::from_parts("a+b", ""), LabelValue::from_parts("ab", ""));
        assert_ne!(LabelValue::from_parts("a+b", ""), LabelValue::from_parts("a=b", ""));
    }

    proptest! {
        #[test]
        fn joined_value_is_always_valid(head in ".{0,100}", tail in ".{0,100}") {
            let value = LabelValue::from_parts(&head, &tail);
            prop_assert!(value.as_str().parse::<LabelValue>().is_ok(), "{value}");
        }

        #[test]
        fn valid_tail_is_retained(head in "[a-zA-Z -]{0,100}", tail in "-MIG-[1-7]g\\.[1-9][0-9]gb(\\.me)?(-SHARED)?") {
            let value = LabelValue::from_parts(&head, &tail);
            prop_assert!(value.as_str().ends_with(&tail));
        }
    }
}
