//! Comparison with the cost of the same device hours on other types. It compares prices, not speeds.

use std::collections::BTreeMap;

use octavo_fleet::matching::resolve_type;
use octavo_fleet::price::{PriceBook, PriceKey, UnitPrice};
use octavo_model::accelerators::{Catalog, Lookup, products};
use octavo_model::id::TypeName;
use octavo_model::similar_names;
use octavo_model::text::truncated_word;
use serde::{Deserialize, Serialize};
use strum::Display;
use utoipa::ToSchema;

use crate::cost::{Cost, shown_costs};
use crate::usage::{UsageQuery, UsageSum};

/// Maximum number of types that a report compares.
pub const MAX_COMPARED_TYPES: usize = 8;

/// Cost of the same device hours on another type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = CostAlternative)]
pub struct Alternative {
    /// The other type.
    #[serde(rename = "type")]
    #[schema(value_type = String)]
    pub type_name: TypeName,
    /// Costs, one for each currency; empty if there is a reason.
    pub costs: Vec<Cost>,
    /// Reason why there is no cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<ComparisonError>,
}

/// Reason why usage has no cost on another type. One part of the usage is enough.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Display, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum ComparisonError {
    /// The type of the used devices is not known.
    UnknownType,
    /// The other type has less memory than the used one.
    LessMemory,
    /// The price book has no price of the other type for the purchase option, the region and the time.
    NoPrice,
}

/// Price of usage on another type.
pub(crate) type ComparedPrice = Result<UnitPrice, ComparisonError>;

/// Prices of usage on other types.
#[derive(Debug)]
pub(crate) struct Comparison<'a> {
    query: &'a UsageQuery,
    prices: Option<&'a PriceBook>,
    types: &'a [TypeName],
    /// Prices of devices in a period between price changes.
    known: BTreeMap<(Option<PriceKey>, usize), Vec<ComparedPrice>>,
}

/// Resolves the name of a type: a type of the price book, or any name that identifies one type of the catalog.
///
/// # Errors
/// Returns the reason and a remedy.
pub fn compared_type(name: &str, prices: Option<&PriceBook>) -> Result<TypeName, String> {
    let of_book = || prices.into_iter().flat_map(PriceBook::entries).map(|one| &one.key.type_name);
    if let Some(known) = of_book().find(|known| known.as_str() == name) {
        return Ok(known.clone());
    }
    let catalog = Catalog::built_in();
    if !matches!(catalog.lookup(name), Lookup::Unknown(_)) {
        return resolve_type(name);
    }
    let known = catalog.products().iter().map(|product| &product.type_name).chain(of_book());
    let remedy = match similar_names::closest(name, known.map(TypeName::as_str)) {
        Some(similar) => format!("did you mean {similar}?"),
        None => "`octavo catalog search` finds names".to_owned(),
    };
    Err(format!("{:?} is not a known type; {remedy}", truncated_word(name)))
}

impl Alternative {
    /// Formats the cost, as in `1,234.50 USD + 3.00 EUR`, or the reason in words.
    pub fn shown(&self) -> String {
        self.reason
            .map_or_else(|| shown_costs(&self.costs, |cost| cost.total), ComparisonError::words)
    }
}

impl ComparisonError {
    /// The reason in words: `less memory`.
    pub fn words(self) -> String {
        self.to_string().replace('-', " ")
    }
}

impl<'a> Comparison<'a> {
    /// Compares the usage of a query with these types.
    pub(crate) fn new(
        query: &'a UsageQuery,
        prices: Option<&'a PriceBook>,
        types: &'a [TypeName],
    ) -> Self {
        Self { query, prices, types, known: BTreeMap::new() }
    }

    /// Prices of the usage on each of the types.
    pub(crate) fn prices(&mut self, sum: &UsageSum) -> &[ComparedPrice] {
        let Self { query, prices, types, known } = self;
        known.entry((sum.price_key.clone(), sum.period)).or_insert_with(|| {
            let price = |one| price(query, sum, *prices, one);
            types.iter().map(price).collect()
        })
    }
}

fn price(
    query: &UsageQuery,
    sum: &UsageSum,
    prices: Option<&PriceBook>,
    type_name: &TypeName,
) -> ComparedPrice {
    let used = sum.price_key.as_ref().ok_or(ComparisonError::UnknownType)?;
    // A share of a device is the same share of the other one, so the memory of whole devices decides.
    let has_less =
        memory(type_name).zip(memory(&used.type_name)).is_some_and(|(other, used)| other < used);
    if has_less {
        return Err(ComparisonError::LessMemory);
    }
    let key = if *type_name == used.type_name {
        used.clone()
    } else {
        PriceKey { type_name: type_name.clone(), instance_type: None, ..used.clone() }
    };
    let price = prices.and_then(|prices| query.price(sum.period, &key, prices));
    price.ok_or(ComparisonError::NoPrice)
}

/// Marketed memory of a type in gigabytes; `None` if the catalog does not have it.
fn memory(type_name: &TypeName) -> Option<u32> {
    let product = products().iter().find(|product| product.type_name == type_name.as_str())?;
    product.memory.map(|memory| memory.size)
}
