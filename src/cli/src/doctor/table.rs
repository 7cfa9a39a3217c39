//! Findings as a table: a row each, followed by the evidence and the recommended action.

use octavo_node::doctor::{CheckResult, Finding, VerdictCounts, count_verdicts};

use crate::settings::Colors;
use crate::style::Style;
use crate::text::{Cell, columns, count_noun, wrap};

/// Indentation of the lines below a row.
const INDENT: usize = 4;

/// Equal findings of several subjects.
#[derive(Debug)]
struct Row<'a> {
    first: &'a Finding,
    more: usize,
}

/// Formats the findings that apply with their evidence, then those that do not, then the counts.
pub(super) fn table(findings: &[Finding], colors: Colors) -> String {
    let rows = rows(findings);
    let mut heads = vec![["RESULT", "CHECK", "SUBJECT"].map(Cell::plain).to_vec()];
    heads.extend(rows.iter().map(head));
    let heads = columns(&heads, colors);
    let mut heads = heads.lines();
    let mut text = String::new();
    if !rows.is_empty() {
        text.push_str(heads.next().unwrap_or_default());
        text.push('\n');
    }
    for (head, row) in heads.zip(&rows) {
        text.push_str(head);
        text.push('\n');
        text.push_str(&below("", &row.first.evidence));
        if let Some(remedy) = &row.first.remedy {
            text.push_str(&below("try: ", remedy));
        }
    }
    // If nothing applies, the first check's reason is the reason for all.
    if let (true, Some(first)) = (rows.is_empty(), findings.first()) {
        let evidence = &first.evidence;
        text.push_str(&wrap(&format!("Nothing to check here: {evidence}."), 0));
        text.push_str("\n\n");
    }
    let absent = findings.iter();
    let absent = absent.filter(|finding| finding.verdict == CheckResult::NotApplicable);
    let absent: Vec<&str> = absent.map(|finding| finding.check.as_str()).collect();
    if !absent.is_empty() {
        let absent = absent.join(", ");
        if !rows.is_empty() {
            text.push('\n');
        }
        text.push_str(&wrap(&format!("Not applicable here: {absent}"), 2));
        text.push('\n');
    }
    text.push('\n');
    text.push_str(&wrap(&sentence(findings), 0));
    text.push('\n');
    text
}

/// Merges consecutive findings that differ only in the subject.
fn rows(findings: &[Finding]) -> Vec<Row<'_>> {
    let mut rows: Vec<Row<'_>> = Vec::new();
    let applies = |finding: &&Finding| finding.verdict != CheckResult::NotApplicable;
    for finding in findings.iter().filter(applies) {
        match rows.last_mut() {
            Some(row) if is_alike(row.first, finding) => row.more = row.more.saturating_add(1),
            Some(_) | None => rows.push(Row { first: finding, more: 0 }),
        }
    }
    rows
}

fn is_alike(a: &Finding, b: &Finding) -> bool {
    (a.check, a.verdict, &a.evidence, &a.remedy) == (b.check, b.verdict, &b.evidence, &b.remedy)
}

fn head(row: &Row<'_>) -> Vec<Cell> {
    let Finding { check, subject, verdict, .. } = row.first;
    let style = match verdict {
        CheckResult::Ok => Style::Good,
        CheckResult::NotApplicable | CheckResult::Unknown => Style::Faint,
        CheckResult::Warning => Style::Warning,
        CheckResult::Failing => Style::Bad,
    };
    let subject = match row.more {
        0 => subject.to_string(),
        more => format!("{subject} and {more} more"),
    };
    vec![Cell::new(verdict.as_str(), style), Cell::plain(check.as_str()), Cell::plain(&subject)]
}

fn below(word: &str, text: &str) -> String {
    let indent = " ".repeat(INDENT);
    let text = text.split_whitespace().collect::<Vec<&str>>().join(" ");
    let mut text = wrap(&format!("{indent}{word}{text}"), INDENT + word.len());
    text.push('\n');
    text
}

/// Summarizes the counts, and names the check to begin with.
fn sentence(findings: &[Finding]) -> String {
    let VerdictCounts { ok, warning, failing, unknown, not_applicable } = count_verdicts(findings);
    let all = count_noun(findings.len(), "finding", "findings");
    let warnings = count_noun(warning, "warning", "warnings");
    let counts = format!(
        "{all}: {failing} failing, {warnings}, {unknown} unknown, {ok} ok, {not_applicable} not applicable."
    );
    let first = findings.iter();
    let first = first.max_by_key(|finding| {
        // Selects the first of the most severe ones. `max_by_key` returns the last of equal elements, so the check
        // breaks ties.
        (finding.verdict, std::cmp::Reverse(finding.check))
    });
    match first {
        Some(first) if first.verdict >= CheckResult::Warning => {
            format!("{counts} Start with {}.", first.check.as_str())
        }
        Some(_) | None => counts,
    }
}
