//! Groups that a report lists, and those that it sums up.

use octavo_fleet::price::{PriceBook, PriceEntry, PriceKey, PurchaseOption, Validity};
use octavo_model::source_position::SourcePosition;
use proptest::prelude::*;

use crate::csv::to_csv;
use crate::report::{CostReport, GroupLimit, ReportBuilder, report};
use crate::{CostOrder, Day, Dimension, UsageQuery, UsageState, UsageSum};

const HOUR: i64 = 3600 * 1_000_000;
/// Types and their prices; the last one has none.
const TYPES: [&str; 3] = ["nvidia-h100-80gb", "nvidia-l4-24gb", "nvidia-a10-24gb"];

fn prices() -> PriceBook {
    let mut book = PriceBook::new("USD".parse().unwrap());
    for (type_name, per_hour, currency) in [(TYPES[0], "40", "USD"), (TYPES[1], "0.5", "EUR")] {
        let refused = book.add(PriceEntry {
            key: PriceKey::new(type_name.parse().unwrap(), PurchaseOption::OnDemand),
            validity: Validity::default(),
            per_hour: per_hour.parse().unwrap(),
            currency: currency.parse().unwrap(),
            position: SourcePosition::default(),
        });
        assert_eq!(refused, None);
    }
    book
}

fn query(by: &[Dimension]) -> UsageQuery {
    UsageQuery {
        from: Day(20_758).start_time(),
        until: Day(20_788).start_time(),
        by: by.to_vec(),
        filters: Vec::new(),
        price_changes: Vec::new(),
    }
}

fn usage(values: &[&str], type_name: &str, state: UsageState, hours: i64) -> UsageSum {
    UsageSum {
        values: values.iter().map(|value| Some((*value).to_owned())).collect(),
        period: 0,
        price_key: Some(PriceKey::new(type_name.parse().unwrap(), PurchaseOption::OnDemand)),
        state,
        inferred: false,
        ppm_seconds: hours * HOUR,
        percent_seconds: 50 * hours,
        measured_seconds: hours,
    }
}

fn limited(by: &[Dimension], sums: &[UsageSum], limit: GroupLimit) -> CostReport {
    let (query, book) = (query(by), prices());
    let mut builder = ReportBuilder::new(&query, Some(&book), &[], limit);
    for sum in sums {
        builder.add(sum);
    }
    builder.finish()
}

fn names(report: &CostReport) -> Vec<&str> {
    let last = report.by.last().unwrap();
    report.items.iter().map(|item| item.group[last].as_str()).collect()
}

#[test]
fn most_expensive_groups_are_listed_and_not_those_with_most_hours() {
    let sums = [
        usage(&["cheap"], TYPES[1], UsageState::Used, 100),
        usage(&["expensive"], TYPES[0], UsageState::Used, 10),
        usage(&["idle"], TYPES[0], UsageState::Idle, 1),
        usage(&["unpriced"], TYPES[2], UsageState::Used, 1000),
    ];
    let in_dollars: Vec<UsageSum> =
        sums.iter().filter(|sum| sum.values[0] != Some("cheap".to_owned())).cloned().collect();
    let by = [Dimension::Workload];
    let list = |order, groups| {
        let limit = GroupLimit { order, groups, is_per_value: false };
        limited(&by, &in_dollars, limit)
    };
    let report = list(CostOrder::Cost, 1);
    assert_eq!((names(&report), report.omitted_items), (vec!["expensive"], 2));
    let omitted = &report.omitted[0];
    assert_eq!(omitted.label(&report.by), "other: 2 workloads");
    assert_eq!((omitted.usage.device_hours.total, omitted.usage.unpriced_hours), (1001.0, 1000.0));
    assert_eq!(omitted.usage.shown_costs(|cost| cost.total), "40.00 USD");
    assert_eq!(names(&list(CostOrder::Hours, 1)), ["unpriced"]);
    assert_eq!(names(&list(CostOrder::Idle, 1)), ["idle"]);
    assert_eq!(names(&list(CostOrder::Cost, 3)), ["expensive", "idle", "unpriced"]);
    assert_eq!(list(CostOrder::Cost, 3).omitted, []);
    // As in tables, the first currency comes first.
    let all = limited(&by, &sums, GroupLimit::most_expensive(2));
    assert_eq!(names(&all), ["cheap", "expensive"]);
}

