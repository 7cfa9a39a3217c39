//! A layout held against a node: what `plan` and `assert` begin with.

use super::diagnose::Severity;
use super::sheet::Sheet;
use super::{CliError, Exit, Report};
use crate::config::octavo::layouts::Wish;
use crate::domain::inventory::Inventory;
use crate::domain::layout::{Layout, Reason, RuleError, RuleWarning, Targets, resolve};

/// A layout that means something on a node.
#[derive(Debug)]
pub(super) struct Case {
    /// Its name.
    pub(super) layout: String,
    /// What it means.
    pub(super) targets: Targets,
    /// What is odd about it here.
    pub(super) warnings: Vec<String>,
    /// The same and what is odd about the file, with the places.
    pub(super) notes: String,
}

/// The layout that is wished for; a report where the file or the layout cannot be used here.
pub(super) fn open(wish: &Wish, inventory: &Inventory) -> Result<Result<Case, Report>, CliError> {
    let sheet = match wish.layouts() {
        None => Sheet::generated(inventory),
        Some(input) => match Sheet::read(input)? {
            Ok(sheet) => sheet,
            Err(refused) => return Ok(Err(refusal(refused.said, Exit::Failed))),
        },
    };
    let layout = sheet.layout(wish.layout())?;
    Ok(held(&sheet, layout, inventory))
}

/// A layout of a sheet, held against a node; a report where it cannot be used here.
pub(super) fn held(sheet: &Sheet, layout: &Layout, inventory: &Inventory) -> Result<Case, Report> {
    let page = sheet.page();
    let resolved = match resolve(layout, sheet.layouts.dialect, inventory) {
        Ok(resolved) => resolved,
        Err(errors) => {
            let said = errors
                .iter()
                .map(|error| page.at(Severity::Error, error.place(), &error.to_string()));
            return Err(refusal(said.collect(), exit(&errors)));
        }
    };
    Ok(Case {
        layout: layout.name.clone(),
        warnings: resolved.warnings.iter().map(ToString::to_string).collect(),
        notes: oddities(sheet, &resolved.warnings),
        targets: resolved.targets,
    })
}

/// What is odd about the file and about what it means here, with the places.
pub(super) fn oddities(sheet: &Sheet, warnings: &[RuleWarning]) -> String {
    let page = sheet.page();
    let here = warnings
        .iter()
        .map(|warning| page.at(Severity::Warning, warning.place(), &warning.to_string()));
    sheet.warnings().into_iter().chain(here).collect()
}

fn refusal(notes: String, exit: Exit) -> Report {
    Report {
        notes,
        exit,
        ..Report::default()
    }
}

/// Impossible where the hardware is all that stands in the way; failed where the layout has to be written otherwise, or
/// something cannot be read.
fn exit(errors: &[RuleError]) -> Exit {
    let by_hardware = |error: &RuleError| match error.reason {
        Reason::NotMigCapable
        | Reason::UnknownProfile { .. }
        | Reason::ComputeSplit { .. }
        | Reason::TooMany { .. }
        | Reason::TooManySplit { .. } => true,
        Reason::Nothing { .. }
        | Reason::NothingAtAll { .. }
        | Reason::NoSuchIndex { .. }
        | Reason::Conflict { .. }
        | Reason::CapabilityUntold { .. }
        | Reason::NoProfiles { .. }
        | Reason::Ambiguous { .. }
        | Reason::SameName { .. } => false,
    };
    if errors.iter().all(by_hardware) {
        Exit::Infeasible
    } else {
        Exit::Failed
    }
}
