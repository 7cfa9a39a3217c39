//! Export in the FOCUS format.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use jiff::Timestamp;
use octavo_fleet::price::{Amount, PriceBook, PriceEntry, PriceKey, PurchaseOption, Validity};
use octavo_model::source_position::SourcePosition;
use proptest::prelude::*;
use rust_decimal::Decimal;

use crate::focus::{BillingAccount, COLUMNS, DIMENSIONS, FocusRow, OriginCharge, charges};
use crate::report::{price_changes, report};
use crate::{Day, PPM, UsageQuery, UsageState, UsageSum};

/// 2026-11-02.
const DAY: Day = Day(20_759);

/// Mandatory columns. Source: FOCUS 1.2, "Cost and Usage", feature level of each column.
const MANDATORY: [&str; 21] = [
    "BilledCost",
    "BillingAccountId",
    "BillingAccountName",
    "BillingCurrency",
    "BillingPeriodEnd",
    "BillingPeriodStart",
    "ChargeCategory",
    "ChargeClass",
    "ChargeDescription",
    "ChargePeriodEnd",
    "ChargePeriodStart",
    "ContractedCost",
    "EffectiveCost",
    "InvoiceIssuerName",
    "ListCost",
    "PricingQuantity",
    "PricingUnit",
    "ProviderName",
    "PublisherName",
    "ServiceCategory",
    "ServiceName",
];

fn account() -> BillingAccount {
    BillingAccount { cluster: Some("east".to_owned()), currency: "EUR".parse().unwrap() }
}

fn key(type_name: &str, option: PurchaseOption) -> PriceKey {
    PriceKey::new(type_name.parse().unwrap(), option)
}

fn book(entries: &[(&str, &str)]) -> PriceBook {
    let mut book = PriceBook::new("EUR".parse().unwrap());
    for (type_name, per_hour) in entries {
        let refused = book.add(PriceEntry {
            key: key(type_name, PurchaseOption::OnDemand),
            validity: Validity::default(),
            per_hour: per_hour.parse().unwrap(),
            currency: "EUR".parse().unwrap(),
            position: SourcePosition::default(),
        });
        assert_eq!(refused, None);
    }
    book
}

fn query(book: &PriceBook) -> UsageQuery {
    let time = |seconds| Timestamp::from_second(seconds).unwrap();
    let (from, until) = (time(DAY.start()), time(DAY.end()));
    let price_changes = price_changes(book, from, until);
    UsageQuery { from, until, by: DIMENSIONS.to_vec(), filters: Vec::new(), price_changes }
}

/// Usage of `seconds` of `ppm` millionths of a device.
fn sum(
    values: [&str; 5],
    price: Option<PriceKey>,
    state: UsageState,
    ppm_seconds: i64,
) -> UsageSum {
    let value = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    UsageSum {
        values: values.map(value).to_vec(),
        period: 0,
        price_key: price,
        state,
        inferred: false,
        ppm_seconds,
        percent_seconds: 0,
        measured_seconds: 0,
    }
}

fn rows(charges: &[OriginCharge]) -> Vec<FocusRow> {
    charges.iter().flat_map(|charge| charge.rows(&account()).unwrap()).collect()
}

fn decimal(amount: Amount) -> Decimal {
    amount.to_string().parse().unwrap()
}

/// Value of `AllocatedRatio` of a row.
fn ratio(row: &FocusRow) -> Decimal {
    let details: serde_json::Value = serde_json::from_str(&row.allocated_method_details).unwrap();
    assert_eq!(details["Elements"][0]["UsageUnit"], row.consumed_unit);
    let (_, rest) = row.allocated_method_details.split_once("\"AllocatedRatio\":").unwrap();
    rest.split_once(',').unwrap().0.parse().unwrap()
}

/// Lines of an export with the heading, as a reader sees them.
fn table(charges: &[OriginCharge]) -> Vec<BTreeMap<String, String>> {
    let mut text = crate::focus::header();
    for charge in charges {
        text.extend(charge.csv(&account()).unwrap());
    }
    let mut reader = csv::Reader::from_reader(text.as_slice());
    reader.deserialize().map(|row| row.unwrap()).collect()
}

