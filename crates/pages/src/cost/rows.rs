//! Rows and totals of the page of cost.

use jiff::ToSpan;
use jiff::civil::Date;
use octavo_cost_report::text::{StateStyle, group_name, hours, share, states, utilization};
use octavo_fleet::availability::UnitType;
use octavo_ledger::Dimension;
use octavo_ledger::compare::Alternative;
use octavo_ledger::report::{CostItem, Hours, Usage};
use octavo_model::text::join;

use super::request::CostRequest;
use crate::badges::printable;
use crate::bar::{Bar, Segment};

/// Height of the bar of a row, in pixels.
const BAR_HEIGHT: u32 = 10;
/// Height of the bar of all usage, in pixels.
const TOTAL_BAR_HEIGHT: u32 = 16;

/// Row of a group.
#[derive(Debug)]
pub(super) struct CostRow {
    pub(super) id: String,
    pub(super) name: String,
    /// Explanation or canonical name; empty if there is none.
    pub(super) note: String,
    /// Link to the parts of the group.
    pub(super) href: Option<String>,
    pub(super) bar: Bar,
    pub(super) total: String,
    pub(super) used: String,
    pub(super) idle: String,
    pub(super) unallocated: String,
    pub(super) utilization: String,
    pub(super) cost: String,
    pub(super) idle_cost: String,
    /// Cost on each compared type.
    pub(super) alternatives: Vec<(String, String)>,
}

/// Workload with idle allocations.
#[derive(Debug)]
pub(super) struct IdleWorkload {
    pub(super) name: String,
    pub(super) href: String,
    pub(super) idle: String,
    /// Share of its device hours.
    pub(super) share: String,
    pub(super) cost: String,
}

/// Usage of all groups.
#[derive(Debug)]
pub(super) struct Totals {
    /// Cost in each currency: amount and currency.
    pub(super) costs: Vec<(String, String)>,
    pub(super) idle_cost: String,
    pub(super) hours: String,
    pub(super) bar: Bar,
    pub(super) states: Vec<StateTotal>,
}

/// Device hours in a state.
#[derive(Debug)]
pub(super) struct StateTotal {
    pub(super) style: StateStyle,
    pub(super) hours: String,
    pub(super) share: String,
}

/// Bar of device hours by state.
fn bar(of: &Hours, height: u32) -> Bar {
    let mut before = 0.0;
    let mut segments = Vec::new();
    let mut words = Vec::new();
    for ((kind, fill, word), part) in states(of) {
        if part > 0.0 && of.total > 0.0 {
            let width = part / of.total * 100.0;
            let segment = Segment {
                kind,
                fill,
                x: format!("{before:.2}"),
                width: format!("{:.2}", (width - 0.4).max(0.1)),
            };
            segments.push(segment);
            before += width;
            words.push(format!("{} {word}", share(part, of.total)));
        }
    }
    Bar { label: join(words, ", "), height, segments }
}

impl CostRow {
    pub(super) fn new(number: usize, item: &CostItem, request: &CostRequest) -> Self {
        let usage = &item.usage;
        let by = &request.query.usage.by;
        let (name, note) = if let [one] = by.as_slice() {
            group_name(*one, item.group.get(one).map(String::as_str))
        } else {
            let values =
                by.iter().map(|one| group_name(*one, item.group.get(one).map(String::as_str)));
            (join(values.map(|(name, _)| name), ", "), String::new())
        };
        let hours_of = &usage.device_hours;
        Self {
            id: format!("cost-{number}"),
            name,
            note,
            href: drill_down(item, request),
            bar: bar(hours_of, BAR_HEIGHT),
            total: hours(hours_of.total),
            used: hours(hours_of.used),
            idle: hours(hours_of.idle),
            unallocated: hours(hours_of.unallocated),
            utilization: utilization(usage),
            cost: usage.shown_costs(|cost| cost.total),
            idle_cost: usage.shown_costs(|cost| cost.idle),
            alternatives: usage
                .alternatives
                .iter()
                .map(|one| (compared_heading(one), one.shown()))
                .collect(),
        }
    }
}

/// Heading of the costs on a compared type.
pub(super) fn compared_heading(one: &Alternative) -> String {
    format!("Cost on {}", UnitType::Known(one.type_name.clone()).product_name())
}

/// Address of the parts of a group: the workloads of a namespace, the days of a workload. Groups without the property, and
/// combinations of properties, have none.
fn drill_down(item: &CostItem, request: &CostRequest) -> Option<String> {
    let [one] = request.query.usage.by.as_slice() else {
        return None;
    };
    let value = item.group.get(one)?.as_str();
    let property = one.to_string();
    Some(match one {
        Dimension::Namespace | Dimension::Team | Dimension::Node => {
            request.link(&[(&property, value), ("by", "workload")])
        }
        Dimension::Type | Dimension::Profile | Dimension::Method => {
            request.link(&[(&property, value), ("by", "namespace")])
        }
        Dimension::Workload => workload_link(value, request),
        Dimension::Pod => request.link(&[(&property, value), ("by", "day")]),
        Dimension::Day => {
            let day: Date = value.parse().ok()?;
            let next = day.saturating_add(1.day()).to_string();
            let by = if request.has_filter(Dimension::Workload) { "pod" } else { "workload" };
            request.link(&[("from", value), ("until", &next), ("by", by)])
        }
    })
}

fn workload_link(workload: &str, request: &CostRequest) -> String {
    let namespace = workload.split('/').next().unwrap_or_default();
    request.link(&[("namespace", namespace), ("workload", workload), ("by", "day")])
}

impl IdleWorkload {
    /// Row of a workload; `None` if the group has none.
    pub(super) fn new(item: &CostItem, request: &CostRequest) -> Option<Self> {
        let workload = item.group.get(&Dimension::Workload)?;
        let of = &item.usage.device_hours;
        Some(Self {
            name: printable(workload),
            href: workload_link(workload, request),
            idle: hours(of.idle),
            share: share(of.idle, of.total),
            cost: item.usage.shown_costs(|cost| cost.idle),
        })
    }
}

impl Totals {
    pub(super) fn new(usage: &Usage) -> Self {
        let of = &usage.device_hours;
        let costs_of = usage.costs.iter();
        Self {
            costs: costs_of
                .map(|cost| (cost.total.shown_in_hundredths(), cost.currency.to_string()))
                .collect(),
            idle_cost: usage.shown_costs(|cost| cost.idle),
            hours: hours(of.total),
            bar: bar(of, TOTAL_BAR_HEIGHT),
            states: states(of)
                .map(|(style, part)| StateTotal {
                    style,
                    hours: hours(part),
                    share: share(part, of.total),
                })
                .into(),
        }
    }
}
