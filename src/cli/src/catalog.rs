//! `octavo catalog`: finds the product that a name means, and shows its facts. Needs no node and no driver.

mod product_sheet;

use octavo_documents::catalog::{LookupDocument, ProductDocument};
use octavo_files::layouts::catalog::parse;
use octavo_model::accelerators::{Catalog, Lookup, Product};
use octavo_model::id::Sku;
use octavo_model::source_position::SourcePosition;

use super::diagnostics::{Severity, SourceText};
use super::style::Style;
use super::text::{Cell, columns, printable};
use super::{CliError, Exit, Report, input, json, yaml};
use crate::settings::catalog::{CatalogCommand, CatalogFormat, LookupSettings};
use crate::settings::{Colors, Input};

/// Runs `octavo catalog`.
pub(super) fn report(command: &CatalogCommand, colors: Colors) -> Result<Report, CliError> {
    let (CatalogCommand::Search(settings) | CatalogCommand::Show(settings)) = command;
    let catalogue = match with_overlay(settings.catalog.as_ref())? {
        Ok(catalogue) => catalogue,
        Err(refused) => {
            return Ok(Report {
                output: String::new(),
                notes: refused,
                exit: Exit::Failed,
            });
        }
    };
    let lookup = match settings.kind {
        Some(kind) => catalogue.lookup_as(kind, &settings.text),
        None => catalogue.lookup(&settings.text),
    };
    match command {
        CatalogCommand::Search(_) => search(&lookup, &catalogue, (settings, colors)),
        CatalogCommand::Show(_) => show(&lookup, &catalogue, (settings, colors)),
    }
}

/// Returns the built-in catalog with the file's entries merged over it, or the diagnostics of an unusable file.
pub(super) fn with_overlay(overlay: Option<&Input>) -> Result<Result<Catalog, String>, CliError> {
    let built_in = Catalog::built_in();
    let Some(overlay) = overlay else {
        return Ok(Ok(built_in));
    };
    let text = input::catalogue(overlay)?;
    let name = input::place(overlay);
    let page = SourceText {
        name: &name,
        text: &text,
    };
    let told = |place: SourcePosition, message: &str| page.at(Severity::Error, place, message);
    let read = parse(&text).map_err(|errors| {
        let errors = errors.iter();
        errors
            .map(|error| told(error.place(), &error.to_string()))
            .collect()
    });
    Ok(read.and_then(|overlay| {
        built_in.with_overlay(overlay, &name).map_err(|errors| {
            let errors = errors.iter();
            errors
                .map(|error| told(error.place(), &error.to_string()))
                .collect()
        })
    }))
}

fn search(
    lookup: &Lookup,
    catalogue: &Catalog,
    (settings, colors): (&LookupSettings, Colors),
) -> Result<Report, CliError> {
    let document = LookupDocument::new(&settings.text, lookup, catalogue);
    let (found, exit): (&[Sku], _) = match lookup {
        Lookup::Found(sku) => (std::slice::from_ref(sku), Exit::Done),
        Lookup::Ambiguous(skus) => (skus, Exit::Done),
        Lookup::Unknown(_) => (&[], Exit::Failed),
    };
    let output = match settings.format {
        CatalogFormat::Json => json(&document)?,
        CatalogFormat::Yaml => yaml(&document)?,
        CatalogFormat::Table => table(found, catalogue, colors),
    };
    let notes = match lookup {
        Lookup::Found(_) => String::new(),
        Lookup::Ambiguous(_) => format!(
            "{} may be any of these; a SKU names one of them\n",
            quoted(settings)
        ),
        Lookup::Unknown(near) => unknown(settings, near, catalogue),
    };
    Ok(Report {
        output,
        notes,
        exit,
    })
}

fn show(
    lookup: &Lookup,
    catalogue: &Catalog,
    (settings, colors): (&LookupSettings, Colors),
) -> Result<Report, CliError> {
    let failed = |notes: String| Report {
        output: String::new(),
        notes,
        exit: Exit::Failed,
    };
    let product = match lookup {
        Lookup::Found(sku) => catalogue.product(sku),
        Lookup::Ambiguous(skus) => {
            let rows = table(skus, catalogue, Colors::Off);
            let text = quoted(settings);
            return Ok(failed(format!(
                "{text} may be any of these; name one by its SKU\n{rows}"
            )));
        }
        Lookup::Unknown(near) => return Ok(failed(unknown(settings, near, catalogue))),
    };
    let Some(product) = product else {
        return Ok(failed(unknown(settings, &[], catalogue)));
    };
    let output = match settings.format {
        CatalogFormat::Json => json(&ProductDocument::new(product, catalogue))?,
        CatalogFormat::Yaml => yaml(&ProductDocument::new(product, catalogue))?,
        CatalogFormat::Table => product_sheet::sheet(product, catalogue, colors),
    };
    Ok(Report {
        output,
        ..Report::default()
    })
}

fn unknown(settings: &LookupSettings, near: &[Sku], catalogue: &Catalog) -> String {
    let text = quoted(settings);
    if near.is_empty() {
        return format!("the catalogue has nothing called {text}\n");
    }
    let rows = table(near, catalogue, Colors::Off);
    format!("the catalogue has nothing called {text}; these have names like it\n{rows}")
}

fn quoted(settings: &LookupSettings) -> String {
    const SHOWN: usize = 60;
    let text = printable(&settings.text);
    format!("{:?}", text.chars().take(SHOWN).collect::<String>())
}

fn table(skus: &[Sku], catalogue: &Catalog, colors: Colors) -> String {
    let products = skus.iter().filter_map(|sku| catalogue.product(sku));
    let rows: Vec<Vec<Cell>> = products.map(row).collect();
    if rows.is_empty() {
        return String::new();
    }
    let header = product_sheet::header(&["SKU", "TYPE", "NAME"]);
    columns(&[vec![header], rows].concat(), colors)
}

fn row(product: &Product) -> Vec<Cell> {
    vec![
        Cell::new(product.sku.as_str(), Style::Strong),
        Cell::plain(product.type_name.as_str()),
        Cell::plain(&product.name),
    ]
}
