//! The dialect of NVIDIA's mig-parted, version v1.
//!
//! Files that are meaningful to mig-parted are accepted. Input that mig-parted accepts but that cannot work is an error
//! with an explanation: device -1, an empty list of devices, a filter that never matches. Source: NVIDIA/mig-parted
//! v0.15.0, `api/spec/v1/spec.go`.

use octavo_planner::layout::{
    Criteria, DeviceFilter, Dialect, IndexRange, Layout, Layouts, MigSpec, ProfileCount, Rule,
    Selector,
};

use super::error::{LayoutProblem, WarningProblem};
use super::findings::{Findings, Mapping, MappingShape, is_label_value};
use super::node::{Entry, Value, YamlNode, quoted};
use super::{MIG_PARTED_KEYS, devices, expect_text, profiles, scalar};

const FILE: MappingShape = MappingShape { what: "a mig-parted file", keys: MIG_PARTED_KEYS };

const RULE: MappingShape = MappingShape {
    what: "a rule",
    keys: &["device-filter", "devices", "mig-enabled", "mig-devices"],
};

const EXAMPLE: &str = "a configuration is a name and a list of rules, such as \"all-disabled: [{devices: all, \
 mig-enabled: false}]\"";

pub(super) fn read(root: &YamlNode, findings: &mut Findings) -> Option<Layouts> {
    let file = findings.mapping(root, FILE)?;
    if let Some(node) = findings.required(file, "version", "\"version: v1\"") {
        expect_text(node, "version", "v1", findings);
    }
    let node = findings.required(file, "mig-configs", EXAMPLE)?;
    let expected = "a mapping of names to rules";
    let named = findings.expect(node.entries(), node, "mig-configs", expected)?;
    findings.not_empty(node, "mig-configs", EXAMPLE);
    let mut layouts: Vec<Layout> = Vec::new();
    for entry in named {
        let Some(layout) = layout(entry, findings) else {
            continue;
        };
        // `16` and `0x10` are different keys but the same name.
        if let Some(known) = layouts.iter().find(|known| known.name == layout.name) {
            let (key, first) = (quoted(&layout.name), known.position);
            findings.error(entry.position, LayoutProblem::DuplicateKey { key, first });
        }
        layouts.push(layout);
    }
    Some(Layouts { dialect: Dialect::MigParted, layouts })
}

/// Maximum length of a configuration name. YAML limits a key on one line to 1024 characters.
const LONGEST_NAME: usize = 253;

fn layout(entry: &Entry, findings: &mut Findings) -> Option<Layout> {
    if entry.key.chars().count() > LONGEST_NAME {
        let most = LONGEST_NAME;
        findings.error(entry.position, LayoutProblem::LongName { most });
        return None;
    }
    let number = entry.plain.then(|| scalar::number_as_name(&entry.key));
    let name = number.flatten().unwrap_or_else(|| entry.key.to_string());
    if !is_label_value(&name) {
        let name = quoted(&name);
        findings.warning(entry.position, WarningProblem::Name { name });
    }
    let node = &entry.value;
    let items = findings.expect(node.items(), node, "a configuration", "a list of rules")?;
    findings.not_empty(node, "a configuration", EXAMPLE);
    let rules = items.iter().filter_map(|item| rule(item, findings));
    Some(Layout { name, position: entry.position, rules: rules.collect() })
}

fn rule(node: &YamlNode, findings: &mut Findings) -> Option<Rule> {
    let rule = findings.mapping(node, RULE)?;
    let example = "\"devices: all\", or a list of indices such as \"devices: [0, 1]\"";
    let devices = findings.required(rule, "devices", example);
    let index = devices.and_then(|node| indices(node, findings));
    let filter = match rule.get("device-filter") {
        None => Some(None),
        Some(node) => filters(node, findings),
    };
    let mig = read_mig(rule, findings);
    Some(Rule {
        position: node.position,
        devices: selector(index?, filter?),
        mig: Some(mig?),
        time_slicing: None,
        claims: false,
    })
}

fn selector(index: Option<Vec<IndexRange>>, filter: Option<Vec<DeviceFilter>>) -> Selector {
    if index.is_none() && filter.is_none() {
        return Selector::All;
    }
    Selector::Matching(Criteria { index, device_filter: filter, ..Criteria::default() })
}

