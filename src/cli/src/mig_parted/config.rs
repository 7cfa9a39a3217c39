//! The selected configuration, and its resolution on a node.

use octavo_model::inventory::Inventory;
use octavo_model::similar_names;
use octavo_planner::layout::{
    Layout, ResolvedLayout, RuleError, RuleErrorKind, resolve, without_missing_devices,
};

use crate::diagnostics::Severity;
use crate::layout_source::LayoutSource;
use crate::settings::mig_parted::{Compat, ConfigScope, ConfigSettings};
use crate::{CliError, MigPartedError, Report, resolved_layout};

/// A configuration of a file.
#[derive(Debug)]
pub(super) struct SelectedConfig {
    sheet: LayoutSource,
    layout: Layout,
    compat: Compat,
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
    /// Reads the file; returns a report if it cannot be used.
    pub(super) fn read(
        settings: &ConfigSettings,
        compat: Compat,
    ) -> Result<Result<Self, Report>, CliError> {
        let sheet = match LayoutSource::read(&settings.config_file)? {
            Ok(sheet) => sheet,
            Err(refused) => return Ok(Err(super::failed(refused.said))),
        };
        let layout = selected(&sheet, settings.selected())?.clone();
        Ok(Ok(Self {
            sheet,
            layout,
            compat,
        }))
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
        let only_untold = errors
            .iter()
            .all(|error| matches!(error.reason, RuleErrorKind::NoProfiles { mig_is_off: true }));
        match self.resolved(&self.layout.modes_only(), inventory) {
            Ok((resolved, notes)) if only_untold => Resolution::ModesOnly(resolved, notes),
            Ok(_) | Err(_) => Resolution::Refused(self.told(&errors)),
        }
    }

    /// Resolves the configuration up to `depth`, only for comparison: modes can be compared regardless of partition
    /// names.
    pub(super) fn looked_up(
        &self,
        depth: ConfigScope,
        inventory: &Inventory,
    ) -> Result<(ResolvedLayout, String), String> {
        let layout = match depth {
            ConfigScope::ModeOnly => self.layout.modes_only(),
            ConfigScope::Full => self.layout.clone(),
        };
        self.resolved(&layout, inventory)
            .map_err(|errors| self.told(&errors))
    }

    fn resolved(
        &self,
        layout: &Layout,
        inventory: &Inventory,
    ) -> Result<(ResolvedLayout, String), Vec<RuleError>> {
        let dialect = self.sheet.layouts.dialect;
        let resolved = match self.compat {
            Compat::Lenient => resolve(layout, dialect, inventory)?,
            Compat::Strict => resolve(
                &without_missing_devices(layout, inventory),
                dialect,
                inventory,
            )?,
        };
        let notes = resolved_layout::warnings(&self.sheet, &resolved.warnings);
        Ok((resolved, notes))
    }

    fn told(&self, errors: &[RuleError]) -> String {
        let page = self.sheet.page();
        let errors = errors.iter();
        errors
            .map(|error| page.at(Severity::Error, error.place(), &error.to_string()))
            .collect()
    }
}

/// Returns the layout with the name, or the only one.
fn selected<'a>(sheet: &'a LayoutSource, name: Option<&str>) -> Result<&'a Layout, MigPartedError> {
    let layouts = &sheet.layouts;
    let known = || layouts.layouts.iter().map(|layout| layout.name.as_str());
    match (name, layouts.layouts.as_slice()) {
        (None, [only]) => Ok(only),
        (None, _) => Err(MigPartedError::NoneSelected {
            place: sheet.name.clone(),
            known: known().map(str::to_owned).collect(),
        }),
        (Some(name), _) => layouts.by_name(name).ok_or_else(|| {
            let ranked = similar_names::rank_by_similarity(name, known()).into_iter();
            MigPartedError::NotPresent {
                name: name.to_owned(),
                place: sheet.name.clone(),
                known: ranked.map(|(_, name)| name.to_owned()).collect(),
            }
        }),
    }
}
