//! Values that another program reports as words, of which a newer program may know more.

use std::fmt;

use serde::de::{self, DeserializeOwned, IntoDeserializer};
use serde::{Deserialize, Serialize};

/// A reported value: a known one, or the word of a newer program, which is displayed as it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Reported<T> {
    /// A value that this program knows.
    Known(T),
    /// The word of a newer program.
    Unknown(String),
}

impl<T: DeserializeOwned> Reported<T> {
    /// Returns the value with this word.
    pub fn parse(word: &str) -> Self {
        let known: Result<T, de::value::Error> = T::deserialize(word.into_deserializer());
        known.map_or_else(|_| Self::Unknown(word.to_owned()), Self::Known)
    }
}

impl<T: AsRef<str>> Reported<T> {
    /// Returns the word of the value.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Known(value) => value.as_ref(),
            Self::Unknown(word) => word,
        }
    }
}

impl<T: Copy> Reported<T> {
    /// Returns the value; `None` if this program does not know the word.
    pub fn known(&self) -> Option<T> {
        match self {
            Self::Known(value) => Some(*value),
            Self::Unknown(_) => None,
        }
    }
}

impl<T> Default for Reported<T> {
    /// Returns the empty word.
    fn default() -> Self {
        Self::Unknown(String::new())
    }
}

impl<T> From<T> for Reported<T> {
    fn from(value: T) -> Self {
        Self::Known(value)
    }
}

impl<T: PartialEq> PartialEq<T> for Reported<T> {
    fn eq(&self, value: &T) -> bool {
        matches!(self, Self::Known(known) if known == value)
    }
}

impl<T: fmt::Display> fmt::Display for Reported<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(value) => value.fmt(f),
            Self::Unknown(word) => f.pad(word),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::reason::Reason;

    #[test]
    fn known_and_unknown_words_round_trip() {
        for (word, reason) in [("needs-reset", Some(Reason::NeedsReset)), ("resting", None)] {
            let read: Reported<Reason> = serde_json::from_value(json!(word)).unwrap();
            assert_eq!((read.known(), read.as_str()), (reason, word));
            assert_eq!(serde_json::to_value(&read).unwrap(), json!(word));
        }
        assert_eq!(Reported::from(Reason::Applied), Reason::Applied);
        assert_ne!(Reported::parse("resting"), Reason::Applied);
    }
}
