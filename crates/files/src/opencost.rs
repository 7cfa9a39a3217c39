//! Prices of GPUs in the CSV format that OpenCost reads as custom prices.
//!
//! Source: OpenCost at commit 5f6533303e3850c8635796a74bb22802d16e9090 (2024-10-24), `pkg/cloud/provider/csvprovider.go` and
//! `configs/pricing_schema_mixed_gpu_ondemand.csv`. A row has eight fields, which OpenCost reads by position. A row with the
//! asset class `gpu` sets the hourly price of one GPU on every node whose label `InstanceIDField` has the value
//! `InstanceID`, in any case. OpenCost does not evaluate the other fields of such a row, and never finds a row with a
//! region. It counts the GPUs of a node by `nvidia.com/gpu`, and gives a node without a row of the class `node` no price.

use std::fmt;

use jiff::Timestamp;
use octavo_fleet::price::{
    Amount, Currency, PriceBook, PriceEntry, PriceError, PriceKey, PurchaseOption, Validity,
};
use octavo_fleet::slo::Hardware;
use octavo_model::accelerators::{AliasKind, Catalog};
use octavo_model::id::TypeName;
use octavo_model::label::LabelValue;
use octavo_model::source_position::SourcePosition;
use octavo_model::text::first_names;
use thiserror::Error;

use crate::layouts::prices::MAX_PRICES;

/// Fields of a row, in order.
const COLUMNS: [&str; 8] = [
    "EndTimestamp",
    "InstanceID",
    "Region",
    "AssetClass",
    "InstanceIDField",
    "InstanceType",
    "MarketPriceHourly",
    "Version",
];

/// Asset class of a GPU.
const GPU: &str = "gpu";

/// Label of nodes with the type of their devices.
const TYPE_LABEL: &str = "octavo.dev/type";

/// Beginning of the types of devices that are requested as `nvidia.com/gpu`.
const COUNTED_TYPES: &str = "nvidia-";

/// Prices as CSV.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CsvExport {
    /// The text.
    pub csv: String,
    /// Parts of the price book that the text does not express.
    pub omissions: Vec<Omission>,
}

/// A part of a price book that the format cannot express.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Omission {
    /// Devices and validity of the entry.
    pub entry: (PriceKey, Validity),
    /// Reason for the omission.
    pub reason: OmissionReason,
}

/// Reason why OpenCost's format cannot express an entry of a price book.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum OmissionReason {
    /// Another purchase option.
    #[error("not exported: OpenCost has one price per type, and this export is for {0}")]
    Option(PurchaseOption),
    /// An instance type or a region.
    #[error(
        "not exported: OpenCost cannot limit the price of a GPU to an instance type or a region"
    )]
    Scope,
    /// Another time.
    #[error("not exported: it is not valid at {0}")]
    Time(Timestamp),
    /// Another currency.
    #[error("not exported: its currency is {price}, and this export is in {export}")]
    Currency {
        /// Currency of the price.
        price: Currency,
        /// Currency of the export.
        export: Currency,
    },
    /// The end of the validity.
    #[error("exported without its end: export the prices again at that time")]
    End,
    /// Devices that OpenCost does not count.
    #[error("exported, but OpenCost counts only devices that pods request as nvidia.com/gpu")]
    NotCounted,
}

/// Prices from CSV.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CsvImport {
    /// The prices.
    pub book: PriceBook,
    /// Number of rows for other assets.
    pub skipped: usize,
}

/// A row that cannot be imported.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{problem}")]
pub struct RowError {
    /// Line of the row, from 1.
    pub line: u32,
    problem: RowProblem,
}

