//! `octavo catalog`: finds the product that a name means, and shows its facts. Needs no node and no driver.

mod document;
mod product_details;

use octavo_model::accelerators::{Catalog, Lookup, Product};
use octavo_model::id::Sku;

use self::document::{LookupDocument, ProductDocument};
use super::style::Style;
use super::text::{Cell, columns, printable};
use super::{CliError, Exit, Report, json, yaml};
use crate::settings::Colors;
use crate::settings::catalog::{CatalogCommand, CatalogFormat, LookupSettings};

/// Runs `octavo catalog`.
pub(super) fn report(command: &CatalogCommand, colors: Colors) -> Result<Report, CliError> {
    let (CatalogCommand::Search(settings) | CatalogCommand::Show(settings)) = command;
    let catalog = Catalog::built_in();
    let lookup = match settings.kind {
        Some(kind) => catalog.lookup_as(kind, &settings.text),
        None => catalog.lookup(&settings.text),
    };
    match command {
        CatalogCommand::Search(_) => search(&lookup, &catalog, (settings, colors)),
        CatalogCommand::Show(_) => show(&lookup, &catalog, (settings, colors)),
    }
}

fn search(
    lookup: &Lookup,
    catalog: &Catalog,
    (settings, colors): (&LookupSettings, Colors),
) -> Result<Report, CliError> {
    let document = LookupDocument::new(&settings.text, lookup, catalog);
    let (found, exit): (&[Sku], _) = match lookup {
        Lookup::Found(sku) => (std::slice::from_ref(sku), Exit::Done),
        Lookup::Ambiguous(skus) => (skus, Exit::Done),
        Lookup::Unknown(_) => (&[], Exit::Failed),
    };
    let output = match settings.format {
        CatalogFormat::Json => json(&document)?,
        CatalogFormat::Yaml => yaml(&document)?,
        CatalogFormat::Table => table(found, catalog, colors),
    };
    let notes = match lookup {
        Lookup::Found(_) => String::new(),
        Lookup::Ambiguous(_) => {
            format!("{} matches several products; use a SKU to select one\n", quoted(settings))
        }
        Lookup::Unknown(near) => unknown(settings, near, catalog),
    };
    Ok(Report { output, notes, exit })
}

fn show(
    lookup: &Lookup,
    catalog: &Catalog,
    (settings, colors): (&LookupSettings, Colors),
) -> Result<Report, CliError> {
    let product = match lookup {
        Lookup::Found(sku) => catalog.product(sku),
        Lookup::Ambiguous(skus) => {
            let rows = table(skus, catalog, Colors::Off);
            let text = quoted(settings);
            return Ok(Report::failed(format!(
                "{text} matches several products; use a SKU to select one\n{rows}"
            )));
        }
        Lookup::Unknown(near) => return Ok(Report::failed(unknown(settings, near, catalog))),
    };
    let Some(product) = product else {
        return Ok(Report::failed(unknown(settings, &[], catalog)));
    };
    let output = match settings.format {
        CatalogFormat::Json => json(&ProductDocument::new(product, catalog))?,
        CatalogFormat::Yaml => yaml(&ProductDocument::new(product, catalog))?,
        CatalogFormat::Table => product_details::details(product, catalog, colors),
    };
    Ok(Report { output, ..Report::default() })
}

fn unknown(settings: &LookupSettings, near: &[Sku], catalog: &Catalog) -> String {
    let text = quoted(settings);
    if near.is_empty() {
        return format!("the catalog has no product {text}\n");
    }
    let rows = table(near, catalog, Colors::Off);
    format!("the catalog has no product {text}; similar names:\n{rows}")
}

fn quoted(settings: &LookupSettings) -> String {
    const SHOWN: usize = 60;
    let text = printable(&settings.text);
    format!("{:?}", text.chars().take(SHOWN).collect::<String>())
}

fn table(skus: &[Sku], catalog: &Catalog, colors: Colors) -> String {
    let products = skus.iter().filter_map(|sku| catalog.product(sku));
    let rows: Vec<Vec<Cell>> = products.map(row).collect();
    if rows.is_empty() {
        return String::new();
    }
    let header = product_details::header(&["SKU", "TYPE", "NAME"]);
    columns(&[vec![header], rows].concat(), colors)
}

fn row(product: &Product) -> Vec<Cell> {
    vec![
        Cell::new(product.sku.as_str(), Style::Strong),
        Cell::plain(product.type_name.as_str()),
        Cell::plain(product.name),
    ]
}