#[test]
fn limit_applies_to_each_value_of_the_first_property() {
    let by = [Dimension::Team, Dimension::Workload];
    let used = |team, workload, hours| usage(&[team, workload], TYPES[0], UsageState::Used, hours);
    let mut none = used("", "x/Job/a", 3);
    none.values[0] = None;
    let sums = [
        none,
        used("a", "a/Job/a", 1),
        used("a", "a/Job/b", 3),
        used("a", "a/Job/c", 2),
        used("b", "b/Job/a", 5),
        used("b", "b/Job/b", 6),
        used("c", "c/Job/a", 1),
    ];
    let limit = GroupLimit { order: CostOrder::Cost, groups: 1, is_per_value: true };
    let report = limited(&by, &sums, limit);
    assert_eq!(names(&report), ["b/Job/b", "x/Job/a", "a/Job/b", "c/Job/a"]);
    assert_eq!(report.omitted_items, 3);
    let labels: Vec<(&str, String)> = report
        .omitted
        .iter()
        .map(|one| (one.group[&Dimension::Team].as_str(), one.label(&by)))
        .collect();
    let expected = [("a", "other: 2 workloads"), ("b", "other: 1 workload")];
    assert_eq!(labels, expected.map(|(team, label)| (team, label.to_owned())));
    let csv = to_csv(&report);
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines.len(), 1 + 4 + 2, "{csv}");
    let rows = [
        "a,other: 2 workloads,3,0,0,0,0,USD,120.0000,0.0000,0.0000,0.0000,120.0000",
        "b,other: 1 workload,5,0,0,0,0,USD,200.0000,0.0000,0.0000,0.0000,200.0000",
    ];
    assert_eq!(lines[5..], rows, "{csv}");
}

#[test]
fn groups_without_idle_cost_follow_idle_groups_in_another_currency_or_without_a_price() {
    let by = [Dimension::Team, Dimension::Workload];
    let sums = [
        usage(&["a", "euros"], TYPES[1], UsageState::Used, 100),
        usage(&["a", "idle-dollars"], TYPES[0], UsageState::Idle, 1),
        usage(&["b", "dollars"], TYPES[0], UsageState::Used, 100),
        usage(&["b", "idle-unpriced"], TYPES[2], UsageState::Idle, 5),
    ];
    let limit = GroupLimit { order: CostOrder::Idle, groups: 1, is_per_value: true };
    let report = limited(&by, &sums, limit);
    assert_eq!(names(&report), ["idle-dollars", "idle-unpriced"]);
    // The order of a complete report is the same.
    let all = limited(&by, &sums, GroupLimit { groups: 4, ..limit });
    assert_eq!(names(&all), ["idle-dollars", "idle-unpriced", "euros", "dollars"]);
    let sorted = CostOrder::Idle.sorted(&all);
    assert_eq!(sorted, all.items.iter().collect::<Vec<_>>());
}

#[test]
fn all_groups_are_in_the_totals_of_a_large_report() {
    let by = [Dimension::Team, Dimension::Workload];
    let (query, book) = (query(&by), prices());
    let limit = GroupLimit { order: CostOrder::Cost, groups: 10_000, is_per_value: true };
    let mut builder = ReportBuilder::new(&query, Some(&book), &[], limit);
    let mut hours = 0;
    for team in 0..6 {
        for workload in 0..20_000 {
            let names = [format!("team-{team}"), format!("ns/Job/{workload:05}")];
            let names = names.each_ref().map(String::as_str);
            hours += workload % 100;
            builder.add(&usage(&names, TYPES[0], UsageState::Used, workload % 100));
        }
    }
    let report = builder.finish();
    assert_eq!((report.items.len(), report.omitted_items), (25_000, 95_000));
    assert_eq!(report.total.costs[0].total.to_string(), format!("{}.0000", hours * 40));
    let listed = report.items.iter().map(|item| item.usage.device_hours.total);
    let omitted = report.omitted.iter().map(|one| one.usage.device_hours.total);
    let sum: f64 = listed.chain(omitted).sum();
    assert!((sum - report.total.device_hours.total).abs() < 1e-3, "{sum}");
    let least = report.items.last().unwrap().usage.device_hours.total;
    assert!((78.0..=80.0).contains(&least), "{least}");
}

