//! What devices are called by a catalogue and a word that a person gives to try out.

use std::sync::Arc;

use super::{CliError, Report, catalogue};
use crate::config::octavo::{Input, NamingSettings};
use crate::domain::accelerators::{Catalogue, Given, Naming};
use crate::domain::inventory::Inventory;

/// By what devices are named, once it has been read.
#[derive(Debug, Default)]
pub(super) struct Names {
    naming: Naming,
}

impl Names {
    /// Reads the catalogue; what is wrong with it is the report then.
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

    /// Those of a catalogue, where one was named.
    pub(super) fn of(catalogue: &Catalogue, named: Option<&Input>) -> Self {
        let own = named.map(|_| Arc::new(catalogue.own().clone()));
        let naming = Naming {
            own: own.unwrap_or_default(),
            given: None,
        };
        Self { naming }
    }

    /// The inventory with these names, and what came of a word that was given.
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
