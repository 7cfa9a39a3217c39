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
    pub(super) facts: &'static [Fact],
    pub(super) aliases: &'static [Alias],
    pub(super) offers: &'static [CloudOffer],
}

/// Fact with its sources.
#[derive(Debug, Clone, PartialEq)]
pub struct Fact {
    /// Kind of fact.
    pub field: Field,
    /// Value of the fact.
    pub value: Value,
    /// Source keys; [`Catalog::source`](super::Catalog::source) resolves them.
    pub sources: &'static [&'static str],
}

/// Value of a fact.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// Number in the unit of its field.
    #[serde(serialize_with = "serialize_number")]
    Number(f64),
    /// Single text.
    Text(&'static str),
    /// Several texts.
    List(&'static [&'static str]),
}

/// Alias of one product.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alias {
    /// Text of the alias.
    pub text: &'static str,
    /// Origin of the alias.
    pub kind: AliasKind,
    /// Keys of the sources.
    pub sources: &'static [&'static str],
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
    /// Number of virtual CPUs. `None`: no source states it.
    pub vcpus: Option<u32>,
    /// List price of the instance in USD per hour, on demand, at the source's date.
    pub usd_per_hour: Option<f64>,
    /// Region of that price.
    pub region: Option<&'static str>,
    /// Keys of the sources.
    pub sources: &'static [&'static str],
}

#[expect(clippy::ref_option, reason = "serde requires this signature")]
fn serialize_count<S: Serializer>(count: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    match count {
        Some(count) => serialize_number(count, serializer),
        None => serializer.serialize_none(),
    }
}

/// Writes a whole number without a decimal point.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde requires this signature")]
fn serialize_number<S: Serializer>(number: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    match number.to_string().parse::<u64>() {
        Ok(whole) => serializer.serialize_u64(whole),
        Err(_) => serializer.serialize_f64(*number),
    }
}

/// Alias shared by several products.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedAlias {
    /// Text of the alias.
    pub text: &'static str,
    /// Origin of the alias.
    pub kind: AliasKind,
    /// Products it refers to.
    pub skus: &'static [&'static str],
    /// Keys of the sources.
    pub sources: &'static [&'static str],
}
