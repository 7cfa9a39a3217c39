//! State and forecast of budgets.

use jiff::Timestamp;
use octavo_fleet::budget::{Budget, BudgetScope};
use octavo_fleet::price::{PriceBook, PriceEntry, PriceKey, PurchaseOption, Validity};
use octavo_model::source_position::SourcePosition;
use proptest::prelude::*;

use crate::budget::{BudgetCosts, BudgetPeriod, BudgetReport, BudgetState};
use crate::report::{CostReport, report};
use crate::{Day, Dimension, UsageQuery, UsageState, UsageSum};

const HOUR: i64 = 3600 * 1_000_000;

fn at(time: &str) -> Timestamp {
    time.parse().unwrap()
}

fn day(date: &str) -> Day {
    Day::from_date(date.parse().unwrap())
}

fn budget(scope: BudgetScope, amount: &str) -> Budget {
    let amount = amount.to_owned().try_into().unwrap();
    Budget { scope, amount, currency: "USD".parse().unwrap() }
}

fn namespace(name: &str) -> BudgetScope {
    BudgetScope::Namespace(name.to_owned())
}

/// A report of device hours of H100 at 1 USD, L4 at 1 EUR and A10, which has no price.
fn costs(by: Dimension, hours: &[(&str, &str, i64)]) -> CostReport {
    let mut book = PriceBook::new("USD".parse().unwrap());
    for (type_name, currency) in [("nvidia-h100-80gb", "USD"), ("nvidia-l4-24gb", "EUR")] {
        let key = PriceKey::new(type_name.parse().unwrap(), PurchaseOption::OnDemand);
        let refused = book.add(PriceEntry {
            key,
            validity: Validity::default(),
            per_hour: "1".parse().unwrap(),
            currency: currency.parse().unwrap(),
            position: SourcePosition::default(),
        });
        assert_eq!(refused, None);
    }
    let sums = hours.iter().map(|(name, type_name, hours)| UsageSum {
        values: vec![Some((*name).to_owned())],
        period: 0,
        price_key: Some(PriceKey::new(type_name.parse().unwrap(), PurchaseOption::OnDemand)),
        state: UsageState::Used,
        inferred: false,
        ppm_seconds: hours * HOUR,
        percent_seconds: 0,
        measured_seconds: 0,
    });
    let query = UsageQuery {
        from: Timestamp::UNIX_EPOCH,
        until: Timestamp::MAX,
        by: vec![by],
        filters: Vec::new(),
        price_changes: Vec::new(),
    };
    report(&query, sums.collect(), Some(&book), &[], usize::MAX)
}

fn shown(report: &BudgetReport) -> Vec<String> {
    let items = report.items.iter().map(|item| {
        let forecast = item.forecast.map_or_else(|| "-".to_owned(), |one| one.to_string());
        format!("{}: {} {} {}", item.scope, item.spent, forecast, item.state)
    });
    items.collect()
}

#[test]
fn forecast_adds_the_mean_of_the_last_complete_days_for_the_rest_of_the_month() {
    // Half of the 16th and 14 days remain.
    let period = BudgetPeriod::new(at("2026-11-16T12:00:00Z"), Some(day("2026-10-01")));
    assert_eq!(period.recent, Some(at("2026-11-09T00:00:00Z")..at("2026-11-16T00:00:00Z")));
    assert_eq!(period.month.end, at("2026-12-01T00:00:00Z"));
    let h100 = "nvidia-h100-80gb";
    let spent = [("ok", h100, 100), ("risk", h100, 100), ("over", h100, 301)];
    let costs = BudgetCosts {
        by: Dimension::Namespace,
        month: costs(Dimension::Namespace, &spent),
        recent: Some(costs(Dimension::Namespace, &[("ok", h100, 70), ("risk", h100, 100)])),
    };
    let names = ["ok", "risk", "over", "unused"];
    let budgets = names.map(|name| budget(namespace(name), "300"));
    let report = period.report(&budgets, &[costs]);
    let expected = [
        "namespace ok: 100.0000 245.0000 ok",
        "namespace risk: 100.0000 307.1429 at-risk",
        "namespace over: 301.0000 301.0000 exceeded",
        "namespace unused: 0.0000 0.0000 ok",
    ];
    assert_eq!(shown(&report), expected);
    assert_eq!(report.month, "2026-11");
    assert!((report.items[0].spent_ratio().unwrap() - 1.0 / 3.0).abs() < 1e-9);
    assert!((report.items[0].forecast_ratio().unwrap() - 245.0 / 300.0).abs() < 1e-9);
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["items"][1]["namespace"], "risk");
    assert_eq!(serde_json::from_value::<BudgetReport>(json).unwrap(), report);
}

