//! Hardware profiles as the API server and files have them, and as the aggregator serves them.
//!
//! ```text
//! read.rs      objects of all three kinds, as far as they can be read
//! write.rs     a new object of the kind that is made today
//! diff.rs      what one that is there and one that shall be differ in
//! document.rs  what the API answers
//! events.rs    what its stream of changes sends
//! order.rs     what a new one shall be
//! ```
//!
//! Profiles are other people's: what is not known in them is passed over, and what cannot be read is told with its place instead of
//! hiding the profile. Only a file, which is ours to refuse, is an error.

mod diff;
pub mod document;
pub mod events;
pub mod order;
mod read;
mod write;

use std::collections::BTreeSet;

use serde_json::Value;
use thiserror::Error;

pub use self::diff::differences;
pub use self::read::read;
pub use self::write::{annotate, object, yaml};
use crate::domain::hardware_profile::{HardwareProfile, ProfileKey, ProfileKind};

/// Profiles of one file.
pub const MOST: usize = 2000;

/// Why a file of profiles cannot be used.
#[derive(Debug, Error)]
pub enum FileError {
    /// It is no YAML.
    #[error("it is not YAML")]
    Syntax(#[source] Box<serde_saphyr::Error>),
    /// A document is none of the kinds that are read.
    #[error(
        "document {document} is no HardwareProfile: it has apiVersion {version:?} and kind {kind:?}"
    )]
    Kind {
        /// Which, counted from 1.
        document: usize,
        /// What it says.
        version: String,
        /// What it says.
        kind: String,
    },
    /// A document cannot be read.
    #[error("document {document}, {key}: {problem}")]
    Field {
        /// Which, counted from 1.
        document: usize,
        /// The profile.
        key: ProfileKey,
        /// The first of what is wrong, after its place.
        problem: String,
    },
    /// A profile has no name.
    #[error("document {0} has no metadata.name")]
    NoName(usize),
    /// Two have the same name.
    #[error("document {document} is {key} again")]
    Twice {
        /// Which, counted from 1.
        document: usize,
        /// The profile.
        key: ProfileKey,
    },
    /// There are too many.
    #[error("there are more than {MOST} profiles in it")]
    TooMany,
}

/// The profiles of a file: YAML documents, each an object as the API server has it.
pub fn parse(text: &str) -> Result<Vec<HardwareProfile>, FileError> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text.trim_start_matches('\u{feff}'))
        .map_err(|error| FileError::Syntax(Box::new(error)))?;
    if documents.len() > MOST {
        return Err(FileError::TooMany);
    }
    let mut names: BTreeSet<(ProfileKind, ProfileKey)> = BTreeSet::new();
    let mut profiles = Vec::new();
    for (number, document) in (1..)
        .zip(&documents)
        .filter(|(_, document)| !document.is_null())
    {
        let kind = kind(document).ok_or_else(|| FileError::Kind {
            document: number,
            version: text_of(document, "apiVersion"),
            kind: text_of(document, "kind"),
        })?;
        let profile = read(kind, document);
        let key = profile.key.clone();
        if key.name.is_empty() {
            return Err(FileError::NoName(number));
        }
        if let Some(problem) = profile.unreadable.first() {
            return Err(FileError::Field {
                document: number,
                key,
                problem: problem.clone(),
            });
        }
        if !names.insert((kind, key.clone())) {
            return Err(FileError::Twice {
                document: number,
                key,
            });
        }
        profiles.push(profile);
    }
    Ok(profiles)
}

/// The kind that an object says it is of.
fn kind(object: &Value) -> Option<ProfileKind> {
    let (version, kind) = (text_of(object, "apiVersion"), text_of(object, "kind"));
    let mut all = ProfileKind::ALL.into_iter();
    all.find(|one| {
        let (group, _, name, _) = one.api();
        let mut versions = one.versions().iter();
        name == kind && versions.any(|number| version == format!("{group}/{number}"))
    })
}

fn text_of(object: &Value, field: &str) -> String {
    let text = object.get(field).and_then(Value::as_str);
    text.unwrap_or_default().chars().take(100).collect()
}

#[cfg(test)]
mod tests;
