//! Changes of one node: labels, taints, layout, drain and the record, in one patch.

use std::collections::BTreeMap;

use jiff::Timestamp;
use octavo_fleet::cluster::Taint;
use octavo_node::node_object::{
    EVICT_ANNOTATION, EvictionPermission, INSTANCES_ANNOTATION, is_demand_layout,
};

use crate::instance_change::InstanceChange;
use crate::limits;
use crate::node::PolicyNode;
use crate::record::{DRAIN_ANNOTATION, LAYOUT_LABEL, NodeRecord};
use crate::status::Content;

/// Patch of a node. Absent values are removed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodePatch {
    /// Changed labels.
    pub labels: BTreeMap<String, Option<String>>,
    /// Changed annotations, without the record.
    pub annotations: BTreeMap<String, Option<String>>,
    /// All taints of the node after the change; `None` if they stay.
    pub taints: Option<Vec<Taint>>,
    /// The new record; `None` to remove it.
    pub record: Option<NodeRecord>,
}

impl NodePatch {
    /// Returns whether the node gets another layout, so that it becomes unavailable.
    pub(crate) fn sets_layout(&self) -> bool {
        self.labels.get(LAYOUT_LABEL).is_some_and(Option::is_some)
    }
}

/// Owner of a record: a policy and its roll-out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Owner<'a> {
    pub(crate) policy: &'a str,
    pub(crate) uid: &'a str,
    pub(crate) revision: &'a str,
    pub(crate) rollout: i64,
}

/// State of a node: a content with the layout of this node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NodeTarget<'a> {
    pub(crate) content: &'a Content,
    /// Value of the label `octavo.dev/layout`.
    pub(crate) layout: Option<&'a str>,
    /// The node gets these other instances.
    pub(crate) instances: Option<NewInstances<'a>>,
    /// Layout of demand that is withdrawn.
    pub(crate) withdrawn: Option<&'a str>,
    /// True if the node is part of the current wave.
    pub(crate) is_in_wave: bool,
}

/// Instances that a node gets for pending pods.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewInstances<'a> {
    /// Change with the layout, the instances and the evicted pods.
    pub(crate) change: &'a InstanceChange,
    /// Time until which the pods may be evicted.
    pub(crate) until: Timestamp,
}

impl NewInstances<'_> {
    /// Value of the annotation `octavo.dev/evict`; `None` without any pod.
    fn evict(&self) -> Option<String> {
        let uids = self.change.evictions.iter().map(|one| one.uid.clone()).collect();
        let layout = self.change.layout.clone();
        let permission = EvictionPermission { layout, until: self.until, uids };
        (!permission.uids.is_empty()).then(|| permission.to_string())
    }
}

/// Returns the patch that gives the node this content; `None` if it has the content and a record of it. A node of the current wave
/// needs the record of this roll-out: that of an earlier one does not show that the wave changed the node.
///
/// A label, taint or annotation with a value that the policy did not set is left as it is.
pub(crate) fn update(
    node: &PolicyNode<'_>,
    owner: Owner<'_>,
    target: NodeTarget<'_>,
    now: Timestamp,
) -> Option<NodePatch> {
    let content = target.content;
    let before = node.record.of(owner.uid);
    let mut record = NodeRecord {
        policy: owner.policy.to_owned(),
        uid: owner.uid.to_owned(),
        revision: owner.revision.to_owned(),
        rollout: owner.rollout,
        since: now,
        layout: target.layout.map(str::to_owned),
        was_reported: false,
        labels: BTreeMap::new(),
        taints: Vec::new(),
        drain: None,
        changes: before.map(|before| before.changes.clone()).unwrap_or_default(),
        evictions: before.map(|before| before.evictions.clone()).unwrap_or_default(),
        withdrawn: target
            .withdrawn
            .or_else(|| before.and_then(|before| before.withdrawn.as_deref()))
            .map(str::to_owned),
    };
    let mut patch = removal(node, before);
    for (key, wanted) in &content.node_labels {
        let current = node.node.labels.get(key);
        let is_ours = current == before.and_then(|before| before.labels.get(key));
        if current.is_none() || is_ours {
            patch.labels.remove(key);
            if current != Some(wanted) {
                patch.labels.insert(key.clone(), Some(wanted.clone()));
            }
            record.labels.insert(key.clone(), wanted.clone());
        }
    }
    patch.labels.remove(LAYOUT_LABEL);
    for key in [INSTANCES_ANNOTATION, EVICT_ANNOTATION] {
        patch.annotations.remove(key);
    }
    let recorded = before.and_then(|before| before.layout.as_deref());
    if node.layout() != target.layout && (target.layout.is_some() || recorded.is_some()) {
        patch.labels.insert(LAYOUT_LABEL.to_owned(), record.layout.clone());
        let reported = node.node.layout_report.as_ref().and_then(|report| report.layout.as_ref());
        // After a withdrawal, the report is that of the withdrawn layout for a while.
        record.was_reported = reported.is_some()
            && (reported == record.layout.as_ref() || target.withdrawn.is_some());
    }
    let is_released = recorded.is_some_and(is_demand_layout) && recorded != target.layout;
    if is_released || target.instances.is_some() {
        let instances = target.instances.and_then(|new| new.change.instances.clone());
        let evict = target.instances.and_then(|new| new.evict());
        patch.annotations.insert(INSTANCES_ANNOTATION.to_owned(), instances);
        patch.annotations.insert(EVICT_ANNOTATION.to_owned(), evict);
    }
    if let Some(new) = target.instances {
        record.changes = limits::recent(&record.changes, now);
        record.changes.push(now);
        record.evictions = limits::recent(&record.evictions, now);
        record.evictions.extend(new.change.evictions.iter().map(|_| now));
        record.withdrawn = None;
    }
    set_taints(&mut patch, node, content, &mut record);
    record.drain = set_drain(&mut patch, node, before, content);
    let is_recorded = before.is_some_and(|before| {
        let rollout = if target.is_in_wave { owner.rollout } else { before.rollout };
        let (since, was_reported) = (before.since, before.was_reported);
        NodeRecord { rollout, since, was_reported, ..record.clone() } == *before
    });
    let is_unchanged =
        patch.labels.is_empty() && patch.annotations.is_empty() && patch.taints.is_none();
    let is_current = is_unchanged && is_recorded;
    patch.record = Some(record);
    (!is_current).then_some(patch)
}

