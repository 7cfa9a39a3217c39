//! Findings as a table: problems first, a row each, followed by the evidence and the recommended action.

use octavo_node::doctor::{CheckResult, Finding, VerdictCounts, count_verdicts};

use crate::settings::Colors;
use crate::style::Style;
use crate::text::{Cell, columns, count_noun, group_by_key, wrap};

/// Indentation of the lines below a row.
const INDENT: usize = 4;

/// Which findings are shown in full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Detail {
    /// Problems; the others are counted or listed by name.
    Problems,
    /// All findings.
    All,
}

/// Equal findings of several subjects.
#[derive(Debug)]
struct Row<'a> {
    first: &'a Finding,
    more: usize,
}

/// Formats the findings by severity, then the counts.
pub(super) fn table(findings: &[Finding], detail: Detail, colors: Colors) -> String {
    let rows = rows(findings, detail);
    let mut paragraphs = Vec::new();
    if !rows.is_empty() {
        paragraphs.push(table_of_rows(&rows, colors));
    }
    // If nothing applies, the first check's reason is the reason for all.
    let is_absent = |finding: &Finding| finding.verdict == CheckResult::NotApplicable;
    if let (true, Some(first)) = (findings.iter().all(is_absent), findings.first()) {
        paragraphs.push(line(&format!("Nothing to check here: {}.", first.evidence), 0));
    }
    match detail {
        Detail::All => paragraphs.extend(not_applicable(findings)),
        Detail::Problems => paragraphs.extend(unknown(findings)),
    }
    paragraphs.push(line(&sentence(findings, detail), 0));
    paragraphs.join("\n")
}

fn table_of_rows(rows: &[Row<'_>], colors: Colors) -> String {
    let mut heads = vec![["RESULT", "CHECK", "SUBJECT"].map(Cell::plain).to_vec()];
    heads.extend(rows.iter().map(head));
    let heads = columns(&heads, colors);
    let mut heads = heads.lines();
    let mut text = heads.next().unwrap_or_default().to_owned();
    text.push('\n');
    for (head, row) in heads.zip(rows) {
        text.push_str(head);
        text.push('\n');
        text.push_str(&below("", &row.first.evidence));
        if let Some(remedy) = &row.first.remedy {
            text.push_str(&below("try: ", remedy));
        }
    }
    text
}

/// Sorts by severity, then in the order of the checks, and merges consecutive findings that differ only in the subject.
fn rows(findings: &[Finding], detail: Detail) -> Vec<Row<'_>> {
    let is_shown = |finding: &&Finding| match finding.verdict {
        CheckResult::Failing | CheckResult::Warning => true,
        CheckResult::Unknown | CheckResult::Ok => detail == Detail::All,
        CheckResult::NotApplicable => false,
    };
    let mut shown: Vec<&Finding> = findings.iter().filter(is_shown).collect();
    shown.sort_by_key(|finding| std::cmp::Reverse(finding.verdict));
    let mut rows: Vec<Row<'_>> = Vec::new();
    for finding in shown {
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
    line(&format!("{indent}{word}{text}"), INDENT + word.len())
}

fn line(text: &str, indent: usize) -> String {
    let mut text = wrap(text, indent);
    text.push('\n');
    text
}

/// Lists the checks without a result, a line for each reason.
fn unknown(findings: &[Finding]) -> Option<String> {
    let unknown = findings.iter().filter(|finding| finding.verdict == CheckResult::Unknown);
    let by_reason =
        group_by_key(unknown.map(|finding| (finding.evidence.as_str(), finding.check.as_str())));
    let lines = by_reason.into_iter().map(|(reason, mut checks)| {
        checks.dedup();
        line(&format!("Unknown: {}: {reason}", checks.join(", ")), 2)
    });
    let lines: String = lines.collect();
    (!lines.is_empty()).then_some(lines)
}

fn not_applicable(findings: &[Finding]) -> Option<String> {
    let absent = findings.iter();
    let absent = absent.filter(|finding| finding.verdict == CheckResult::NotApplicable);
    let mut absent: Vec<&str> = absent.map(|finding| finding.check.as_str()).collect();
    absent.dedup();
    (!absent.is_empty()).then(|| line(&format!("Not applicable here: {}", absent.join(", ")), 2))
}

/// Summarizes the counts, and names the check to begin with.
fn sentence(findings: &[Finding], detail: Detail) -> String {
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
    let counts = match first {
        Some(first) if first.verdict >= CheckResult::Warning => {
            format!("{counts} Start with {}.", first.check.as_str())
        }
        Some(_) | None => counts,
    };
    match detail {
        Detail::Problems => format!("{counts} Use --verbose to show all."),
        Detail::All => counts,
    }
}

#[cfg(test)]
mod tests {
    use octavo_node::doctor::{Check, Subject};

    use super::*;

    fn finding(check: Check, verdict: CheckResult, evidence: &str) -> Finding {
        let evidence = evidence.to_owned();
        Finding { check, subject: Subject::Node, verdict, evidence, remedy: None }
    }

    #[test]
    fn problems_come_first_and_passed_checks_are_counted() {
        let findings = [
            finding(Check::Accelerators, CheckResult::Ok, "2x t4"),
            finding(Check::KernelDriver, CheckResult::Warning, "odd"),
            finding(Check::DeviceHealth, CheckResult::Failing, "lost"),
            finding(Check::Layout, CheckResult::Unknown, "not here"),
            finding(Check::Labels, CheckResult::Unknown, "not here"),
        ];
        let short = table(&findings, Detail::Problems, Colors::Off);
        assert_eq!(
            short,
            "RESULT   CHECK          SUBJECT\n\
             failing  device-health  node\n    lost\n\
             warning  kernel-driver  node\n    odd\n\n\
             Unknown: layout, labels: not here\n\n\
             5 findings: 1 failing, 1 warning, 2 unknown, 1 ok, 0 not applicable. Start with\n\
             device-health. Use --verbose to show all.\n"
        );
        let all = table(&findings, Detail::All, Colors::Off);
        let order: Vec<&str> = all.lines().filter_map(|line| line.split("  ").next()).collect();
        assert!(order.starts_with(&["RESULT", "failing", ""]), "{all}");
        assert!(all.contains("ok       accelerators   node\n    2x t4\n"), "{all}");
    }
}
