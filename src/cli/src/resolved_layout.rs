//! A layout resolved on a node, which `plan` and `assert` start from.

use octavo_model::inventory::Inventory;
use octavo_planner::layout::{Layout, RuleError, RuleWarning, Targets, resolve};

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

/// A layout that cannot be used on a node.
#[derive(Debug)]
pub(super) struct RejectedLayout {
    /// The report for the user.
    pub(super) report: Report,
    /// Errors of the layout on this node.
    pub(super) errors: Vec<RuleError>,
}

impl From<RejectedLayout> for CliError {
    fn from(rejected: RejectedLayout) -> Self {
        Self::Rejected(Box::new(rejected.report))
    }
}

/// Resolves the requested layout, if the file and the layout can be used here.
pub(super) fn open(
    request: &LayoutRequest,
    inventory: &Inventory,
) -> Result<Result<ResolvedLayout, RejectedLayout>, CliError> {
    let source = match &request.layouts {
        None => LayoutSource::generated(inventory),
        Some(input) => LayoutSource::read(input)?,
    };
    let layout = source.layout(&request.layout)?;
    Ok(resolve_layout(&source, layout, inventory))
}

/// Resolves a layout of a sheet on a node, if it can be used there.
pub(super) fn resolve_layout(
    source: &LayoutSource,
    layout: &Layout,
    inventory: &Inventory,
) -> Result<ResolvedLayout, RejectedLayout> {
    let resolved = resolve(layout, source.layouts.dialect, inventory).map_err(|errors| {
        let reasons = errors.iter().map(|error| (error.position, error.to_string()));
        let notes = source.page().errors(reasons);
        let report = Report { notes, exit: exit(&errors), ..Report::default() };
        RejectedLayout { report, errors }
    })?;
    Ok(ResolvedLayout {
        layout: layout.name.clone(),
        warnings: resolved.warnings.iter().map(ToString::to_string).collect(),
        notes: warnings(source, &resolved.warnings),
        targets: resolved.targets,
    })
}

/// Formats the warnings about the file and its use here, with their positions.
pub(super) fn warnings(source: &LayoutSource, warnings: &[RuleWarning]) -> String {
    let page = source.page();
    let here = warnings
        .iter()
        .map(|warning| page.at(Severity::Warning, warning.position, &warning.to_string()));
    source.warnings().into_iter().chain(here).collect()
}

/// Returns `Infeasible` if only the hardware prevents the layout; failed if the layout must be corrected, or something
/// cannot be read.
fn exit(errors: &[RuleError]) -> Exit {
    let by_hardware = |error: &RuleError| error.kind.hardware_rule().is_some();
    if !errors.is_empty() && errors.iter().all(by_hardware) {
        Exit::Infeasible
    } else {
        Exit::Failed
    }
}
