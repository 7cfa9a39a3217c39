//! `octavo checkpoint`: stores a node's layout for a later restore.

use octavo_engine::durable;
use octavo_files::checkpoint::write;
use octavo_model::inventory::Inventory;

use super::{CliError, Report};
use crate::settings::Input;
use crate::settings::apply::CheckpointSettings;

/// Prints the checkpoint, or writes it atomically.
pub(super) fn report(
    inventory: &Inventory,
    settings: &CheckpointSettings,
) -> Result<Report, CliError> {
    write_to(inventory, &settings.file)
}

/// Prints the checkpoint, or writes it to `file`.
pub(super) fn write_to(inventory: &Inventory, file: &Input) -> Result<Report, CliError> {
    let text = write(inventory).map_err(|source| CliError::Checkpoint {
        place: "this node".to_owned(),
        source,
    })?;
    let output = match file {
        Input::Stdin => text,
        Input::File(path) => {
            let mut draft = path.clone().into_os_string();
            draft.push(".draft");
            durable::replace(path, draft.as_ref(), text.as_bytes(), 0o644)
                .map_err(CliError::Write)?;
            String::new()
        }
    };
    Ok(Report {
        output,
        ..Report::default()
    })
}
