//! Recorded inventories in JSON or YAML, as written by `octavo inspect` and read by `--from FILE`.
//!
//! Parsing is strict: an unknown key is an error, because it is most likely a typo whose value would be lost.

use octavo_model::inventory::Inventory;
use serde::Deserialize;
use serde_path_to_error::{Deserializer, Track};
use thiserror::Error;

/// Reason why a text is not an inventory.
#[derive(Debug, Error)]
pub enum InventoryError {
    /// A text in JSON is invalid.
    #[error("not an inventory in JSON, at {path}")]
    Json {
        /// Path of the value, such as `devices[2].pci`.
        path: String,
        /// The cause.
        source: serde_json::Error,
    },
    /// A text in YAML is invalid.
    #[error("not an inventory in YAML, at {path}")]
    Yaml {
        /// Path of the value, such as `devices[2].pci`.
        path: String,
        /// The cause.
        source: Box<serde_saphyr::Error>,
    },
}

/// Parses an inventory in either format. A text that starts with `{` is JSON.
///
/// # Errors
/// Fails with the place of the first value that is invalid.
pub fn parse(text: &str) -> Result<Inventory, InventoryError> {
    let mut track = Track::new();
    if text.trim_start().starts_with('{') {
        let mut reader = serde_json::Deserializer::from_str(text);
        let read = Inventory::deserialize(Deserializer::new(&mut reader, &mut track));
        let read = read.and_then(|inventory| reader.end().map(|()| inventory));
        return read
            .map_err(|source| InventoryError::Json { path: track.path().to_string(), source });
    }
    let read = serde_saphyr::with_deserializer_from_str(text, |reader| {
        Inventory::deserialize(Deserializer::new(reader, &mut track))
    });
    read.map_err(|source| InventoryError::Yaml {
        path: track.path().to_string(),
        source: Box::new(source),
    })
}

#[cfg(test)]
mod tests;
