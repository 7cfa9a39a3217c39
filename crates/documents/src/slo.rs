//! The JSON of service level objectives: measured rows of a model catalog, and the rows that meet the objectives.
//!
//! Rows have the format of Open Data Hub's model catalog (`hardware_type`, `hardware_count`, `requests_per_second`, and
//! latencies by name). Other fields belong to the catalog and are ignored. Objectives are parsed strictly.

mod rows_file;

use std::collections::BTreeMap;

use octavo_fleet::matching::RequestError;
use octavo_fleet::price::{Currency, PriceError, shown};
use octavo_fleet::slo::{Hardware, MeasuredRow, Objectives, RowEvaluation};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

pub use self::rows_file::{MeasuredRows, RowsError, parse};
use super::api::API_VERSION;

/// Maximum number of rows in a request.
pub const MAX_ROWS: usize = 1000;
/// Maximum number of latency objectives.
const MAX_LATENCIES: usize = 32;
/// Maximum length of a hardware name.
const MAX_HARDWARE_NAME_BYTES: usize = 64;
/// Maximum number of devices per replica of the service.
const MAX_DEVICES: u64 = 100_000;
/// Prefixes of latency names.
const LATENCY_PREFIXES: [&str; 3] = ["ttft_", "itl_", "e2e_"];

/// What is asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SloRequest {
    /// What the service shall keep.
    pub objectives: ObjectivesJson,
    /// What was measured.
    pub rows: Vec<RowJson>,
}

/// What the service shall keep.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ObjectivesJson {
    /// Requests a second of all copies together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests_per_second_at_least: Option<f64>,
    /// The highest of each latency, such as `{"ttft_p90": 300}`, in the unit of the rows.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub latencies_at_most: BTreeMap<String, f64>,
    /// The most that all copies may cost an hour, a decimal in quotes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price_at_most_per_hour: Option<String>,
    /// `on-demand`, `spot` or `reserved`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub purchase_option: Option<String>,
}

/// A measured row, in the model catalogue's own words.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RowJson {
    /// Free text, such as `H100`.
    pub hardware_type: String,
    /// Devices of one copy.
    pub hardware_count: u64,
    /// Requests that one copy answers a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests_per_second: Option<f64>,
    /// Latencies (`ttft_p90`, `itl_p95`, `e2e_p99` and their like), and what else the catalogue says.
    #[serde(flatten)]
    #[schema(value_type = BTreeMap<String, Object>)]
    pub more: BTreeMap<String, Value>,
}

/// What meets it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SloAnswer {
    /// `octavo.dev/v1`.
    pub api_version: String,
    /// `SloAnswer`.
    pub kind: String,
    /// How many rows meet all.
    pub met: usize,
    /// All rows: those that meet all first, the cheapest first, then the fewest devices.
    pub items: Vec<SloRow>,
    /// What to know of the whole answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
}

/// A row, judged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SloRow {
    /// Its place among the rows, from 0.
    pub row: usize,
    /// What it was called.
    pub hardware: String,
    /// Types that this may mean; none where nobody knows it.
    pub types: Vec<String>,
    /// Those of them that the fleet has.
    pub here: Vec<String>,
    /// Devices of one copy.
    pub count: u32,
    /// Copies that the throughput takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u32>,
    /// What all of them cost an hour, the dearest of the types; absent where one has no price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_hour: Option<String>,
    /// In which currency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub currency: Option<String>,
    /// What it misses; empty where it meets all.
    pub misses: Vec<String>,
    /// Hardware profiles whose workloads get these devices, at most 16: those with most free first. Empty too for users who may not
    /// list profiles.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub profiles: Vec<SloProfile>,
}

/// A hardware profile that gives the devices of a row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SloProfile {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its display name.
    pub display_name: String,
    /// The types that its workloads may get.
    pub types: Vec<String>,
    /// How many more workloads of its default size fit now; absent where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub available: Option<u64>,
}

impl SloProfile {
    /// Namespace and name: `opendatahub/premium`.
    pub fn key(&self) -> String {
        match self.namespace.as_str() {
            "" => self.name.clone(),
            namespace => format!("{namespace}/{}", self.name),
        }
    }
}

impl SloRow {
    /// Describes the matching profiles: `Premium GPU (opendatahub/premium) - 4 available - 5.00 USD/h - keeps all`.
    pub fn profile_descriptions(&self) -> Vec<String> {
        let cost = match (&self.per_hour, &self.currency) {
            (Some(price), Some(currency)) => format!("{} {currency}/h", shown(price)),
            (Some(price), None) => format!("{}/h", shown(price)),
            (None, _) => "no price".to_owned(),
        };
        let keeps = match self.misses.len() {
            0 => "keeps all".to_owned(),
            1 => "misses 1 objective".to_owned(),
            several => format!("misses {several} objectives"),
        };
        let profiles = self.profiles.iter();
        profiles
            .map(|one| {
                let free = match one.available {
                    Some(free) => format!("{free} available"),
                    None => "availability unknown".to_owned(),
                };
                let (name, key) = (&one.display_name, one.key());
                format!("{name} ({key}) - {free} - {cost} - {keeps}")
            })
            .collect()
    }
}

impl TryFrom<ObjectivesJson> for Objectives {
    type Error = RequestError;

