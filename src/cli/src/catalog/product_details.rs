//! Details of one product: facts, names, cloud machine types, and the sources of all these.

use octavo_model::accelerators::{Alias, Catalog, CloudOffer, Fact, Field, Product, Value};

use super::document::cited_sources;
use crate::settings::Colors;
use crate::style::Style;
use crate::text::{Cell, columns, wrap};

/// Formats everything that is known of `product`.
pub(super) fn details(product: &Product, catalog: &Catalog, colors: Colors) -> String {
    let mut parts = vec![columns(&identity(product), colors)];
    if !product.facts.is_empty() {
        let facts = product.facts.iter().map(of_fact);
        let header = header(&["FACT", "VALUE", "SOURCE"]);
        parts.push(columns(&with(header, facts), colors));
    }
    if !product.aliases.is_empty() {
        let aliases = product.aliases.iter().map(of_alias);
        let header = header(&["ALIAS", "OWNER", "SOURCE"]);
        parts.push(columns(&with(header, aliases), colors));
    }
    if !product.offers.is_empty() {
        let offers = product.offers.iter().map(of_offer);
        let header = header(&["INSTANCE", "CLOUD", "DEVICES", "USD/H", "REGION", "SOURCE"]);
        parts.push(columns(&with(header, offers), colors));
    }
    if let Some(notes) = &product.notes {
        parts.push(format!("{}\n", wrap(&format!("note: {notes}"), 2)));
    }
    let sources = cited_sources(product).into_iter().map(|key| {
        let citation = catalog.source(key).unwrap_or_default();
        format!("{}\n", wrap(&format!("{key}: {citation}"), 2))
    });
    parts.push(sources.collect());
    parts.join("\n")
}

/// Returns a row of headers.
pub(super) fn header(names: &[&str]) -> Vec<Cell> {
    let cells = names.iter().map(|name| Cell::new(name, Style::Faint));
    cells.collect()
}

fn with(header: Vec<Cell>, rows: impl Iterator<Item = Vec<Cell>>) -> Vec<Vec<Cell>> {
    [header].into_iter().chain(rows).collect()
}

fn identity(product: &Product) -> Vec<Vec<Cell>> {
    let row = |label, text: &str| vec![Cell::new(label, Style::Faint), Cell::plain(text)];
    vec![
        vec![Cell::new("sku", Style::Faint), Cell::new(product.sku.as_str(), Style::Strong)],
        row("type", product.type_name.as_str()),
        row("vendor", &product.vendor.to_string()),
        row("name", product.name),
    ]
}

fn of_fact(fact: &Fact) -> Vec<Cell> {
    let field = fact.field;
    let value = match fact.value {
        Value::Number(number) => number.to_string(),
        Value::Text(text) => text.to_owned(),
        Value::List(texts) => texts.join(", "),
    };
    let value = match (field, fact.value) {
        // A number of instances is a limit, and zero is shown as a word.
        (Field::MigInstances, Value::Number(most)) if most < 1.0 => "none: no MIG".to_owned(),
        _ if field.unit().is_empty() => value,
        _ => format!("{value} {}", field.unit()),
    };
    vec![Cell::plain(field.label()), Cell::plain(&value), keys(fact.sources)]
}

fn of_alias(alias: &Alias) -> Vec<Cell> {
    vec![Cell::plain(alias.text), Cell::plain(alias.kind.key()), keys(alias.sources)]
}

fn of_offer(offer: &CloudOffer) -> Vec<Cell> {
    vec![
        Cell::plain(offer.instance),
        Cell::plain(offer.cloud),
        Cell::optional(offer.count),
        Cell::optional(offer.usd_per_hour),
        Cell::optional(offer.region),
        keys(offer.sources),
    ]
}

fn keys(sources: &[&str]) -> Cell {
    Cell::plain(&sources.join(", "))
}
