//! Labels of a machine. A stand-in with the compiler's outline, until the compiler itself is merged.

use std::collections::BTreeMap;
use std::fmt;

use crate::domain::inventory::{Identity, Inventory};

/// How labels are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {}

/// Labels, sorted by key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LabelSet(BTreeMap<String, String>);

/// What the compiler gives.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Compiled {
    /// The labels.
    pub labels: LabelSet,
    /// What a person should know about them.
    pub notes: Vec<Note>,
}

/// A remark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note(String);

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl LabelSet {
    /// Keys and values, sorted by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()))
    }
}

/// The labels of `inventory`.
pub fn compile(inventory: &Inventory, _options: &Options) -> Compiled {
    let mut labels = BTreeMap::new();
    for device in &inventory.devices {
        if let Identity::Known { type_name, .. } = &device.identity {
            labels.insert("octavo.dev/type".to_owned(), type_name.to_string());
        }
    }
    if !inventory.devices.is_empty() {
        let count = inventory.devices.len().to_string();
        labels.insert("octavo.dev/count".to_owned(), count);
    }
    Compiled {
        labels: LabelSet(labels),
        notes: Vec::new(),
    }
}
