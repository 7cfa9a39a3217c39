//! Files of hardware profiles: YAML documents, each a Kubernetes object.
//!
//! Unknown fields are ignored. A field that cannot be parsed is an error, because Octavo is free to reject a file.

use std::collections::BTreeSet;

use octavo_fleet::hardware_profile::object::read;
use octavo_fleet::hardware_profile::{HardwareProfile, MAX_PROFILES, ProfileKey, ProfileKind};
use serde_json::Value;
use thiserror::Error;

/// Error while loading a file of hardware profiles.
#[derive(Debug, Error)]
pub enum ProfileFileError {
    /// The text is not YAML.
    #[error("it is not YAML")]
    Syntax(#[source] Box<serde_saphyr::Error>),
    /// A document is not of a supported kind.
    #[error(
        "document {document} is not a HardwareProfile: it has apiVersion {version:?} and kind {kind:?}"
    )]
    Kind {
        /// Number of the document, from 1.
        document: usize,
        /// Its `apiVersion`.
        version: String,
        /// Its `kind`.
        kind: String,
    },
    /// A field of a document cannot be parsed.
    #[error("document {document}, {key}: {problem}")]
    Field {
        /// Number of the document, from 1.
        document: usize,
        /// The profile.
        key: ProfileKey,
        /// The first problem, with its path.
        problem: String,
    },
    /// A profile has no name.
    #[error("document {0} has no metadata.name")]
    NoName(usize),
    /// Two profiles have the same name.
    #[error("document {document} repeats {key}")]
    Duplicate {
        /// Number of the document, from 1.
        document: usize,
        /// The profile.
        key: ProfileKey,
    },
    /// The file has too many profiles.
    #[error("it contains more than {MAX_PROFILES} profiles")]
    TooMany,
}

/// Parses a file of profiles: YAML documents, each a Kubernetes object.
pub fn parse(text: &str) -> Result<Vec<HardwareProfile>, ProfileFileError> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text.trim_start_matches('\u{feff}'))
        .map_err(|error| ProfileFileError::Syntax(Box::new(error)))?;
    if documents.len() > MAX_PROFILES {
        return Err(ProfileFileError::TooMany);
    }
    let mut names: BTreeSet<(ProfileKind, ProfileKey)> = BTreeSet::new();
    let mut profiles = Vec::new();
    for (number, document) in (1..).zip(&documents).filter(|(_, document)| !document.is_null()) {
        let kind = kind(document).ok_or_else(|| ProfileFileError::Kind {
            document: number,
            version: text_of(document, "apiVersion"),
            kind: text_of(document, "kind"),
        })?;
        let profile = read(kind, document);
        let key = profile.key.clone();
        if key.name.is_empty() {
            return Err(ProfileFileError::NoName(number));
        }
        if let Some(problem) = profile.unreadable.first() {
            return Err(ProfileFileError::Field {
                document: number,
                key,
                problem: problem.clone(),
            });
        }
        if !names.insert((kind, key.clone())) {
            return Err(ProfileFileError::Duplicate { document: number, key });
        }
        profiles.push(profile);
    }
    Ok(profiles)
}

/// Serializes an object as YAML. The fallback to an empty text is unreachable for objects created here.
pub fn yaml(object: &Value) -> String {
    serde_saphyr::to_string(object).unwrap_or_default()
}

/// Returns the kind that matches the object's `apiVersion` and `kind`.
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