/// The inner `None` means all devices.
#[expect(
    clippy::option_option,
    reason = "the outer option is None if the value is invalid, the inner one if it is absent"
)]
fn indices(node: &YamlNode, findings: &mut Findings) -> Option<Option<Vec<IndexRange>>> {
    if scalar::text(node) == Some("all") {
        return Some(None);
    }
    findings.expect(
        node.items(),
        node,
        "devices",
        "\"all\" or a list of indices such as [0, 1]",
    )?;
    // mig-parted does not support ranges.
    let read = |item: &YamlNode, findings: &mut Findings| {
        let index = scalar::integral_number(item);
        let index = findings.expect(index, item, "an index", "a non-negative integer")?;
        Some(IndexRange { first: index, last: index })
    };
    devices::unique_indices(node, read, findings).map(Some)
}

/// The inner `None` means all devices: no filter, an empty text or an empty list.
#[expect(
    clippy::option_option,
    reason = "the outer option is None if the value is invalid, the inner one if it is absent"
)]
fn filters(node: &YamlNode, findings: &mut Findings) -> Option<Option<Vec<DeviceFilter>>> {
    if node.is_null() || scalar::text(node) == Some("") {
        return Some(None);
    }
    let Value::List(items) = &node.value else {
        return one_filter(node, findings).map(|filter| Some(vec![filter]));
    };
    let filters: Vec<Option<DeviceFilter>> =
        items.iter().map(|item| one_filter(item, findings)).collect();
    let filters: Vec<DeviceFilter> = filters.into_iter().collect::<Option<_>>()?;
    Some((!filters.is_empty()).then_some(filters))
}

fn one_filter(node: &YamlNode, findings: &mut Findings) -> Option<DeviceFilter> {
    // mig-parted parses an unquoted number as a number and rejects it.
    let number = scalar::plain(node)
        .is_some_and(|text| text.starts_with(|c: char| c.is_ascii_digit()) && !text.contains(':'));
    let text = scalar::text(node).filter(|_| !number && !node.is_null());
    let expected = "a quoted string such as \"0x20B210DE\", or a list of these";
    let text = findings.expect(text, node, "device-filter", expected)?;
    let found = quoted(text);
    let filter = scalar::filter(text).ok_or(LayoutProblem::InvalidDeviceFilter { found });
    findings.accept(filter, node.position)
}

fn read_mig(rule: Mapping<'_>, findings: &mut Findings) -> Option<MigSpec> {
    let example = "\"mig-enabled: true\" or \"mig-enabled: false\"";
    let enabled = findings.required(rule, "mig-enabled", example).and_then(|node| {
        let enabled = scalar::yaml_1_1_boolean(node);
        findings.expect(enabled, node, "mig-enabled", "true or false")
    });
    let devices = rule.non_null("mig-devices");
    let counts = devices.map(|node| counts(node, findings));
    match (enabled?, counts) {
        (false, None) => Some(MigSpec::Disabled),
        (false, Some(counts)) => {
            if !counts?.is_empty() {
                let position = devices.map_or(rule.position, |node| node.position);
                findings.error(position, LayoutProblem::PartitionsWithoutMig);
                return None;
            }
            Some(MigSpec::Disabled)
        }
        (true, Some(counts)) => counts.map(MigSpec::Enabled),
        (true, None) => {
            let problem = LayoutProblem::MissingKey {
                key: "mig-devices",
                within: "a rule with \"mig-enabled: true\"",
                example: "\"mig-devices: {1g.10gb: 7}\", or {} for MIG on without partitions",
            };
            findings.error(rule.position, problem);
            None
        }
    }
}

fn counts(node: &YamlNode, findings: &mut Findings) -> Option<Vec<ProfileCount>> {
    let expected = "a mapping of profiles to counts";
    let entries = findings.expect(node.entries(), node, "mig-devices", expected)?;
    let zeros = entries.iter().filter(|entry| scalar::number(&entry.value) == Some(0));
    if !entries.is_empty() && zeros.count() == entries.len() {
        findings.error(node.position, LayoutProblem::AllZero);
        return None;
    }
    Some(profiles::read(entries, findings, |entry, findings| {
        let profile = quoted(&entry.key);
        findings.warning(entry.position, WarningProblem::ZeroCount { profile });
        true
    }))
}
