//! Evaluation of measured rows of a model catalog against the objectives of a service: throughput, latencies and
//! cost.
//!
//! Used by the aggregator with rows measured by third parties. Rows have the format of Open Data Hub's model catalog
//! (`hardware_type`, `hardware_count`, `requests_per_second`, and latencies by name); other fields are ignored. Their
//! hardware is free text ("H100", "RTX 4090"), which is looked up in the hardware catalog. A row with unknown hardware
//! is reported and never dropped, because users would ask for a missing row.

use std::collections::BTreeMap;

use octavo_model::API_VERSION;
use octavo_model::accelerators::{Catalog, Lookup};
use octavo_model::id::TypeName;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::{DisplayFromStr, serde_as, skip_serializing_none};
use utoipa::ToSchema;

use crate::price::{Amount, Currency, CurrentPrices, Price, PurchaseOption};
use crate::request_error::RequestError;
use crate::type_labels::types_of;

/// Maximum number of replicas to consider.
pub const MAX_REPLICAS: u32 = 1000;
/// Maximum number of rows in a request.
pub const MAX_ROWS: usize = 1000;
/// Maximum number of latency objectives.
const MAX_LATENCIES: usize = 32;
/// Maximum length of a hardware name.
const MAX_HARDWARE_NAME_BYTES: usize = 64;
/// Maximum number of devices per replica of the service.
const MAX_DEVICES: u32 = 100_000;
/// Prefixes of latency names.
const LATENCY_PREFIXES: [&str; 3] = ["ttft_", "itl_", "e2e_"];

/// Request to evaluate measured rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SloRequest {
    /// Objectives of the service.
    pub objectives: Objectives,
    /// Measured rows, at most 1000.
    pub rows: Vec<MeasuredRow>,
}

/// Objectives of a service.
#[serde_as]
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Objectives {
    /// Minimum throughput of all replicas together, in requests per second.
    pub requests_per_second_at_least: Option<f64>,
    /// Maximum of each latency, such as `{"ttft_p90": 300}`, in the unit of the rows.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub latencies_at_most: BTreeMap<String, f64>,
    /// Maximum cost of all replicas per hour, a decimal in quotes.
    #[serde(default)]
    #[serde_as(as = "Option<DisplayFromStr>")]
    #[schema(value_type = Option<String>)]
    pub price_at_most_per_hour: Option<Amount>,
    /// `on-demand`, `spot` or `reserved`; `on-demand` by default.
    #[schema(value_type = Option<String>)]
    pub purchase_option: Option<PurchaseOption>,
}

/// A measured row, in the terms of the model catalog.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Row)]
pub struct MeasuredRow {
    /// Name of the hardware, such as `H100`.
    pub hardware_type: String,
    /// Devices of one replica of the service.
    #[schema(value_type = u64)]
    pub hardware_count: u32,
    /// Throughput of one replica in requests per second.
    pub requests_per_second: Option<f64>,
    /// Latencies (`ttft_p90`, `itl_p95`, `e2e_p99` and others), and further fields of the catalog.
    #[serde(flatten)]
    #[schema(value_type = BTreeMap<String, Object>)]
    pub more: BTreeMap<String, Value>,
}

/// The evaluated rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SloAnswer {
    /// `octavo.dev/v1`.
    pub api_version: String,
    /// `SloAnswer`.
    pub kind: String,
    /// Number of rows that meet all objectives.
    pub met: usize,
    /// All rows: those that meet all objectives first, then by cost, by number of devices and by index.
    pub items: Vec<SloRow>,
    /// Notices about the whole answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
}

/// The evaluation of a row.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SloRow {
    /// Index of the row, from 0.
    pub row: usize,
    /// Name of the hardware in the row.
    pub hardware: String,
    /// Types that the name may denote; empty if it is unknown.
    #[schema(value_type = Vec<String>)]
    pub types: Vec<TypeName>,
    /// Those of `types` that the fleet has.
    #[schema(value_type = Vec<String>)]
    pub here: Vec<TypeName>,
    /// Devices of one replica.
    pub count: u32,
    /// Replicas required for the throughput.
    pub replicas: Option<u32>,
    /// Cost of all replicas per hour, with the most expensive of the types; absent if one has no price, or if their prices
    /// are in several currencies.
    #[schema(value_type = Option<String>)]
    pub per_hour: Option<Amount>,
    /// Currency of the cost.
    #[schema(value_type = Option<String>)]
    pub currency: Option<Currency>,
    /// Unmet objectives, as text; empty if it meets all.
    pub misses: Vec<String>,
    /// Hardware profiles whose workloads get these devices, at most 16: those with most available first. Also empty for
    /// users without permission to list profiles.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub profiles: Vec<SloProfile>,
}

