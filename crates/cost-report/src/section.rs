//! Sections and rows of the monthly report.

use octavo_fleet::price::Amount;
use octavo_ledger::report::{Cost, CostItem, CostReport, Hours, Usage};
use octavo_ledger::{CostOrder, Dimension};
use octavo_model::text::group_thousands;

use crate::change::CostChange;
use crate::daily::DailyUsage;
use crate::monthly::{MonthlyReport, name_of_month};
use crate::text::{StateStyle, group_name, hours, share, states, utilization};

/// Maximum number of workloads in the table of a team.
pub const MAX_WORKLOADS: usize = 20;
/// Maximum number of workloads in the table of idle allocations.
pub const MAX_IDLE_WORKLOADS: usize = 5;

/// Limit of differences of device hours that rounding causes.
const MAX_ROUNDING_HOURS: f64 = 0.001;

/// Section of a team.
#[derive(Debug)]
pub(crate) struct Section {
    pub(crate) number: u32,
    pub(crate) name: String,
    /// Explanation; empty for teams.
    pub(crate) note: String,
    pub(crate) figures: Vec<Figure>,
    /// Style, hours and share of each state that occurs.
    pub(crate) states: Vec<(StateStyle, String, String)>,
    /// Chart of days; `None` if days of the team are not listed.
    pub(crate) daily: Option<DailyUsage>,
    pub(crate) types: Vec<UsageRow>,
    pub(crate) workloads: Vec<UsageRow>,
    /// Workloads with the highest cost of idle device hours.
    pub(crate) idle: Vec<UsageRow>,
    pub(crate) notes: Vec<String>,
}

/// Key figure.
#[derive(Debug)]
pub(crate) struct Figure {
    pub(crate) name: &'static str,
    /// Values, one for each currency.
    pub(crate) values: Vec<String>,
    /// Context of the values.
    pub(crate) notes: Vec<String>,
}

/// Row of a type or workload.
#[derive(Debug)]
pub(crate) struct UsageRow {
    pub(crate) name: String,
    /// Canonical name; empty if there is none.
    pub(crate) note: String,
    pub(crate) total: String,
    pub(crate) used: String,
    pub(crate) idle: String,
    /// Share of idle in all device hours.
    pub(crate) idle_share: String,
    pub(crate) utilization: String,
    pub(crate) cost: String,
    pub(crate) idle_cost: String,
}

/// Row of a team in the summary.
#[derive(Debug)]
pub(crate) struct SummaryRow {
    /// Number of the section; `None` for the sum of all rows.
    pub(crate) section: Option<u32>,
    pub(crate) name: String,
    pub(crate) total: String,
    pub(crate) idle: String,
    /// Share of the device hours of the fleet.
    pub(crate) share: String,
    pub(crate) cost: String,
    pub(crate) idle_cost: String,
    /// Change against the previous month; empty if the months cannot be compared.
    pub(crate) change: String,
}

impl Section {
    /// Section of a team of the report.
    pub(crate) fn new(report: &MonthlyReport, number: u32, team: &CostItem) -> Self {
        let usage = &team.usage;
        let device_hours = usage.device_hours;
        let types = rows(&report.types, team, Dimension::Type);
        let workloads = rows(&report.workloads, team, Dimension::Workload);
        let idle = items(&report.idle, team, CostOrder::Idle).into_iter().filter(|item| {
            item.usage.device_hours.idle > 0.0 && item.group.contains_key(&Dimension::Workload)
        });
        let states = states(&device_hours).into_iter().filter(|(_, part)| *part > 0.0);
        let has_team = team.group.contains_key(&Dimension::Team);
        let days = (!omits_days(report, team)).then(|| items(&report.days, team, CostOrder::Hours));
        Self {
            number,
            name: section_name(team),
            note: if has_team {
                String::new()
            } else {
                "Pods without a team, and device hours that were not allocated or not reported."
                    .to_owned()
            },
            figures: figures(report, team),
            states: states
                .map(|(style, part)| (style, hours(part), share(part, device_hours.total)))
                .collect(),
            daily: days.and_then(|days| DailyUsage::new(days, &report.dates())),
            types,
            workloads,
            idle: idle
                .take(MAX_IDLE_WORKLOADS)
                .map(|item| UsageRow::new(item, Dimension::Workload))
                .collect(),
            notes: notes(usage),
        }
    }
}

/// Name of the section of a team.
pub(crate) fn section_name(team: &CostItem) -> String {
    let name = team.group.get(&Dimension::Team).map(String::as_str);
    group_name(Dimension::Team, name).0
}

/// Groups of a team in a report.
fn items<'a>(report: &'a CostReport, team: &CostItem, order: CostOrder) -> Vec<&'a CostItem> {
    let name = team.group.get(&Dimension::Team);
    let items = report.items.iter().filter(|item| item.group.get(&Dimension::Team) == name);
    let mut items: Vec<&CostItem> = items.collect();
    order.sort(report, &mut items);
    items
}

/// Returns whether days of a team are not listed, because the number of listed groups of all teams is limited.
pub(crate) fn omits_days(report: &MonthlyReport, team: &CostItem) -> bool {
    report.days.omitted_items > 0 && is_part(&report.days, team, |hours| hours.total)
}

