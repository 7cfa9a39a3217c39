//! Evaluation of measured rows of a model catalog against the objectives of a service: throughput, latencies and
//! cost.
//!
//! Used by the aggregator with rows measured by third parties. Their hardware is free text ("H100", "RTX 4090"),
//! which is looked up in the hardware catalog. A row with unknown hardware is reported and never dropped, because
//! users would ask for a missing row.

use std::collections::BTreeMap;

use octavo_model::accelerators::{Catalog, Lookup, facts};
use octavo_model::id::TypeName;

use crate::price::{Amount, PriceBook, PurchaseOption};

/// Maximum number of replicas to consider.
pub const MAX_REPLICAS: u32 = 1000;

/// A measurement.
#[derive(Debug, Clone, PartialEq)]
pub struct MeasuredRow {
    /// Name of the hardware in the model catalog.
    pub hardware: String,
    /// Devices of one replica of the service.
    pub count: u32,
    /// Throughput of one replica in requests per second.
    pub requests_per_second: Option<f64>,
    /// Latencies by name, such as `ttft_p90`, in the unit of the catalog.
    pub latencies: BTreeMap<String, f64>,
}

/// Objectives of a service.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Objectives {
    /// Throughput of all replicas together in requests per second.
    pub requests_per_second: Option<f64>,
    /// Maximum of each latency, by name, in the unit of the rows.
    pub latencies: BTreeMap<String, f64>,
    /// Maximum cost of all replicas per hour.
    pub ceiling: Option<Amount>,
    /// The purchase option of the devices.
    pub option: PurchaseOption,
}

/// Meaning of a hardware name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hardware {
    /// The possible types, at least one; several if the name is ambiguous, such as "H100".
    Types(Vec<TypeName>),
    /// Unknown; contains similar names.
    Unknown(Vec<String>),
}

/// The evaluation of a row.
#[derive(Debug, Clone, PartialEq)]
pub struct RowEvaluation {
    /// Index of the row, from 0.
    pub row: usize,
    /// The meaning of its hardware.
    pub hardware: Hardware,
    /// Replicas required for the throughput, if known.
    pub replicas: Option<u32>,
    /// Cost of all replicas per hour, with the most expensive of the possible types; `None` if one has no price.
    pub per_hour: Option<Amount>,
    /// Human-readable unmet objectives; empty if it meets all.
    pub unmet: Vec<String>,
}

/// Evaluates all rows. Rows that meet all objectives come first; within both groups they are sorted by cost, then by
/// number of devices, then by index.
pub fn evaluate(
    rows: &[MeasuredRow],
    wanted: &Objectives,
    prices: Option<&PriceBook>,
) -> Vec<RowEvaluation> {
    let catalogue = Catalog::built_in();
    let mut names: BTreeMap<&str, Hardware> = BTreeMap::new();
    let mut all: Vec<(u64, RowEvaluation)> = Vec::new();
    for (at, row) in rows.iter().enumerate() {
        let hardware = names
            .entry(&row.hardware)
            .or_insert_with(|| Hardware::resolve(&catalogue, &row.hardware));
        let one = evaluate_row(row, (at, hardware.clone()), wanted, prices);
        let devices = u64::from(row.count).saturating_mul(one.replicas.unwrap_or(1).into());
        all.push((devices, one));
    }
    all.sort_by_key(|(devices, one)| {
        let dear = (one.per_hour.is_none(), one.per_hour);
        (!one.unmet.is_empty(), dear, *devices, one.row)
    });
    all.into_iter().map(|(_, one)| one).collect()
}

