//! Availability of a fleet: capacity, allocated and free units by type and resource, and why the rest is unavailable.
//!
//! ```text
//! Seen (an agent's inventory) --+
//!                               +--> count --> Availability: rows by type, resource and shape
//! Sights (nodes and pods) ------+
//!            \
//!             Holders --> History (how long earlier pods held units) --> time until one is free
//! ```
//!
//! "Free" is what the scheduler would place: the number of additional pods that request one unit and nothing else. It
//! is never capacity minus allocatable. The aggregator recounts when agents or the cluster report a change.

mod could;
mod count;
mod history;
mod holders;
mod kind;
mod pending;
mod row;
mod seen;
mod shape;
mod standing;
mod survival;

#[cfg(test)]
mod tests;

pub use self::could::Possibilities;
pub use self::count::{AgentNode, Availability, Basis, MOST_ROWS, Past, count};
pub use self::history::History;
pub use self::holders::{Holders, Left, Shown};
pub use self::kind::{Kind, Names, Source};
pub use self::row::{Key, OnNode, Pending, Row, Unknown, Unusable, Wait};
pub use self::seen::{Reported, Seen, SeenUnits};
pub use self::shape::{Shape, Whole, is_accelerator};
pub use self::standing::Why;
