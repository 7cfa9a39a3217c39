//! `octavo layouts`: checks, shows and generates layouts files. Only `generate` needs a node.
//!
//! ```text
//! check.rs     errors in files, and machines that cannot have the layouts
//! show.rs      a file's content, and pictures of it
//! ```

mod check;
mod show;

use octavo_files::layouts::{write, write_json};
use octavo_model::inventory::Inventory;
use octavo_planner::layout::{Dialect, Layouts, export as exported, generate as generated};

pub(super) use self::check::report as check;
pub(super) use self::show::report as show;
use super::{CliError, Exit, Report};
use crate::settings::layouts::{DocumentFormat, ExportSettings, GenerateSettings};

/// A machine to check layouts against, and its name.
#[derive(Debug)]
pub(super) struct NamedInventory {
    pub(super) name: String,
    pub(super) inventory: Inventory,
}

/// Runs `octavo layouts generate`.
pub(super) fn generate(
    inventory: &Inventory,
    settings: &GenerateSettings,
) -> Result<Report, CliError> {
    let layouts = generated(inventory, settings.dialect);
    document(&layouts, settings.dialect, settings.format)
}

/// Runs `octavo export`.
pub(super) fn export(inventory: &Inventory, settings: &ExportSettings) -> Result<Report, CliError> {
    let layout = exported(inventory, &settings.name, settings.dialect);
    let layouts =
        Layouts { dialect: settings.dialect, layouts: vec![layout.map_err(CliError::Export)?] };
    document(&layouts, settings.dialect, settings.format)
}

/// Serializes layouts as a document.
pub(super) fn document(
    layouts: &Layouts,
    dialect: Dialect,
    format: DocumentFormat,
) -> Result<Report, CliError> {
    let text = match format {
        DocumentFormat::Yaml => write(layouts, dialect),
        DocumentFormat::Json => write_json(layouts, dialect),
    };
    Ok(Report { output: text.map_err(CliError::Dialect)?, notes: String::new(), exit: Exit::Done })
}
