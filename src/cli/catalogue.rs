//! `octavo catalog`: finds the product that a name means, and shows its facts. Needs no node and no driver.

mod show;

use super::diagnose::{Page, Severity};
use super::input;
use super::paint::Ink;
use super::text::{Cell, columns, printable};
use super::{CliError, Exit, Report, json, yaml};
use crate::config::octavo::catalogue::{CatalogueCommand, CatalogueFormat, LookupSettings};
use crate::config::octavo::{Colors, Input};
use crate::domain::accelerators::{Catalogue, Lookup, Product};
use crate::domain::id::Sku;
use crate::domain::layout::Place;
use crate::wire::catalogue::{AnswerDocument, ProductDocument};
use crate::wire::layouts::catalogue::parse;

/// Runs `octavo catalog`.
pub(super) fn report(command: &CatalogueCommand, colors: Colors) -> Result<Report, CliError> {
    let (CatalogueCommand::Search(settings) | CatalogueCommand::Show(settings)) = command;
    let catalogue = match over(settings.overlay())? {
        Ok(catalogue) => catalogue,
        Err(refused) => {
            return Ok(Report {
                output: String::new(),
                notes: refused,
                exit: Exit::Failed,
            });
        }
    };
    let lookup = match settings.kind() {
        Some(kind) => catalogue.lookup_as(kind, settings.text()),
        None => catalogue.lookup(settings.text()),
    };
    match command {
        CatalogueCommand::Search(_) => search(&lookup, &catalogue, (settings, colors)),
        CatalogueCommand::Show(_) => show(&lookup, &catalogue, (settings, colors)),
    }
}

/// Returns the built-in catalog with the file's entries merged over it, or the diagnostics of an unusable file.
pub(super) fn over(overlay: Option<&Input>) -> Result<Result<Catalogue, String>, CliError> {
    let built_in = Catalogue::built_in();
    let Some(overlay) = overlay else {
        return Ok(Ok(built_in));
    };
    let text = input::catalogue(overlay)?;
    let name = input::place(overlay);
    let page = Page {
        name: &name,
        text: &text,
    };
    let told = |place: Place, message: &str| page.at(Severity::Error, place, message);
    let read = parse(&text).map_err(|errors| {
        let errors = errors.iter();
        errors
            .map(|error| told(error.place(), &error.to_string()))
            .collect()
    });
    Ok(read.and_then(|overlay| {
        built_in.with(overlay, &name).map_err(|errors| {
            let errors = errors.iter();
            errors
                .map(|error| told(error.place(), &error.to_string()))
                .collect()
        })
    }))
}

fn search(
    lookup: &Lookup,
    catalogue: &Catalogue,
    (settings, colors): (&LookupSettings, Colors),
) -> Result<Report, CliError> {
    let document = AnswerDocument::new(settings.text(), lookup, catalogue);
    let (found, exit): (&[Sku], _) = match lookup {
        Lookup::Found(sku) => (std::slice::from_ref(sku), Exit::Done),
        Lookup::Ambiguous(skus) => (skus, Exit::Done),
        Lookup::Unknown(_) => (&[], Exit::Failed),
    };
    let output = match settings.format() {
        CatalogueFormat::Json => json(&document)?,
        CatalogueFormat::Yaml => yaml(&document)?,
        CatalogueFormat::Table => table(found, catalogue, colors),
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
    catalogue: &Catalogue,
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
    let output = match settings.format() {
        CatalogueFormat::Json => json(&ProductDocument::new(product, catalogue))?,
        CatalogueFormat::Yaml => yaml(&ProductDocument::new(product, catalogue))?,
        CatalogueFormat::Table => show::sheet(product, catalogue, colors),
    };
    Ok(Report {
        output,
        ..Report::default()
    })
}

fn unknown(settings: &LookupSettings, near: &[Sku], catalogue: &Catalogue) -> String {
    let text = quoted(settings);
    if near.is_empty() {
        return format!("the catalogue has nothing called {text}\n");
    }
    let rows = table(near, catalogue, Colors::Off);
    format!("the catalogue has nothing called {text}; these have names like it\n{rows}")
}

fn quoted(settings: &LookupSettings) -> String {
    const SHOWN: usize = 60;
    let text = printable(settings.text());
    format!("{:?}", text.chars().take(SHOWN).collect::<String>())
}

fn table(skus: &[Sku], catalogue: &Catalogue, colors: Colors) -> String {
    let products = skus.iter().filter_map(|sku| catalogue.product(sku));
    let rows: Vec<Vec<Cell>> = products.map(row).collect();
    if rows.is_empty() {
        return String::new();
    }
    let header = show::header(&["SKU", "TYPE", "NAME"]);
    columns(&[vec![header], rows].concat(), colors)
}

fn row(product: &Product) -> Vec<Cell> {
    vec![
        Cell::new(product.sku.as_str(), Ink::Strong),
        Cell::plain(product.type_name.as_str()),
        Cell::plain(&product.name),
    ]
}
