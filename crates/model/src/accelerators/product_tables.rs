//! Static tables of product facts with their sources, and of product aliases. `build/product_facts.rs` generates them from the
//! catalog.

use super::field::{AliasKind, Field};

include!(concat!(env!("OUT_DIR"), "/product_tables.rs"));

/// Sourced facts, aliases and cloud instance types of one product.
#[derive(Debug)]
pub(super) struct ProductEntry {
    pub(super) sku: &'static str,
    pub(super) notes: Option<&'static str>,
    pub(super) facts: &'static [FactEntry],
    pub(super) words: &'static [AliasEntry],
    pub(super) shapes: &'static [OfferEntry],
}

#[derive(Debug)]
pub(super) struct FactEntry {
    pub(super) field: Field,
    pub(super) value: FactValue,
    pub(super) sources: &'static [&'static str],
}

#[derive(Debug)]
pub(super) enum FactValue {
    Number(f64),
    Text(&'static str),
    List(&'static [&'static str]),
}

/// Alias of one product.
#[derive(Debug)]
pub(super) struct AliasEntry {
    pub(super) text: &'static str,
    pub(super) kind: AliasKind,
    pub(super) sources: &'static [&'static str],
}

/// Cloud instance type that has the product.
#[derive(Debug)]
pub(super) struct OfferEntry {
    pub(super) cloud: &'static str,
    pub(super) instance: &'static str,
    pub(super) count: Option<f64>,
    pub(super) usd_per_hour: Option<f64>,
    pub(super) region: Option<&'static str>,
    pub(super) sources: &'static [&'static str],
}

/// Alias shared by several products.
#[derive(Debug)]
pub(super) struct SharedAliasEntry {
    pub(super) text: &'static str,
    pub(super) kind: AliasKind,
    pub(super) skus: &'static [&'static str],
    pub(super) sources: &'static [&'static str],
}

/// All products, in catalog order.
pub(super) fn product_entries() -> &'static [ProductEntry] {
    PRODUCTS
}

/// All aliases shared by several products.
pub(super) fn shared_alias_entries() -> &'static [SharedAliasEntry] {
    SHARED
}
