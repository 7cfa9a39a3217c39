//! Device identification: which product a device is.
//!
//! PCI ids identify most products without a driver. Where several products share an id, the driver's product name and
//! the memory it reports decide. The driver takes precedence: a device that reports other memory than the product of
//! its PCI id does not get that product's type (it is a virtual GPU, or a variant newer than the catalog).
//! `accelerators/memory.rs` defines the tolerance. A product that is not in the catalog gets a type derived from the
//! driver's product name, so that selectors can refer to it before Octavo supports it. Without a driver such a device
//! is unknown and is reported as unknown.

mod catalog;
mod facts;
mod field;
mod memory;
mod neuron;
mod product_names;
mod product_tables;
mod type_override;

use crate::id::Sku;
use crate::inventory::{Architecture, Identity, PciIds, Vendor};
use crate::quantity::Mebibytes;
pub use catalog::{Alias, Catalog, CloudOffer, Fact, Lookup, Product, SharedAlias, Value};
pub use facts::{
    Facts, LinkKind, MarketedMemory, MemoryUnit, NotAccelerator, PciPattern, Tflops,
    is_known_accelerator, non_accelerator_with_ids, non_accelerators, products,
};
pub use field::{AliasKind, Field};
pub use neuron::{LogicalRule, logical_rule, neuron_chip, neuron_memory};
pub use type_override::{OverrideEffect, TYPE_OVERRIDE, TypeOverride, identify_devices};

/// Identifies a device from its PCI ids and its driver's product name and memory.
pub fn identify(ids: PciIds, product_name: Option<&str>, memory: Option<Mebibytes>) -> Identity {
    let memory = memory.filter(|seen| seen.get() > 0);
    let vendor = Vendor::from_pci(ids.vendor);
    let by_ids = facts::products_with_ids(ids);
    let by_name =
        || product_name.map_or_else(Vec::new, |name| product_names::products_named(vendor, name));
    let known = agreed_identity(&by_ids, product_name, memory);
    known
        .or_else(|| agreed_identity(&by_name(), product_name, memory))
        .or_else(|| identity_from_driver_name(vendor, product_name, memory))
        .or_else(|| identity_with_reported_memory(&by_ids, memory))
        .unwrap_or(Identity::Unknown)
}

/// Chip family for PCI ids, if all products with these ids share it.
pub fn architecture(ids: PciIds) -> Option<Architecture> {
    let found = facts::products_with_ids(ids);
    let first = found.first()?.architecture;
    found.iter().all(|facts| facts.architecture == first).then(|| Architecture::new(first))
}

/// Catalog entry of a product.
pub fn facts(sku: &Sku) -> Option<&'static Facts> {
    products().iter().find(|facts| facts.sku == sku.as_str())
}

/// Finds the product that a name refers to; see [`Catalog::lookup`].
pub fn lookup(text: &str) -> Lookup {
    Catalog::built_in().lookup(text)
}

/// Identity shared by all candidates that are consistent with the driver's name and memory.
fn agreed_identity(
    candidates: &[&'static Facts],
    product_name: Option<&str>,
    memory: Option<Mebibytes>,
) -> Option<Identity> {
    let mut fitting = candidates.to_vec();
    fitting.retain(|facts| memory.is_none_or(|seen| memory::is_consistent_with(facts, seen)));
    if let Some(name) = product_name {
        fitting = product_names::best_named(fitting, name);
    }
    let (first, others) = fitting.split_first()?;
    let one_type = others.iter().all(|facts| facts.type_name == first.type_name);
    let sku = others.is_empty().then(|| first.sku.parse().ok()).flatten();
    one_type
        .then(|| first.type_name.parse().ok())
        .flatten()
        .map(|type_name| Identity::Known { type_name, sku })
}

/// Derives a type from the driver's product name. NVIDIA only: NVML's names are stable, other vendors' depend on
/// firmware.
fn identity_from_driver_name(
    vendor: Vendor,
    product_name: Option<&str>,
    memory: Option<Mebibytes>,
) -> Option<Identity> {
    let name = product_name.filter(|_| vendor == Vendor::Nvidia)?;
    let type_name = product_names::derive_type(name, memory)?;
    Some(Identity::Known { type_name, sku: None })
}

/// Type from the model shared by all candidates, with the memory that the driver reports in place of theirs.
fn identity_with_reported_memory(
    candidates: &[&'static Facts],
    memory: Option<Mebibytes>,
) -> Option<Identity> {
    let (first, others) = candidates.split_first()?;
    let one_model = others.iter().all(|facts| facts.model == first.model);
    let seen = memory.filter(|_| one_model)?;
    let type_name = product_names::with_memory_suffix(first.model, Some(seen))?;
    Some(Identity::Known { type_name, sku: None })
}

#[cfg(test)]
mod tests;
