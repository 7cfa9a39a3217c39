//! Queryable catalog: every fact of a product with its sources, the product's aliases, and lookup of a product by
//! name.
//!
//! Device detection does not need it: `identify` reads the static tables. The catalog is built from the same tables
//! on demand.

mod lookup;

pub use self::lookup::Lookup;
use super::facts;
use super::field::{AliasKind, Field};
use super::product_tables;
pub use super::product_tables::{Alias, CloudOffer, Fact, SharedAlias, Value};
use crate::id::{Sku, TypeName};
use crate::inventory::Vendor;

/// All products and their names.
#[derive(Debug, Clone, PartialEq)]
pub struct Catalog {
    products: Vec<Product>,
}

/// Product of the catalog.
#[derive(Debug, Clone, PartialEq)]
pub struct Product {
    /// Catalog id.
    pub sku: Sku,
    /// Type, as selectors and labels name it; products that differ little share a type.
    pub type_name: TypeName,
    /// Vendor.
    pub vendor: Vendor,
    /// Product name.
    pub name: &'static str,
    /// Additional notes.
    pub notes: Option<&'static str>,
    /// Known facts, in the order of [`Field`].
    pub facts: &'static [Fact],
    /// Aliases that refer to this product only.
    pub aliases: &'static [Alias],
    /// Cloud instance types that have the product.
    pub offers: &'static [CloudOffer],
    /// Type without the memory size.
    model: &'static str,
}

impl Catalog {
    /// Catalog of this binary.
    pub fn built_in() -> Self {
        let products = product_tables::PRODUCTS.iter().filter_map(Product::built_in).collect();
        Self { products }
    }

    /// All products in catalog order.
    pub fn products(&self) -> &[Product] {
        &self.products
    }

    /// All aliases of several products.
    pub fn shared(&self) -> &'static [SharedAlias] {
        product_tables::SHARED
    }

    /// Product with this id.
    pub fn product(&self, sku: &Sku) -> Option<&Product> {
        self.products.iter().find(|product| product.sku == *sku)
    }

    /// Citation for a source key.
    pub fn source(&self, key: &str) -> Option<&'static str> {
        facts::sources().iter().find(|(known, _)| *known == key).map(|(_, citation)| *citation)
    }
}

impl Product {
    /// Value of a fact.
    pub fn value(&self, field: Field) -> Option<Value> {
        self.facts.iter().find(|fact| fact.field == field).map(|fact| fact.value)
    }

    /// The text of a fact; `None` if it is absent or not a text.
    pub(super) fn text(&self, field: Field) -> Option<&'static str> {
        match self.value(field)? {
            Value::Text(text) => Some(text),
            Value::Number(_) | Value::List(_) => None,
        }
    }

    fn built_in(entry: &product_tables::ProductEntry) -> Option<Self> {
        let facts = facts::products().iter().find(|facts| facts.sku == entry.sku)?;
        Some(Self {
            sku: entry.sku.parse().ok()?,
            type_name: facts.type_name.parse().ok()?,
            vendor: facts.vendor,
            name: facts.name,
            notes: entry.notes,
            facts: entry.facts,
            aliases: entry.aliases,
            offers: entry.offers,
            model: facts.model,
        })
    }
}

#[cfg(test)]
mod tests;
