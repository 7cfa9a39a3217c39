//! Check of Octavo's labels against those that the hardware would have now.

use std::borrow::Cow;
use std::collections::BTreeMap;

use octavo_model::accelerators::{Catalog, TYPE_OVERRIDE, TypeOverride, identify_devices};
use octavo_model::inventory::Inventory;

use super::facts::Facts;
use super::{Check, Finding, format_list};
use crate::labels::{KeyPolicy, Options, compile, diff};

/// Keys that state a choice or an allocation, which cannot be derived from the hardware.
const NON_HARDWARE_KEYS: [&str; 3] = ["octavo.dev/layout", "octavo.dev/sharing", TYPE_OVERRIDE];

/// Keys derived from a manual type override. A feature file has these, but not the override itself.
const OVERRIDE_DERIVED_KEYS: [&str; 4] =
    ["octavo.dev/type", "octavo.dev/sku", "octavo.dev/architecture", "type.octavo.dev/"];
const TYPE_SOURCE: &str = "octavo.dev/type-source";

/// Inventory with the manual type override from the labels applied, and the problem with that override, if any.
fn apply_override<'a>(
    facts: &Facts<'a>,
    labels: &BTreeMap<String, String>,
) -> (Cow<'a, Inventory>, Option<String>) {
    let label = labels.get(TYPE_OVERRIDE);
    // Without the override, the type label still identifies the type, except for the value `mixed`.
    let of_type = || labels.get("octavo.dev/type").filter(|_| labels.contains_key(TYPE_SOURCE));
    let Some(name) = label.or_else(of_type) else {
        return (Cow::Borrowed(facts.inventory), None);
    };
    let given = TypeOverride::new(name, &Catalog::built_in());
    let mut named = facts.inventory.clone();
    identify_devices(&mut named, Some(&given));
    let effect = given.effect(&named);
    let wrong = (label.is_some() && effect.needs_attention).then_some(effect.text);
    (Cow::Owned(named), wrong)
}

pub(super) fn finding(facts: &Facts<'_>) -> Finding {
    let check = Check::Labels;
    let written = match &facts.labels {
        Ok(Some(written)) => written,
        Ok(None) => {
            return check.not_applicable(
                "no Octavo feature file found; specify a feature file or a Node with --labels",
            );
        }
        Err(why) => return check.unknown(why.clone()),
    };
    let options = Options { nvidia: KeyPolicy::Withhold, ..Options::default() };
    let (inventory, wrong) = apply_override(facts, &written.labels);
    let now = compile(&inventory, &options, None).labels;
    let now: BTreeMap<&str, &str> = now.iter().collect();
    let before = written.labels.iter();
    let before: BTreeMap<&str, &str> =
        before.map(|(key, value)| (key.as_str(), value.as_str())).collect();
    // The override cannot be inferred from the labels derived from it.
    let is_override_removed =
        written.get(TYPE_SOURCE).is_some() && written.get(TYPE_OVERRIDE).is_none();
    let is_of_hardware = |key: &str| {
        let begins = |other: &&str| key.starts_with(*other);
        let is_of_the_name = is_override_removed && OVERRIDE_DERIVED_KEYS.iter().any(begins);
        !is_of_the_name && !NON_HARDWARE_KEYS.iter().any(begins)
    };
    let changes: Vec<String> = diff(&before, &now, KeyPolicy::Withhold)
        .into_iter()
        .filter(|change| is_of_hardware(change.key))
        .map(|change| change.to_string())
        .collect();
    let place = &written.place;
    if let Some(wrong) = wrong {
        let remedy = format!("change or remove the label {TYPE_OVERRIDE} of the Node");
        return check.warning(format!("{place}: {wrong}"), &remedy);
    }
    if changes.is_empty() {
        return check.ok(format!("{place} matches the hardware"));
    }
    let evidence = format!(
        "{place} differs from the hardware (- label, + hardware): {}",
        format_list(&changes)
    );
    let layout = facts.layout.as_ref().ok().and_then(Option::as_ref);
    let remedy = if layout.is_some_and(|layout| layout.is_agent) {
        "the agent on this node updates labels within one --interval after a change. If they \
         still differ, check its log"
    } else {
        "the agent updates labels within one --interval after a change. Check that it runs on \
         this node, and check its log"
    };
    check.warning(evidence, remedy)
}
