//! `octavo assert`: checks whether a node has a layout, and prints the differences.

use octavo_model::inventory::Inventory;
use octavo_planner::layout::compare;

use super::text::{lines, wrap};
use super::{CliError, Exit, Report, resolved_layout};
use crate::settings::layouts::LayoutRequest;

/// Reports only the differences, and the exit code.
pub(super) fn report(inventory: &Inventory, request: &LayoutRequest) -> Result<Report, CliError> {
    let case = resolved_layout::open(request, inventory)??;
    let differences = compare(&case.targets, inventory);
    let output = lines(differences.iter().map(|one| wrap(&one.to_string(), 2)));
    Ok(Report {
        exit: if differences.is_empty() { Exit::Done } else { Exit::Changes },
        output,
        notes: case.notes,
    })
}
