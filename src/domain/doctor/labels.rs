//! Labels that were written, held against those that the hardware would have now.

use std::collections::BTreeMap;

use super::facts::Facts;
use super::{Check, Finding, Subject, listed};
use crate::domain::labels::{Options, Publication, compile, diff};

/// Keys that say what was chosen or is given out, which the hardware does not tell.
const NOT_OF_THE_HARDWARE: [&str; 3] = [
    "octavo.dev/layout",
    "octavo.dev/sharing",
    "octavo.dev/type-override",
];

pub(super) fn findings(facts: &Facts<'_>) -> Vec<Finding> {
    vec![labels(facts)]
}

fn labels(facts: &Facts<'_>) -> Finding {
    let check = Check::Labels;
    let written = match &facts.labels {
        Ok(Some(written)) => written,
        Ok(None) => {
            return check.not_applicable(
                "there is no feature file of ours; --labels names another, or a Node",
            );
        }
        Err(why) => return check.unknown(Subject::Node, why.clone()),
    };
    let options = Options {
        nvidia: Publication::Withhold,
        ..Options::default()
    };
    let now = compile(facts.inventory, &options, None).labels;
    let now: BTreeMap<&str, &str> = now.iter().collect();
    let before = written.labels.iter();
    let before: BTreeMap<&str, &str> = before
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect();
    let is_of_hardware = |key: &str| {
        !NOT_OF_THE_HARDWARE
            .iter()
            .any(|other| key.starts_with(other))
    };
    let changes: Vec<String> = diff(&before, &now, Publication::Withhold)
        .into_iter()
        .filter(|change| is_of_hardware(change.key))
        .map(|change| change.to_string())
        .collect();
    let place = &written.place;
    if changes.is_empty() {
        return check.ok(
            Subject::Node,
            format!("{place} says what the hardware does"),
        );
    }
    let evidence = format!(
        "{place} differs from the hardware (- written, + as it is): {}",
        listed(&changes)
    );
    let remedy = "the agent writes them within an interval of a change: see that it runs on this node, and its log";
    check.warning(Subject::Node, evidence, remedy)
}
