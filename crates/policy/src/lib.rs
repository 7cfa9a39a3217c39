//! Policies: which layout, labels and taints the nodes of a pool have, and in which order they get them.
//!
//! ```text
//!  policies, nodes, time --> World --> next --> steps: status, nodes, finalizers
//!                                       |
//!                                       +-- retarget: which revision   settle: nodes that are done or failed
//!                                       +-- extend: the next nodes     proposals: instances for pending pods
//!                                       +-- conditions: counts and messages
//! ```
//!
//! Pure: a decision is data, and the time is an argument. The aggregator executes it. The status of the policies and the records on the
//! nodes are the only memory, so a restarted controller continues where the last one ended.

mod amount;
mod approval;
mod change;
mod change_event;
mod conditions;
pub mod crd;
mod demand;
mod demand_by_node;
pub mod document;
mod drain;
mod instance_change;
mod limits;
mod member;
pub mod messages;
mod next;
mod node;
mod period;
mod plan;
mod proposals;
pub mod record;
mod rollback;
mod rollout;
mod spec;
mod status;
#[cfg(test)]
mod tests;
pub mod validation;
mod window;
mod world;

pub use self::amount::{IntOrText, MaxUnavailable};
pub use self::approval::{ApprovalError, approvable, approval};
pub use self::change::NodePatch;
pub use self::change_event::ChangeEvent;
pub use self::demand::{DemandMode, PolicyDemand};
pub use self::demand_by_node::demand_by_node;
pub use self::drain::{DrainScope, PolicyDrain};
pub use self::instance_change::{InstanceChange, NodeProposal, PodEviction};
pub use self::member::{MemberState, PolicyMember, members};
pub use self::next::{Decision, Step, next};
pub use self::node::PolicyNode;
pub use self::period::Period;
pub use self::plan::{PlannedNode, PolicyPlan, plan};
pub use self::rollback::{RollbackError, rollback_target};
pub use self::spec::{Day, NodeSelector, OnFailure, PolicySpec, Rollout, Window};
pub use self::status::{
    Condition, Content, NodeCounts, NodeFailure, PolicyState, PolicyStatus, Revision, Stop,
    StopAction, StopReason,
};
pub use self::world::{Policy, World, release_orphan};
