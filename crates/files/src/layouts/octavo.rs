//! Octavo's own dialect.

use octavo_planner::layout::{
    Dialect, Layout, Layouts, MigSpec, Rule, Selector, Share, ShareTarget,
};

use super::error::LayoutProblem;
use super::findings::{Findings, MappingShape, is_label_value};
use super::node::{Entry, Value, YamlNode, quoted};
use super::{KIND, OCTAVO_KEYS, devices, expect_header, profiles, scalar, time_slicing};

const FILE: MappingShape = MappingShape { what: "a layout file", keys: OCTAVO_KEYS };

const RULE: MappingShape =
    MappingShape { what: "a rule", keys: &["devices", "mig", "timeSlicing", "claims"] };

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
    let claims = rule.get("claims");
    if mig.is_none() && time_slicing.is_none() && claims.is_none() {
        findings.error(node.position, LayoutProblem::EmptyRule);
    }
    let mig = mig.map(|node| read_mig(node, findings));
    let time_slicing = time_slicing.map(|node| time_slicing::read(node, findings));
    let is_dra = |node: &YamlNode| (scalar::text(node) == Some("dra")).then_some(());
    let claims = claims.map(|node| findings.expect(is_dra(node), node, "claims", "\"dra\""));
    let rule = Rule {
        position: node.position,
        devices: selector?,
        mig: devices::transpose_optional(mig)?,
        time_slicing: devices::transpose_optional(time_slicing)?,
        claims: devices::transpose_optional(claims)?.is_some(),
    };
    if rule.claims {
        report_claim_conflicts(&rule, findings);
    }
    Some(rule)
}

/// Reports the parts of a rule that resource claims determine instead.
fn report_claim_conflicts(rule: &Rule, findings: &mut Findings) {
    if let Some(MigSpec::Enabled(counts)) = &rule.mig
        && let Some(first) = counts.first()
    {
        findings.error(first.position, LayoutProblem::PartitionsWithClaims);
    }
    let Some(sharing) = &rule.time_slicing else {
        return;
    };
    for share in &sharing.shares {
        let plain = Share {
            position: share.position,
            of: share.of.clone(),
            ..Share::everything(share.replicas)
        };
        if *share != plain || matches!(share.of, ShareTarget::Resource { .. }) {
            findings.error(share.position, LayoutProblem::SharingWithClaims);
        }
    }
    if sharing.slice.is_some() {
        findings.error(sharing.position, LayoutProblem::SharingWithClaims);
    }
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
