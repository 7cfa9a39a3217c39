//! Approval of proposed changes of instances.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;

use crate::demand::DemandMode;
use crate::instance_change::InstanceChange;
use crate::world::Policy;

/// Reason why no change can be approved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApprovalError {
    /// The policy does not wait for approvals.
    OtherMode(Option<DemandMode>),
    /// No change is proposed for this node, or its change is in progress.
    NotProposed(String),
    /// No change is proposed.
    Nothing,
}

impl fmt::Display for ApprovalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherMode(None) => f.write_str("spec.demand is not set"),
            Self::OtherMode(Some(mode)) => {
                write!(f, "spec.demand.mode is {mode}; only Propose needs approvals")
            }
            Self::NotProposed(node) => write!(f, "no change is proposed for node {node}"),
            Self::Nothing => f.write_str("no change is proposed"),
        }
    }
}

impl Error for ApprovalError {}

/// Returns the proposed changes of these nodes, or of all nodes without any.
pub fn approvable<'a>(
    policy: &'a Policy,
    nodes: &[String],
) -> Result<Vec<&'a InstanceChange>, ApprovalError> {
    let demand = policy.spec.as_ref().ok().and_then(|spec| spec.demand);
    let mode = demand.map(|demand| demand.mode);
    if mode != Some(DemandMode::Propose) {
        return Err(ApprovalError::OtherMode(mode));
    }
    let proposed = policy.status.changes.iter().filter(|change| !change.is_in_progress());
    let all: BTreeMap<&str, &InstanceChange> =
        proposed.map(|change| (change.node.as_str(), change)).collect();
    if all.is_empty() {
        return Err(ApprovalError::Nothing);
    }
    if nodes.is_empty() {
        return Ok(all.into_values().collect());
    }
    let find = |node: &String| {
        let found = all.get(node.as_str()).copied();
        found.ok_or_else(|| ApprovalError::NotProposed(node.clone()))
    };
    nodes.iter().map(find).collect()
}

/// Value of the annotation `octavo.dev/approve` with further approved changes. Approvals of changes that are no longer proposed are removed.
pub fn approval(policy: &Policy, approved: &[&InstanceChange]) -> String {
    let ids = policy.status.changes.iter().map(|change| change.id.as_str());
    let is_approved = |id: &&str| {
        policy.approved.contains(*id) || approved.iter().any(|change| change.id == **id)
    };
    ids.filter(is_approved).collect::<Vec<&str>>().join(",")
}
