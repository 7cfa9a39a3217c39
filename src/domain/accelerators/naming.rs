//! Sources of device types on a node: the built-in catalog, an administrator's overlay, and a manual override for
//! devices that neither identifies.
//!
//! The override is applied as written or not at all. An ambiguous override selects no product. Identification by
//! hardware takes precedence: an identified device keeps its type.

use std::fmt;
use std::sync::Arc;

use super::{Catalogue, Field, Lookup, Own, Value};
use crate::domain::id::{Sku, TypeName};
use crate::domain::inventory::{Architecture, Device, Identity, Inventory, Vendor};

/// Node label that sets the type of the node's unidentified devices.
pub const TYPE_OVERRIDE: &str = "octavo.dev/type-override";

/// Placeholder values of labels without a single type; no type may have these names.
pub(super) const RESERVED: [&str; 2] = ["mixed", "unknown"];

/// Sources of device types on a node, besides the built-in catalog.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Naming {
    /// Products of the administrator's catalog.
    pub own: Arc<Own>,
    /// Manual type override of the node.
    pub given: Option<Arc<Given>>,
}

/// Manual type override for unidentified devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    text: String,
    meaning: Meaning,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Meaning {
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
    None(Refused),
}

/// Reason why an override is rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Refused {
    Empty,
    Reserved,
    NoName,
    /// Ambiguous: it may refer to any of these products.
    Several(Vec<Sku>),
}

impl Given {
    /// Resolves `text` in `catalogue`, ignoring case. A name that is not in the catalog may contain letters, digits,
    /// `-`, `_` and `.`; the last two become hyphens.
    pub fn new(text: &str, catalogue: &Catalogue) -> Self {
        Self {
            text: text.to_owned(),
            meaning: meaning(text.trim(), catalogue),
        }
    }

    /// Value of the override as the user wrote it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Identity and chip family for this unidentified device.
    fn name(&self, device: &Device) -> Option<(Identity, Option<&str>)> {
        match &self.meaning {
            Meaning::Known {
                type_name,
                sku,
                architecture,
                vendor,
            } => vendor.is_none_or(|maker| maker == device.vendor).then(|| {
                let (type_name, sku) = (type_name.clone(), sku.clone());
                let identity = Identity::ByHand { type_name, sku };
                (identity, architecture.as_deref())
            }),
            Meaning::New { type_name, .. } => {
                let type_name = type_name.clone();
                let sku = None;
                Some((Identity::ByHand { type_name, sku }, None))
            }
            Meaning::None(_) => None,
        }
    }

    /// Describes the effect of the override on this node.
    pub fn told(&self, inventory: &Inventory) -> Told {
        let devices = &inventory.devices;
        let named = devices
            .iter()
            .filter(|one| one.identity.is_by_hand())
            .count();
        let unknown = devices
            .iter()
            .filter(|one| one.identity == Identity::Unknown);
        let unknown = unknown.count();
        let key = format!("{TYPE_OVERRIDE}={}", self.text);
        let (text, is_trouble) = match &self.meaning {
            Meaning::None(refused) => (format!("{key} {refused}"), true),
            _ if named == 0 && unknown == 0 => {
                let text = if devices.is_empty() {
                    "names nothing: this node has no accelerator"
                } else {
                    "names nothing: the type of every device here is known, and stays what it is"
                };
                (format!("{key} {text}"), true)
            }
            Meaning::Known {
                type_name, vendor, ..
            } => {
                let left = match (unknown, vendor) {
                    (0, _) | (_, None) => String::new(),
                    (_, Some(vendor)) => format!(
                        "; {} unknown, for that is a product of {vendor}, which did not make {}",
                        counted(unknown, "stays", "stay"),
                        if unknown == 1 { "it" } else { "them" }
                    ),
                };
                let text = format!(
                    "{key}: {} called {type_name} by hand{left}",
                    counted(named, "is", "are")
                );
                (text, unknown > 0)
            }
            Meaning::New { type_name, near } => {
                let near = match near.as_slice() {
                    [] => "has nothing like it".to_owned(),
                    near => format!("has names like it: {}", listed(near)),
                };
                let text = format!(
                    "{key}: {} called {type_name} by hand; the catalogue does not have it, and {near}",
                    counted(named, "is", "are")
                );
                (text, false)
            }
        };
        Told { text, is_trouble }
    }
}

/// Effect of a manual type override.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// Description for the user.
    pub text: String,
    /// True if the effect deserves the user's attention.
    pub is_trouble: bool,
}

impl Naming {
    /// Identifies every device that is unidentified or was named manually.
    pub fn apply(&self, inventory: &mut Inventory) {
        inventory.devices.iter_mut().for_each(|one| self.name(one));
    }

    /// Identifies `device`, unless it is identified by its hardware.
    pub fn name(&self, device: &mut Device) {
        match device.identity {
            Identity::Known { .. } => return,
            // The chip family came with the manual name and is reset with it.
            Identity::ByHand { .. } => device.architecture = None,
            Identity::Unknown => {}
        }
        let name = device.product_name.as_deref();
        device.identity = super::identify_with(&self.own, device.pci_ids, name, device.memory);
        let mut family = super::architecture(device.pci_ids);
        if let Some(sku) = device.identity.sku() {
            family = family.or_else(|| self.own.architecture(sku).map(Architecture::new));
        }
        if device.identity == Identity::Unknown
            && let Some((identity, known)) =
                self.given.as_ref().and_then(|given| given.name(device))
        {
            family = family.or_else(|| known.map(Architecture::new));
            device.identity = identity;
        }
        if device.architecture.is_none() {
            device.architecture = family;
        }
    }
}

fn meaning(text: &str, catalogue: &Catalogue) -> Meaning {
    if text.is_empty() {
        return Meaning::None(Refused::Empty);
    }
    let lower = text.to_ascii_lowercase();
    if RESERVED.contains(&lower.as_str()) {
        return Meaning::None(Refused::Reserved);
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
            None => return Meaning::None(Refused::Several(several)),
        },
        Lookup::Unknown(near) => {
            let name = lower.replace(['_', '.'], "-");
            return match name.parse() {
                Ok(type_name) => Meaning::New { type_name, near },
                Err(_) => Meaning::None(Refused::NoName),
            };
        }
    };
    let Some(product) = product else {
        return Meaning::None(Refused::NoName);
    };
    let architecture = match product.facts.get(&Field::Architecture) {
        Some(fact) => match &fact.value {
            Value::Text(text) => Some(text.clone()),
            Value::Number(_) | Value::List(_) => None,
        },
        None => None,
    };
    Meaning::Known {
        type_name: product.type_name.clone(),
        sku: (!is_whole_type).then(|| product.sku.clone()),
        architecture,
        vendor: product.vendor.parse().ok(),
    }
}

/// Formats `1 device is`, `2 devices are`.
fn counted(count: usize, one: &str, many: &str) -> String {
    match count {
        1 => format!("1 device {one}"),
        _ => format!("{count} devices {many}"),
    }
}

fn listed(skus: &[Sku]) -> String {
    let names: Vec<&str> = skus.iter().map(Sku::as_str).collect();
    names.join(", ")
}

impl fmt::Display for Refused {
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
                listed(skus)
            ),
        }
    }
}

#[cfg(test)]
mod tests;
