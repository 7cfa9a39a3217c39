//! What devices of this node are called: by the catalogue, by an administrator's own, and by a person's word where neither knows
//! them.
//!
//! A person's word is taken as it is or not at all. Where it may mean several products nothing is chosen, and the hardware always
//! goes first: what is known keeps its type.

use std::fmt;
use std::sync::Arc;

use super::{Catalogue, Field, Lookup, Own, Value};
use crate::domain::id::{Sku, TypeName};
use crate::domain::inventory::{Architecture, Device, Identity, Inventory, Vendor};

/// A person's: what devices of a Node are called that nobody else knows.
pub const TYPE_OVERRIDE: &str = "octavo.dev/type-override";

/// Words that stand in the place of a type where there is none.
pub(super) const RESERVED: [&str; 2] = ["mixed", "unknown"];

/// By what devices are named.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Naming {
    /// The administrator's catalogue.
    pub own: Arc<Own>,
    /// A person's word.
    pub given: Option<Arc<Given>>,
}

/// A name that a person gives to what nobody knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    text: String,
    meaning: Meaning,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Meaning {
    /// A product or a type of the catalogue.
    Known {
        type_name: TypeName,
        sku: Option<Sku>,
        architecture: Option<String>,
        /// Its devices are this maker's and nobody else's.
        vendor: Option<Vendor>,
    },
    /// A name that the catalogue does not have, and products with names like it.
    New { type_name: TypeName, near: Vec<Sku> },
    /// It can name nothing.
    None(Refused),
}

/// Why a word can name nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Refused {
    Empty,
    Reserved,
    NoName,
    /// It may mean any of these.
    Several(Vec<Sku>),
}

impl Given {
    /// What `text` means in `catalogue`. Case does not matter; what is no product may have letters, digits, `-`, `_` and `.`, of
    /// which the last two become hyphens.
    pub fn new(text: &str, catalogue: &Catalogue) -> Self {
        Self {
            text: text.to_owned(),
            meaning: meaning(text.trim(), catalogue),
        }
    }

    /// The word.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The name for this device, which nobody knows.
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

    /// What came of it on this node, in words.
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

/// What came of a name that a person gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// In words.
    pub text: String,
    /// Whether a person would not expect it.
    pub is_trouble: bool,
}

impl Naming {
    /// Says what every device is that is not known yet, or that was named by hand.
    pub fn apply(&self, inventory: &mut Inventory) {
        inventory.devices.iter_mut().for_each(|one| self.name(one));
    }

    /// Says what `device` is, unless that is known.
    pub fn name(&self, device: &mut Device) {
        match device.identity {
            Identity::Known { .. } => return,
            // What came with the name goes with it.
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
        // A type that several products have is one answer all the same.
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

/// `1 device is`, `2 devices are`.
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
