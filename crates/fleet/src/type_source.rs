//! Source of the type of devices.

use std::fmt;
use std::str::FromStr;

use serde_with::{DeserializeFromStr, SerializeDisplay};
use thiserror::Error;

/// Source of a type.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, SerializeDisplay, DeserializeFromStr,
)]
pub enum TypeSource {
    /// The node's agent, from the devices.
    Agent,
    /// This Node label.
    Label(&'static str),
    /// No source.
    Unknown,
}

/// Text that is not a word for a source, such as the key of a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("expected agent, nothing or a label key")]
pub struct UnknownSource;

impl TypeSource {
    /// `agent`, the key of the label, or `nothing`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Label(key) => key,
            Self::Unknown => "nothing",
        }
    }
}

impl fmt::Display for TypeSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for TypeSource {
    type Err = UnknownSource;

    fn from_str(text: &str) -> Result<Self, UnknownSource> {
        let mut all = [Self::Agent, Self::Unknown].into_iter();
        all.find(|source| source.as_str() == text).ok_or(UnknownSource)
    }
}