/// Kind of error. Texts from the file are quoted and shortened.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
enum RowProblem {
    #[error("a row needs {} fields ({}), not {found}", COLUMNS.len(), COLUMNS.join(", "))]
    Fields { found: usize },
    #[error("{value} is not the name of an accelerator: use the label {TYPE_LABEL} and a type")]
    UnknownType { value: String },
    #[error("{value} can be {types}: use the label {TYPE_LABEL} and a type")]
    AmbiguousType { value: String, types: String },
    #[error("{0} is not a value of a node label")]
    Scope(String),
    #[error(transparent)]
    Price(#[from] PriceError),
    #[error("{key} has another price in line {}; remove one", .first.line)]
    Duplicate { key: PriceKey, first: SourcePosition },
    #[error("a price book can have at most {MAX_PRICES} prices")]
    TooMany,
}

/// Formats the omission: `nvidia-h100-80gb spot, always: not exported: ...`.
impl fmt::Display for Omission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, validity) = &self.entry;
        match validity {
            Validity { from: None, until: None } => write!(f, "{key}: {}", self.reason),
            Validity { .. } => write!(f, "{key} {validity}: {}", self.reason),
        }
    }
}

impl RowError {
    /// Position of the row.
    pub fn position(&self) -> SourcePosition {
        SourcePosition { line: self.line, column: 1 }
    }
}

/// Writes the prices that are valid at `at` for this purchase option, one row per type.
pub fn export(book: &PriceBook, option: PurchaseOption, at: Timestamp) -> CsvExport {
    let mut rows = vec![COLUMNS.join(",")];
    let mut omissions = Vec::new();
    for entry in book.entries() {
        let omission = |reason| Omission { entry: (entry.key.clone(), entry.validity), reason };
        if let Some(reason) = reason_against(entry, (option, at), book.currency()) {
            omissions.push(omission(reason));
            continue;
        }
        let type_name = entry.key.type_name.as_str();
        // None of the values needs quotes.
        rows.push(format!(",{type_name},,{GPU},{TYPE_LABEL},,{},", entry.per_hour));
        omissions.extend(entry.validity.until.map(|_| omission(OmissionReason::End)));
        let is_counted = type_name.starts_with(COUNTED_TYPES);
        omissions.extend((!is_counted).then(|| omission(OmissionReason::NotCounted)));
    }
    CsvExport { csv: rows.join("\n") + "\n", omissions }
}

fn reason_against(
    entry: &PriceEntry,
    (option, at): (PurchaseOption, Timestamp),
    currency: &Currency,
) -> Option<OmissionReason> {
    let key = &entry.key;
    if key.option != option {
        Some(OmissionReason::Option(option))
    } else if key.instance_type.is_some() || key.region.is_some() {
        Some(OmissionReason::Scope)
    } else if !entry.validity.contains(at) {
        Some(OmissionReason::Time(at))
    } else if entry.currency != *currency {
        let (price, export) = (entry.currency.clone(), currency.clone());
        Some(OmissionReason::Currency { price, export })
    } else {
        None
    }
}

/// Reads the prices of GPUs as prices for this purchase option in this currency: OpenCost's rows have neither.
///
/// The type of a row is the value of the label `octavo.dev/type`, or the product that the catalog has for the label of
/// another owner. A region or an instance type limits the price. The end is ignored, as by OpenCost.
///
/// # Errors
/// Returns all invalid rows of GPUs, in order.
pub fn import(
    text: &str,
    currency: &Currency,
    option: PurchaseOption,
) -> Result<CsvImport, Vec<RowError>> {
    let mut reader = csv::ReaderBuilder::new();
    let mut reader = reader.has_headers(false).flexible(true).from_reader(text.as_bytes());
    let catalog = Catalog::built_in();
    let mut found = CsvImport { book: PriceBook::new(currency.clone()), skipped: 0 };
    let mut errors = Vec::new();
    // A text in memory cannot fail to be read, and is valid UTF-8.
    for record in reader.records().filter_map(Result::ok) {
        let fields: Vec<&str> = record.iter().collect();
        let line = line_of(text, record.position());
        let row = match fields.as_slice() {
            header if header == COLUMNS => continue,
            &[_, id, region, class, field, instance_type, price, _] => {
                if class != GPU {
                    found.skipped = found.skipped.saturating_add(1);
                    continue;
                }
                let row = GpuRow { id, field, region, instance_type, price };
                let position = SourcePosition { line, column: 1 };
                row.entry(&catalog, (currency, option), position)
                    .and_then(|entry| add(&mut found.book, entry))
                    .and_then(|()| limit(&found.book))
            }
            [comment, ..] if comment.starts_with('#') => continue,
            fields => Err(RowProblem::Fields { found: fields.len() }),
        };
        errors.extend(row.err().map(|problem| RowError { line, problem }));
    }
    if errors.is_empty() { Ok(found) } else { Err(errors) }
}

