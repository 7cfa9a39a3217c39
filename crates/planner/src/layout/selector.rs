//! Selectors: which devices a rule applies to.

use std::collections::BTreeSet;
use std::fmt;

use octavo_model::id::{GpuUuid, PciAddress, TypeName};
use octavo_model::inventory::{Condition, Device, Inventory, Vendor};
use octavo_model::quantity::Mebibytes;
use octavo_model::text::format_memory;

/// Selects the devices that a rule applies to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selector {
    /// Every device; if the rule partitions, every partitionable device.
    All,
    /// Every device that no other rule of the layout selects; if the rule partitions, every partitionable one of these.
    Rest,
    /// Every device that meets all criteria.
    Matching(Criteria),
}

/// Criteria, all of which must be met. `None` is met by every device; a list is met by a device that meets one element,
/// and is never empty.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Criteria {
    /// NVML index.
    pub index: Option<Vec<IndexRange>>,
    /// GPU UUID.
    pub uuid: Option<Vec<GpuUuid>>,
    /// PCI address.
    pub pci: Option<Vec<PciAddress>>,
    /// Accelerator type.
    pub type_name: Option<Vec<TypeName>>,
    /// Minimum memory.
    pub memory_at_least: Option<Mebibytes>,
    /// Capability to be partitioned.
    pub mig_capable: Option<bool>,
    /// PCI ids, mig-parted's `device-filter`. A rule with this criterion alone selects like [`Selector::All`].
    pub device_filter: Option<Vec<DeviceFilter>>,
}

/// An inclusive range of indices: `3` is `3-3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct IndexRange {
    /// First index.
    pub first: u32,
    /// Last index; never less than the first.
    pub last: u32,
}

/// PCI ids of a device, written `0x20B210DE` or `0x20B210DE:0x147F10DE`: each number is a device id followed by a
/// vendor id. Source: mig-parted v0.15.0, `pkg/types/deviceid.go`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceFilter {
    /// Device id.
    pub device: u16,
    /// Vendor id.
    pub vendor: u16,
    /// Subsystem device id and subsystem vendor id; `None` matches any.
    pub subsystem: Option<(u16, u16)>,
}

impl Selector {
    /// Returns the criteria, if the selector has any.
    pub fn criteria(&self) -> Option<&Criteria> {
        match self {
            Self::All | Self::Rest => None,
            Self::Matching(criteria) => Some(criteria),
        }
    }

    /// Returns true if the selector names devices deliberately; see [`Criteria::is_explicit`].
    pub fn is_explicit(&self) -> bool {
        self.criteria().is_some_and(Criteria::is_explicit)
    }
}

impl Criteria {
    /// Returns true if the criteria name devices deliberately, such as by index. Then a device without the required
    /// capability is an error instead of being skipped.
    pub fn is_explicit(&self) -> bool {
        self.index.is_some()
            || self.uuid.is_some()
            || self.pci.is_some()
            || self.type_name.is_some()
            || self.memory_at_least.is_some()
    }
}

impl IndexRange {
    /// Returns true if the range contains `index`.
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
    /// Formats the criteria as in Octavo's dialect, joined by `and`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = [
            self.index.as_deref().map(|all| listed("index", all)),
            self.uuid.as_deref().map(|all| listed("uuid", all)),
            self.pci.as_deref().map(|all| listed("pci", all)),
            self.type_name.as_deref().map(|all| listed("type", all)),
            self.memory_at_least.map(|least| format!("memoryAtLeast {}", format_memory(least))),
            self.mig_capable.map(|is| format!("migCapable {is}")),
            self.device_filter.as_deref().map(|all| listed("device-filter", all)),
        ];
        let words: Vec<String> = words.into_iter().flatten().collect();
        if words.is_empty() { f.write_str("all") } else { f.write_str(&words.join(" and ")) }
    }
}

/// Formats `what` with its first few values; lists of UUIDs may cover a whole fleet.
fn listed<T: fmt::Display>(what: &str, values: &[T]) -> String {
    const SHOWN: usize = 4;
    let mut words: Vec<String> = values.iter().take(SHOWN).map(T::to_string).collect();
    if let Some(more) = values.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        words.push(format!("{more} more"));
    }
    format!("{what} {}", words.join(", "))
}

/// Returns the index by which a layout selects `device`.
///
/// NVML counts a GPU that was lost before the driver was loaded, but does not identify it. NVML enumerates by PCI
/// address, so the n-th unidentified device gets the n-th index that no other device has. Failing devices are never
/// changed: the index only decides which rule reports them.
pub(super) fn index(device: &Device, inventory: &Inventory) -> Option<u32> {
    if device.index.is_some() || !is_unnamed(device) {
        return device.index;
    }
    let mut unnamed = inventory.devices.iter().filter(|one| is_unnamed(one));
    let position = unnamed.position(|one| one.pci == device.pci)?;
    let named: BTreeSet<u32> = inventory.devices.iter().filter_map(|d| d.index).collect();
    (0..).filter(|index| !named.contains(index)).nth(position)
}

pub(super) fn is_failing(device: &Device) -> bool {
    matches!(device.condition, Condition::Failing { .. })
}

fn is_unnamed(device: &Device) -> bool {
    device.vendor == Vendor::Nvidia && device.index.is_none() && is_failing(device)
}
