//! Catalog products and name lookup results as JSON documents.

use std::collections::{BTreeMap, BTreeSet};

use octavo_model::accelerators::{Catalog, CloudOffer, Fact, Lookup, Product, Value};
use octavo_model::id::Sku;
use serde::Serialize;

/// A product of the catalog with all of its facts.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ProductDocument<'a> {
    sku: &'a str,
    #[serde(rename = "type")]
    type_name: &'a str,
    vendor: &'a str,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    notes: Option<&'a str>,
    facts: BTreeMap<&'static str, FactDocument<'a>>,
    aliases: Vec<AliasDocument<'a>>,
    instances: &'static [CloudOffer],
    /// Citations for all source keys used above.
    sources: BTreeMap<&'a str, &'a str>,
}

#[derive(Debug, Serialize)]
struct FactDocument<'a> {
    value: ValueDocument<'a>,
    #[serde(skip_serializing_if = "str::is_empty")]
    unit: &'static str,
    sources: &'a [String],
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum ValueDocument<'a> {
    Whole(u64),
    Number(f64),
    Text(&'a str),
    List(&'a [String]),
}

#[derive(Debug, Serialize)]
struct AliasDocument<'a> {
    text: &'a str,
    kind: &'static str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    labels: &'static [&'static str],
    sources: &'a [String],
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
    vendor: &'a str,
    name: &'a str,
}

impl<'a> ProductDocument<'a> {
    /// Creates the document of `product`, with the citations of its sources.
    pub(super) fn new(product: &'a Product, catalog: &'a Catalog) -> Self {
        let facts = product.facts.iter().map(|(field, fact)| {
            let document =
                FactDocument { value: value(fact), unit: field.unit(), sources: &fact.sources };
            (field.key(), document)
        });
        let aliases = product.aliases.iter().map(|alias| AliasDocument {
            text: &alias.text,
            kind: alias.kind.key(),
            labels: alias.kind.labels(),
            sources: &alias.sources,
        });
        let cited =
            cited_sources(product).into_iter().filter_map(|key| Some((key, catalog.source(key)?)));
        Self {
            sku: product.sku.as_str(),
            type_name: product.type_name.as_str(),
            vendor: &product.vendor,
            name: &product.name,
            notes: product.notes.as_deref(),
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
            vendor: &product.vendor,
            name: &product.name,
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
pub(super) fn cited_sources(product: &Product) -> Vec<&str> {
    let facts = product.facts.values().flat_map(|fact| &fact.sources);
    let aliases = product.aliases.iter().flat_map(|alias| &alias.sources);
    let offers = product.offers.iter().flat_map(|offer| offer.sources).copied();
    let keys: BTreeSet<&str> = facts.chain(aliases).map(String::as_str).chain(offers).collect();
    let mut keys: Vec<&str> = keys.into_iter().collect();
    // Sorts by length first, so that S2 comes before S10.
    keys.sort_by_key(|key| (key.len(), *key));
    keys
}

fn value(fact: &Fact) -> ValueDocument<'_> {
    match &fact.value {
        Value::Number(number) => self::number(*number),
        Value::Text(text) => ValueDocument::Text(text),
        Value::List(texts) => ValueDocument::List(texts),
    }
}

/// Writes a whole number without a decimal point.
fn number<'a>(number: f64) -> ValueDocument<'a> {
    let text = number.to_string();
    text.parse().map_or(ValueDocument::Number(number), ValueDocument::Whole)
}
