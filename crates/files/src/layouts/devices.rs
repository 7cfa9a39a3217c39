//! The `devices` key of our dialect.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use octavo_model::id::ParseError;
use octavo_model::source_position::SourcePosition;
use octavo_planner::layout::{Criteria, IndexRange, Selector};

use super::error::LayoutProblem;
use super::findings::{Findings, MappingShape};
use super::node::{Value, YamlNode};
use super::scalar;

const DEVICES: MappingShape = MappingShape {
    what: "devices",
    keys: &["index", "uuid", "pci", "type", "memoryAtLeast", "migCapable"],
};

const EXAMPLE: &str =
    "\"devices: all\" selects every device, \"devices: {index: [0, 1]}\" selects some";

/// Parses the device selector of a rule. Returns `None` if it is invalid.
pub(super) fn read(node: &YamlNode, findings: &mut Findings) -> Option<Selector> {
    match &node.value {
        Value::Scalar(_) => match scalar::text(node) {
            Some("all") => Some(Selector::All),
            Some("rest") => Some(Selector::Rest),
            Some(_) | None => {
                let expected = "\"all\", \"rest\", an index, a range such as 0-3, a list of these, or a mapping of \
                 criteria";
                Some(indices(vec![one_index(node, "devices", expected, findings)?]))
            }
        },
        Value::List(_) => index(node, findings).map(indices),
        Value::Map(_) => criteria(node, findings).map(Selector::Matching),
    }
}

fn indices(index: Vec<IndexRange>) -> Selector {
    Selector::Matching(Criteria { index: Some(index), ..Criteria::default() })
}

fn criteria(node: &YamlNode, findings: &mut Findings) -> Option<Criteria> {
    let devices = findings.mapping(node, DEVICES)?;
    if !findings.not_empty(node, DEVICES.what, EXAMPLE) {
        return None;
    }
    let index = devices.get("index").map(|node| index(node, findings));
    let uuid = devices.get("uuid").map(|node| ids(node, "uuid", findings));
    let pci = devices.get("pci").map(|node| ids(node, "pci", findings));
    let type_name = devices.get("type").map(|node| ids(node, "type", findings));
    let memory = devices.get("memoryAtLeast");
    let memory = memory.map(|node| findings.accept(scalar::memory(node), node.position));
    let mig_capable = devices
        .get("migCapable")
        .map(|node| findings.expect(scalar::boolean(node), node, "migCapable", "true or false"));
    Some(Criteria {
        index: transpose_optional(index)?,
        uuid: transpose_optional(uuid)?,
        pci: transpose_optional(pci)?,
        type_name: transpose_optional(type_name)?,
        memory_at_least: transpose_optional(memory)?,
        mig_capable: transpose_optional(mig_capable)?,
        device_filter: None,
    })
}

/// Distinguishes an absent value, which is valid, from one that cannot be parsed.
#[expect(
    clippy::option_option,
    reason = "the outer option is None if the value is invalid, the inner one if it is absent"
)]
pub(super) fn transpose_optional<T>(read: Option<Option<T>>) -> Option<Option<T>> {
    read.map_or(Some(None), |value| value.map(Some))
}

/// Parses an index, a range, or a list of them without duplicates.
pub(super) fn index(node: &YamlNode, findings: &mut Findings) -> Option<Vec<IndexRange>> {
    let expected = "a non-negative integer, or a range such as 0-3";
    let read =
        |node: &YamlNode, findings: &mut Findings| one_index(node, "an index", expected, findings);
    unique_indices(node, read, findings)
}

/// Parses one value with `read`, or a list of values without duplicates.
pub(super) fn unique_indices(
    node: &YamlNode,
    read: impl Fn(&YamlNode, &mut Findings) -> Option<IndexRange>,
    findings: &mut Findings,
) -> Option<Vec<IndexRange>> {
    let ranges = one_or_many(node, "index", read, findings)?;
    let mut sorted: Vec<(IndexRange, SourcePosition)> = ranges.clone();
    sorted.sort();
    let mut last: Option<(IndexRange, SourcePosition)> = None;
    for (range, position) in sorted {
        if let Some((before, first)) = last
            && before.last >= range.first
        {
            let (first, second) = (first.min(position), first.max(position));
            let value = range.first.to_string();
            findings.error(second, LayoutProblem::DuplicateValue { value, first });
            return None;
        }
        last = Some((range, position));
    }
    Some(ranges.into_iter().map(|(range, _)| range).collect())
}

fn one_index(
    node: &YamlNode,
    what: &'static str,
    expected: &'static str,
    findings: &mut Findings,
) -> Option<IndexRange> {
    let range = findings.expect(scalar::range(node), node, what, expected)?;
    if range.last < range.first {
        let range = node.describe();
        findings.error(node.position, LayoutProblem::ReversedRange { range });
        return None;
    }
    Some(range)
}

/// Parses one identifier or a list of them.
fn ids<T>(node: &YamlNode, what: &'static str, findings: &mut Findings) -> Option<Vec<T>>
where
    T: FromStr<Err = ParseError> + Ord + Clone + fmt::Display,
{
    let read = |node: &YamlNode, findings: &mut Findings| {
        let text = scalar::text(node).filter(|text| text.len() <= 253 && !node.is_null());
        let text = findings.expect(text, node, what, "a string or a list of strings")?;
        findings.accept(text.parse(), node.position)
    };
    let ids: Vec<(T, SourcePosition)> = one_or_many(node, what, read, findings)?;
    let mut seen = BTreeMap::new();
    let all_unique =
        ids.iter().all(|(id, position)| findings.unique(&mut seen, id.clone(), *position));
    all_unique.then(|| ids.into_iter().map(|(id, _)| id).collect())
}

/// Parses a single value or a non-empty list. Returns `None` if any item is invalid, after reporting all invalid items.
fn one_or_many<T>(
    node: &YamlNode,
    what: &'static str,
    read: impl Fn(&YamlNode, &mut Findings) -> Option<T>,
    findings: &mut Findings,
) -> Option<Vec<(T, SourcePosition)>> {
    let Value::List(items) = &node.value else {
        return read(node, findings).map(|value| vec![(value, node.position)]);
    };
    if !findings.not_empty(node, what, EXAMPLE) {
        return None;
    }
    let read: Vec<Option<(T, SourcePosition)>> =
        items.iter().map(|item| Some((read(item, findings)?, item.position))).collect();
    read.into_iter().collect()
}
