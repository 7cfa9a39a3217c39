//! Page of a monthly report, without external files, with a section for each team.

use askama::Template;
use jiff::{Timestamp, ToSpan};
use octavo_ledger::report::CostItem;
use octavo_ledger::{Dimension, MAX_PAST_SECONDS};
use octavo_model::text::{count_noun, printable, shell_word};

use crate::change::CostChange;
use crate::monthly::{MonthlyReport, begins_within, name_of_month, start};
use crate::section::{Section, SummaryRow, omits_days, omits_idle, section_name};

#[derive(Template)]
#[template(path = "monthly.html")]
struct MonthlyPage {
    month: String,
    /// Team, or number of teams.
    scope: String,
    at: String,
    notes: Vec<String>,
    /// Rows of the teams and of all usage; empty if the report has one team only.
    summary: Vec<SummaryRow>,
    /// Name of the previous month, if the usage can be compared with it.
    previous_month: Option<String>,
    sections: Vec<Section>,
    /// Command that returns the same totals.
    command: String,
}

impl MonthlyReport {
    /// Renders the page.
    ///
    /// # Errors
    /// Fails if the template cannot be rendered.
    pub fn html(&self) -> Result<String, askama::Error> {
        let teams = self.reported();
        let sections = teams.iter().zip(1..).map(|(team, number)| Section::new(self, number, team));
        let has_summary = self.team.is_none() && !teams.is_empty();
        let named = teams.iter().filter(|item| item.group.contains_key(&Dimension::Team)).count();
        let page = MonthlyPage {
            month: name_of_month(self.month),
            scope: match &self.team {
                Some(team) => format!("Team {}", printable(team)),
                None => count_noun(named, "team", "teams"),
            },
            at: format_time(self.at),
            notes: self.notes(named).into_iter().chain(self.limit_notes(&teams)).collect(),
            summary: if has_summary { self.summary(&teams) } else { Vec::new() },
            previous_month: self.is_comparable().then(|| name_of_month(self.previous_month())),
            sections: sections.collect(),
            command: self.command(),
        };
        // A template ends without a line break.
        Ok(page.render()? + "\n")
    }

    fn summary(&self, teams: &[&CostItem]) -> Vec<SummaryRow> {
        let rows = teams.iter().zip(1..).map(|(team, number)| {
            let change = self.change(team);
            SummaryRow::new(self, Some(number), section_name(team), &team.usage, change)
        });
        let omitted = self.teams.omitted.iter().map(|omitted| {
            let name = omitted.label(&self.teams.by);
            SummaryRow::new(self, None, name, &omitted.usage, None)
        });
        let total = &self.teams.total;
        let change = self.is_comparable().then(|| CostChange::new(total, &self.previous.total));
        let total = SummaryRow::new(self, None, "Total".to_owned(), total, change);
        rows.chain(omitted).chain([total]).collect()
    }

    fn command(&self) -> String {
        let month = self.month.strftime("%Y-%m");
        let team =
            self.team.as_deref().map(|team| format!(" --team={}", shell_word(&printable(team))));
        format!("octavo cost --month {month} --by team{}", team.unwrap_or_default())
    }

    /// Notes on missing and provisional data. `named` is the number of teams.
    fn notes(&self, named: usize) -> Vec<String> {
        let mut notes = Vec::new();
        let end = start(self.next_month());
        let last_change = end.saturating_add(MAX_PAST_SECONDS.seconds()).unwrap_or(Timestamp::MAX);
        if self.at < end {
            notes.push(format!(
                "The month is not over. The report has the usage until {}.",
                format_time(self.at)
            ));
        } else if self.at < last_change {
            notes.push(format!(
                "The figures can change until {}, because nodes can report usage up to seven days later.",
                format_time(last_change)
            ));
        }
        if self.teams.items.is_empty() {
            notes.push("The ledger has no usage in this month.".to_owned());
        } else if let Some(team) = self.team.as_ref().filter(|_| !self.has_usage()) {
            notes.push(format!(
                "The ledger has no usage of team {} in this month.",
                printable(team)
            ));
        } else if named == 0 {
            let note = "No pod had a team. The setting aggregator.ledger.teamLabel (--ledger-team-label) names the label of pods that contains it.";
            notes.push(note.to_owned());
        }
        if let Some(begins) = self.teams.begins.as_ref().filter(|_| begins_within(&self.teams)) {
            notes.push(format!("The ledger begins on {begins}. Earlier usage is not known."));
        } else if let Some(begins) =
            self.workloads.begins.as_ref().filter(|_| begins_within(&self.workloads))
        {
            notes.push(format!(
                "Usage by workload begins on {begins}. Earlier details are deleted."
            ));
        }
        if self.at >= end && !self.is_comparable() {
            let previous = name_of_month(self.previous_month());
            notes.push(format!(
                "There is no comparison with {previous}, because the ledger does not have the whole month."
            ));
        }
        notes.extend(self.types.notes.iter().map(|note| format!("Note: {}.", printable(note))));
        notes
    }

    /// Notes on groups that are missing because the number of listed groups of all teams is limited.
    fn limit_notes(&self, teams: &[&CostItem]) -> Vec<String> {
        let mut notes = Vec::new();
        let tables = [&self.types, &self.workloads];
        if tables.iter().any(|report| report.omitted.iter().any(|one| one.further_values)) {
            let note = "More than 1,000 teams have types or workloads that are not listed. The tables of further teams do not add up to their totals.";
            notes.push(note.to_owned());
        }
        let count = |omits: fn(&Self, &CostItem) -> bool| {
            let count = teams.iter().filter(|team| omits(self, team)).count();
            (count > 0).then(|| count_noun(count, "team", "teams"))
        };
        notes.extend(count(omits_days).map(|teams| {
            format!("There is no chart for {teams}, because not all days are listed.")
        }));
        notes.extend(
            count(omits_idle).map(|teams| {
                format!("Idle allocations with low costs are not listed for {teams}.")
            }),
        );
        notes
    }
}

fn format_time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%d %H:%M UTC").to_string()
}

#[cfg(test)]
mod tests;