fn evaluate_row(
    row: &MeasuredRow,
    (at, hardware): (usize, Hardware),
    wanted: &Objectives,
    prices: Option<&PriceBook>,
) -> RowEvaluation {
    let mut misses = Vec::new();
    if let Hardware::Unknown(near) = &hardware {
        let near = match near.as_slice() {
            [] => String::new(),
            near => format!("; did you mean {}?", near.join(", ")),
        };
        misses.push(format!("nobody knows which hardware this is{near}"));
    }
    let replicas = replicas(row, wanted, &mut misses);
    for (name, most) in &wanted.latencies {
        match row.latencies.get(name) {
            Some(had) if had <= most => {}
            Some(had) => misses.push(format!("{name} is {had}, and {most} is the most")),
            None => misses.push(format!("{name} was not measured")),
        }
    }
    let per_hour = replicas.and_then(|replicas| {
        let devices = row.count.checked_mul(replicas)?;
        Some(max_price(&hardware, wanted, prices)?.times(devices))
    });
    if let Some(ceiling) = wanted.ceiling {
        match per_hour {
            Some(price) if price <= ceiling => {}
            Some(price) => misses.push(format!(
                "it costs {price} an hour, and {ceiling} is the most"
            )),
            None => misses.push("nobody says what it costs".to_owned()),
        }
    }
    RowEvaluation {
        row: at,
        hardware,
        replicas,
        per_hour,
        unmet: misses,
    }
}

/// Replicas required for the throughput; one if there is no throughput objective.
fn replicas(row: &MeasuredRow, wanted: &Objectives, misses: &mut Vec<String>) -> Option<u32> {
    let Some(asked) = wanted.requests_per_second else {
        return Some(1);
    };
    let Some(one) = row.requests_per_second else {
        misses.push("its throughput was not measured".to_owned());
        return None;
    };
    let found = (1..=MAX_REPLICAS).find(|replicas| f64::from(*replicas) * one >= asked);
    if found.is_none() {
        misses.push(format!(
            "one answers {one} requests a second: more than {MAX_REPLICAS} would be needed"
        ));
    }
    found
}

fn max_price(
    hardware: &Hardware,
    wanted: &Objectives,
    prices: Option<&PriceBook>,
) -> Option<Amount> {
    let Hardware::Types(types) = hardware else {
        return None;
    };
    let price = |name: &TypeName| Some(prices?.price(name, wanted.option)?.per_hour);
    let all: Option<Vec<Amount>> = types.iter().map(price).collect();
    all?.into_iter().max()
}