/// A GPU in partitions, a time-sliced one, and one that is not identified.
fn small_ledger() -> Vec<UsageSum> {
    let hour = i64::from(PPM) * 3600;
    let h100 = || Some(key("nvidia-h100-80gb", PurchaseOption::OnDemand));
    let spot = || {
        Some(PriceKey {
            instance_type: Some("g6.xlarge".to_owned()),
            region: Some("eu-west-1".to_owned()),
            ..key("nvidia-l4-24gb", PurchaseOption::Spot)
        })
    };
    let mig = "mig-memory-slices/v1";
    let train = ["gpu-1", "team-a/train-0", mig, "3g.40gb", "vision"];
    let mut inferred = sum(train, h100(), UsageState::Used, hour);
    inferred.inferred = true;
    vec![
        sum(train, h100(), UsageState::Used, 11 * hour),
        inferred,
        sum(["gpu-1", "team-b/notebook", mig, "1g.10gb", ""], h100(), UsageState::Idle, 3 * hour),
        sum(["gpu-1", "", mig, "", ""], h100(), UsageState::Unallocated, 8 * hour),
        sum(["gpu-1", "", "whole-device/v1", "", ""], h100(), UsageState::Unknown, hour),
        sum(
            ["gpu-2", "team-a/web", "time-slicing-replicas/v1", "", ""],
            spot(),
            UsageState::Used,
            hour / 3,
        ),
        sum(["gpu-3", "", "whole-device/v1", "", ""], None, UsageState::Unallocated, 24 * hour),
    ]
}

#[test]
fn rows_of_a_small_ledger_are_complete_and_add_up() {
    let book = book(&[("nvidia-h100-80gb", "3.93")]);
    let charges = charges(DAY, &query(&book), small_ledger(), &book);
    let shown = table(&charges).into_iter().map(|row| {
        let columns = [
            "ResourceId",
            "AllocatedResourceId",
            "x_AllocationState",
            "PricingQuantity",
            "ListCost",
        ];
        columns.map(|column| row[column].clone()).join(" ")
    });
    assert_eq!(
        shown.collect::<Vec<_>>(),
        [
            "east/gpu-1 team-a/train-0 used 12.00 47.16",
            "east/gpu-1 team-b/notebook idle 3.00 11.79",
            "east/gpu-1  unallocated 8.00 31.44",
            "east/gpu-1  unknown 1.00 3.93",
            "east/gpu-2 team-a/web used 0.333333333333 0.00",
            "east/gpu-3  unallocated 24.00 0.00",
        ]
    );
    let row = &table(&charges)[0];
    assert_eq!(
        row["AllocatedMethodDetails"],
        r#"{"Elements":[{"AllocatedRatio":0.5,"UsageUnit":"Device-Hours","UsageQuantity":12}]}"#
    );
    assert_eq!(
        row["AllocatedTags"],
        r#"{"octavo/namespace":"team-a","octavo/profile":"3g.40gb","octavo/team":"vision"}"#
    );
    assert_eq!(row["BillingPeriodStart"], "2026-11-01T00:00:00Z");
    assert_eq!(row["BillingPeriodEnd"], "2026-12-01T00:00:00Z");
    assert_eq!((&*row["BilledCost"], &*row["EffectiveCost"]), ("0.00", "47.16"));
}

