//! Static tables of product facts with their sources, and of product aliases. `build/said.rs` generates them from the
//! catalog.

use super::catalogue::{AliasKind, Field};

include!(concat!(env!("OUT_DIR"), "/said.rs"));

/// Sourced facts, aliases and cloud instance types of one product.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) sku: &'static str,
    pub(super) notes: Option<&'static str>,
    pub(super) facts: &'static [Claim],
    pub(super) words: &'static [Word],
    pub(super) shapes: &'static [Shape],
}

#[derive(Debug)]
pub(super) struct Claim {
    pub(super) field: Field,
    pub(super) value: Told,
    pub(super) sources: &'static [&'static str],
}

#[derive(Debug)]
pub(super) enum Told {
    Number(f64),
    Text(&'static str),
    List(&'static [&'static str]),
}

/// Alias of one product.
#[derive(Debug)]
pub(super) struct Word {
    pub(super) text: &'static str,
    pub(super) kind: AliasKind,
    pub(super) sources: &'static [&'static str],
}

/// Cloud instance type that has the product.
#[derive(Debug)]
pub(super) struct Shape {
    pub(super) cloud: &'static str,
    pub(super) instance: &'static str,
    pub(super) count: Option<f64>,
    pub(super) usd_per_hour: Option<f64>,
    pub(super) region: Option<&'static str>,
    pub(super) sources: &'static [&'static str],
}

/// Alias shared by several products.
#[derive(Debug)]
pub(super) struct SharedWord {
    pub(super) text: &'static str,
    pub(super) kind: AliasKind,
    pub(super) skus: &'static [&'static str],
    pub(super) sources: &'static [&'static str],
}

/// All products, in catalog order.
pub(super) fn all() -> &'static [Said] {
    SAID
}

/// All aliases shared by several products.
pub(super) fn shared() -> &'static [SharedWord] {
    SHARED
}
