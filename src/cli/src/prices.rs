//! `octavo prices`: checks price books, and converts them from and to prices of other programs.

use jiff::Timestamp;
use octavo_files::layouts::prices;
use octavo_files::opencost;
use octavo_fleet::price::{PriceBook, PriceEntry};

use super::diagnostics::SourceText;
use super::text::{self, Cell, count_noun};
use super::{CliError, Exit, Report, input};
use crate::settings::prices::{
    PriceBookSettings, PriceExportSettings, PriceFormat, PriceImportSettings, PricesCommand,
};
use crate::settings::{Colors, Headers, Input};

const COLUMNS: [&str; 7] =
    ["TYPE", "OPTION", "INSTANCE TYPE", "REGION", "FROM", "UNTIL", "PRICE/H"];

/// OpenCost computes no cost for other nodes. Source: as for `octavo_files::opencost`.
const NODE_ROWS: &str = "OpenCost uses these prices only for nodes that match a row of the asset class node: append such rows";

/// Runs `octavo prices`.
pub(super) fn report(command: &PricesCommand, colors: Colors) -> Result<Report, CliError> {
    match command {
        PricesCommand::Check(settings) => check(settings, colors),
        PricesCommand::Export(settings) => export(settings),
        PricesCommand::Import(settings) => import(settings),
    }
}

fn check(settings: &PriceBookSettings, colors: Colors) -> Result<Report, CliError> {
    let file = settings.file.input();
    let name = input::place(file);
    Ok(match read(file)? {
        Err((errors, count)) => {
            let count = count_noun(count, "error", "errors");
            let output = format!("{errors}{name}: {count}\n");
            Report { output, exit: Exit::Failed, ..Report::default() }
        }
        Ok(book) => {
            let table = text::table(&[&COLUMNS], book.entries().map(row), Headers::Shown, colors);
            let count = count_noun(book.entries().count(), "price", "prices");
            Report { output: format!("{table}\n{name}: {count}, no errors\n"), ..Report::default() }
        }
    })
}

fn export(settings: &PriceExportSettings) -> Result<Report, CliError> {
    let PriceFormat::Opencost = settings.format;
    let book = read(settings.file.input())?.map_err(|(errors, _)| CliError::rejected(errors))?;
    let at = settings.at.unwrap_or_else(Timestamp::now);
    let exported = opencost::export(&book, settings.purchase, at);
    let mut notes: Vec<String> = exported.omissions.iter().map(ToString::to_string).collect();
    notes.push(NODE_ROWS.to_owned());
    Ok(Report::with_notes(exported.csv, &notes, Exit::Done))
}

fn import(settings: &PriceImportSettings) -> Result<Report, CliError> {
    let PriceFormat::Opencost = settings.format;
    let file = settings.file.input();
    let text = input::text(file, "prices")?;
    let found =
        opencost::import(&text, &settings.currency, settings.purchase).map_err(|errors| {
            let source = SourceText { name: &input::place(file), text: &text };
            let errors = errors.iter().map(|error| (error.position(), error.to_string()));
            CliError::rejected(source.errors(errors))
        })?;
    let skipped = (found.skipped > 0).then(|| {
        let rows = count_noun(found.skipped, "row", "rows");
        format!("{rows} skipped: for other assets than GPUs")
    });
    let notes: Vec<String> = skipped.into_iter().collect();
    Ok(Report::with_notes(prices::write(&found.book), &notes, Exit::Done))
}

/// Reads a price book; returns the formatted errors of an invalid one, and their number.
fn read(file: &Input) -> Result<Result<PriceBook, (String, usize)>, CliError> {
    let text = input::text(file, "a price book")?;
    Ok(prices::parse(&text).map_err(|errors| {
        let source = SourceText { name: &input::place(file), text: &text };
        let all = errors.iter().map(|error| (error.position(), error.to_string()));
        (source.errors(all), errors.len())
    }))
}

fn row(entry: &PriceEntry) -> Vec<Cell> {
    let PriceEntry { key, validity, per_hour, currency, .. } = entry;
    vec![
        Cell::plain(&key.type_name),
        Cell::plain(&key.option),
        Cell::optional(key.instance_type.as_ref()),
        Cell::optional(key.region.as_ref()),
        Cell::optional(validity.from),
        Cell::optional(validity.until),
        Cell::plain(&format!("{} {currency}", per_hour.shown())),
    ]
}
