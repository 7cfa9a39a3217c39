//! Labels that were written, held against those that the hardware would have now.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::facts::Facts;
use super::{Check, Finding, Subject, listed};
use crate::domain::accelerators::{Catalogue, Given, Naming, TYPE_OVERRIDE};
use crate::domain::inventory::Inventory;
use crate::domain::labels::{Options, Publication, compile, diff};

/// Keys that say what was chosen or is given out, which the hardware does not tell.
const NOT_OF_THE_HARDWARE: [&str; 3] = ["octavo.dev/layout", "octavo.dev/sharing", TYPE_OVERRIDE];

pub(super) fn findings(facts: &Facts<'_>) -> Vec<Finding> {
    vec![labels(facts)]
}

/// The inventory with the names that a person gave to what nobody knows, as the labels say it; and what is wrong with them.
fn named<'a>(
    inventory: &'a Inventory,
    labels: &BTreeMap<String, String>,
) -> (Cow<'a, Inventory>, Option<String>) {
    let by_hand = labels.get("octavo.dev/type-source").is_some();
    let label = labels.get(TYPE_OVERRIDE);
    // A feature file has what came of the name, and not the name.
    let given = label.or_else(|| labels.get("octavo.dev/type").filter(|_| by_hand));
    let Some(given) = given else {
        return (Cow::Borrowed(inventory), None);
    };
    let given = Given::new(given, &Catalogue::built_in());
    let naming = Naming {
        given: Some(Arc::new(given.clone())),
        ..Naming::default()
    };
    let mut named = inventory.clone();
    naming.apply(&mut named);
    let told = given.told(&named);
    let wrong = (label.is_some() && told.is_trouble).then_some(told.text);
    (Cow::Owned(named), wrong)
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
    let (inventory, wrong) = named(facts.inventory, &written.labels);
    let now = compile(&inventory, &options, None).labels;
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
    if let Some(wrong) = wrong {
        let remedy = format!("change or remove the label {TYPE_OVERRIDE} of the Node");
        return check.warning(Subject::Node, format!("{place}: {wrong}"), &remedy);
    }
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
