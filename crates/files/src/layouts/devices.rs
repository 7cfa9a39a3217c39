//! The `devices` key of our dialect.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use octavo_model::id::IdError;
use octavo_model::source_position::SourcePosition;
use octavo_planner::layout::{Criteria, IndexRange, Selector};

use super::error::LayoutProblem;
use super::findings::{Findings, MappingShape, value_of};
use super::node::{Node, Value};
use super::scalar::{self, RangeError};

const DEVICES: MappingShape = MappingShape {
    what: "devices",
    keys: &[
        "index",
        "uuid",
        "pci",
        "type",
        "memoryAtLeast",
        "migCapable",
    ],
};

const EXAMPLE: &str = "\"devices: all\" is every device, \"devices: {index: [0, 1]}\" are some";

/// Parses the device selector of a rule. Returns `None` if it is invalid.
pub(super) fn read(node: &Node, findings: &mut Findings) -> Option<Selector> {
    match &node.value {
        Value::Scalar(_) => match scalar::text(node) {
            Some("all") => Some(Selector::All),
            Some("rest") => Some(Selector::Rest),
            Some(_) | None => {
                let expected = "\"all\", \"rest\", an index, a range as 0-3, a list of these, or a mapping of criteria";
                let index = vec![one_index(node, ("devices", expected), findings)?];
                Some(indices(index))
            }
        },
        Value::List(_) => index(node, findings).map(indices),
        Value::Map(_) => criteria(node, findings).map(Selector::Matching),
    }
}

fn indices(index: Vec<IndexRange>) -> Selector {
    Selector::Matching(Criteria {
        index: Some(index),
        ..Criteria::default()
    })
}

fn criteria(node: &Node, findings: &mut Findings) -> Option<Criteria> {
    let entries = findings.mapping(node, DEVICES)?;
    if entries.is_empty() {
        let (what, example) = (DEVICES.what, EXAMPLE);
        findings.error(node.place, LayoutProblem::Empty { what, example });
        return None;
    }
    let of = |key| value_of(entries, key);
    let index = of("index").map(|node| index(node, findings));
    let uuid = of("uuid").map(|node| ids(node, "uuid", findings));
    let pci = of("pci").map(|node| ids(node, "pci", findings));
    let type_name = of("type").map(|node| ids(node, "type", findings));
    let memory = of("memoryAtLeast").map(|node| {
        let memory = scalar::memory(node);
        if memory.is_none() {
            let found = node.describe();
            findings.error(node.place, LayoutProblem::Memory { found });
        }
        memory
    });
    let mig_capable = of("migCapable").map(|node| {
        let capable = scalar::boolean(node);
        if capable.is_none() {
            findings.wrong_kind(node, "migCapable", "true or false");
        }
        capable
    });
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
    reason = "whether it could be read, and whether it is there"
)]
pub(super) fn transpose_optional<T>(read: Option<Option<T>>) -> Option<Option<T>> {
    read.map_or(Some(None), |value| value.map(Some))
}

/// Parses an index, a range, or a list of them without duplicates.
pub(super) fn index(node: &Node, findings: &mut Findings) -> Option<Vec<IndexRange>> {
    let expected = ("an index", "a whole number from 0, or a range as 0-3");
    let read = |node: &Node, findings: &mut Findings| one_index(node, expected, findings);
    unique_indices(node, read, findings)
}

/// Parses one value with `read`, or a list of values without duplicates.
pub(super) fn unique_indices(
    node: &Node,
    read: impl Fn(&Node, &mut Findings) -> Option<IndexRange>,
    findings: &mut Findings,
) -> Option<Vec<IndexRange>> {
    let ranges = one_or_many(node, "index", read, findings)?;
    let mut sorted: Vec<(IndexRange, SourcePosition)> = ranges.clone();
    sorted.sort();
    let mut last: Option<(IndexRange, SourcePosition)> = None;
    for (range, place) in sorted {
        if let Some((before, first)) = last
            && before.last >= range.first
        {
            let (first, second) = (first.min(place), first.max(place));
            let value = range.first.to_string();
            findings.error(second, LayoutProblem::DuplicateValue { value, first });
            return None;
        }
        last = Some((range, place));
    }
    Some(ranges.into_iter().map(|(range, _)| range).collect())
}

fn one_index(
    node: &Node,
    (what, expected): (&'static str, &'static str),
    findings: &mut Findings,
) -> Option<IndexRange> {
    match scalar::range(node) {
        Ok(range) => Some(range),
        Err(RangeError::Malformed) => {
            findings.wrong_kind(node, what, expected);
            None
        }
        Err(RangeError::Reversed) => {
            let range = node.describe();
            findings.error(node.place, LayoutProblem::ReversedRange { range });
            None
        }
    }
}

/// Parses one identifier or a list of them.
fn ids<T>(node: &Node, what: &'static str, findings: &mut Findings) -> Option<Vec<T>>
where
    T: FromStr<Err = IdError> + Ord + Clone + fmt::Display,
{
    let read = |node: &Node, findings: &mut Findings| {
        let Some(text) = scalar::text(node).filter(|text| text.len() <= 253 && !node.is_null())
        else {
            findings.wrong_kind(node, what, "a text or a list of texts");
            return None;
        };
        let id = text
            .parse()
            .map_err(|error: IdError| findings.error(node.place, error.into()));
        id.ok()
    };
    let ids: Vec<(T, SourcePosition)> = one_or_many(node, what, read, findings)?;
    let mut seen: BTreeMap<T, SourcePosition> = BTreeMap::new();
    for (id, place) in &ids {
        if let Some(first) = seen.get(id) {
            let value = id.to_string();
            let first = *first;
            findings.error(*place, LayoutProblem::DuplicateValue { value, first });
            return None;
        }
        seen.insert(id.clone(), *place);
    }
    Some(ids.into_iter().map(|(id, _)| id).collect())
}

/// Parses a single value or a non-empty list. Returns `None` if any item is invalid, after reporting all invalid items.
fn one_or_many<T>(
    node: &Node,
    what: &'static str,
    read: impl Fn(&Node, &mut Findings) -> Option<T>,
    findings: &mut Findings,
) -> Option<Vec<(T, SourcePosition)>> {
    let Value::List(items) = &node.value else {
        return read(node, findings).map(|value| vec![(value, node.place)]);
    };
    if items.is_empty() {
        let example = EXAMPLE;
        findings.error(node.place, LayoutProblem::Empty { what, example });
        return None;
    }
    let read: Vec<Option<(T, SourcePosition)>> = items
        .iter()
        .map(|item| Some((read(item, findings)?, item.place)))
        .collect();
    read.into_iter().collect()
}
