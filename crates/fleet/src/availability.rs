//! Availability of a fleet: capacity, allocated and free units by type and resource, and why the rest is unavailable.
//!
//! ```text
//! Seen (an agent's inventory) --+
//!                               +--> count --> Availability: rows by type, resource and shape
//! Snapshot (nodes and pods) ----+
//!            \
//!             Holders --> History (how long earlier pods held units) --> time until one is free
//! ```
//!
//! "Free" is what the scheduler would place: the number of additional pods that request one unit and nothing else. It
//! is never capacity minus allocatable. The aggregator recounts when agents or the cluster report a change.

mod agent_units;
mod count;
mod demand;
mod document;
mod ended_holdings;
mod history;
mod node_cache;
mod node_rows;
mod pending;
mod potential;
mod row;
mod shape;
mod survival;
mod unavailable;
mod unit_type;

#[cfg(test)]
mod tests;

pub use self::agent_units::{AgentReport, AgentUnits, UnitCounts, has_same_allocations};
pub use self::count::{Availability, CountBasis, HoldingTimes, MAX_ROWS, count};
pub use self::demand::{Demand, MAX_DEMANDS, Obstacle, Obstacles};
pub use self::document::{AvailabilityList, AvailabilityRow, UnusableUnits, WaitBasis, WaitReport};
pub use self::ended_holdings::{EndedHolding, HoldingEvent, HoldingObserver};
pub use self::history::HoldingHistory;
pub use self::node_cache::CountCache;
pub use self::node_rows::{AgentNode, NodeRows};
pub use self::potential::{Fragmentation, FragmentedDevice, PotentialCache};
pub use self::row::{Pending, Row, RowKey, UnavailableUnits, Unknown, Wait};
pub use self::shape::{DeviceResource, Shape, UnknownShape};
pub use self::unavailable::UnavailableReason;
pub use self::unit_type::UnitType;
