//! Usage ledger: which pod was allocated which part of which device, and when.
//!
//! ```text
//!  usage of a node --parts--> parts of each device --Recorder--> intervals --database--> sums --report--> device hours, cost
//!                                                                                        \--focus---> FOCUS rows
//!  changes, refusals, intervals of closed days --audit--> chain of entries
//! ```
//!
//! Pure: time is an argument. An interval is a part of a device that had one holder for a while. At every second that the ledger
//! accounts for a device, the shares of its parts add up to exactly one device. A part without a pod is `unallocated`, and a part
//! that was not reported is `unknown`.

pub mod audit;
pub mod budget;
pub mod compare;
mod cost;
pub mod csv;
mod device;
pub mod focus;
mod interval;
mod part;
mod parts;
mod recorder;
pub mod report;
#[cfg(test)]
mod tests;
mod transactions;
mod usage;

pub use self::device::Device;
pub use self::interval::{Day, Interval, IntervalKey, Utilization};
pub use self::part::{Activity, Container, Holder, Method, PPM, Part, UsageState};
pub use self::parts::{MeasuredPart, parts};
pub use self::recorder::{DeviceState, MAX_BRIDGED_SECONDS, MAX_PAST_SECONDS, Recorder};
pub use self::report::CostOrder;
pub use self::transactions::transactions;
pub use self::usage::{Dimension, UsageQuery, UsageSum};
