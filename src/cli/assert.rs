//! `octavo assert`: checks whether a node has a layout, and prints the differences.

use super::case;
use super::text::{folded, lines};
use super::{CliError, Exit, Report};
use crate::config::octavo::layouts::AssertSettings;
use crate::domain::inventory::Inventory;
use crate::domain::layout::compare;

/// Reports only the differences, and the exit code.
pub(super) fn report(inventory: &Inventory, settings: &AssertSettings) -> Result<Report, CliError> {
    let case = match case::open(settings.wish(), inventory)? {
        Ok(case) => case,
        Err(refused) => return Ok(refused.report),
    };
    let differences = compare(&case.targets, inventory);
    let output = lines(differences.iter().map(|one| folded(&one.to_string(), 2)));
    Ok(Report {
        exit: if differences.is_empty() {
            Exit::Done
        } else {
            Exit::Changes
        },
        output,
        notes: case.notes,
    })
}
