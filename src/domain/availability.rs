//! What of a fleet is to be had: for each type and resource how many there are, are taken, are free, and why the rest is of no use.
//!
//! ```text
//! Seen (an agent's inventory) --+
//!                               +--> count --> Availability: rows by type, resource and shape
//! Sights (nodes and pods) ------+
//!            \
//!             Holders --> History (how long others held theirs) --> how long until one is free
//! ```
//!
//! "Free" is what the scheduler would place: as many more pods that ask for one unit and nothing else. It is never capacity less
//! allocatable. Called by the aggregator, which counts again when agents or cluster say something else.

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