/// A hardware profile that provides the devices of a row.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SloProfile {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its display name.
    pub display_name: String,
    /// Types that its workloads can get.
    #[schema(value_type = Vec<String>)]
    pub types: Vec<TypeName>,
    /// Number of further workloads of its default size that fit now; absent if unknown.
    pub available: Option<u64>,
}

/// Meaning of a hardware name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hardware {
    /// The possible types, at least one; several if the name is ambiguous, such as "H100".
    Types(Vec<TypeName>),
    /// Unknown; contains similar names.
    Unknown(Vec<String>),
}

impl SloRequest {
    /// Checks the ranges of all values.
    pub fn validate(&self) -> Result<(), RequestError> {
        self.objectives.validate()?;
        validate_rows(&self.rows, "rows")
    }

    /// Evaluates all rows of a valid request. `here` lists the types of the fleet.
    pub fn evaluate(&self, prices: Option<&CurrentPrices>, here: &[TypeName]) -> SloAnswer {
        let catalog = Catalog::built_in();
        let mut names: BTreeMap<&str, Hardware> = BTreeMap::new();
        let mut items: Vec<SloRow> = Vec::new();
        for (at, row) in self.rows.iter().enumerate() {
            let hardware = names
                .entry(&row.hardware_type)
                .or_insert_with(|| Hardware::resolve(&catalog, &row.hardware_type));
            let mut one = evaluate_row(row, hardware, &self.objectives, prices);
            one.row = at;
            let is_here = |name: &&TypeName| here.contains(name);
            one.here.extend(one.types.iter().filter(is_here).cloned());
            items.push(one);
        }
        let book_currency = prices.map(CurrentPrices::currency);
        items.sort_by_cached_key(|one| {
            let devices = u64::from(one.count).saturating_mul(one.replicas.unwrap_or(1).into());
            let is_foreign = one.currency.as_ref().is_some_and(|own| Some(own) != book_currency);
            // Amounts in different currencies cannot be compared.
            let cost = (one.per_hour.is_none(), is_foreign, one.currency.clone(), one.per_hour);
            (!one.misses.is_empty(), cost, devices, one.row)
        });
        SloAnswer {
            api_version: API_VERSION.to_owned(),
            kind: "SloAnswer".to_owned(),
            met: items.iter().filter(|one| one.misses.is_empty()).count(),
            items,
            notices: Vec::new(),
        }
    }
}

impl Objectives {
    fn validate(&self) -> Result<(), RequestError> {
        let field = "objectives.latenciesAtMost";
        if self.latencies_at_most.len() > MAX_LATENCIES {
            let problem = format!("at most {MAX_LATENCIES} latencies can be requested");
            return Err(RequestError::new(field, problem));
        }
        for (name, most) in &self.latencies_at_most {
            if !is_latency(name) || name.len() > 40 {
                let name: String = name.chars().take(40).collect();
                let problem = format!(
                    "{name:?} is not a latency: names start with ttft_, itl_ or e2e_, such as ttft_p90"
                );
                return Err(RequestError::new(field, problem));
            }
            require_positive(field, *most)?;
        }
        self.requests_per_second_at_least
            .map_or(Ok(()), |least| require_positive("objectives.requestsPerSecondAtLeast", least))
    }
}

impl MeasuredRow {
    /// Value of a further field, such as a latency; `None` if it was not measured.
    pub fn figure(&self, name: &str) -> Option<f64> {
        self.more.get(name)?.as_f64()
    }

    /// Checks that a further field is a number from 0, or absent. Null means that it was not measured.
    pub fn validate_figure(&self, name: &str) -> Result<(), String> {
        match self.more.get(name) {
            None | Some(Value::Null) => Ok(()),
            Some(value) if value.as_f64().is_some_and(|number| number >= 0.0) => Ok(()),
            Some(_) => Err(format!("{name} must be a non-negative number")),
        }
    }

