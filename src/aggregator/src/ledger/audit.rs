//! Events of the audit that wait for the database.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use octavo_access::audit::{AuditQueue, QueuedRecord};
use octavo_fleet::changes::{ChangeEntry, ChangeKind};
use octavo_ledger::audit::{AuditEvent, AuditRecord, NodeEvent};
use octavo_model::id::NodeName;
use octavo_store::clock::{Clock, Moment};
use octavo_store::fleet::Node;

/// Maximum number of events of a transaction from the queue.
const MAX_EVENTS: usize = 200;

/// Changes of nodes that are events of the audit.
const AUDITED: [ChangeKind; 4] =
    [ChangeKind::Layout, ChangeKind::LayoutState, ChangeKind::Partitions, ChangeKind::Drain];

/// Events that were received and are not stored.
#[derive(Debug)]
pub(super) struct PendingRecords {
    queue: AuditQueue,
    records: Vec<QueuedRecord>,
    /// Time of the last change that was taken from each node, since the start of the program.
    taken: BTreeMap<NodeName, Duration>,
}

impl PendingRecords {
    pub(super) fn new(queue: AuditQueue) -> Self {
        Self { queue, records: Vec::new(), taken: BTreeMap::new() }
    }

    /// Waits for events, unless some are pending: while they cannot be stored, later ones remain in the bounded queue. Returns
    /// false if there will be no more. Dropping the future loses no event.
    pub(super) async fn receive(&mut self) -> bool {
        self.records.is_empty() && self.queue.recv_many(&mut self.records, MAX_EVENTS).await > 0
    }

    /// Takes the changes of nodes since the last call, unless events are pending: then they remain in the bounded record of each node.
    /// Returns whether there are any.
    pub(super) fn take_changes(&mut self, nodes: &[Arc<Node>], clock: &Clock) -> bool {
        if !self.records.is_empty() {
            return false;
        }
        for node in nodes {
            let Some(newest) = node.changes.newest().next() else { continue };
            let taken = self.taken.insert(node.name.clone(), newest.last);
            let is_new = |entry: &&ChangeEntry| taken.is_none_or(|taken| entry.last > taken);
            let new: Vec<&ChangeEntry> = node.changes.newest().take_while(is_new).collect();
            let records = new.into_iter().rev().filter_map(|entry| record(node, entry, clock));
            self.records.extend(records.map(QueuedRecord::from));
        }
        !self.records.is_empty()
    }

    /// Forgets nodes that are not in the fleet.
    pub(super) fn retain(&mut self, nodes: &[Arc<Node>]) {
        if self.taken.len() > nodes.len() {
            let names: std::collections::BTreeSet<&NodeName> =
                nodes.iter().map(|node| &node.name).collect();
            self.taken.retain(|name, _| names.contains(name));
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    pub(super) fn records(&self) -> impl Iterator<Item = &AuditRecord> {
        self.records.iter().map(|queued| &queued.record)
    }

    /// Announces that the pending events are stored.
    pub(super) fn confirm(&mut self) {
        self.records.drain(..).for_each(QueuedRecord::confirm);
    }
}

fn record(node: &Node, entry: &ChangeEntry, clock: &Clock) -> Option<AuditRecord> {
    let change = &entry.change;
    let kind = change.kind.known().filter(|kind| AUDITED.contains(kind))?;
    let time = clock.wall(Moment::after_start(entry.last));
    let object = change.object.clone();
    let event = NodeEvent {
        node: node.name.to_string(),
        property: kind.as_ref().to_owned(),
        object: object.clone(),
        before: change.from.clone(),
        after: change.to.clone(),
        message: change.message.clone(),
    };
    let source =
        format!("node/{}/{time}/{}/{}", node.name, event.property, object.unwrap_or_default());
    Some(AuditRecord { time, source, event: AuditEvent::Node(event) })
}