#[test]
fn without_a_complete_day_there_is_no_forecast() {
    let now = at("2026-11-16T12:00:00Z");
    for (begins, recent) in [
        (None, None),
        (Some("2026-11-16"), None),
        (Some("2026-11-15"), None),
        (Some("2026-11-14"), Some("2026-11-15T00:00:00Z")),
        (Some("2026-01-01"), Some("2026-11-09T00:00:00Z")),
    ] {
        let period = BudgetPeriod::new(now, begins.map(day));
        assert_eq!(period.recent.map(|recent| recent.start), recent.map(at), "{begins:?}");
    }
    let period = BudgetPeriod::new(now, None);
    let month =
        costs(Dimension::Team, &[("a", "nvidia-h100-80gb", 10), ("b", "nvidia-h100-80gb", 3)]);
    let costs = BudgetCosts { by: Dimension::Team, month, recent: None };
    let budgets = ["a", "b"].map(|name| budget(BudgetScope::Team(name.to_owned()), "5"));
    let report = period.report(&budgets, &[costs]);
    assert_eq!(shown(&report), ["team a: 10.0000 - exceeded", "team b: 3.0000 - unknown"]);
    assert_eq!(report.items[1].forecast_ratio(), None);
}

#[test]
fn costs_in_other_currencies_and_without_a_price_are_noted_and_not_counted() {
    let period = BudgetPeriod::new(at("2026-11-16T12:00:00Z"), None);
    let hours =
        [("a", "nvidia-h100-80gb", 10), ("a", "nvidia-l4-24gb", 1000), ("a", "nvidia-a10-24gb", 2)];
    let month = costs(Dimension::Namespace, &hours);
    let costs = BudgetCosts { by: Dimension::Namespace, month, recent: None };
    let report = period.report(&[budget(namespace("a"), "100")], &[costs]);
    assert_eq!(shown(&report), ["namespace a: 10.0000 - unknown"]);
    assert_eq!(
        report.notes,
        [
            "the budget of namespace a does not include 1,000.00 EUR and 2.0 device hours without a price"
        ]
    );
}

proptest! {
    /// With the same cost every day, the forecast is the cost of the whole month at any time of the month.
    #[test]
    fn constant_cost_has_an_exact_forecast(second in 0_i64..30 * 86_400, daily in 1_i64..50) {
        let start = at("2026-11-01T00:00:00Z");
        let now = Timestamp::from_second(start.as_second() + second).unwrap();
        let period = BudgetPeriod::new(now, Some(day("2026-01-01")));
        let h100 = "nvidia-h100-80gb";
        let mut month = costs(Dimension::Namespace, &[("a", h100, 0)]);
        let spent = octavo_fleet::price::Amount::ZERO;
        let exact: octavo_fleet::price::Amount = "24".parse().unwrap();
        let spent = spent.checked_add(exact.checked_mul((daily * second).into()).unwrap()).unwrap();
        let days = exact.checked_mul((30 * 86_400 * daily).into()).unwrap();
        month.items[0].usage.costs[0].total = spent;
        let mut recent = costs(Dimension::Namespace, &[("a", h100, 0)]);
        recent.items[0].usage.costs[0].total = exact.checked_mul((7 * 86_400 * daily).into()).unwrap();
        let costs = BudgetCosts { by: Dimension::Namespace, month, recent: Some(recent) };
        let report = period.report(&[budget(namespace("a"), "1")], &[costs]);
        prop_assert_eq!(report.items[0].forecast, Some(days.rounded(4)));
        prop_assert_eq!(report.items[0].state == BudgetState::Exceeded, second > 0);
    }
}
