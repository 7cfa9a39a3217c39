//! Usage and cost of a month by team, and its comparison with the previous month.

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use octavo_ledger::report::{CostItem, CostReport, Usage};
use octavo_ledger::{CostOrder, Dimension};

use crate::change::CostChange;

/// Documents of the aggregator about a month, and the time of the report.
#[derive(Debug)]
pub struct MonthlyReport {
    /// First day of the month.
    pub month: Date,
    /// Time of the report.
    pub at: Timestamp,
    /// The only team in the report; `None` for all.
    pub team: Option<String>,
    /// Usage of all teams, by team.
    pub teams: CostReport,
    /// Usage of all teams in the previous month, by team.
    pub previous: CostReport,
    /// Usage of the reported teams, by team and type.
    pub types: CostReport,
    /// Usage of the reported teams, by team and workload: the most expensive workloads of each team.
    pub workloads: CostReport,
    /// The same, with the workloads whose idle device hours are the most expensive ones.
    pub idle: CostReport,
    /// Usage of the reported teams, by team and day.
    pub days: CostReport,
}

impl MonthlyReport {
    /// Returns whether the month has usage of a reported team.
    pub fn has_usage(&self) -> bool {
        !self.reported().is_empty()
    }

    /// The reported teams, the most expensive first. Usage without a team is last.
    pub(crate) fn reported(&self) -> Vec<&CostItem> {
        let mut items = CostOrder::Cost.sorted(&self.teams);
        items.sort_by_key(|item| !item.group.contains_key(&Dimension::Team));
        if let Some(team) = &self.team {
            items.retain(|item| item.group.get(&Dimension::Team) == Some(team));
        }
        items
    }

    /// Change of a team against the previous month; `None` if the months cannot be compared.
    pub(crate) fn change(&self, team: &CostItem) -> Option<CostChange> {
        let previous = self.previous.items.iter().find(|item| item.group == team.group);
        let none = Usage::default();
        let is_known = previous.is_some() || self.previous.omitted_items == 0;
        let previous = previous.map_or(&none, |item| &item.usage);
        (is_known && self.is_comparable()).then(|| CostChange::new(&team.usage, previous))
    }

    /// Only whole months can be compared.
    pub(crate) fn is_comparable(&self) -> bool {
        self.at >= start(self.next_month()) && !begins_within(&self.previous)
    }

    pub(crate) fn next_month(&self) -> Date {
        self.month.saturating_add(1.month())
    }

    pub(crate) fn previous_month(&self) -> Date {
        self.month.saturating_sub(1.month())
    }

    /// Days of the month.
    pub(crate) fn dates(&self) -> Vec<Date> {
        self.month.series(1.day()).take_while(|day| *day < self.next_month()).collect()
    }
}

/// Name of a month: `November 2026`.
pub(crate) fn name_of_month(month: Date) -> String {
    month.strftime("%B %Y").to_string()
}

/// Returns whether the ledger begins after the start of the report, or is empty.
pub(crate) fn begins_within(report: &CostReport) -> bool {
    let from = report.from.to_zoned(TimeZone::UTC).date().to_string();
    report.begins.as_ref().is_none_or(|begins| *begins > from)
}

/// Start of a day.
pub(crate) fn start(day: Date) -> Timestamp {
    let start = day.to_zoned(TimeZone::UTC);
    start.map_or(Timestamp::MAX, |start| start.timestamp())
}
