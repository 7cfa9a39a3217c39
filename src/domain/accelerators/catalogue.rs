//! The catalogue as people ask it: every fact of a product with who says so, what others call the product, and which product a
//! name means.
//!
//! Device detection needs none of this: `identify` reads the constant tables. This is made of them when somebody asks, and an
//! administrator's own file ([`Overlay`]) is laid over it.

mod field;
mod lookup;
mod overlay;
mod words;

use std::collections::BTreeMap;

pub use self::field::{AliasKind, Field};
pub use self::lookup::Lookup;
pub use self::overlay::{Overlay, OverlayEntry, OverlayError, OverlayProblem};
use super::Own;
use super::facts;
use super::said::{self, Told};
use crate::domain::id::{Sku, TypeName};

/// All products and what they are called.
#[derive(Debug, Clone, PartialEq)]
pub struct Catalogue {
    products: Vec<Product>,
    shared: Vec<SharedName>,
    sources: BTreeMap<String, String>,
    own: Own,
}

/// A product.
#[derive(Debug, Clone, PartialEq)]
pub struct Product {
    /// The catalogue's id.
    pub sku: Sku,
    /// What selectors and labels call it, together with its like.
    pub type_name: TypeName,
    /// Who makes it, such as `nvidia`.
    pub vendor: String,
    /// What it is called.
    pub name: String,
    /// What else is to know.
    pub notes: Option<String>,
    /// What is known of it.
    pub facts: BTreeMap<Field, Fact>,
    /// What others call it, and nothing else.
    pub aliases: Vec<Alias>,
    /// Machines of clouds that have it.
    pub offers: Vec<Offer>,
    /// The type without its memory.
    model: String,
}

/// What is known, and who says so.
#[derive(Debug, Clone, PartialEq)]
pub struct Fact {
    /// What.
    pub value: Value,
    /// Keys of the sources, to be looked up with [`Catalogue::source`].
    pub sources: Vec<String>,
}

/// The value of a fact.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// In the unit of its field.
    Number(f64),
    /// A word.
    Text(String),
    /// Several words.
    List(Vec<String>),
}

/// A name that somebody has for one product.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alias {
    /// The name.
    pub text: String,
    /// Whose it is.
    pub kind: AliasKind,
    /// Keys of the sources.
    pub sources: Vec<String>,
}

/// A name that somebody has for several products.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedName {
    /// The name.
    pub text: String,
    /// Whose it is.
    pub kind: AliasKind,
    /// Whom it names.
    pub skus: Vec<Sku>,
    /// Keys of the sources.
    pub sources: Vec<String>,
}

/// A machine of a cloud.
#[derive(Debug, Clone, PartialEq)]
pub struct Offer {
    /// Whose: `aws`, `azure` or `gcp`.
    pub cloud: String,
    /// Its instance type.
    pub instance: String,
    /// Devices it has; less than one is a part of a device, and 0 what EC2 says of such a part. Absent: nobody says.
    pub count: Option<f64>,
    /// The list price for the machine in USD an hour, on demand, at the source's date.
    pub usd_per_hour: Option<f64>,
    /// Where that is the price.
    pub region: Option<String>,
    /// Keys of the sources.
    pub sources: Vec<String>,
}

impl Catalogue {
    /// What this program was built with.
    pub fn built_in() -> Self {
        let products = said::all().iter().filter_map(Product::built_in).collect();
        let shared = said::shared().iter().map(|word| SharedName {
            text: word.text.to_owned(),
            kind: word.kind,
            skus: word
                .skus
                .iter()
                .filter_map(|sku| sku.parse().ok())
                .collect(),
            sources: owned(word.sources),
        });
        let sources = facts::sources()
            .iter()
            .map(|(key, citation)| ((*key).to_owned(), (*citation).to_owned()));
        Self {
            products,
            shared: shared.collect(),
            sources: sources.collect(),
            own: Own::default(),
        }
    }

    /// What an overlay adds that devices are recognised by.
    pub fn own(&self) -> &Own {
        &self.own
    }

    /// All products, in the catalogue's order, those of an overlay last.
    pub fn products(&self) -> &[Product] {
        &self.products
    }

    /// All names that somebody has for several products.
    pub fn shared(&self) -> &[SharedName] {
        &self.shared
    }

    /// The product with this id.
    pub fn product(&self, sku: &Sku) -> Option<&Product> {
        self.products.iter().find(|product| product.sku == *sku)
    }

    /// The citation behind a key.
    pub fn source(&self, key: &str) -> Option<&str> {
        self.sources.get(key).map(String::as_str)
    }
}

impl Product {
    fn built_in(said: &said::Said) -> Option<Self> {
        let sku: Sku = said.sku.parse().ok()?;
        let facts = facts::catalogue()
            .iter()
            .find(|facts| facts.sku == said.sku)?;
        let claims = said.facts.iter().map(|claim| {
            let fact = Fact {
                value: match claim.value {
                    Told::Number(number) => Value::Number(number),
                    Told::Text(text) => Value::Text(text.to_owned()),
                    Told::List(texts) => Value::List(owned(texts)),
                },
                sources: owned(claim.sources),
            };
            (claim.field, fact)
        });
        let aliases = said.words.iter().map(|word| Alias {
            text: word.text.to_owned(),
            kind: word.kind,
            sources: owned(word.sources),
        });
        let offers = said.shapes.iter().map(|shape| Offer {
            cloud: shape.cloud.to_owned(),
            instance: shape.instance.to_owned(),
            count: shape.count,
            usd_per_hour: shape.usd_per_hour,
            region: shape.region.map(str::to_owned),
            sources: owned(shape.sources),
        });
        Some(Self {
            sku,
            type_name: facts.type_name.parse().ok()?,
            vendor: facts.vendor.to_string(),
            name: facts.name.to_owned(),
            notes: said.notes.map(str::to_owned),
            facts: claims.collect(),
            aliases: aliases.collect(),
            offers: offers.collect(),
            model: facts.model.to_owned(),
        })
    }
}

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

#[cfg(test)]
mod tests;
