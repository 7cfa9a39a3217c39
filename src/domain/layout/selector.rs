//! Which devices a rule speaks of.

use std::fmt;

use crate::domain::id::{GpuUuid, PciAddress, TypeName};
use crate::domain::quantity::Mebibytes;

/// Which devices a rule speaks of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selector {
    /// Every device; where the rule partitions, every device that can be partitioned.
    All,
    /// Every device that no other rule of the layout selects; where the rule partitions, those that can be partitioned.
    Rest,
    /// Every device that meets all of these.
    Matching(Criteria),
}

/// Criteria that hold together. One that is `None` is met by every device; a list is met by whatever meets one of its
/// members, and is never empty.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Criteria {
    /// NVML's index of the device.
    pub index: Option<Vec<IndexRange>>,
    /// Its UUID.
    pub uuid: Option<Vec<GpuUuid>>,
    /// Its PCI address.
    pub pci: Option<Vec<PciAddress>>,
    /// Its type.
    pub type_name: Option<Vec<TypeName>>,
    /// The least memory it may have.
    pub memory_at_least: Option<Mebibytes>,
    /// Whether it can be partitioned.
    pub mig_capable: Option<bool>,
    /// Its PCI ids, mig-parted's `device-filter`. A rule that has nothing but this selects like [`Selector::All`].
    pub device_filter: Option<Vec<DeviceFilter>>,
}

/// Indices from the first to the last, both included: `3` is `3-3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct IndexRange {
    /// The first.
    pub first: u32,
    /// The last; never less than the first.
    pub last: u32,
}

/// PCI ids that a device must have, written `0x20B210DE` or `0x20B210DE:0x147F10DE`: each number is a device id before a
/// vendor id. Source: mig-parted v0.15.0, `pkg/types/deviceid.go`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceFilter {
    /// Device id and vendor id.
    pub device: u16,
    /// Vendor id.
    pub vendor: u16,
    /// Subsystem device id and subsystem vendor id, where they matter.
    pub subsystem: Option<(u16, u16)>,
}

impl Criteria {
    /// Whether a device is named by something that a person chose for it, and not by being there: then what it cannot do is
    /// an error, and not a reason to leave it out.
    pub fn is_explicit(&self) -> bool {
        self.index.is_some()
            || self.uuid.is_some()
            || self.pci.is_some()
            || self.type_name.is_some()
            || self.memory_at_least.is_some()
    }
}

impl IndexRange {
    /// Whether `index` lies in it.
    pub fn contains(self, index: u32) -> bool {
        (self.first..=self.last).contains(&index)
    }
}

impl fmt::Display for IndexRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            write!(f, "{}", self.first)
        } else {
            write!(f, "{}-{}", self.first, self.last)
        }
    }
}

impl fmt::Display for DeviceFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:04X}{:04X}", self.device, self.vendor)?;
        match self.subsystem {
            Some((device, vendor)) => write!(f, ":0x{device:04X}{vendor:04X}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Rest => f.write_str("rest"),
            Self::Matching(criteria) => criteria.fmt(f),
        }
    }
}

impl fmt::Display for Criteria {
    /// In the words of our dialect, joined by `and`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = [
            self.index.as_deref().map(|all| listed("index", all)),
            self.uuid.as_deref().map(|all| listed("uuid", all)),
            self.pci.as_deref().map(|all| listed("pci", all)),
            self.type_name.as_deref().map(|all| listed("type", all)),
            self.memory_at_least
                .map(|least| format!("memoryAtLeast {least}")),
            self.mig_capable.map(|is| format!("migCapable {is}")),
            self.device_filter
                .as_deref()
                .map(|all| listed("device-filter", all)),
        ];
        let words: Vec<String> = words.into_iter().flatten().collect();
        if words.is_empty() {
            f.write_str("all")
        } else {
            f.write_str(&words.join(" and "))
        }
    }
}

/// `what` and the first few of its values: lists of a whole fleet's UUIDs are long.
fn listed<T: fmt::Display>(what: &str, values: &[T]) -> String {
    const SHOWN: usize = 4;
    let mut words: Vec<String> = values.iter().take(SHOWN).map(T::to_string).collect();
    if let Some(more) = values.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        words.push(format!("{more} more"));
    }
    format!("{what} {}", words.join(", "))
}