/// Adds the taints of the content to the patch, and records those that are new.
fn set_taints(
    patch: &mut NodePatch,
    node: &PolicyNode<'_>,
    content: &Content,
    record: &mut NodeRecord,
) {
    let mut taints = patch.taints.take().unwrap_or_else(|| node.node.taints.clone());
    for wanted in &content.taints {
        let is_same = |one: &Taint| one.key == wanted.key && one.effect == wanted.effect;
        if !taints.iter().any(is_same) {
            taints.push(wanted.clone());
            record.taints.push(wanted.clone());
        }
    }
    if is_same_set(&taints, &node.node.taints) {
        taints.clone_from(&node.node.taints);
    }
    patch.taints = (taints != node.node.taints).then_some(taints);
}

/// Adds the change of the annotation `octavo.dev/drain` to the patch, and returns the recorded value.
fn set_drain(
    patch: &mut NodePatch,
    node: &PolicyNode<'_>,
    before: Option<&NodeRecord>,
    content: &Content,
) -> Option<String> {
    let current = &node.node.drain;
    let is_ours = current.is_some() && before.is_some_and(|before| before.drain == *current);
    if current.is_some() && !is_ours {
        return None;
    }
    let wanted = content.drain.map(|drain| drain.to_string());
    patch.annotations.remove(DRAIN_ANNOTATION);
    if *current != wanted {
        patch.annotations.insert(DRAIN_ANNOTATION.to_owned(), wanted.clone());
    }
    wanted
}

/// Returns the patch that removes the recorded values, and the record. Values that another writer changed stay.
pub(crate) fn release(node: &PolicyNode<'_>) -> NodePatch {
    removal(node, node.record.valid())
}

/// Removes the recorded values that the node still has. Taints that a content names again retain their place.
fn removal(node: &PolicyNode<'_>, record: Option<&NodeRecord>) -> NodePatch {
    let Some(record) = record else { return NodePatch::default() };
    let labels = record.labels.iter();
    let layout = record.layout.as_ref().map(|layout| (LAYOUT_LABEL, layout));
    let all = labels.map(|(key, value)| (key.as_str(), value)).chain(layout);
    let ours = all.filter(|(key, value)| node.node.labels.get(*key) == Some(*value));
    let remaining = node.node.taints.iter().filter(|taint| !record.taints.contains(taint));
    let remaining: Vec<Taint> = remaining.cloned().collect();
    let is_drain_ours = record.drain.is_some() && record.drain == node.node.drain;
    let drain = is_drain_ours.then_some(DRAIN_ANNOTATION);
    // The instances of another controller stay.
    let current = node.layout().filter(|current| Some(*current) != record.layout.as_deref());
    let has_instances = record.layout.as_deref().is_some_and(is_demand_layout)
        && !current.is_some_and(is_demand_layout);
    let instances = [INSTANCES_ANNOTATION, EVICT_ANNOTATION].into_iter().filter(|_| has_instances);
    NodePatch {
        annotations: drain.into_iter().chain(instances).map(|key| (key.to_owned(), None)).collect(),
        labels: ours.map(|(key, _)| (key.to_owned(), None)).collect(),
        taints: (remaining.len() != node.node.taints.len()).then_some(remaining),
        record: None,
    }
}

fn is_same_set(one: &[Taint], other: &[Taint]) -> bool {
    one.len() == other.len() && one.iter().all(|taint| other.contains(taint))
}
