//! A layout resolved on a node, which `plan` and `assert` start from.

use octavo_model::inventory::Inventory;
use octavo_planner::layout::{Layout, RuleError, RuleErrorKind, RuleWarning, Targets, resolve};

use super::diagnostics::Severity;
use super::layout_source::LayoutSource;
use super::{CliError, Exit, Report};
use crate::settings::layouts::LayoutRequest;

/// A layout that can be used on a node.
#[derive(Debug)]
pub(super) struct ResolvedLayout {
    /// Its name.
    pub(super) layout: String,
    /// Its targets.
    pub(super) targets: Targets,
    /// Warnings about its use here.
    pub(super) warnings: Vec<String>,
    /// Warnings about its use here and about the file, with their positions.
    pub(super) notes: String,
}

/// A layout that cannot be used on a node, or in a file that cannot be used.
#[derive(Debug)]
pub(super) struct RejectedLayout {
    /// The report for the user.
    pub(super) report: Report,
    /// Errors of the layout on this node; empty if the file cannot be used.
    pub(super) errors: Vec<RuleError>,
}

/// Resolves the requested layout, if the file and the layout can be used here.
pub(super) fn open(
    wish: &LayoutRequest,
    inventory: &Inventory,
) -> Result<Result<ResolvedLayout, RejectedLayout>, CliError> {
    let sheet = match &wish.layouts {
        None => LayoutSource::generated(inventory),
        Some(input) => match LayoutSource::read(input)? {
            Ok(sheet) => sheet,
            Err(refused) => return Ok(Err(refusal(refused.said, Vec::new()))),
        },
    };
    let layout = sheet.layout(&wish.layout)?;
    Ok(resolve_layout(&sheet, layout, inventory))
}

/// Resolves a layout of a sheet on a node, if it can be used there.
pub(super) fn resolve_layout(
    sheet: &LayoutSource,
    layout: &Layout,
    inventory: &Inventory,
) -> Result<ResolvedLayout, RejectedLayout> {
    let page = sheet.page();
    let resolved = match resolve(layout, sheet.layouts.dialect, inventory) {
        Ok(resolved) => resolved,
        Err(errors) => {
            let said = errors
                .iter()
                .map(|error| page.at(Severity::Error, error.place(), &error.to_string()));
            return Err(refusal(said.collect(), errors));
        }
    };
    Ok(ResolvedLayout {
        layout: layout.name.clone(),
        warnings: resolved.warnings.iter().map(ToString::to_string).collect(),
        notes: warnings(sheet, &resolved.warnings),
        targets: resolved.targets,
    })
}

/// Formats the warnings about the file and its use here, with their positions.
pub(super) fn warnings(sheet: &LayoutSource, warnings: &[RuleWarning]) -> String {
    let page = sheet.page();
    let here = warnings
        .iter()
        .map(|warning| page.at(Severity::Warning, warning.place(), &warning.to_string()));
    sheet.warnings().into_iter().chain(here).collect()
}

fn refusal(notes: String, errors: Vec<RuleError>) -> RejectedLayout {
    RejectedLayout {
        report: Report {
            notes,
            exit: exit(&errors),
            ..Report::default()
        },
        errors,
    }
}

/// Returns `Infeasible` if only the hardware prevents the layout; failed if the layout must be corrected, or something
/// cannot be read.
fn exit(errors: &[RuleError]) -> Exit {
    let by_hardware = |error: &RuleError| match error.reason {
        RuleErrorKind::NotMigCapable
        | RuleErrorKind::UnknownProfile { .. }
        | RuleErrorKind::ComputeSplit { .. }
        | RuleErrorKind::TooMany { .. }
        | RuleErrorKind::TooManyGpuInstances { .. } => true,
        RuleErrorKind::NoMatchingDevice { .. }
        | RuleErrorKind::NoDeviceSelected { .. }
        | RuleErrorKind::NoSuchIndex { .. }
        | RuleErrorKind::Conflict { .. }
        | RuleErrorKind::NoProfiles { .. }
        | RuleErrorKind::AmbiguousProfile { .. }
        | RuleErrorKind::DuplicateProfileName { .. } => false,
    };
    if !errors.is_empty() && errors.iter().all(by_hardware) {
        Exit::Infeasible
    } else {
        Exit::Failed
    }
}
