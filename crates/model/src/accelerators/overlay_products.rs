//! Products from an administrator's catalog by which devices are identified.
//!
//! Built-in products take precedence. No PCI id or name here can be that of a built-in product: loading the overlay
//! rejects duplicates.

use super::facts::{MarketedMemory, PciPattern};
use super::{memory, product_names};
use crate::id::{Sku, TypeName};
use crate::inventory::{Identity, PciIds, Vendor};
use crate::quantity::Mebibytes;

/// Products of an administrator's catalog by which devices are identified.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OverlayProducts {
    products: Vec<OverlayProduct>,
}

/// Product that an overlay adds, or adds PCI ids or names to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OverlayProduct {
    pub(super) sku: Sku,
    pub(super) type_name: TypeName,
    /// Vendor, where the product's devices can only be of one vendor.
    pub(super) vendor: Option<Vendor>,
    pub(super) architecture: Option<String>,
    pub(super) memory: Option<MarketedMemory>,
    pub(super) visible_memory_mib: Option<u32>,
    pub(super) patterns: Vec<PciPattern>,
    pub(super) names: Vec<String>,
}

impl OverlayProducts {
    /// Adds a product.
    pub(super) fn add(&mut self, product: OverlayProduct) {
        self.products.push(product);
    }

    /// Returns `true` if a PCI function with these ids is an accelerator, regardless of its PCI class.
    pub fn contains_pci_ids(&self, ids: PciIds) -> bool {
        let mut patterns = self.products.iter().flat_map(|own| &own.patterns);
        patterns.any(|pattern| matches_ids(pattern, ids))
    }

    /// Identifies a device that is not in the built-in catalog: by its PCI ids, otherwise by its driver's product
    /// name. Returns `None` if several products match.
    pub(super) fn identify(
        &self,
        ids: PciIds,
        product_name: Option<&str>,
        seen: Option<Mebibytes>,
    ) -> Option<Identity> {
        let agrees = |own: &&OverlayProduct| {
            seen.is_none_or(|seen| memory::can_report(own.memory, own.visible_memory_mib, seen))
        };
        let by_ids =
            |own: &&OverlayProduct| own.patterns.iter().any(|pattern| matches_ids(pattern, ids));
        let vendor = Vendor::from_pci(ids.vendor);
        let by_name = |own: &&OverlayProduct| {
            let is_same_vendor = own.vendor.is_none_or(|required| required == vendor);
            let is_called =
                |name: &str| own.names.iter().any(|own| product_names::is_same_name(own, name));
            is_same_vendor && product_name.is_some_and(is_called)
        };
        let products = || self.products.iter().filter(agrees);
        single(products().filter(by_ids)).or_else(|| single(products().filter(by_name))).map(
            |own| Identity::Known { type_name: own.type_name.clone(), sku: Some(own.sku.clone()) },
        )
    }

    /// Chip family of a product.
    pub(super) fn architecture(&self, sku: &Sku) -> Option<&str> {
        let own = self.products.iter().find(|own| own.sku == *sku)?;
        own.architecture.as_deref()
    }
}

fn matches_ids(pattern: &PciPattern, ids: PciIds) -> bool {
    let subsystem = (ids.subsystem_vendor, ids.subsystem_device);
    pattern.device == (ids.vendor, ids.device)
        && pattern.subsystem.is_none_or(|wanted| wanted == subsystem)
}

fn single<T>(mut all: impl Iterator<Item = T>) -> Option<T> {
    let first = all.next()?;
    all.next().is_none().then_some(first)
}
