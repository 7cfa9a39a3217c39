//! The selected configuration, and its resolution on a node.

use octavo_model::inventory::Inventory;
use octavo_model::similar_names;
use octavo_planner::layout::{
    Layout, ResolvedLayout, RuleError, RuleErrorKind, resolve, without_missing_devices,
};

use crate::layout_source::LayoutSource;
use crate::settings::mig_parted::ConfigSettings;
use crate::{CliError, MigPartedError, resolved_layout};

/// A configuration of a file.
#[derive(Debug)]
pub(super) struct SelectedConfig {
    source: LayoutSource,
    layout: Layout,
    /// Reproduces the harmless deviations of the original.
    strict: bool,
}

/// Result of resolving a configuration.
#[derive(Debug)]
pub(super) enum Resolution {
    /// Resolved, with warnings.
    Resolved(ResolvedLayout, String),
    /// Resolved only for MIG modes, because the rest is known only after they are enabled.
    ModesOnly(ResolvedLayout, String),
    /// Cannot be used on this node, for these reasons.
    Refused(String),
}

impl SelectedConfig {
    /// Reads the file, and selects the configuration.
    pub(super) fn read(settings: &ConfigSettings, strict: bool) -> Result<Self, CliError> {
        let source = LayoutSource::read(&settings.config_file)?;
        let layout = selected(&source, settings.selected())?.clone();
        Ok(Self { source, layout, strict })
    }

    pub(super) fn name(&self) -> &str {
        &self.layout.name
    }

    /// Resolves the configuration on an inventory.
    pub(super) fn meaning(&self, inventory: &Inventory) -> Resolution {
        let errors = match self.resolved(&self.layout, inventory) {
            Ok((resolved, notes)) => return Resolution::Resolved(resolved, notes),
            Err(errors) => errors,
        };
        let only_unreported = errors
            .iter()
            .all(|error| matches!(error.kind, RuleErrorKind::NoProfiles { mig_is_off: true }));
        match self.resolved(&self.layout.modes_only(), inventory) {
            Ok((resolved, notes)) if only_unreported => Resolution::ModesOnly(resolved, notes),
            Ok(_) | Err(_) => Resolution::Refused(self.format_errors(&errors)),
        }
    }

    /// Resolves the configuration or only its MIG modes, for comparison: modes can be compared regardless of partition
    /// names.
    pub(super) fn looked_up(
        &self,
        mode_only: bool,
        inventory: &Inventory,
    ) -> Result<(ResolvedLayout, String), String> {
        let layout = if mode_only { self.layout.modes_only() } else { self.layout.clone() };
        self.resolved(&layout, inventory).map_err(|errors| self.format_errors(&errors))
    }

    fn resolved(
        &self,
        layout: &Layout,
        inventory: &Inventory,
    ) -> Result<(ResolvedLayout, String), Vec<RuleError>> {
        let dialect = self.source.layouts.dialect;
        let resolved = if self.strict {
            resolve(&without_missing_devices(layout, inventory), dialect, inventory)?
        } else {
            resolve(layout, dialect, inventory)?
        };
        let notes = resolved_layout::warnings(&self.source, &resolved.warnings);
        Ok((resolved, notes))
    }

    fn format_errors(&self, errors: &[RuleError]) -> String {
        let errors = errors.iter().map(|error| (error.position, error.to_string()));
        self.source.page().errors(errors)
    }
}

/// Returns the layout with the name, or the only one.
fn selected<'a>(
    source: &'a LayoutSource,
    name: Option<&str>,
) -> Result<&'a Layout, MigPartedError> {
    let layouts = &source.layouts;
    let known = || layouts.layouts.iter().map(|layout| layout.name.as_str());
    match (name, layouts.layouts.as_slice()) {
        (None, [only]) => Ok(only),
        (None, _) => Err(MigPartedError::NoneSelected {
            place: source.name.clone(),
            known: known().map(str::to_owned).collect(),
        }),
        (Some(name), _) => layouts.by_name(name).ok_or_else(|| {
            let ranked = similar_names::rank_by_similarity(name, known()).into_iter();
            MigPartedError::NotPresent {
                name: name.to_owned(),
                place: source.name.clone(),
                known: ranked.map(|(_, name)| name.to_owned()).collect(),
            }
        }),
    }
}
