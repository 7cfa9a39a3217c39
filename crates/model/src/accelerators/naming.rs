//! Sources of device types on a node: the built-in catalog, an administrator's overlay, and a manual override for
//! devices that neither identifies.
//!
//! The override is applied as written or not at all. An ambiguous override selects no product. Identification by
//! hardware takes precedence: an identified device keeps its type.

use std::fmt;
use std::sync::Arc;

use super::product_names::RESERVED_TYPE_NAMES;
use super::{Catalog, Field, Lookup, OverlayProducts, Value};
use crate::id::{Sku, TypeName};
use crate::inventory::{Architecture, Device, Identity, Inventory, Vendor};

/// Node label that sets the type of the node's unidentified devices.
pub const TYPE_OVERRIDE: &str = "octavo.dev/type-override";

/// Sources of device types on a node, besides the built-in catalog.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TypeSources {
    /// Products of the administrator's catalog.
    pub overlay_products: Arc<OverlayProducts>,
    /// Manual type override of the node.
    pub type_override: Option<Arc<TypeOverride>>,
}

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
        architecture: Option<String>,
        /// Vendor of the product; the override applies to devices of this vendor only.
        vendor: Option<Vendor>,
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
    /// Resolves `text` in `catalogue`, ignoring case. A name that is not in the catalog may contain letters, digits,
    /// `-`, `_` and `.`; the last two become hyphens.
    pub fn new(text: &str, catalogue: &Catalog) -> Self {
        Self {
            text: text.to_owned(),
            meaning: resolve_override(text.trim(), catalogue),
        }
    }

    /// Value of the override as the user wrote it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Identity and chip family for this unidentified device.
    fn name(&self, device: &Device) -> Option<(Identity, Option<&str>)> {
        match &self.meaning {
            OverrideTarget::Known {
                type_name,
                sku,
                architecture,
                vendor,
            } => vendor.is_none_or(|maker| maker == device.vendor).then(|| {
                let (type_name, sku) = (type_name.clone(), sku.clone());
                let identity = Identity::Manual { type_name, sku };
                (identity, architecture.as_deref())
            }),
            OverrideTarget::New { type_name, .. } => {
                let type_name = type_name.clone();
                let sku = None;
                Some((Identity::Manual { type_name, sku }, None))
            }
            OverrideTarget::Rejected(_) => None,
        }
    }

    /// Describes the effect of the override on this node.
    pub fn told(&self, inventory: &Inventory) -> OverrideEffect {
        let devices = &inventory.devices;
        let named = devices
            .iter()
            .filter(|one| one.identity.is_manual())
            .count();
        let unknown = devices
            .iter()
            .filter(|one| one.identity == Identity::Unknown);
        let unknown = unknown.count();
        let key = format!("{TYPE_OVERRIDE}={}", self.text);
        let (text, is_trouble) = match &self.meaning {
            OverrideTarget::Rejected(refused) => (format!("{key} {refused}"), true),
            _ if named == 0 && unknown == 0 => {
                let text = if devices.is_empty() {
                    "names nothing: this node has no accelerator"
                } else {
                    "names nothing: the type of every device here is known, and stays what it is"
                };
                (format!("{key} {text}"), true)
            }
            OverrideTarget::Known {
                type_name, vendor, ..
            } => {
                let left = match (unknown, vendor) {
                    (0, _) | (_, None) => String::new(),
                    (_, Some(vendor)) => format!(
                        "; {} unknown, for that is a product of {vendor}, which did not make {}",
                        format_device_count(unknown, "stays", "stay"),
                        if unknown == 1 { "it" } else { "them" }
                    ),
                };
                let text = format!(
                    "{key}: {} called {type_name} by hand{left}",
                    format_device_count(named, "is", "are")
                );
                (text, unknown > 0)
            }
            OverrideTarget::New { type_name, near } => {
                let near = match near.as_slice() {
                    [] => "has nothing like it".to_owned(),
                    near => format!("has names like it: {}", format_skus(near)),
                };
                let text = format!(
                    "{key}: {} called {type_name} by hand; the catalogue does not have it, and {near}",
                    format_device_count(named, "is", "are")
                );
                (text, false)
            }
        };
        OverrideEffect {
            text,
            needs_attention: is_trouble,
        }
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

impl TypeSources {
    /// Identifies every device that is unidentified or was named manually.
    pub fn apply(&self, inventory: &mut Inventory) {
        inventory.devices.iter_mut().for_each(|one| self.name(one));
    }

    /// Identifies `device`, unless it is identified by its hardware.
    pub fn name(&self, device: &mut Device) {
        match device.identity {
            Identity::Known { .. } => return,
            // The chip family came with the manual name and is reset with it.
            Identity::Manual { .. } => device.architecture = None,
            Identity::Unknown => {}
        }
        let name = device.product_name.as_deref();
        device.identity =
            super::identify_with(&self.overlay_products, device.pci_ids, name, device.memory);
        let mut family = super::architecture(device.pci_ids);
        if let Some(sku) = device.identity.sku() {
            family = family.or_else(|| {
                self.overlay_products
                    .architecture(sku)
                    .map(Architecture::new)
            });
        }
        if device.identity == Identity::Unknown
            && let Some((identity, known)) = self
                .type_override
                .as_ref()
                .and_then(|given| given.name(device))
        {
            family = family.or_else(|| known.map(Architecture::new));
            device.identity = identity;
        }
        if device.architecture.is_none() {
            device.architecture = family;
        }
    }
}

fn resolve_override(text: &str, catalogue: &Catalog) -> OverrideTarget {
    if text.is_empty() {
        return OverrideTarget::Rejected(OverrideRejection::Empty);
    }
    let lower = text.to_ascii_lowercase();
    if RESERVED_TYPE_NAMES.contains(&lower.as_str()) {
        return OverrideTarget::Rejected(OverrideRejection::Reserved);
    }
    let of_type = || {
        let mut products = catalogue.products().iter();
        products.find(|product| product.type_name.as_str() == lower)
    };
    let (product, is_whole_type) = match catalogue.lookup(text) {
        Lookup::Found(sku) => (catalogue.product(&sku), false),
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
    let architecture = match product.facts.get(&Field::Architecture) {
        Some(fact) => match &fact.value {
            Value::Text(text) => Some(text.clone()),
            Value::Number(_) | Value::List(_) => None,
        },
        None => None,
    };
    OverrideTarget::Known {
        type_name: product.type_name.clone(),
        sku: (!is_whole_type).then(|| product.sku.clone()),
        architecture,
        vendor: product.vendor.parse().ok(),
    }
}

/// Formats `1 device is`, `2 devices are`.
fn format_device_count(count: usize, one: &str, many: &str) -> String {
    match count {
        1 => format!("1 device {one}"),
        _ => format!("{count} devices {many}"),
    }
}

fn format_skus(skus: &[Sku]) -> String {
    let names: Vec<&str> = skus.iter().map(Sku::as_str).collect();
    names.join(", ")
}

impl fmt::Display for OverrideRejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("is empty, and names nothing"),
            Self::Reserved => {
                f.write_str("names nothing: the word stands for the lack of one type")
            }
            Self::NoName => f.write_str(
                "names nothing: a type has letters, digits and inner hyphens, at most 63 of them",
            ),
            Self::Several(skus) => write!(
                f,
                "may mean any of {}: none is chosen; name one by its SKU, or by its type",
                format_skus(skus)
            ),
        }
    }
}

#[cfg(test)]
mod tests;
