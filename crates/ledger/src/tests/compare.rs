//! Comparison with the cost on other types.

use jiff::Timestamp;
use octavo_fleet::price::{PriceBook, PriceEntry, PriceKey, PurchaseOption, Validity};
use octavo_model::source_position::SourcePosition;
use proptest::prelude::*;

use crate::compare::{ComparisonError, compared_type};
use crate::csv::to_csv;
use crate::report::{CostReport, price_changes, report};
use crate::{Day, Dimension, PPM, UsageQuery, UsageState, UsageSum};

const HOUR: i64 = 3600 * 1_000_000;
const H100: &str = "nvidia-h100-80gb";
const H200: &str = "nvidia-h200-141gb";
const L40S: &str = "nvidia-l40s-48gb";

fn key(type_name: &str, option: PurchaseOption, region: Option<&str>) -> PriceKey {
    let region = region.map(str::to_owned);
    PriceKey { region, ..PriceKey::new(type_name.parse().unwrap(), option) }
}

fn on_demand(type_name: &str) -> PriceKey {
    key(type_name, PurchaseOption::OnDemand, None)
}

fn book(entries: &[(PriceKey, Validity, &str, &str)]) -> PriceBook {
    let mut book = PriceBook::new("USD".parse().unwrap());
    for (key, validity, per_hour, currency) in entries {
        let refused = book.add(PriceEntry {
            key: key.clone(),
            validity: *validity,
            per_hour: per_hour.parse().unwrap(),
            currency: currency.parse().unwrap(),
            position: SourcePosition::default(),
        });
        assert_eq!(refused, None);
    }
    book
}

fn always(
    key: PriceKey,
    per_hour: &'static str,
) -> (PriceKey, Validity, &'static str, &'static str) {
    (key, Validity::default(), per_hour, "USD")
}

fn usage(namespace: &str, key: Option<PriceKey>, state: UsageState, ppm_seconds: i64) -> UsageSum {
    UsageSum {
        values: vec![Some(namespace.to_owned())],
        period: 0,
        price_key: key,
        state,
        inferred: false,
        ppm_seconds,
        percent_seconds: 0,
        measured_seconds: 0,
    }
}

fn query(book: &PriceBook) -> UsageQuery {
    let (from, until) = (Day(20_758).start_time(), Day(20_788).start_time());
    let price_changes = price_changes(book, from, until);
    UsageQuery { from, until, by: vec![Dimension::Namespace], filters: Vec::new(), price_changes }
}

fn compare(book: &PriceBook, sums: Vec<UsageSum>, types: &[&str]) -> CostReport {
    let types: Vec<_> = types.iter().map(|name| compared_type(name, Some(book)).unwrap()).collect();
    report(&query(book), sums, Some(book), &types, 1000)
}

/// Cost on each type, or the reason why there is none, of each group and of all.
fn shown(report: &CostReport) -> Vec<String> {
    let items =
        report.items.iter().map(|item| (item.group[&Dimension::Namespace].as_str(), &item.usage));
    let all = items.chain([("total", &report.total)]);
    let shown = all.map(|(name, usage)| {
        let others: Vec<String> = usage
            .alternatives
            .iter()
            .map(|one| {
                let costs =
                    one.costs.iter().map(|cost| format!("{} {}", cost.total, cost.currency));
                let costs: Vec<String> =
                    costs.chain(one.reason.map(ComparisonError::words)).collect();
                costs.join(" + ")
            })
            .collect();
        format!("{name}: {}", others.join(", "))
    });
    shown.collect()
}

#[test]
fn share_of_a_device_costs_the_same_share_of_the_other_type() {
    let book = book(&[always(on_demand(H100), "4"), always(on_demand(H200), "3.333333")]);
    let sums = vec![
        usage("team-a", Some(on_demand(H100)), UsageState::Used, HOUR * 3),
        usage("team-a", Some(on_demand(H100)), UsageState::Idle, HOUR / 8),
    ];
    let report = compare(&book, sums, &[H200, H100]);
    assert_eq!(
        shown(&report),
        ["team-a: 10.4167 USD, 12.5000 USD", "total: 10.4167 USD, 12.5000 USD"]
    );
    let of_state = &report.total.alternatives[0].costs[0];
    assert_eq!(
        (of_state.used.to_string(), of_state.idle.to_string()),
        ("10.0000".into(), "0.4167".into())
    );
}

