//! Layouts from demand: where a request for a MIG instance is best served, which idle instances it replaces, and what remains possible.
//!
//! ```text
//! geometry.rs    all sets of instances that devices of a model can have
//! fleet.rs       devices, their instances, allocations and reservations
//! choice.rs      choice of the device and the placement
//! simulation     the same choice under a trace of requests, compared with others
//! ```

mod choice;
mod fleet;
mod geometry;
pub mod simulation;
#[cfg(test)]
mod tests;

pub use self::choice::{Candidate, Fragmentation, Score, candidates};
pub use self::fleet::{Fleet, Gpu, Instance, Operations};
pub use self::geometry::{Addition, Geometry, GeometryError, Place, Profile, SetId};
