//! Selection of the nodes for a draft: nodes of a single type that one label matches.

use std::collections::BTreeMap;

use octavo_model::accelerators::Catalog;
use octavo_model::id::TypeName;

use super::create_request::DraftRequest;
use super::draft_error::{DraftError, DraftNote, format_devices};
use super::{DevicesByType, TYPE_LABEL, selecting_label};
use crate::cluster::{ClusterNode, ClusterSnapshot};

/// Nodes of a draft: all of one type and matched by one label.
pub(super) struct SelectedNodes<'a> {
    pub(super) type_name: TypeName,
    pub(super) nodes: Vec<&'a ClusterNode>,
    /// Label by which the selector matches them.
    pub(super) label: (&'a str, &'a str),
}

/// Nodes of one type, by the label that a selector matches them by.
type NodesByLabel<'a> = BTreeMap<(&'a str, &'a str), Vec<&'a ClusterNode>>;

/// Selects the nodes with a single type; the reasons for excluding others are appended to `remarks`.
pub(super) fn select_nodes<'a>(
    request: &DraftRequest,
    snapshot: &'a ClusterSnapshot,
    types: &BTreeMap<String, DevicesByType>,
    catalog: &Catalog,
    remarks: &mut Vec<DraftNote>,
) -> Result<SelectedNodes<'a>, DraftError> {
    let is_requested = !request.nodes.is_empty();
    let missing = request.nodes.iter().filter(|name| !snapshot.nodes.contains_key(*name));
    remarks.extend(missing.cloned().map(DraftNote::NodeNotFound));
    let mut by_type: BTreeMap<TypeName, NodesByLabel<'a>> = BTreeMap::new();
    let nodes = snapshot.nodes.values();
    for node in nodes.filter(|node| !is_requested || request.nodes.contains(&node.name)) {
        let name = node.name.clone();
        let held: Vec<_> = types.get(&name).into_iter().flatten().collect();
        let wanted = request.type_name.as_ref();
        let concerns =
            wanted.is_none_or(|wanted| held.iter().any(|(one, _)| one.as_ref() == Some(wanted)));
        match held.as_slice() {
            [(Some(one), _)] if wanted.is_none_or(|wanted| wanted == one) => {
                if let Some(label) = selecting_label(node, one, catalog) {
                    let found = by_type.entry((*one).clone()).or_default();
                    found.entry(label).or_default().push(node);
                } else {
                    remarks.push(DraftNote::UnlabeledNode(name));
                }
            }
            [_, _, ..] if is_requested || concerns => {
                remarks.push(DraftNote::MixedNode { node: name, has: format_devices(&held) });
            }
            [(None, _)] if is_requested => remarks.push(DraftNote::Unknown(name)),
            [] if is_requested => remarks.push(DraftNote::NodeWithoutDevices(name)),
            _ => {}
        }
    }
    let mut all = by_type.into_iter();
    match (all.next(), all.next()) {
        (None, _) => Err(match &request.type_name {
            Some(wanted) if remarks.is_empty() => DraftError::NoNodeOfType(wanted.clone()),
            _ => DraftError::NoUsableNode(std::mem::take(remarks)),
        }),
        (Some((type_name, found)), None) => match by_label(found, remarks) {
            Some((label, nodes)) => Ok(SelectedNodes { type_name, nodes, label }),
            None => Err(DraftError::NoUsableNode(std::mem::take(remarks))),
        },
        (Some(first), Some(second)) => {
            let names = [first, second].into_iter().chain(all);
            Err(DraftError::SeveralTypes(names.map(|(name, _)| name).collect()))
        }
    }
}

/// Nodes that one label matches: those with Octavo's label, which is stable under sharing, otherwise those with the
/// most frequent vendor label.
fn by_label<'a>(
    mut found: NodesByLabel<'a>,
    remarks: &mut Vec<DraftNote>,
) -> Option<((&'a str, &'a str), Vec<&'a ClusterNode>)> {
    let ours = found.keys().find(|(key, _)| *key == TYPE_LABEL).copied();
    // Of equally frequent labels, the first.
    let most = || {
        let all = found.iter().rev();
        let most = all.max_by_key(|(_, nodes)| nodes.len());
        most.map(|(label, _)| *label)
    };
    let label = ours.or_else(most)?;
    let nodes = found.remove(&label)?;
    let left = found.into_values().flatten().map(|node| node.name.clone());
    if ours.is_some() {
        remarks.extend(left.map(DraftNote::UnlabeledNode));
    } else {
        let note = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        let (key, value) = note(label);
        remarks.push(DraftNote::VendorLabel { key, value });
        remarks.extend(left.map(|node| {
            let (key, value) = note(label);
            DraftNote::NodeWithOtherLabel { node, key, value }
        }));
    }
    Some((label, nodes))
}
