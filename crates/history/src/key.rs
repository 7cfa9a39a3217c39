//! Identity of a series within its node.

use octavo_model::id::PciAddress;

/// A device or one of its partitions.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SeriesKey {
    /// Address of the device.
    pub device: PciAddress,
    /// UUID of the partition; `None` for the device itself. A new partition has a new UUID.
    pub partition: Option<Box<str>>,
}