    fn try_from(asked: ObjectivesJson) -> Result<Self, RequestError> {
        let field = "objectives.latenciesAtMost";
        if asked.latencies_at_most.len() > MAX_LATENCIES {
            let problem = format!("at most {MAX_LATENCIES} latencies can be asked for");
            return Err(RequestError::new(field, problem));
        }
        for (name, most) in &asked.latencies_at_most {
            let known = LATENCY_PREFIXES.iter().any(|start| name.starts_with(start));
            if !known || name.len() > 40 {
                let name: String = name.chars().take(40).collect();
                let problem = format!(
                    "{name:?} is no latency: names begin with ttft_, itl_ or e2e_, as ttft_p90"
                );
                return Err(RequestError::new(field, problem));
            }
            require_positive(field, *most)?;
        }
        let price = |field: &'static str| {
            move |error: PriceError| RequestError::new(field, error.to_string())
        };
        if let Some(asked) = asked.requests_per_second_at_least {
            require_positive("objectives.requestsPerSecondAtLeast", asked)?;
        }
        let ceiling = asked.price_at_most_per_hour.map(|text| text.parse());
        let option = asked.purchase_option.map(|text| text.parse());
        Ok(Self {
            requests_per_second: asked.requests_per_second_at_least,
            latencies: asked.latencies_at_most,
            ceiling: ceiling
                .transpose()
                .map_err(price("objectives.priceAtMostPerHour"))?,
            option: option
                .transpose()
                .map_err(price("objectives.purchaseOption"))?
                .unwrap_or_default(),
        })
    }
}

/// Validates and converts measured rows.
pub fn rows(given: Vec<RowJson>) -> Result<Vec<MeasuredRow>, RequestError> {
    if given.len() > MAX_ROWS {
        let problem = format!("at most {MAX_ROWS} rows are judged at once");
        return Err(RequestError::new("rows", problem));
    }
    let numbered = (1..).zip(given);
    numbered.map(|(at, row)| read_row(at, row)).collect()
}

/// Validates and converts a row. `at` is its number, from 1.
fn read_row(at: usize, row: RowJson) -> Result<MeasuredRow, RequestError> {
    let wrong = |problem: String| RequestError::new("rows", format!("row {at}: {problem}"));
    if row.hardware_type.trim().is_empty() || row.hardware_type.len() > MAX_HARDWARE_NAME_BYTES {
        return Err(wrong(format!(
            "hardware_type has from 1 to {MAX_HARDWARE_NAME_BYTES} characters"
        )));
    }
    let count = Some(row.hardware_count).filter(|count| (1..=MAX_DEVICES).contains(count));
    let count = count.and_then(|count| u32::try_from(count).ok());
    let count = count.ok_or_else(|| wrong(format!("hardware_count is from 1 to {MAX_DEVICES}")))?;
    let mut latencies = BTreeMap::new();
    for (name, value) in row.more {
        // Null means that the latency was not measured.
        if !LATENCY_PREFIXES.iter().any(|start| name.starts_with(start)) || value.is_null() {
            continue;
        }
        let number = value.as_f64().filter(|number| *number >= 0.0);
        let number = number.ok_or_else(|| wrong(format!("{name} is a number from 0")))?;
        latencies.insert(name, number);
    }
    let rps = row.requests_per_second;
    if rps.is_some_and(|rps| rps.is_nan() || rps < 0.0) {
        return Err(wrong("requests_per_second is a number from 0".to_owned()));
    }
    // Zero means that the throughput was not measured.
    let rps = rps.filter(|rps| *rps > 0.0);
    Ok(MeasuredRow {
        hardware: row.hardware_type,
        count,
        requests_per_second: rps,
        latencies,
    })
}

fn require_positive(field: &'static str, number: f64) -> Result<(), RequestError> {
    if number.is_finite() && number > 0.0 {
        Ok(())
    } else {
        Err(RequestError::new(
            field,
            format!("{number} is not more than 0"),
        ))
    }
}

impl SloAnswer {
    /// Creates the response from the evaluated `rows`. `here` lists the accelerator types of the fleet.
    pub fn new(
        rows: &[MeasuredRow],
        judged: Vec<RowEvaluation>,
        (here, currency): (&[String], Option<&Currency>),
    ) -> Self {
        let met = judged.iter().filter(|one| one.unmet.is_empty()).count();
        let items = judged.into_iter().filter_map(|one| {
            let row = rows.get(one.row)?;
            let types: Vec<String> = match &one.hardware {
                Hardware::Types(types) => types.iter().map(ToString::to_string).collect(),
                Hardware::Unknown(_) => Vec::new(),
            };
            Some(SloRow {
                row: one.row,
                hardware: row.hardware.clone(),
                here: types
                    .iter()
                    .filter(|name| here.contains(name))
                    .cloned()
                    .collect(),
                types,
                count: row.count,
                replicas: one.replicas,
                currency: one.per_hour.and(currency).map(ToString::to_string),
                per_hour: one.per_hour.map(|price| price.to_string()),
                misses: one.unmet,
                profiles: Vec::new(),
            })
        });
        Self {
            api_version: API_VERSION.to_owned(),
            kind: "SloAnswer".to_owned(),
            met,
            items: items.collect(),
            notices: Vec::new(),
        }
    }
}
