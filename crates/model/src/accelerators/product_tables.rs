//! Static tables of product facts with their sources, and of product aliases. `build/product_facts.rs` generates them from the
//! catalog.
#![expect(clippy::unreadable_literal, reason = "the tables are generated")]

use serde::{Serialize, Serializer};
use serde_with::skip_serializing_none;

use super::field::{AliasKind, Field};

include!(concat!(env!("OUT_DIR"), "/product_tables.rs"));

/// Sourced facts, aliases and cloud instance types of one product.
#[derive(Debug)]
pub(super) struct ProductEntry {
    pub(super) sku: &'static str,
    pub(super) notes: Option<&'static str>,
    pub(super) facts: &'static [FactEntry],
    pub(super) words: &'static [AliasEntry],
    pub(super) offers: &'static [CloudOffer],
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
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CloudOffer {
    /// Cloud provider: `aws`, `azure` or `gcp`.
    pub cloud: &'static str,
    /// Name of the instance type.
    pub instance: &'static str,
    /// Number of devices. A value below one is a fraction of a device; 0 is what EC2 reports for such a fraction.
    /// `None`: no source states it.
    #[serde(serialize_with = "serialize_count")]
    pub count: Option<f64>,
    /// List price of the instance in USD per hour, on demand, at the source's date.
    pub usd_per_hour: Option<f64>,
    /// Region of that price.
    pub region: Option<&'static str>,
    /// Keys of the sources.
    pub sources: &'static [&'static str],
}

/// Writes a whole number without a decimal point.
#[expect(clippy::ref_option, reason = "serde calls it so")]
fn serialize_count<S: Serializer>(count: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    match count.map(|count| count.to_string().parse::<u64>().map_err(|_| count)) {
        Some(Ok(whole)) => serializer.serialize_u64(whole),
        Some(Err(fraction)) => serializer.serialize_f64(fraction),
        None => serializer.serialize_none(),
    }
}

/// Alias shared by several products.
#[derive(Debug)]
pub(super) struct SharedAliasEntry {
    pub(super) text: &'static str,
    pub(super) kind: AliasKind,
    pub(super) skus: &'static [&'static str],
    pub(super) sources: &'static [&'static str],
}
