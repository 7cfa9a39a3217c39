//! A node as policies see it.

use octavo_fleet::cluster::{ClusterNode, Readiness};
use octavo_model::reason::Reason;

use crate::record::{LAYOUT_LABEL, NodeRecord, Record};

/// Node of the cluster with the record of its policy and its use.
#[derive(Debug, Clone)]
pub struct PolicyNode<'a> {
    /// The node.
    pub node: &'a ClusterNode,
    /// The record of its policy.
    pub record: Record,
    /// Devices and partitions in use; `None` if unknown.
    pub in_use: Option<u32>,
}

/// Progress of a layout on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The layout is applied, or the revision has none.
    Applied,
    /// It is not applied yet. The text names the blockers, if it is blocked.
    Pending(Option<String>),
    /// It failed.
    Failed {
        /// State of the layout.
        reason: Reason,
        /// Explanation.
        message: String,
    },
}

impl<'a> PolicyNode<'a> {
    /// A node with this number of devices and partitions in use.
    pub fn new(node: &'a ClusterNode, in_use: Option<u32>) -> Self {
        Self { node, record: Record::parse(node.policy_record.as_deref()), in_use }
    }

    /// Its name.
    pub fn name(&self) -> &'a str {
        &self.node.name
    }

    /// Layout that its label chooses.
    pub(crate) fn layout(&self) -> Option<&'a str> {
        self.node.labels.get(LAYOUT_LABEL).map(String::as_str)
    }

    /// Returns whether the kubelet reports that it is ready.
    pub(crate) fn is_ready(&self) -> bool {
        self.node.readiness == Readiness::Ready
    }

    /// Returns whether it is ready and the chosen layout, if any, is applied.
    pub(crate) fn is_available(&self) -> bool {
        let report = self.node.layout_report.as_ref();
        self.is_ready()
            && match self.layout() {
                Some(layout) => report.is_some_and(|one| one.is_applied(layout)),
                None => report
                    .is_none_or(|one| one.layout.is_none() || one.state == Some(Reason::Applied)),
            }
    }

    /// Progress of the layout in the record.
    pub(crate) fn progress(&self, record: &NodeRecord) -> Progress {
        let Some(layout) = &record.layout else { return Progress::Applied };
        let report = self.node.layout_report.as_ref();
        let Some(report) = report.filter(|one| one.layout.as_ref() == Some(layout)) else {
            return Progress::Pending(None);
        };
        let message = || report.message.clone();
        match report.state {
            Some(Reason::Applied) => Progress::Applied,
            Some(
                reason @ (Reason::Infeasible
                | Reason::Failed
                | Reason::RolledBack
                | Reason::NeedsReset),
            ) => Progress::Failed { reason, message: message() },
            Some(Reason::Blocked) => Progress::Pending(Some(message())),
            _ => Progress::Pending(None),
        }
    }

    /// Order in which nodes are changed: free nodes, then the least used, then those with unknown use.
    pub(crate) fn order(&self) -> (u32, &'a str) {
        (self.in_use.unwrap_or(u32::MAX), self.name())
    }
}