/// Line of a record. Its position is before the empty lines that precede it.
fn line_of(text: &str, position: Option<&csv::Position>) -> u32 {
    let Some(position) = position else {
        return 0;
    };
    let start = usize::try_from(position.byte()).ok().and_then(|at| text.get(at..));
    let is_blank = |byte: &u8| matches!(byte, b'\n' | b'\r');
    let blank = start.unwrap_or_default().bytes().take_while(|byte| is_blank(byte));
    let lines = blank.filter(|byte| *byte == b'\n').count();
    u32::try_from(position.line())
        .unwrap_or(u32::MAX)
        .saturating_add(u32::try_from(lines).unwrap_or(u32::MAX))
}

/// Fields of a row for a GPU.
#[derive(Debug, Clone, Copy)]
struct GpuRow<'a> {
    id: &'a str,
    field: &'a str,
    region: &'a str,
    instance_type: &'a str,
    price: &'a str,
}

impl GpuRow<'_> {
    fn entry(
        self,
        catalog: &Catalog,
        (currency, option): (&Currency, PurchaseOption),
        position: SourcePosition,
    ) -> Result<PriceEntry, RowProblem> {
        let key = PriceKey {
            type_name: self.type_name(catalog)?,
            option,
            instance_type: scope(self.instance_type)?,
            region: scope(self.region)?,
        };
        let per_hour = self.price.parse::<Amount>()?;
        let currency = currency.clone();
        Ok(PriceEntry { key, validity: Validity::default(), per_hour, currency, position })
    }

    fn type_name(self, catalog: &Catalog) -> Result<TypeName, RowProblem> {
        let unknown = || RowProblem::UnknownType { value: quoted(self.id) };
        let label = self.field.to_ascii_lowercase();
        if label == TYPE_LABEL {
            return self.id.to_ascii_lowercase().parse().map_err(|_| unknown());
        }
        // The values of a label that the catalog knows have one owner.
        let name = match AliasKind::from_label(&label) {
            Some(_) => format!("{label}={}", self.id),
            None => self.id.to_owned(),
        };
        match Hardware::resolve(catalog, &name) {
            Hardware::Unknown(_) => Err(unknown()),
            Hardware::Types(types) => match types.as_slice() {
                [only] => Ok(only.clone()),
                several => {
                    let names: Vec<&str> = several.iter().map(TypeName::as_str).collect();
                    let types = first_names(&names, 4);
                    Err(RowProblem::AmbiguousType { value: quoted(self.id), types })
                }
            },
        }
    }
}

/// Adds the price. The same price for another label of the type is no error.
fn add(book: &mut PriceBook, entry: PriceEntry) -> Result<(), RowProblem> {
    let (key, per_hour) = (entry.key.clone(), entry.per_hour);
    let Some(first) = book.add(entry) else {
        return Ok(());
    };
    let mut others = book.entries().filter(|other| other.key == key);
    let is_same = others.any(|other| other.per_hour == per_hour);
    if is_same { Ok(()) } else { Err(RowProblem::Duplicate { key, first }) }
}

/// Checks that the price book can be read again.
fn limit(book: &PriceBook) -> Result<(), RowProblem> {
    if book.entries().nth(MAX_PRICES).is_some() { Err(RowProblem::TooMany) } else { Ok(()) }
}

/// Reads an instance type or a region.
fn scope(text: &str) -> Result<Option<String>, RowProblem> {
    match text.parse::<LabelValue>() {
        Ok(_) => Ok(Some(text.to_owned()).filter(|text| !text.is_empty())),
        Err(_) => Err(RowProblem::Scope(quoted(text))),
    }
}

fn quoted(text: &str) -> String {
    format!("{:?}", text.chars().take(60).collect::<String>())
}

#[cfg(test)]
mod tests;
