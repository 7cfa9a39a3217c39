//! Sources of device types on a node: the catalog, and a manual override for devices that it does not identify.
//!
//! The override is applied as written or not at all. An ambiguous override selects no product. Identification by
//! hardware takes precedence: an identified device keeps its type.

use std::fmt;

use super::product_names::{RESERVED_TYPE_NAMES, format_skus};
use super::{Catalog, Field, Lookup};
use crate::id::{Sku, TypeName};
use crate::inventory::{Architecture, Device, Identity, Inventory, Vendor};
use crate::text::count_noun;

/// Node label that sets the type of the node's unidentified devices.
pub const TYPE_OVERRIDE: &str = "octavo.dev/type-override";

/// Manual type override for unidentified devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeOverride {
    text: String,
    meaning: OverrideTarget,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum OverrideTarget {
    /// A product or type of the catalog.
    Known {
        type_name: TypeName,
        sku: Option<Sku>,
        architecture: Option<&'static str>,
        /// Vendor of the product; the override applies to devices of this vendor only.
        vendor: Vendor,
    },
    /// A name that is not in the catalog, and products with similar names.
    New { type_name: TypeName, near: Vec<Sku> },
    /// The override is invalid.
    Rejected(OverrideRejection),
}

/// Reason why an override is rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
enum OverrideRejection {
    Empty,
    Reserved,
    NoName,
    /// Ambiguous: it may refer to any of these products.
    Several(Vec<Sku>),
}

impl TypeOverride {
    /// Resolves `text` in `catalog`, ignoring case. A name that is not in the catalog may contain letters, digits,
    /// `-`, `_` and `.`; the last two become hyphens.
    pub fn new(text: &str, catalog: &Catalog) -> Self {
        Self { text: text.to_owned(), meaning: resolve_override(text.trim(), catalog) }
    }

    /// Value of the override as the user wrote it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Identity and chip family for this unidentified device.
    fn identify(&self, device: &Device) -> Option<(Identity, Option<&'static str>)> {
        match &self.meaning {
            OverrideTarget::Known { type_name, sku, architecture, vendor } => {
                (*vendor == device.vendor).then(|| {
                    let (type_name, sku) = (type_name.clone(), sku.clone());
                    (Identity::Manual { type_name, sku }, *architecture)
                })
            }
            OverrideTarget::New { type_name, .. } => {
                let type_name = type_name.clone();
                let sku = None;
                Some((Identity::Manual { type_name, sku }, None))
            }
            OverrideTarget::Rejected(_) => None,
        }
    }

    /// Describes the effect of the override on this node.
    pub fn effect(&self, inventory: &Inventory) -> OverrideEffect {
        let devices = &inventory.devices;
        let named = devices.iter().filter(|one| one.identity.is_manual()).count();
        let unknown = devices.iter().filter(|one| one.identity == Identity::Unknown);
        let unknown = unknown.count();
        let key = format!("{TYPE_OVERRIDE}={}", self.text);
        let (text, needs_attention) = match &self.meaning {
            OverrideTarget::Rejected(refused) => (format!("{key} {refused}"), true),
            _ if named == 0 && unknown == 0 => {
                let text = if devices.is_empty() {
                    "has no effect: this node has no accelerator"
                } else {
                    "has no effect: the type of every device on this node is known and does not change"
                };
                (format!("{key} {text}"), true)
            }
            OverrideTarget::Known { type_name, vendor, .. } => {
                let left = match unknown {
                    0 => String::new(),
                    _ => format!(
                        "; {} unknown, because the type is a product of {vendor}, which did not make {}",
                        count_noun(unknown, "device stays", "devices stay"),
                        if unknown == 1 { "it" } else { "them" }
                    ),
                };
                let text = format!(
                    "{key}: {} manually set to type {type_name}{left}",
                    count_noun(named, "device is", "devices are")
                );
                (text, unknown > 0)
            }
            OverrideTarget::New { type_name, near } => {
                let near = match near.as_slice() {
                    [] => "lists no similar name".to_owned(),
                    near => format!("lists similar names: {}", format_skus(near)),
                };
                let text = format!(
                    "{key}: {} manually set to type {type_name}; the catalog does not list this type, and {near}",
                    count_noun(named, "device is", "devices are")
                );
                (text, false)
            }
        };
        OverrideEffect { text, needs_attention }
    }
}

/// Effect of a manual type override.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverrideEffect {
    /// Description for the user.
    pub text: String,
    /// True if the effect deserves the user's attention.
    pub needs_attention: bool,
}

/// Identifies every device that is unidentified or was named manually.
pub fn identify_devices(inventory: &mut Inventory, type_override: Option<&TypeOverride>) {
    inventory.devices.iter_mut().for_each(|one| identify_device(one, type_override));
}

fn identify_device(device: &mut Device, type_override: Option<&TypeOverride>) {
    match device.identity {
        Identity::Known { .. } => return,
        // The chip family came with the manual name and is reset with it.
        Identity::Manual { .. } => device.architecture = None,
        Identity::Unknown => {}
    }
    let name = device.product_name.as_deref();
    device.identity = super::identify(device.pci_ids, name, device.memory);
    let mut family = super::architecture(device.pci_ids);
    if device.identity == Identity::Unknown
        && let Some((identity, known)) = type_override.and_then(|given| given.identify(device))
    {
        family = family.or_else(|| known.map(Architecture::new));
        device.identity = identity;
    }
    if device.architecture.is_none() {
        device.architecture = family;
    }
}

fn resolve_override(text: &str, catalog: &Catalog) -> OverrideTarget {
    if text.is_empty() {
        return OverrideTarget::Rejected(OverrideRejection::Empty);
    }
    let lower = text.to_ascii_lowercase();
    if RESERVED_TYPE_NAMES.contains(&lower.as_str()) {
        return OverrideTarget::Rejected(OverrideRejection::Reserved);
    }
    let of_type = || {
        let mut products = catalog.products().iter();
        products.find(|product| product.type_name.as_str() == lower)
    };
    let (product, is_whole_type) = match catalog.lookup(text) {
        Lookup::Found(sku) => (catalog.product(&sku), false),
        // A type that several products share is still one unambiguous answer.
        Lookup::Ambiguous(several) => match of_type() {
            Some(product) => (Some(product), true),
            None => return OverrideTarget::Rejected(OverrideRejection::Several(several)),
        },
        Lookup::Unknown(near) => {
            let name = lower.replace(['_', '.'], "-");
            return match name.parse() {
                Ok(type_name) => OverrideTarget::New { type_name, near },
                Err(_) => OverrideTarget::Rejected(OverrideRejection::NoName),
            };
        }
    };
    let Some(product) = product else {
        return OverrideTarget::Rejected(OverrideRejection::NoName);
    };
    OverrideTarget::Known {
        type_name: product.type_name.clone(),
        sku: (!is_whole_type).then(|| product.sku.clone()),
        architecture: product.text(Field::Architecture),
        vendor: product.vendor,
    }
}

impl fmt::Display for OverrideRejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("is empty and has no effect"),
            Self::Reserved => {
                f.write_str("has no effect: the word is reserved for nodes without a single type")
            }
            Self::NoName => f.write_str(
                "has no effect: a type consists of at most 63 letters, digits and inner hyphens",
            ),
            Self::Several(skus) => write!(
                f,
                "has no effect: it is ambiguous and matches {}; use the SKU or the type of one of them",
                format_skus(skus)
            ),
        }
    }
}

#[cfg(test)]
mod tests;
