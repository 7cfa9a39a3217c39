//! Octavo's own dialect.

use octavo_planner::layout::{Dialect, Layout, Layouts, MigSpec, Rule, Selector};

use super::error::LayoutProblem;
use super::findings::{Findings, MappingShape, is_label_value};
use super::node::{Entry, Value, YamlNode, quoted};
use super::{KIND, OCTAVO_KEYS, devices, expect_header, profiles, scalar, time_slicing};

const FILE: MappingShape = MappingShape { what: "a layout file", keys: OCTAVO_KEYS };

const RULE: MappingShape =
    MappingShape { what: "a rule", keys: &["devices", "mig", "timeSlicing"] };

const LAYOUT_EXAMPLE: &str =
    "a layout is a name and a list of rules, such as \"serving: [{devices: all, mig: disabled}]\"";

pub(super) fn read(root: &YamlNode, findings: &mut Findings) -> Option<Layouts> {
    let file = findings.mapping(root, FILE)?;
    expect_header(file, KIND, "\"kind: Layouts\"", findings);
    let node = findings.required(file, "layouts", LAYOUT_EXAMPLE)?;
    let named = findings.expect(node.entries(), node, "layouts", "a mapping of names to rules")?;
    findings.not_empty(node, "layouts", LAYOUT_EXAMPLE);
    let layouts = named.iter().filter_map(|entry| layout(entry, findings));
    Some(Layouts { dialect: Dialect::Octavo, layouts: layouts.collect() })
}

fn layout(entry: &Entry, findings: &mut Findings) -> Option<Layout> {
    if !is_label_value(&entry.key) {
        let name = quoted(&entry.key);
        findings.error(entry.position, LayoutProblem::Name { name });
    }
    let node = &entry.value;
    let items = findings.expect(node.items(), node, "a layout", "a list of rules")?;
    findings.not_empty(node, "a layout", LAYOUT_EXAMPLE);
    let rules: Vec<Rule> = items.iter().filter_map(|item| rule(item, findings)).collect();
    report_conflicts(&rules, findings);
    Some(Layout { name: entry.key.to_string(), position: entry.position, rules })
}

/// Reports rules that conflict regardless of the devices.
fn report_conflicts(rules: &[Rule], findings: &mut Findings) {
    let mut rests = rules.iter().filter(|rule| rule.devices == Selector::Rest);
    if let Some(first) = rests.next() {
        for second in rests {
            let first = first.position;
            findings.error(second.position, LayoutProblem::DuplicateRestRule { first });
        }
    }
    for (index, rule) in rules.iter().enumerate() {
        if rule.devices != Selector::All {
            continue;
        }
        // If two rules select all devices, the second one is reported.
        let before = rules.iter().take(index).next();
        let after = rules.iter().skip(index + 1).find(|other| other.devices != Selector::All);
        if let Some(other) = before.or(after) {
            let other = other.position;
            findings.error(rule.position, LayoutProblem::AllWithOtherRules { other });
        }
    }
}

fn rule(node: &YamlNode, findings: &mut Findings) -> Option<Rule> {
    let rule = findings.mapping(node, RULE)?;
    let example = "\"devices: all\", \"devices: rest\", or \"devices: {index: [0, 1]}\"";
    let selector =
        findings.required(rule, "devices", example).and_then(|node| devices::read(node, findings));
    let (mig, time_slicing) = (rule.get("mig"), rule.get("timeSlicing"));
    if mig.is_none() && time_slicing.is_none() {
        findings.error(node.position, LayoutProblem::EmptyRule);
    }
    let mig = mig.map(|node| read_mig(node, findings));
    let time_slicing = time_slicing.map(|node| time_slicing::read(node, findings));
    Some(Rule {
        position: node.position,
        devices: selector?,
        mig: devices::transpose_optional(mig)?,
        time_slicing: devices::transpose_optional(time_slicing)?,
    })
}

fn read_mig(node: &YamlNode, findings: &mut Findings) -> Option<MigSpec> {
    match (&node.value, scalar::text(node)) {
        (Value::Map(entries), _) => {
            let counts = profiles::read(entries, findings, |_, _| false);
            Some(MigSpec::Enabled(counts))
        }
        (_, Some("disabled")) => Some(MigSpec::Disabled),
        (_, Some("enabled")) => {
            findings.error(node.position, LayoutProblem::MigEnabled);
            None
        }
        (Value::Scalar(_) | Value::List(_), _) => {
            let expected = "\"disabled\", or a mapping of profiles to counts such as {1g.10gb: 7}";
            findings.wrong_kind(node, "mig", expected);
            None
        }
    }
}