#[test]
fn groups_of_many_values_are_summed_up_together_and_not_with_those_without_a_value() {
    let by = [Dimension::Team, Dimension::Workload];
    let mut sums = Vec::new();
    for team in 0..1200 {
        let team = format!("team-{team:04}");
        sums.push(usage(&[&team, "a"], TYPES[0], UsageState::Used, 2));
        sums.push(usage(&[&team, "b"], TYPES[0], UsageState::Used, 1));
    }
    for (workload, hours) in [("c", 5), ("d", 4)] {
        let mut none = usage(&["", workload], TYPES[0], UsageState::Used, hours);
        none.values[0] = None;
        sums.push(none);
    }
    let limit = GroupLimit { order: CostOrder::Cost, groups: 1, is_per_value: true };
    let report = limited(&by, &sums, limit);
    assert_eq!((report.items.len(), report.omitted_items), (1201, 1201));
    assert_eq!(report.omitted.len(), 1002);
    let none = &report.omitted[0];
    assert_eq!((none.group.len(), none.further_values), (0, false));
    assert_eq!((none.groups, none.usage.device_hours.total), (1, 4.0));
    let further = &report.omitted[1001];
    assert_eq!((further.group.len(), further.further_values), (0, true));
    assert_eq!((further.groups, further.usage.device_hours.total), (200, 200.0));
    assert_eq!(further.label(&by), "other: 200 workloads of further teams");
    assert!(to_csv(&report).contains("\n,other: 200 workloads of further teams,200,"));
}

#[test]
fn comparisons_lower_the_number_of_listed_groups() {
    let by = [Dimension::Team, Dimension::Workload];
    let (query, book) = (query(&by), prices());
    let compare = ["nvidia-h100-80gb".parse().unwrap(), "nvidia-l4-24gb".parse().unwrap()];
    let limit = GroupLimit { order: CostOrder::Cost, groups: 10_000, is_per_value: true };
    let mut builder = ReportBuilder::new(&query, Some(&book), &compare, limit);
    for team in ["a", "b"] {
        for workload in 0..6000 {
            let name = format!("{workload:04}");
            builder.add(&usage(&[team, &name], TYPES[0], UsageState::Used, workload));
        }
    }
    let report = builder.finish();
    assert_eq!((report.items.len(), report.omitted_items), (8333, 12_000 - 8333));
    let labels: Vec<String> = report.omitted.iter().map(|one| one.label(&by)).collect();
    assert_eq!(labels, ["other: 1,833 workloads", "other: 1,834 workloads"]);
}

fn sums() -> impl Strategy<Value = Vec<UsageSum>> {
    let state = prop::sample::select(vec![UsageState::Used, UsageState::Idle]);
    let one = (0..4_usize, 0..12_usize, 0..3_usize, state, 0..50_i64);
    prop::collection::vec(one, 0..80).prop_map(|all| {
        let sums = all.into_iter().map(|(team, workload, type_name, state, hours)| {
            let (team, workload) = (format!("team-{team}"), format!("w{workload:02}"));
            usage(&[&team, &workload], TYPES[type_name], state, hours)
        });
        let mut sums: Vec<UsageSum> = sums.collect();
        sums.sort_by(|one, two| one.values.cmp(&two.values));
        sums
    })
}

proptest! {
    #[test]
    fn listed_and_omitted_groups_add_up_to_all_groups(
        sums in sums(),
        groups in 1_usize..8,
        is_per_value: bool,
        order in prop::sample::select(CostOrder::ALL.to_vec()),
    ) {
        let by = [Dimension::Team, Dimension::Workload];
        let book = prices();
        let all = report(&query(&by), sums.clone(), Some(&book), &[], 1000);
        let found = limited(&by, &sums, GroupLimit { order, groups, is_per_value });
        prop_assert_eq!(&found.total, &all.total);
        // The first groups of the complete report, of each team or of all.
        let mut expected = Vec::new();
        let teams: Vec<Option<&str>> = if is_per_value {
            vec![Some("team-0"), Some("team-1"), Some("team-2"), Some("team-3")]
        } else {
            vec![None]
        };
        for team in teams {
            let mut items: Vec<_> = all.items.iter().collect();
            items.retain(|item| team.is_none_or(|team| item.group[&Dimension::Team] == team));
            items.sort_by(|one, two| one.group.cmp(&two.group));
            order.sort(&all, &mut items);
            expected.extend(items.into_iter().take(groups).cloned());
        }
        let sorted = |mut items: Vec<crate::report::CostItem>| {
            items.sort_by(|one, two| one.group.cmp(&two.group));
            items
        };
        prop_assert_eq!(sorted(found.items.clone()), sorted(expected));
        let omitted: u64 = found.omitted.iter().map(|one| one.groups).sum();
        prop_assert_eq!(found.items.len() + usize::try_from(omitted).unwrap(), all.items.len());
        let hours: f64 = found.items.iter().map(|item| item.usage.device_hours.total)
            .chain(found.omitted.iter().map(|one| one.usage.device_hours.total)).sum();
        prop_assert!((hours - all.total.device_hours.total).abs() < 1e-3);
    }
}
