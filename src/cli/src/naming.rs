//! Names of devices from a catalog and a type override, which a user can try out.

use std::sync::Arc;

use octavo_model::accelerators::{Catalog, TypeOverride, TypeSources};
use octavo_model::inventory::Inventory;

use super::{CliError, catalog};
use crate::settings::Input;
use crate::settings::inspect::NamedSource;

/// Names to apply to devices.
#[derive(Debug, Default)]
pub(super) struct DeviceNames {
    naming: TypeSources,
}

impl DeviceNames {
    /// Reads the catalog.
    pub(super) fn read(source: &NamedSource) -> Result<Self, CliError> {
        let overlay = source.inventory.catalog();
        let type_override = source.type_override.as_deref();
        if overlay.is_none() && type_override.is_none() {
            return Ok(Self::default());
        }
        let catalog = catalog::with_overlay(overlay.as_ref())?;
        let type_override = type_override.map(|text| Arc::new(TypeOverride::new(text, &catalog)));
        let overlay_products = Arc::new(catalog.overlay_products().clone());
        Ok(Self { naming: TypeSources { overlay_products, type_override } })
    }

    /// Returns the names of a catalog, if one was specified.
    pub(super) fn from_catalog(catalog: &Catalog, named: Option<&Input>) -> Self {
        let own = named.map(|_| Arc::new(catalog.overlay_products().clone()));
        let naming = TypeSources { overlay_products: own.unwrap_or_default(), type_override: None };
        Self { naming }
    }

    /// Applies the names to the inventory. The second value is a note on the effect of a type override.
    pub(super) fn name(&self, inventory: Arc<Inventory>) -> (Arc<Inventory>, String) {
        if self.naming == TypeSources::default() {
            return (inventory, String::new());
        }
        let mut named = Arc::unwrap_or_clone(inventory);
        self.naming.apply(&mut named);
        let effect = self.naming.type_override.as_ref().map(|given| given.effect(&named));
        let notes = effect.map_or_else(String::new, |effect| format!("note: {}\n", effect.text));
        (Arc::new(named), notes)
    }
}
