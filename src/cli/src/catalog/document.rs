//! Catalog products and name lookup results as JSON documents.

use std::collections::{BTreeMap, BTreeSet};

use octavo_model::accelerators::{Catalog, CloudOffer, Lookup, Product, Value};
use octavo_model::id::Sku;
use octavo_model::inventory::Vendor;
use serde::Serialize;

/// A product of the catalog with all of its facts.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ProductDocument<'a> {
    sku: &'a str,
    #[serde(rename = "type")]
    type_name: &'a str,
    vendor: Vendor,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    notes: Option<&'a str>,
    facts: BTreeMap<&'static str, FactDocument>,
    aliases: Vec<AliasDocument>,
    instances: &'static [CloudOffer],
    /// Citations for all source keys used above.
    sources: BTreeMap<&'a str, &'a str>,
}

#[derive(Debug, Serialize)]
struct FactDocument {
    value: Value,
    #[serde(skip_serializing_if = "str::is_empty")]
    unit: &'static str,
    sources: &'static [&'static str],
}

#[derive(Debug, Serialize)]
struct AliasDocument {
    text: &'static str,
    kind: &'static str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    labels: &'static [&'static str],
    sources: &'static [&'static str],
}

/// The result of a name lookup.
#[derive(Debug, Serialize)]
pub(super) struct LookupDocument<'a> {
    text: &'a str,
    answer: &'static str,
    /// Accelerators that the name refers to, or may refer to.
    accelerators: Vec<ProductSummary<'a>>,
    /// Similar names, if the name is unknown.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    near: Vec<&'a str>,
}

#[derive(Debug, Serialize)]
struct ProductSummary<'a> {
    sku: &'a str,
    #[serde(rename = "type")]
    type_name: &'a str,
    vendor: Vendor,
    name: &'a str,
}

impl<'a> ProductDocument<'a> {
    /// Creates the document of `product`, with the citations of its sources.
    pub(super) fn new(product: &'a Product, catalog: &'a Catalog) -> Self {
        let facts = product.facts.iter().map(|fact| {
            let (value, unit) = (fact.value, fact.field.unit());
            (fact.field.key(), FactDocument { value, unit, sources: fact.sources })
        });
        let aliases = product.aliases.iter().map(|alias| AliasDocument {
            text: alias.text,
            kind: alias.kind.key(),
            labels: alias.kind.labels(),
            sources: alias.sources,
        });
        let cited =
            cited_sources(product).into_iter().filter_map(|key| Some((key, catalog.source(key)?)));
        Self {
            sku: product.sku.as_str(),
            type_name: product.type_name.as_str(),
            vendor: product.vendor,
            name: product.name,
            notes: product.notes,
            facts: facts.collect(),
            aliases: aliases.collect(),
            instances: product.offers,
            sources: cited.collect(),
        }
    }
}

impl<'a> LookupDocument<'a> {
    /// Creates the document of the `lookup` result for `text`.
    pub(super) fn new(text: &'a str, lookup: &'a Lookup, catalog: &'a Catalog) -> Self {
        let (answer, found, near): (_, &[Sku], &[Sku]) = match lookup {
            Lookup::Found(sku) => ("found", std::slice::from_ref(sku), &[]),
            Lookup::Ambiguous(skus) => ("ambiguous", skus, &[]),
            Lookup::Unknown(near) => ("unknown", &[], near),
        };
        let rows = found.iter().filter_map(|sku| catalog.product(sku));
        let rows = rows.map(|product| ProductSummary {
            sku: product.sku.as_str(),
            type_name: product.type_name.as_str(),
            vendor: product.vendor,
            name: product.name,
        });
        Self {
            text,
            answer,
            accelerators: rows.collect(),
            near: near.iter().map(Sku::as_str).collect(),
        }
    }
}

/// Keys of all sources cited by the product, in order.
pub(super) fn cited_sources(product: &Product) -> Vec<&'static str> {
    let facts = product.facts.iter().flat_map(|fact| fact.sources);
    let aliases = product.aliases.iter().flat_map(|alias| alias.sources);
    let offers = product.offers.iter().flat_map(|offer| offer.sources);
    let keys: BTreeSet<&str> = facts.chain(aliases).chain(offers).copied().collect();
    let mut keys = Vec::from_iter(keys);
    // Sorts by length first, so that S2 comes before S10.
    keys.sort_by_key(|key| (key.len(), *key));
    keys
}
