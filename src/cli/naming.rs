//! Names of devices from a catalog and a type override, which a user can try out.

use std::sync::Arc;

use super::{CliError, Report, catalogue};
use crate::config::octavo::{Input, NamingSettings};
use crate::domain::accelerators::{Catalogue, Given, Naming};
use crate::domain::inventory::Inventory;

/// Names to apply to devices.
#[derive(Debug, Default)]
pub(super) struct Names {
    naming: Naming,
}

impl Names {
    /// Reads the catalog; an invalid one results in a report.
    pub(super) fn read(settings: &NamingSettings) -> Result<Result<Self, Report>, CliError> {
        if settings.catalog().is_none() && settings.type_override().is_none() {
            return Ok(Ok(Self::default()));
        }
        Ok(match catalogue::over(settings.catalog())? {
            Ok(catalogue) => {
                let given = settings.type_override();
                Ok(Self {
                    naming: Naming {
                        own: Arc::new(catalogue.own().clone()),
                        given: given.map(|text| Arc::new(Given::new(text, &catalogue))),
                    },
                })
            }
            Err(refused) => Err(Report::refused(refused)),
        })
    }

    /// Returns the names of a catalog, if one was specified.
    pub(super) fn of(catalogue: &Catalogue, named: Option<&Input>) -> Self {
        let own = named.map(|_| Arc::new(catalogue.own().clone()));
        let naming = Naming {
            own: own.unwrap_or_default(),
            given: None,
        };
        Self { naming }
    }

    /// Applies the names to the inventory. The second value is a note on the effect of a type override.
    pub(super) fn name(&self, inventory: Arc<Inventory>) -> (Arc<Inventory>, String) {
        if self.naming == Naming::default() {
            return (inventory, String::new());
        }
        let mut named = Arc::unwrap_or_clone(inventory);
        self.naming.apply(&mut named);
        let told = self.naming.given.as_ref().map(|given| given.told(&named));
        let notes = told.map_or_else(String::new, |told| format!("note: {}\n", told.text));
        (Arc::new(named), notes)
    }
}
