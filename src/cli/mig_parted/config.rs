//! The selected configuration, and its resolution on a node.

use super::error::MigPartedError;
use crate::cli::diagnose::Severity;
use crate::cli::sheet::Sheet;
use crate::cli::{CliError, Report, case};
use crate::config::octavo::mig_parted::{Compat, ConfigSettings, Depth};
use crate::domain::inventory::Inventory;
use crate::domain::layout::{Layout, Reason, Resolved, RuleError, resolve, without_missing};
use crate::domain::near;

/// A configuration of a file.
#[derive(Debug)]
pub(super) struct Config {
    sheet: Sheet,
    layout: Layout,
    compat: Compat,
}

/// Result of resolving a configuration.
#[derive(Debug)]
pub(super) enum Meaning {
    /// Resolved, with warnings.
    Whole(Resolved, String),
    /// Resolved only for MIG modes, because the rest is known only after they are enabled.
    ModesFirst(Resolved, String),
    /// Cannot be used on this node, for these reasons.
    Refused(String),
}

impl Config {
    /// Reads the file; returns a report if it cannot be used.
    pub(super) fn read(
        settings: &ConfigSettings,
        compat: Compat,
    ) -> Result<Result<Self, Report>, CliError> {
        let sheet = match Sheet::read(settings.file())? {
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
    pub(super) fn meaning(&self, inventory: &Inventory) -> Meaning {
        let errors = match self.resolved(&self.layout, inventory) {
            Ok((resolved, notes)) => return Meaning::Whole(resolved, notes),
            Err(errors) => errors,
        };
        let only_untold = errors
            .iter()
            .all(|error| matches!(error.reason, Reason::NoProfiles { mig_is_off: true }));
        match self.resolved(&self.layout.modes_alone(), inventory) {
            Ok((resolved, notes)) if only_untold => Meaning::ModesFirst(resolved, notes),
            Ok(_) | Err(_) => Meaning::Refused(self.told(&errors)),
        }
    }

    /// Resolves the configuration up to `depth`, only for comparison: modes can be compared regardless of partition
    /// names.
    pub(super) fn looked_up(
        &self,
        depth: Depth,
        inventory: &Inventory,
    ) -> Result<(Resolved, String), String> {
        let layout = match depth {
            Depth::ModeOnly => self.layout.modes_alone(),
            Depth::Whole => self.layout.clone(),
        };
        self.resolved(&layout, inventory)
            .map_err(|errors| self.told(&errors))
    }

    fn resolved(
        &self,
        layout: &Layout,
        inventory: &Inventory,
    ) -> Result<(Resolved, String), Vec<RuleError>> {
        let dialect = self.sheet.layouts.dialect;
        let resolved = match self.compat {
            Compat::Mended => resolve(layout, dialect, inventory)?,
            Compat::Strict => resolve(&without_missing(layout, inventory), dialect, inventory)?,
        };
        let notes = case::oddities(&self.sheet, &resolved.warnings);
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
fn selected<'a>(sheet: &'a Sheet, name: Option<&str>) -> Result<&'a Layout, MigPartedError> {
    let layouts = &sheet.layouts;
    let known = || layouts.layouts.iter().map(|layout| layout.name.as_str());
    match (name, layouts.layouts.as_slice()) {
        (None, [only]) => Ok(only),
        (None, _) => Err(MigPartedError::NoneSelected {
            place: sheet.name.clone(),
            known: known().map(str::to_owned).collect(),
        }),
        (Some(name), _) => layouts.by_name(name).ok_or_else(|| {
            let ranked = near::ranked(name, known()).into_iter();
            MigPartedError::NotPresent {
                name: name.to_owned(),
                place: sheet.name.clone(),
                known: ranked.map(|(_, name)| name.to_owned()).collect(),
            }
        }),
    }
}
