//! `octavo checkpoint`: stores a node's layout for a later restore.

use std::path::Path;

use octavo_engine::durable;
use octavo_files::checkpoint::write;
use octavo_model::inventory::Inventory;

use super::{CliError, Report};
use crate::settings::Input;

/// Prints the checkpoint, or writes it to `file`.
pub(super) fn write_to(inventory: &Inventory, file: &Input) -> Result<Report, CliError> {
    let text = write(inventory)
        .map_err(|source| CliError::document("checkpoint", "this node".to_owned(), source))?;
    let output = match file {
        Input::Stdin => text,
        Input::File(path) => {
            write_file(path, &text)?;
            String::new()
        }
    };
    Ok(Report { output, ..Report::default() })
}

/// Writes a file atomically.
pub(super) fn write_file(path: &Path, text: &str) -> Result<(), CliError> {
    let mut draft = path.to_owned().into_os_string();
    draft.push(".draft");
    durable::replace(path, draft.as_ref(), text.as_bytes(), 0o644).map_err(CliError::Write)
}