    fn validate(&self) -> Result<(), String> {
        let name = &self.hardware_type;
        if name.trim().is_empty() || name.len() > MAX_HARDWARE_NAME_BYTES {
            let most = MAX_HARDWARE_NAME_BYTES;
            return Err(format!("hardware_type must have 1 to {most} characters"));
        }
        if !(1..=MAX_DEVICES).contains(&self.hardware_count) {
            return Err(format!("hardware_count must be an integer from 1 to {MAX_DEVICES}"));
        }
        let latencies = self.more.keys().filter(|name| is_latency(name));
        for name in latencies {
            self.validate_figure(name)?;
        }
        if self.requests_per_second.is_some_and(|rps| rps.is_nan() || rps < 0.0) {
            return Err("requests_per_second must be a non-negative number".to_owned());
        }
        Ok(())
    }
}

/// Checks the ranges of measured rows. An error names `field` and the number of the row, from 1.
pub fn validate_rows(rows: &[MeasuredRow], field: &'static str) -> Result<(), RequestError> {
    if rows.len() > MAX_ROWS {
        let problem = format!("at most {MAX_ROWS} rows can be evaluated in one request");
        return Err(RequestError::new(field, problem));
    }
    for (at, row) in (1..).zip(rows) {
        row.validate()
            .map_err(|problem| RequestError::new(field, format!("row {at}: {problem}")))?;
    }
    Ok(())
}

fn is_latency(name: &str) -> bool {
    LATENCY_PREFIXES.iter().any(|start| name.starts_with(start))
}

fn require_positive(field: &'static str, number: f64) -> Result<(), RequestError> {
    if number.is_finite() && number > 0.0 {
        Ok(())
    } else {
        let problem = format!("{number} is not greater than 0");
        Err(RequestError::new(field, problem))
    }
}

/// Evaluates a row. The caller sets the index and the types of the fleet.
fn evaluate_row(
    row: &MeasuredRow,
    hardware: &Hardware,
    wanted: &Objectives,
    prices: Option<&CurrentPrices>,
) -> SloRow {
    let mut misses = Vec::new();
    let types = match hardware {
        Hardware::Types(types) => types.clone(),
        Hardware::Unknown(near) => {
            let near = match near.as_slice() {
                [] => String::new(),
                near => format!("; did you mean {}?", near.join(", ")),
            };
            misses.push(format!("unknown hardware{near}"));
            Vec::new()
        }
    };
    let replicas = replicas(row, wanted, &mut misses);
    for (name, most) in &wanted.latencies_at_most {
        match row.figure(name) {
            Some(had) if had <= *most => {}
            Some(had) => misses.push(format!("{name} is {had}, above the limit of {most}")),
            None => misses.push(format!("{name} was not measured")),
        }
    }
    let price = replicas.and_then(|replicas| {
        let devices = row.hardware_count.checked_mul(replicas)?;
        let (per_hour, currency) = max_price(&types, wanted, prices)?;
        Some((per_hour.times(devices), currency))
    });
    let limit = wanted.price_at_most_per_hour;
    misses.extend(limit.and_then(|limit| price_miss(limit, price.as_ref(), prices)));
    let (per_hour, currency) = price.unzip();
    SloRow {
        row: 0,
        hardware: row.hardware_type.clone(),
        types,
        here: Vec::new(),
        count: row.hardware_count,
        replicas,
        per_hour,
        currency,
        misses,
        profiles: Vec::new(),
    }
}

/// Replicas required for the throughput; one if there is no throughput objective.
fn replicas(row: &MeasuredRow, wanted: &Objectives, misses: &mut Vec<String>) -> Option<u32> {
    let Some(requested) = wanted.requests_per_second_at_least else {
        return Some(1);
    };
    // Zero means that the throughput was not measured.
    let Some(one) = row.requests_per_second.filter(|rps| *rps > 0.0) else {
        misses.push("its throughput was not measured".to_owned());
        return None;
    };
    let found = (1..=MAX_REPLICAS).find(|replicas| f64::from(*replicas) * one >= requested);
    if found.is_none() {
        misses.push(format!(
            "one replica handles {one} requests per second: more than {MAX_REPLICAS} replicas would be needed"
        ));
    }
    found
}