/// Returns whether idle allocations of a team are missing in its table, because the number of listed groups of all teams is limited.
pub(crate) fn omits_idle(report: &MonthlyReport, team: &CostItem) -> bool {
    let name = team.group.get(&Dimension::Team);
    let mut omitted = report.idle.omitted.iter();
    let listed = report.idle.items.iter().filter(|item| item.group.get(&Dimension::Team) == name);
    omitted.any(|one| one.further_values || one.group.get(&Dimension::Team) == name)
        && listed.count() < MAX_IDLE_WORKLOADS
        && is_part(&report.idle, team, |hours| hours.idle)
}

/// Returns whether the listed groups of a team have fewer device hours than the team.
fn is_part(report: &CostReport, team: &CostItem, part: fn(&Hours) -> f64) -> bool {
    let name = team.group.get(&Dimension::Team);
    let listed = report.items.iter().filter(|item| item.group.get(&Dimension::Team) == name);
    let sum: f64 = listed.map(|item| part(&item.usage.device_hours)).sum();
    sum + MAX_ROUNDING_HOURS < part(&team.usage.device_hours)
}

/// Rows of the groups of a team, the most expensive first. The last row has the groups that the report does not list.
fn rows(report: &CostReport, team: &CostItem, dimension: Dimension) -> Vec<UsageRow> {
    let items = items(report, team, CostOrder::Cost).into_iter();
    let name = team.group.get(&Dimension::Team);
    let omitted = report.omitted.iter().filter(|one| !one.further_values);
    let omitted = omitted.filter(|one| one.group.get(&Dimension::Team) == name);
    let omitted = omitted.map(|one| {
        let groups = group_thousands(&one.groups.to_string());
        let name = format!("other: {groups} {}", dimension.noun(one.groups));
        UsageRow::of(name, String::new(), &one.usage)
    });
    items.map(|item| UsageRow::new(item, dimension)).chain(omitted).collect()
}

fn figures(report: &MonthlyReport, team: &CostItem) -> Vec<Figure> {
    let usage = &team.usage;
    let device_hours = usage.device_hours;
    let previous = name_of_month(report.previous_month());
    let change = report.change(team);
    let costs = change.iter().flat_map(|change| &change.costs);
    let costs = costs.map(|(_, change)| change.since(&previous));
    let hours_change = change.as_ref().map(|change| change.hours.since(&previous));
    let each = |amount: fn(&Cost) -> Amount| {
        let shown = |cost: &Cost| amount(cost).shown_with(&cost.currency);
        usage.costs.iter().map(shown).collect::<Vec<String>>()
    };
    let fleet = report.teams.total.device_hours.total;
    let all = [
        Figure { name: "Cost", values: each(|cost| cost.total), notes: costs.collect() },
        Figure {
            name: "Cost of idle",
            values: each(|cost| cost.idle),
            notes: vec![format!(
                "{} of the device hours are idle",
                share(device_hours.idle, device_hours.total)
            )],
        },
        Figure {
            name: "Device hours",
            values: vec![hours(device_hours.total)],
            notes: hours_change.into_iter().collect(),
        },
        Figure {
            name: "Share of the fleet",
            values: vec![share(device_hours.total, fleet)],
            notes: vec![format!("of {} device hours", hours(fleet))],
        },
    ];
    all.into_iter().filter(|figure| !figure.values.is_empty()).collect()
}

/// Notes on the origin of the figures of a team.
fn notes(usage: &Usage) -> Vec<String> {
    let mut notes = Vec::new();
    if usage.unpriced_hours > 0.0 {
        notes.push(format!(
            "{} device hours have no price, so the cost does not include them.",
            hours(usage.unpriced_hours)
        ));
    }
    if usage.inferred_hours > 0.0 {
        notes.push(format!(
            "{} device hours are inferred: no report covers them, but the same pods had the devices before and after.",
            hours(usage.inferred_hours)
        ));
    }
    if usage.device_hours.unknown > 0.0 {
        notes.push(format!(
            "{} device hours are unknown: their nodes did not report, or could not read allocations.",
            hours(usage.device_hours.unknown)
        ));
    }
    notes
}

impl UsageRow {
    fn new(item: &CostItem, dimension: Dimension) -> Self {
        let (name, note) = group_name(dimension, item.group.get(&dimension).map(String::as_str));
        Self::of(name, note, &item.usage)
    }

    fn of(name: String, note: String, usage: &Usage) -> Self {
        let device_hours = usage.device_hours;
        Self {
            name,
            note,
            total: hours(device_hours.total),
            used: hours(device_hours.used),
            idle: hours(device_hours.idle),
            idle_share: share(device_hours.idle, device_hours.total),
            utilization: utilization(usage),
            cost: usage.shown_costs(|cost| cost.total),
            idle_cost: usage.shown_costs(|cost| cost.idle),
        }
    }
}

impl SummaryRow {
    /// Row of usage and its change.
    pub(crate) fn new(
        report: &MonthlyReport,
        section: Option<u32>,
        name: String,
        usage: &Usage,
        change: Option<CostChange>,
    ) -> Self {
        let device_hours = usage.device_hours;
        Self {
            section,
            name,
            total: hours(device_hours.total),
            idle: hours(device_hours.idle),
            share: share(device_hours.total, report.teams.total.device_hours.total),
            cost: usage.shown_costs(|cost| cost.total),
            idle_cost: usage.shown_costs(|cost| cost.idle),
            change: change.map(CostChange::summary).unwrap_or_default(),
        }
    }
}
