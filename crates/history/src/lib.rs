//! History of devices: utilization, memory, power, temperature and allocation over the last hour and day.
//!
//! A sample is taken every 15 s. A device has a value per sample for an hour, and a value per minute for a day. All
//! devices share the same time steps, so their values add up to those of a node, a type or the fleet. A step without a
//! sample is a gap, which is different from 0. Values are stored in one byte each, 60 of them in a compressed chunk.
//!
//! The totals of the fleet and of each type are stored too. They are added up while samples are recorded, so the time to
//! read them does not depend on the number of devices.
//!
//! [`History`] has one writer. Its clones are cheap and do not change, so readers need no lock while they read.

mod chunk;
pub mod document;
mod key;
mod metric;
mod recorder;
mod sample;
mod series;
mod sum;
mod total_log;
mod totals;
mod unit_sum;
mod window;

pub use key::SeriesKey;
pub use metric::Metric;
pub use recorder::{History, HistoryStatus};
pub use sample::{DeviceSample, Sample, samples};
pub use series::Series;
pub use sum::{Points, SeriesSum};
pub use window::{Span, Step, Window};

/// Seconds between samples.
pub const SAMPLE_SECONDS: u64 = 15;

/// Samples per minute.
const SAMPLES_PER_MINUTE: u32 = 4;

#[cfg(test)]
mod tests;
