//! Layouts from demand: where a request for a MIG instance is best served, which idle instances it replaces, and what remains possible.
//!
//! ```text
//! geometry.rs    all sets of instances that devices of a model can have
//! fleet.rs       devices, their instances, allocations and reservations
//! choice.rs      choice of the device and the placement
//! observed.rs    the devices of a cluster as a fleet
//! proposal.rs    changes of idle instances that would place the pending pods of a cluster
//! report.rs      proposals as a document
//! text.rs        texts about a document, for terminals and pages
//! simulation     the same choice under a trace of requests, compared with others
//! ```

mod choice;
mod fleet;
mod geometry;
mod observed;
mod proposal;
mod report;
pub mod simulation;
#[cfg(test)]
mod tests;
mod text;

pub use self::choice::{Candidate, Fragmentation, Score, candidates};
pub use self::fleet::{Fleet, Gpu, Instance, Operations, User};
pub use self::geometry::{Addition, Geometry, GeometryError, Place, Profile, SetId};
pub use self::observed::ObservedNode;
pub use self::proposal::{DemandPlan, NodeChange, has_requests, propose};
pub use self::report::{
    Alternative, Defragmentation, DemandReport, DeviceProposal, InstancePlace, Obstacle,
    ObstacleCount, Outcome, PodMove, PodProposal, ProposedInstance,
};
pub use self::text::ONLY_PROPOSALS;
