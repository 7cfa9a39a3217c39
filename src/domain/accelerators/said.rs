//! The tables of who says what of each product, and of what others call it; `build/said.rs` makes them of the catalogue.

use super::catalogue::{AliasKind, Field};

include!(concat!(env!("OUT_DIR"), "/said.rs"));

/// What is said of one product.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) sku: &'static str,
    pub(super) notes: Option<&'static str>,
    pub(super) facts: &'static [Claim],
    pub(super) words: &'static [Word],
    pub(super) shapes: &'static [Shape],
}

/// A fact.
#[derive(Debug)]
pub(super) struct Claim {
    pub(super) field: Field,
    pub(super) value: Told,
    pub(super) sources: &'static [&'static str],
}

/// A fact's value.
#[derive(Debug)]
pub(super) enum Told {
    Number(f64),
    Text(&'static str),
    List(&'static [&'static str]),
}

/// A name for one product.
#[derive(Debug)]
pub(super) struct Word {
    pub(super) text: &'static str,
    pub(super) kind: AliasKind,
    pub(super) sources: &'static [&'static str],
}

/// A cloud's machine that has the product.
#[derive(Debug)]
pub(super) struct Shape {
    pub(super) cloud: &'static str,
    pub(super) instance: &'static str,
    pub(super) count: Option<f64>,
    pub(super) usd_per_hour: Option<f64>,
    pub(super) region: Option<&'static str>,
    pub(super) sources: &'static [&'static str],
}

/// A name for several products.
#[derive(Debug)]
pub(super) struct SharedWord {
    pub(super) text: &'static str,
    pub(super) kind: AliasKind,
    pub(super) skus: &'static [&'static str],
    pub(super) sources: &'static [&'static str],
}

/// All products, in the catalogue's order.
pub(super) fn all() -> &'static [Said] {
    SAID
}

/// All names for several products.
pub(super) fn shared() -> &'static [SharedWord] {
    SHARED
}