/// Returns why the price does not meet the limit, which is in the currency of the price book.
fn price_miss(
    limit: Amount,
    price: Option<&(Amount, Currency)>,
    prices: Option<&CurrentPrices>,
) -> Option<String> {
    let Some((price, currency)) = price else {
        return Some("its price is unknown".to_owned());
    };
    match prices.map(CurrentPrices::currency).filter(|own| *own != currency) {
        Some(own) => Some(format!(
            "it costs {price} {currency} per hour, which cannot be compared with a limit in {own}"
        )),
        None if *price > limit => {
            Some(format!("it costs {price} per hour, above the limit of {limit}"))
        }
        None => None,
    }
}

/// Price of the most expensive of the types; `None` if one has no price, there are none, or they are in several
/// currencies.
fn max_price(
    types: &[TypeName],
    wanted: &Objectives,
    prices: Option<&CurrentPrices>,
) -> Option<(Amount, Currency)> {
    let option = wanted.purchase_option.unwrap_or_default();
    let all: Option<Vec<Price>> = types.iter().map(|name| prices?.price(name, option)).collect();
    let all = all?;
    let currency = all.first()?.currency.clone();
    let is_same = all.iter().all(|price| price.currency == currency);
    let highest = all.iter().map(|price| price.per_hour).max().filter(|_| is_same)?;
    Some((highest, currency))
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
    /// Cost and currency as text: `1,234.50 USD`.
    pub fn cost(&self) -> Option<String> {
        let amount = self.per_hour?.shown();
        Some(match &self.currency {
            Some(currency) => format!("{amount} {currency}"),
            None => amount,
        })
    }

    /// Describes the matching profiles: `Premium GPU (opendatahub/premium) - 4 available - 5.00 USD/h - meets all`.
    pub fn profile_descriptions(&self) -> Vec<String> {
        let cost = self.cost().map_or_else(|| "no price".to_owned(), |cost| format!("{cost}/h"));
        let keeps = match self.misses.len() {
            0 => "meets all".to_owned(),
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

impl Hardware {
    /// The meaning of this name in the catalog.
    pub fn resolve(catalog: &Catalog, text: &str) -> Self {
        let found = catalog.lookup(text);
        if let Lookup::Unknown(near) = &found {
            return Self::Unknown(near.iter().map(ToString::to_string).collect());
        }
        let types = types_of(catalog, &found);
        if types.is_empty() { Self::Unknown(Vec::new()) } else { Self::Types(types) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use jiff::Timestamp;
    use octavo_model::source_position::SourcePosition;
    use proptest::prelude::*;

    use super::*;
    use crate::price::{PriceBook, PriceEntry, PriceKey, Validity};

    fn row(hardware: &str, count: u32, rps: f64, ttft: f64) -> MeasuredRow {
        MeasuredRow {
            hardware_type: hardware.to_owned(),
            hardware_count: count,
            requests_per_second: Some(rps),
            more: BTreeMap::from([("ttft_p90".to_owned(), ttft.into())]),
        }
    }

    fn prices() -> CurrentPrices {
        let mut book = PriceBook::new("USD".parse().unwrap());
        for (name, price, currency) in [
            ("nvidia-h200-141gb", "4", "USD"),
            ("nvidia-a100-80gb", "1.50", "USD"),
            ("nvidia-l40s-48gb", "0.50", "EUR"),
        ] {
            let overlap = book.add(PriceEntry {
                key: PriceKey::new(name.parse().unwrap(), PurchaseOption::OnDemand),
                validity: Validity::default(),
                per_hour: price.parse().unwrap(),
                currency: currency.parse().unwrap(),
                position: SourcePosition::default(),
            });
            assert_eq!(overlap, None);
        }
        CurrentPrices::new(Arc::new(book), Timestamp::UNIX_EPOCH)
    }

    fn wanted() -> Objectives {
        Objectives {
            requests_per_second_at_least: Some(10.0),
            latencies_at_most: BTreeMap::from([("ttft_p90".to_owned(), 300.0)]),
            ..Objectives::default()
        }
    }

    fn evaluate(
        rows: &[MeasuredRow],
        objectives: &Objectives,
        prices: Option<&CurrentPrices>,
    ) -> Vec<SloRow> {
        let (objectives, rows) = (objectives.clone(), rows.to_vec());
        let request = SloRequest { objectives, rows };
        request.evaluate(prices, &[]).items
    }

    #[test]
    fn req_003_rows_meeting_objectives_are_sorted_by_cost_with_replicas() {
        let rows = [
            row("H200", 1, 6.0, 120.0),
            row("A100 80GB", 2, 4.0, 250.0),
            row("A100 80GB", 1, 4.0, 400.0),
        ];
        let evaluated = evaluate(&rows, &wanted(), Some(&prices()));
        let results: Vec<_> = evaluated
            .iter()
            .map(|one| (one.row, one.replicas, one.per_hour.map(|price| price.to_string())))
            .collect();
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(
            results,
            [(0, Some(2), some("8")), (1, Some(3), some("9.00")), (2, Some(3), some("4.50"))]
        );
        assert!(evaluated[0].misses.is_empty() && evaluated[1].misses.is_empty());
        assert_eq!(evaluated[2].misses, ["ttft_p90 is 400, above the limit of 300"]);
    }

    #[test]
    fn unknown_hardware_is_reported_and_ambiguous_name_keeps_all_types() {
        let rows = [
            row("RTX 4090", 1, 20.0, 100.0),
            row("H100", 1, 20.0, 100.0),
            row("H20O", 1, 20.0, 100.0),
        ];
        let evaluated = evaluate(&rows, &wanted(), None);
        let of = |at| evaluated.iter().find(|one| one.row == at).unwrap();
        assert!(of(0).misses[0].starts_with("unknown hardware"), "{:?}", of(0));
        let types = &of(1).types;
        assert!(types.len() > 1 && of(1).misses.is_empty(), "{types:?}");
        assert!(of(2).misses[0].contains("did you mean"), "{:?}", of(2));
    }

    #[test]
    fn missing_measurement_or_price_is_an_unmet_objective() {
        let mut bare = row("H200", 1, 1.0, 1.0);
        bare.requests_per_second = None;
        bare.more.clear();
        let objectives =
            Objectives { price_at_most_per_hour: Some("5".parse().unwrap()), ..wanted() };
        let evaluated = evaluate(&[bare], &objectives, Some(&prices()));
        assert_eq!(
            evaluated[0].misses,
            [
                "its throughput was not measured",
                "ttft_p90 was not measured",
                "its price is unknown"
            ]
        );
        let dear = evaluate(&[row("H200", 2, 10.0, 1.0)], &objectives, Some(&prices()));
        assert_eq!(dear[0].misses, ["it costs 8 per hour, above the limit of 5"]);
        let rows = [row("L40S", 1, 10.0, 1.0), row("H200", 1, 10.0, 1.0)];
        let foreign = evaluate(&rows, &objectives, Some(&prices()));
        assert_eq!(foreign.iter().map(|one| one.row).collect::<Vec<_>>(), [1, 0]);
        assert_eq!(
            foreign[1].misses,
            ["it costs 0.50 EUR per hour, which cannot be compared with a limit in USD"]
        );
        let small = evaluate(&[row("H200", 1, 0.001, 1.0)], &wanted(), None);
        assert!(small[0].misses[0].contains("more than 1000 replicas would be needed"));
    }

    proptest! {
        #[test]
        fn all_rows_are_returned_and_met_objectives_hold(
            rows in prop::collection::vec((prop::sample::select(vec!["H200", "A100 80GB", "x"]), 1..9_u32, 0.1..50.0_f64, 1.0..600.0_f64), 0..20),
        ) {
            let rows: Vec<MeasuredRow> = rows.into_iter().map(|(name, count, rps, ttft)| row(name, count, rps, ttft)).collect();
            let evaluated = evaluate(&rows, &wanted(), Some(&prices()));
            let mut places: Vec<usize> = evaluated.iter().map(|one| one.row).collect();
            places.sort_unstable();
            prop_assert_eq!(places, (0..rows.len()).collect::<Vec<_>>());
            let flags: Vec<bool> = evaluated.iter().map(|one| !one.misses.is_empty()).collect();
            prop_assert!(flags.is_sorted());
            for one in evaluated.iter().filter(|one| one.misses.is_empty()) {
                let row = &rows[one.row];
                prop_assert!(row.figure("ttft_p90").unwrap() <= 300.0);
                let replicas = f64::from(one.replicas.unwrap());
                prop_assert!(replicas * row.requests_per_second.unwrap() >= 10.0);
                prop_assert!(!one.types.is_empty());
            }
        }
    }
}
