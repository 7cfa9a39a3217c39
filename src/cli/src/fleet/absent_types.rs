//! Requested types that the fleet does not have, with suggestions for misspelled names.

use std::collections::BTreeSet;

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

/// Returns the same notes for types that neither the catalog nor the fleet nor a row of the answer has. Types of the
/// catalog need no request: none of them in the fleet is a valid answer.
pub(crate) async fn unknown<'a>(
    client: &Client,
    wanted: &[String],
    answered: impl IntoIterator<Item = &'a str>,
) -> Result<Vec<String>, CliError> {
    let answered: BTreeSet<&str> = answered.into_iter().collect();
    let catalog = Catalog::built_in();
    let is_known = |name: &String| {
        let mut products = catalog.products().iter();
        answered.contains(name.as_str())
            || [MIXED, UNKNOWN].contains(&name.as_str())
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use octavo_client::ServerSettings;

    use super::*;
    use crate::Exit;
    use crate::fleet::report;

    #[tokio::test]
    async fn type_of_the_answer_needs_no_request_and_failed_request_keeps_the_answer() {
        // Nothing listens on this port.
        let nowhere = "http://127.0.0.1:1".parse().unwrap();
        let settings = ServerSettings::plaintext(nowhere, Duration::from_mins(1));
        let client = Client::connect(&settings).await.unwrap();
        let wanted = ["vendor-new-8gb".to_owned()];
        let answered = unknown(&client, &wanted, ["vendor-new-8gb"]).await;
        assert_eq!(answered.unwrap(), Vec::<String>::new());
        let failed = unknown(&client, &wanted, ["vendor-old-8gb"]).await;
        assert!(failed.is_err());
        let report = report("rows\n".to_owned(), Vec::new(), failed);
        assert_eq!((report.output.as_str(), report.exit), ("rows\n", Exit::Failed));
        let note = "note: the types of the fleet were not checked: ";
        assert!(report.notes.starts_with(note), "{}", report.notes);
    }
}