/// `hack/focus-validate.sh` validates the same file with the validator of the `FinOps` Foundation.
#[test]
fn export_of_a_small_ledger_equals_the_golden_file() {
    let book = book(&[("nvidia-h100-80gb", "3.93")]);
    let mut text = crate::focus::header();
    for charge in charges(DAY, &query(&book), small_ledger(), &book) {
        text.extend(charge.csv(&account()).unwrap());
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests/focus.csv");
    assert_eq!(String::from_utf8(text).unwrap(), fs::read_to_string(path).unwrap());
}

#[test]
fn rows_satisfy_the_rules_of_focus() {
    let book = book(&[("nvidia-h100-80gb", "3.93")]);
    let table = table(&charges(DAY, &query(&book), small_ledger(), &book));
    for column in MANDATORY {
        assert!(COLUMNS.contains(&column), "{column}");
    }
    let unique: BTreeSet<&str> = COLUMNS.into_iter().collect();
    assert_eq!(unique.len(), COLUMNS.len());
    // Columns that FOCUS 1.2 allows to be null, or that are not in it.
    let is_nullable = |column: &str| {
        column.starts_with("Allocated")
            || column.starts_with("x_")
            || ["ChargeClass", "InvoiceId", "RegionId", "RegionName", "SkuPriceDetails"]
                .contains(&column)
    };
    for row in &table {
        assert_eq!(row.keys().map(String::as_str).collect::<BTreeSet<_>>(), unique);
        for (column, value) in row {
            assert!(!value.is_empty() || is_nullable(column), "{column}: {row:#?}");
            assert!(
                !column.ends_with("Cost")
                    && !column.ends_with("Price")
                    && !column.ends_with("Quantity")
                    || value.parse::<Decimal>().is_ok_and(|number| !number.is_sign_negative()),
                "{column}: {value}"
            );
            let is_time = column.ends_with("Start") || column.ends_with("End");
            assert!(
                !is_time || value.len() == 20 && value.ends_with("T00:00:00Z"),
                "{column}: {value}"
            );
        }
        assert_eq!((&*row["ChargeCategory"], &*row["ChargeClass"]), ("Usage", ""));
        assert!(["Standard", "Dynamic", "Committed", "Other"].contains(&&*row["PricingCategory"]));
        assert_eq!(
            (&*row["ServiceCategory"], &*row["ServiceSubcategory"]),
            ("Compute", "Containers")
        );
        assert_eq!(row["RegionId"].is_empty(), row["RegionName"].is_empty());
        // FOCUS 1.3: null if and only if the charge is the unallocated portion.
        let is_allocated = ["used", "idle"].contains(&&*row["x_AllocationState"]);
        assert_eq!(row["AllocatedResourceId"].is_empty(), !is_allocated);
        let number = |column: &str| row[column].parse::<Decimal>().unwrap();
        assert_eq!(number("ListUnitPrice") * number("PricingQuantity"), number("ListCost"));
        assert_eq!(
            number("ContractedUnitPrice") * number("PricingQuantity"),
            number("ContractedCost")
        );
    }
}

#[test]
fn cost_that_is_too_large_names_the_charge() {
    let book = book(&[("nvidia-h100-80gb", "999999.999999")]);
    let large = sum(
        ["gpu-1", "", "whole-device/v1", "", ""],
        Some(key("nvidia-h100-80gb", PurchaseOption::OnDemand)),
        UsageState::Used,
        i64::MAX,
    );
    let twice = vec![large.clone(), large];
    let charges = charges(DAY, &query(&book), twice, &book);
    // The sum is limited instead of wrong.
    assert_eq!(charges[0].to_string(), "2026-11-02, node gpu-1, nvidia-h100-80gb on-demand");
    assert!(charges[0].csv(&account()).is_ok());
}

fn usage() -> impl Strategy<Value = UsageSum> {
    let states = [UsageState::Used, UsageState::Idle, UsageState::Unallocated, UsageState::Unknown];
    let seconds = 0_i64..200_000_000_000;
    (0_u8..3, 0_u8..4, 0_u8..3, 0_usize..4, seconds, any::<bool>()).prop_map(
        move |(node, pod, of, state, seconds, inferred)| {
            let types = ["nvidia-h100-80gb", "nvidia-l4-24gb", "nvidia-t4-16gb"];
            let price = types.get(usize::from(of)).map(|of| key(of, PurchaseOption::OnDemand));
            let (node, pod) = (format!("gpu-{node}"), format!("team/pod-{pod}"));
            let values = [&*node, &*pod, "time-slicing-replicas/v1", "", ""];
            UsageSum { inferred, ..sum(values, price, states[state], seconds) }
        },
    )
}

proptest! {
    #[test]
    fn costs_and_quantities_of_rows_add_up_to_the_report(
        sums in prop::collection::vec(usage(), 0..60),
        prices in (1_u64..10_000_000, 1_u64..10_000_000),
    ) {
        let price = |millionths: u64| Decimal::from_i128_with_scale(millionths.into(), 6).to_string();
        let book = book(&[
            ("nvidia-h100-80gb", &price(prices.0)),
            ("nvidia-l4-24gb", &price(prices.1)),
        ]);
        let query = query(&book);
        let report = report(&query, sums.clone(), Some(&book), &[], 1000);
        let charges = charges(DAY, &query, sums, &book);
        let mut cost = Decimal::ZERO;
        for charge in &charges {
            let rows = rows(std::slice::from_ref(charge));
            prop_assert_eq!(rows.iter().map(ratio).sum::<Decimal>(), Decimal::ONE);
            cost += rows.iter().map(|row| decimal(row.effective_cost)).sum::<Decimal>();
        }
        let reported = report.total.costs.first().map_or(Decimal::ZERO, |cost| decimal(cost.total));
        // The report is rounded to four decimals, and the quantity of each charge to twelve.
        let error = (cost - reported).abs();
        prop_assert!(error <= Decimal::new(50_001, 9), "{} {}", cost, reported);
        let hours: Decimal = rows(&charges).iter().map(|row| row.pricing_quantity).sum();
        let hours = hours.round_dp(6).to_string().parse::<f64>().unwrap();
        prop_assert!((hours - report.total.device_hours.total).abs() < 2e-6);
    }
}
