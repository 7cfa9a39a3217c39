//! Queryable catalog: every fact of a product with its sources, the product's aliases, and lookup of a product by
//! name.
//!
//! Device detection does not need it: `identify` reads the static tables. The catalog is built from the same tables
//! on demand, and an administrator's own file ([`Overlay`]) can extend it.

mod lookup;
mod overlay;

use std::collections::BTreeMap;

pub use self::lookup::Lookup;
pub use self::overlay::{Overlay, OverlayEntry, OverlayError, OverlayProblem};
use super::facts;
use super::field::{AliasKind, Field};
use super::overlay_products::OverlayProducts;
pub use super::product_tables::CloudOffer;
use super::product_tables::{self, FactValue};
use crate::id::{Sku, TypeName};

/// All products and their names.
#[derive(Debug, Clone, PartialEq)]
pub struct Catalog {
    products: Vec<Product>,
    shared: Vec<SharedAlias>,
    sources: BTreeMap<String, String>,
    own: OverlayProducts,
}

/// Product of the catalog.
#[derive(Debug, Clone, PartialEq)]
pub struct Product {
    /// Catalog id.
    pub sku: Sku,
    /// Type, as selectors and labels name it; products that differ little share a type.
    pub type_name: TypeName,
    /// Vendor, such as `nvidia`.
    pub vendor: String,
    /// Product name.
    pub name: String,
    /// Additional notes.
    pub notes: Option<String>,
    /// Known facts by field.
    pub facts: BTreeMap<Field, Fact>,
    /// Aliases that refer to this product only.
    pub aliases: Vec<Alias>,
    /// Cloud instance types that have the product.
    pub offers: &'static [CloudOffer],
    /// Type without the memory size.
    model: String,
}

/// Fact with its sources.
#[derive(Debug, Clone, PartialEq)]
pub struct Fact {
    /// Value of the fact.
    pub value: Value,
    /// Source keys; [`Catalog::source`] resolves them.
    pub sources: Vec<String>,
}

/// Value of a fact.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Number in the unit of its field.
    Number(f64),
    /// Single text.
    Text(String),
    /// Several texts.
    List(Vec<String>),
}

/// Alias of one product.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alias {
    /// Text of the alias.
    pub text: String,
    /// Origin of the alias.
    pub kind: AliasKind,
    /// Keys of the sources.
    pub sources: Vec<String>,
}

/// Alias of several products.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedAlias {
    /// Text of the alias.
    pub text: String,
    /// Origin of the alias.
    pub kind: AliasKind,
    /// Products it refers to.
    pub skus: Vec<Sku>,
    /// Keys of the sources.
    pub sources: Vec<String>,
}

impl Catalog {
    /// Built-in catalog of this binary.
    pub fn built_in() -> Self {
        let products = product_tables::PRODUCTS.iter().filter_map(Product::built_in).collect();
        let shared = product_tables::SHARED.iter().map(|word| SharedAlias {
            text: word.text.to_owned(),
            kind: word.kind,
            skus: word.skus.iter().filter_map(|sku| sku.parse().ok()).collect(),
            sources: owned(word.sources),
        });
        let sources = facts::sources()
            .iter()
            .map(|(key, citation)| ((*key).to_owned(), (*citation).to_owned()));
        Self {
            products,
            shared: shared.collect(),
            sources: sources.collect(),
            own: OverlayProducts::default(),
        }
    }

    /// Products of the overlay by which devices are identified.
    pub fn overlay_products(&self) -> &OverlayProducts {
        &self.own
    }

    /// All products in catalog order, followed by those of an overlay.
    pub fn products(&self) -> &[Product] {
        &self.products
    }

    /// All aliases of several products.
    pub fn shared(&self) -> &[SharedAlias] {
        &self.shared
    }

    /// Product with this id.
    pub fn product(&self, sku: &Sku) -> Option<&Product> {
        self.products.iter().find(|product| product.sku == *sku)
    }

    /// Citation for a source key.
    pub fn source(&self, key: &str) -> Option<&str> {
        self.sources.get(key).map(String::as_str)
    }
}

impl Product {
    /// The text of a fact; `None` if it is absent or not a text.
    pub(super) fn text(&self, field: Field) -> Option<&str> {
        match &self.facts.get(&field)?.value {
            Value::Text(text) => Some(text),
            Value::Number(_) | Value::List(_) => None,
        }
    }

    fn built_in(entry: &product_tables::ProductEntry) -> Option<Self> {
        let sku: Sku = entry.sku.parse().ok()?;
        let facts = facts::products().iter().find(|facts| facts.sku == entry.sku)?;
        let claims = entry.facts.iter().map(|claim| {
            let fact = Fact {
                value: match claim.value {
                    FactValue::Number(number) => Value::Number(number),
                    FactValue::Text(text) => Value::Text(text.to_owned()),
                    FactValue::List(texts) => Value::List(owned(texts)),
                },
                sources: owned(claim.sources),
            };
            (claim.field, fact)
        });
        let aliases = entry.words.iter().map(|word| Alias {
            text: word.text.to_owned(),
            kind: word.kind,
            sources: owned(word.sources),
        });
        Some(Self {
            sku,
            type_name: facts.type_name.parse().ok()?,
            vendor: facts.vendor.to_string(),
            name: facts.name.to_owned(),
            notes: entry.notes.map(str::to_owned),
            facts: claims.collect(),
            aliases: aliases.collect(),
            offers: entry.offers,
            model: facts.model.to_owned(),
        })
    }
}

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

#[cfg(test)]
mod tests;