impl Hardware {
    /// The meaning of this name in the catalog.
    pub fn resolve(catalogue: &Catalog, text: &str) -> Self {
        let type_of = |sku| facts(sku).and_then(|facts| facts.type_name.parse().ok());
        let mut types: Vec<TypeName> = match catalogue.lookup(text) {
            Lookup::Found(sku) => type_of(&sku).into_iter().collect(),
            Lookup::Ambiguous(skus) => skus.iter().filter_map(type_of).collect(),
            Lookup::Unknown(near) => {
                return Self::Unknown(near.iter().map(ToString::to_string).collect());
            }
        };
        types.sort();
        types.dedup();
        if types.is_empty() {
            Self::Unknown(Vec::new())
        } else {
            Self::Types(types)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn row(hardware: &str, count: u32, rps: f64, ttft: f64) -> MeasuredRow {
        MeasuredRow {
            hardware: hardware.to_owned(),
            count,
            requests_per_second: Some(rps),
            latencies: BTreeMap::from([("ttft_p90".to_owned(), ttft)]),
        }
    }

    fn book() -> PriceBook {
        let mut book = PriceBook::new("USD".parse().unwrap());
        for (name, price) in [("nvidia-h200-141gb", "4"), ("nvidia-a100-80gb", "1.50")] {
            book.add(
                name.parse().unwrap(),
                PurchaseOption::OnDemand,
                price.parse().unwrap(),
            );
        }
        book
    }

    fn wanted() -> Objectives {
        Objectives {
            requests_per_second: Some(10.0),
            latencies: BTreeMap::from([("ttft_p90".to_owned(), 300.0)]),
            ..Objectives::default()
        }
    }

    #[test]
    fn req_003_rows_meeting_objectives_are_sorted_by_cost_with_replicas() {
        let rows = [
            row("H200", 1, 6.0, 120.0),
            row("A100 80GB", 2, 4.0, 250.0),
            row("A100 80GB", 1, 4.0, 400.0),
        ];
        let judged = evaluate(&rows, &wanted(), Some(&book()));
        let told: Vec<_> = judged
            .iter()
            .map(|one| {
                (
                    one.row,
                    one.replicas,
                    one.per_hour.map(|price| price.to_string()),
                )
            })
            .collect();
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(
            told,
            [
                (0, Some(2), some("8")),
                (1, Some(3), some("9.00")),
                (2, Some(3), some("4.50"))
            ]
        );
        assert!(judged[0].unmet.is_empty() && judged[1].unmet.is_empty());
        assert_eq!(judged[2].unmet, ["ttft_p90 is 400, and 300 is the most"]);
    }

    #[test]
    fn unknown_hardware_is_reported_and_ambiguous_name_keeps_all_types() {
        let rows = [
            row("RTX 4090", 1, 20.0, 100.0),
            row("H100", 1, 20.0, 100.0),
            row("H20O", 1, 20.0, 100.0),
        ];
        let judged = evaluate(&rows, &wanted(), None);
        let of = |at| judged.iter().find(|one| one.row == at).unwrap();
        assert!(
            of(0).unmet[0].starts_with("nobody knows which hardware this is"),
            "{:?}",
            of(0)
        );
        let Hardware::Types(types) = &of(1).hardware else {
            panic!("{:?}", of(1));
        };
        assert!(types.len() > 1 && of(1).unmet.is_empty(), "{types:?}");
        assert!(of(2).unmet[0].contains("did you mean"), "{:?}", of(2));
    }

    #[test]
    fn missing_measurement_or_price_is_an_unmet_objective() {
        let mut bare = row("H200", 1, 1.0, 1.0);
        bare.requests_per_second = None;
        bare.latencies.clear();
        let objectives = Objectives {
            ceiling: Some("5".parse().unwrap()),
            ..wanted()
        };
        let judged = evaluate(&[bare], &objectives, Some(&book()));
        assert_eq!(
            judged[0].unmet,
            [
                "its throughput was not measured",
                "ttft_p90 was not measured",
                "nobody says what it costs"
            ]
        );
        let dear = evaluate(&[row("H200", 2, 10.0, 1.0)], &objectives, Some(&book()));
        assert_eq!(dear[0].unmet, ["it costs 8 an hour, and 5 is the most"]);
        let small = evaluate(&[row("H200", 1, 0.001, 1.0)], &wanted(), None);
        assert!(small[0].unmet[0].contains("more than 1000 would be needed"));
    }

    proptest! {
        #[test]
        fn all_rows_are_returned_and_met_objectives_hold(
            rows in prop::collection::vec((prop::sample::select(vec!["H200", "A100 80GB", "x"]), 1..9_u32, 0.1..50.0_f64, 1.0..600.0_f64), 0..20),
        ) {
            let rows: Vec<MeasuredRow> = rows.into_iter().map(|(name, count, rps, ttft)| row(name, count, rps, ttft)).collect();
            let judged = evaluate(&rows, &wanted(), Some(&book()));
            let mut places: Vec<usize> = judged.iter().map(|one| one.row).collect();
            places.sort_unstable();
            prop_assert_eq!(places, (0..rows.len()).collect::<Vec<_>>());
            let flags: Vec<bool> = judged.iter().map(|one| !one.unmet.is_empty()).collect();
            prop_assert!(flags.is_sorted());
            for one in judged.iter().filter(|one| one.unmet.is_empty()) {
                let row = &rows[one.row];
                prop_assert!(row.latencies["ttft_p90"] <= 300.0);
                let replicas = f64::from(one.replicas.unwrap());
                prop_assert!(replicas * row.requests_per_second.unwrap() >= 10.0);
                prop_assert!(matches!(one.hardware, Hardware::Types(_)));
            }
        }
    }
}
