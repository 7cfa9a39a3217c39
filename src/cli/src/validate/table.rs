//! Results as a table: a group of lines for each resource of a node, then the counts.

use octavo_node::doctor::CheckResult;
use octavo_node::validation::{Outcome, StepResult, Validation};

use crate::settings::Colors;
use crate::style::Style;
use crate::text::{Cell, columns, count_noun, printable, wrap};

/// Indentation of the lines of a group.
const INDENT: &str = "  ";
/// Indentation of a remedy.
const REMEDY_INDENT: usize = 6;

/// Formats the subject and the outcome: `node-1 nvidia.com/gpu: passed`.
pub(super) fn title(validation: &Validation) -> String {
    let resource = validation.resource.as_ref().map(|name| format!(" {}", printable(name)));
    let subject = format!("{}{}", printable(&validation.node), resource.unwrap_or_default());
    format!("{subject}: {}", validation.outcome.as_str())
}

/// Formats all validations.
pub(super) fn table(validations: &[Validation], colors: Colors) -> String {
    let mut text = String::new();
    for validation in validations {
        let style = match validation.outcome {
            Outcome::Passed => Style::Good,
            Outcome::Failed => Style::Bad,
            Outcome::Skipped => Style::Faint,
        };
        text.push_str(&style.paint(&title(validation), colors));
        text.push('\n');
        text.push_str(&group(&validation.steps, colors));
        text.push('\n');
    }
    let of = |outcome| validations.iter().filter(|one| one.outcome == outcome).count();
    let (passed, failed) = (of(Outcome::Passed), of(Outcome::Failed));
    let all = count_noun(validations.len(), "resource", "resources");
    let skipped = of(Outcome::Skipped);
    format!("{text}{all}: {passed} passed, {failed} failed, {skipped} skipped\n")
}

fn group(steps: &[StepResult], colors: Colors) -> String {
    let rows: Vec<Vec<Cell>> = steps.iter().map(row).collect();
    let lines = columns(&rows, colors);
    let mut text = String::new();
    for (line, step) in lines.lines().zip(steps) {
        text.push_str(INDENT);
        text.push_str(line);
        text.push('\n');
        if let Some(remedy) = &step.remedy {
            let indent = " ".repeat(REMEDY_INDENT);
            text.push_str(&wrap(&format!("{indent}try: {}", printable(remedy)), REMEDY_INDENT + 5));
            text.push('\n');
        }
    }
    text
}

fn row(step: &StepResult) -> Vec<Cell> {
    let (word, style) = match step.verdict {
        CheckResult::NotApplicable => ("skipped", Style::Faint),
        CheckResult::Unknown => ("unknown", Style::Faint),
        CheckResult::Ok => ("ok", Style::Good),
        CheckResult::Warning => ("warning", Style::Warning),
        CheckResult::Failing => ("failing", Style::Bad),
    };
    vec![Cell::new(word, style), Cell::plain(step.step.as_str()), Cell::plain(&step.evidence)]
}

#[cfg(test)]
mod tests {
    use octavo_node::validation::ValidationStep;

    use super::*;

    #[test]
    fn results_are_grouped_by_resource_with_remedies_and_counts() {
        let free = StepResult::ok(ValidationStep::FreeUnits, "1 of 2 are free".to_owned());
        let failed = StepResult::failing(ValidationStep::Scheduled, "no".to_owned(), "look");
        let held = StepResult::skipped(ValidationStep::FreeUnits, "held by ml/a (1)".to_owned());
        let all = [
            Validation::new("a", Some("nvidia.com/gpu"), vec![failed, free]),
            Validation::new("b", Some("nvidia.com/gpu"), vec![held]),
        ];
        assert_eq!(
            table(&all, Colors::Off),
            "a nvidia.com/gpu: failed\n  \
             ok       free-units  1 of 2 are free\n  \
             failing  scheduled   no\n      \
             try: look\n\n\
             b nvidia.com/gpu: skipped\n  \
             skipped  free-units  held by ml/a (1)\n\n\
             2 resources: 0 passed, 1 failed, 1 skipped\n"
        );
    }
}