#[test]
fn price_has_the_same_purchase_option_region_and_time() {
    let spot = |type_name, region| key(type_name, PurchaseOption::Spot, region);
    let change: Timestamp = Day(20_760).start_time();
    let until = Validity { from: None, until: Some(change) };
    let from = Validity { from: Some(change), until: None };
    let book = book(&[
        always(spot(H100, None), "1"),
        always(on_demand(H200), "50"),
        always(spot(H200, None), "60"),
        (spot(H200, Some("eu-west-1")), until, "2", "USD"),
        (spot(H200, Some("eu-west-1")), from, "3", "USD"),
    ]);
    let of = |period| {
        let key = PriceKey {
            instance_type: Some("p5.48xlarge".to_owned()),
            ..spot(H100, Some("eu-west-1"))
        };
        UsageSum { period, ..usage("team-a", Some(key), UsageState::Used, HOUR) }
    };
    let report = compare(&book, vec![of(0), of(1)], &[H200]);
    assert_eq!(shown(&report)[0], "team-a: 5.0000 USD");
}

#[test]
fn type_that_cannot_be_compared_has_a_reason_and_no_cost() {
    let book = book(&[
        always(on_demand(H100), "4"),
        always(on_demand(L40S), "1"),
        always(on_demand("nvidia-a10-24gb"), "1"),
        always(key(H200, PurchaseOption::Reserved, None), "1"),
    ]);
    let sums = vec![
        usage("large", Some(on_demand(H100)), UsageState::Used, HOUR * 3),
        usage("small", Some(on_demand("nvidia-a10-24gb")), UsageState::Used, HOUR * 2),
        usage("unknown", None, UsageState::Used, HOUR),
    ];
    let report = compare(&book, sums, &[L40S, H200]);
    let expected = [
        "large: less memory, no price",
        "small: 2.0000 USD, no price",
        "unknown: unknown type, unknown type",
        "total: unknown type, unknown type",
    ];
    assert_eq!(shown(&report), expected);
    let json = serde_json::to_value(&report).unwrap();
    let other = &json["items"][0]["alternatives"][0];
    assert_eq!((&other["type"], &other["reason"]), (&L40S.into(), &"less-memory".into()));
}

#[test]
fn currencies_are_never_added() {
    let book = book(&[
        always(on_demand(H100), "4"),
        (on_demand(H200), Validity::default(), "5", "EUR"),
        (key(H200, PurchaseOption::Spot, None), Validity::default(), "2", "USD"),
    ]);
    let sums = vec![
        usage("team-a", Some(on_demand(H100)), UsageState::Used, HOUR),
        usage("team-a", Some(key(H100, PurchaseOption::Spot, None)), UsageState::Used, HOUR),
    ];
    let report = compare(&book, sums, &[H200]);
    assert_eq!(shown(&report)[0], "team-a: 5.0000 EUR + 2.0000 USD");
    let csv = to_csv(&report);
    let rows: Vec<&str> = csv.lines().skip(1).collect();
    // The second hour has no price of its own.
    let expected = [
        "team-a,2,0,0,0,1,EUR,,,,,,5.0000,",
        "team-a,2,0,0,0,1,USD,4.0000,0.0000,0.0000,0.0000,4.0000,2.0000,",
    ];
    assert_eq!(rows, expected);
}

#[test]
fn unknown_type_is_an_error_with_a_remedy() {
    let new = on_demand("vendor-new-8gb");
    let book = book(&[always(new.clone(), "1")]);
    assert_eq!(compared_type("vendor-new-8gb", Some(&book)), Ok(new.type_name));
    for (name, remedy) in [
        (
            "nvidia-h2200-141gb",
            "\"nvidia-h2200-141gb\" is not a known type; did you mean nvidia-h200-141gb?",
        ),
        ("vendor-new-9gb", "did you mean vendor-new-8gb?"),
        ("planet", "\"planet\" is not a known type; `octavo catalog search` finds names"),
        ("a100", "is ambiguous; use one of"),
    ] {
        let error = compared_type(name, Some(&book)).unwrap_err();
        assert!(error.contains(remedy), "{error}");
    }
}

proptest! {
    #[test]
    fn cost_on_the_used_type_is_the_cost(
        parts in prop::collection::vec((1..=i64::from(PPM), 1_i64..100_000, 0_usize..4), 1..20),
        price in 0_u32..10_000_000,
    ) {
        let price = format!("{}.{:06}", price / 1_000_000, price % 1_000_000);
        let book = book(&[(on_demand(H100), Validity::default(), &price, "USD")]);
        let states = [UsageState::Used, UsageState::Idle, UsageState::Unallocated, UsageState::Unknown];
        let sums = parts.iter().map(|(ppm, seconds, state)| {
            usage("team-a", Some(on_demand(H100)), states[*state], ppm * seconds)
        });
        let report = compare(&book, sums.collect(), &[H100]);
        prop_assert_eq!(&report.total.alternatives[0].costs, &report.total.costs);
        prop_assert_eq!(&report.items[0].usage.alternatives, &report.total.alternatives);
    }
}
