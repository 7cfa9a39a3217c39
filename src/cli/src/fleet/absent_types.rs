//! Requested types that the fleet does not have, with suggestions for misspelled names.

use octavo_client::{Client, RequestPath};
use octavo_fleet::api::TypeList;
use octavo_fleet::type_labels::{MIXED, UNKNOWN};
use octavo_model::accelerators::Catalog;
use octavo_model::similar_names;

use super::format::type_name;
use crate::CliError;
use crate::text::printable;

/// Returns a note for each wanted type without devices, with the most similar type of the fleet or the catalog.
pub(super) fn absent(wanted: &[String], types: &TypeList) -> Vec<String> {
    let in_fleet: Vec<&str> = types.items.iter().map(|row| type_name(&row.of_all)).collect();
    let missing = wanted.iter().filter(|name| !in_fleet.contains(&name.as_str()));
    let catalog = Catalog::built_in();
    let notes = missing.map(|name| {
        let products = catalog.products().iter().map(|product| product.type_name.as_str());
        let note = format!("the fleet has no devices of type {}", printable(name));
        if products.clone().any(|known| known == name) {
            return note;
        }
        match similar_names::closest(name, in_fleet.iter().copied().chain(products)) {
            Some(similar) => format!("{note}; did you mean {similar}?"),
            None => format!("{note}; `octavo types` lists the types of the fleet"),
        }
    });
    notes.collect()
}

/// Returns the same notes for types that neither the catalog nor the fleet has. Types of the catalog need no request:
/// none of them in the fleet is a valid answer.
pub(crate) async fn unknown(client: &Client, wanted: &[String]) -> Result<Vec<String>, CliError> {
    let catalog = Catalog::built_in();
    let is_known = |name: &String| {
        let mut products = catalog.products().iter();
        [MIXED, UNKNOWN].contains(&name.as_str())
            || products.any(|product| product.type_name.as_str() == name)
    };
    let others: Vec<String> = wanted.iter().filter(|name| !is_known(name)).cloned().collect();
    if others.is_empty() {
        return Ok(Vec::new());
    }
    match client.get(&RequestPath::new("/api/v1/types")).await {
        Ok(types) => Ok(absent(&others, &types)),
        Err(error) if error.is_forbidden() => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}
