//! Audit events that wait for the database.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use octavo_access::audit::{AuditQueue, QueuedRecord};
use octavo_fleet::changes::{ChangeEntry, ChangeKind, MAX_ENTRIES};
use octavo_ledger::audit::{AuditEvent, AuditRecord, NodeEvent};
use octavo_model::id::NodeName;
use octavo_store::clock::{Clock, Moment};
use octavo_store::fleet::Node;

/// Maximum number of events that are received from the queue together.
const MAX_EVENTS: usize = 200;
/// Maximum number of events that are taken from nodes together; more than the record of one node.
const MAX_CHANGES: usize = 500;
const _: () = assert!(MAX_CHANGES >= MAX_ENTRIES, "the record of a node must fit");
/// Maximum number of events of a transaction.
const MAX_TRANSACTION_EVENTS: usize = 500;

/// Changes of nodes that are audit events.
const AUDITED: [ChangeKind; 4] =
    [ChangeKind::Layout, ChangeKind::LayoutState, ChangeKind::Partitions, ChangeKind::Drain];

/// Events that were received and are not stored.
#[derive(Debug)]
pub(super) struct PendingRecords {
    queue: AuditQueue,
    records: Vec<QueuedRecord>,
    /// Time of the last change that was taken from each node, since the start of the program.
    taken: BTreeMap<NodeName, Duration>,
    /// First node whose changes were not taken at the last call.
    untaken: Option<NodeName>,
}

impl PendingRecords {
    pub(super) fn new(queue: AuditQueue) -> Self {
        Self { queue, records: Vec::new(), taken: BTreeMap::new(), untaken: None }
    }

    /// Waits for events, unless some are pending: while they cannot be stored, later ones remain in the bounded queue. Returns
    /// false if there will be no more. Dropping the future loses no event.
    pub(super) async fn receive(&mut self) -> bool {
        self.records.is_empty() && self.queue.recv_many(&mut self.records, MAX_EVENTS).await > 0
    }

    /// Takes the changes of nodes since the last call, up to a limit, unless events are pending: changes that are not taken remain in the
    /// bounded record of each node, for the next call. Returns whether there are any.
    pub(super) fn take_changes(&mut self, nodes: &[Arc<Node>], clock: &Clock) -> bool {
        if !self.records.is_empty() {
            let first = || nodes.first().map(|node| node.name.clone());
            self.untaken = self.untaken.take().or_else(first);
            return false;
        }
        // Begins where the last call ended, so that nodes with many changes do not delay the others.
        let untaken = self.untaken.take();
        let first = nodes.iter().position(|node| Some(&node.name) == untaken.as_ref());
        let (last, next) = nodes.split_at(first.unwrap_or_default());
        for node in next.iter().chain(last) {
            let Some(newest) = node.changes.newest().next() else { continue };
            let taken = self.taken.get(&node.name);
            let is_new = |entry: &&ChangeEntry| taken.is_none_or(|taken| entry.last > *taken);
            let new: Vec<&ChangeEntry> = node.changes.newest().take_while(is_new).collect();
            let records = new.into_iter().rev().filter_map(|entry| record(node, entry, clock));
            let records: Vec<AuditRecord> = records.collect();
            if self.records.len().saturating_add(records.len()) > MAX_CHANGES {
                self.untaken = Some(node.name.clone());
                break;
            }
            self.taken.insert(node.name.clone(), newest.last);
            self.records.extend(records.into_iter().map(QueuedRecord::from));
        }
        !self.records.is_empty()
    }

    /// Returns whether the next call of `take_changes` needs all nodes, because changes of some were not taken.
    pub(super) fn has_untaken_nodes(&self) -> bool {
        self.untaken.is_some()
    }

    /// Forgets nodes that are not in the fleet.
    pub(super) fn retain(&mut self, nodes: &[Arc<Node>]) {
        if self.taken.len() > nodes.len() {
            let names: BTreeSet<&NodeName> = nodes.iter().map(|node| &node.name).collect();
            self.taken.retain(|name, _| names.contains(name));
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The oldest pending events, as many as one transaction appends.
    pub(super) fn chunk(&self) -> impl Iterator<Item = &AuditRecord> {
        self.records.iter().take(MAX_TRANSACTION_EVENTS).map(|queued| &queued.record)
    }

    /// Announces that the events of `chunk` are stored.
    pub(super) fn confirm_chunk(&mut self) {
        let count = self.records.len().min(MAX_TRANSACTION_EVENTS);
        self.records.drain(..count).for_each(QueuedRecord::confirm);
    }
}

fn record(node: &Node, entry: &ChangeEntry, clock: &Clock) -> Option<AuditRecord> {
    let change = &entry.change;
    let kind = change.kind.known().filter(|kind| AUDITED.contains(kind))?;
    let time = clock.wall(Moment::after_start(entry.last));
    let object = change.object.clone();
    let event = NodeEvent {
        node: node.name.to_string(),
        property: kind,
        object: object.clone(),
        before: change.from.clone(),
        after: change.to.clone(),
        message: change.message.clone(),
    };
    let (property, object) = (event.property.as_ref(), object.unwrap_or_default());
    let source = format!("node/{}/{time}/{property}/{object}", node.name);
    Some(AuditRecord { time, source, event: AuditEvent::Node(event) })
}
