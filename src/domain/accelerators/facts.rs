//! The catalogue: what is known of each product, and who says so.

use crate::domain::inventory::{PciIds, Vendor};
use crate::domain::quantity::ComputeCapability;

include!(concat!(env!("OUT_DIR"), "/accelerators.rs"));

/// What the catalogue knows of one product. Absent: no citable source. Figures are the maker's peaks, without sparsity.
#[derive(Debug, Clone, PartialEq)]
pub struct Facts {
    /// The catalogue's id, such as `nvidia-a100-sxm4-80gb`.
    pub sku: &'static str,
    /// Who makes it.
    pub vendor: Vendor,
    /// The type without its memory, such as `nvidia-a100`.
    pub model: &'static str,
    /// The type, such as `nvidia-a100-80gb`.
    pub type_name: &'static str,
    /// The product's name, in most cases as the driver prints it.
    pub name: &'static str,
    /// Chip family.
    pub architecture: &'static str,
    /// Memory as it is sold.
    pub memory: Option<MarketedMemory>,
    /// Memory as a driver or a cloud reports it, in MiB, where that is far from what is sold.
    pub visible_memory_mib: Option<u32>,
    /// Memory bandwidth in 10^9 bytes a second.
    pub memory_bandwidth_gbs: Option<f64>,
    /// Arithmetic throughput.
    pub tflops: Tflops,
    /// Power in watts, as published: thermal design, board or maximum graphics power.
    pub tdp_w: Option<u32>,
    /// CUDA compute capability.
    pub compute_capability: Option<ComputeCapability>,
    /// How devices of this product are linked with each other.
    pub interconnect: Option<DeviceLink>,
    /// The PCI ids it is known by.
    pub pci_ids: &'static [PciPattern],
    /// Keys of the sources of all this, to be looked up with [`source`].
    pub sources: &'static [&'static str],
}

/// Memory as it is sold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MarketedMemory {
    /// The number in the product's name or data sheet.
    pub size: u32,
    /// The unit it is stated in.
    pub unit: MemoryUnit,
}

/// The unit a maker states memory in. What is sold as gigabytes is in truth gibibytes on most parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryUnit {
    /// "GB".
    Gigabytes,
    /// "GiB".
    Gibibytes,
}

/// Dense throughput in 10^12 operations a second, by number format.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tflops {
    /// bfloat16.
    pub bf16: Option<f64>,
    /// IEEE half precision.
    pub fp16: Option<f64>,
    /// Eight-bit floating point.
    pub fp8: Option<f64>,
}

/// How devices of a product are linked with each other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DeviceLink {
    /// What kind of link.
    pub kind: LinkKind,
    /// The maker's generation number.
    pub generation: Option<u32>,
    /// Bandwidth of one device in 10^9 bytes a second, both directions added.
    pub gbs_per_device: Option<f64>,
}

/// Kinds of links between devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkKind {
    /// None but the bus.
    Pcie,
    /// NVIDIA's `NVLink`, on the baseboard.
    NvLink,
    /// NVLink, when the optional bridge is fitted.
    NvLinkBridge,
    /// NVLink-C2C, between GPU and CPU.
    NvLinkC2c,
    /// AMD's Infinity Fabric (xGMI).
    InfinityFabric,
    /// Amazon's `NeuronLink`.
    NeuronLink,
}

/// PCI ids of a product. A device id that several products share is told apart by its subsystem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PciPattern {
    /// Vendor and device.
    pub device: (u16, u16),
    /// Subsystem vendor and subsystem device.
    pub subsystem: Option<(u16, u16)>,
}

impl PciPattern {
    /// As a function has them whose class is not known.
    pub fn ids(self) -> PciIds {
        let (subsystem_vendor, subsystem_device) = self.subsystem.unwrap_or_default();
        PciIds {
            vendor: self.device.0,
            device: self.device.1,
            subsystem_vendor,
            subsystem_device,
            class: None,
        }
    }

    /// `10de:25b6`, or with the subsystem's ids behind it.
    pub fn parse(text: &str) -> Option<Self> {
        let id = |part: &str| {
            let plain = part.len() == 4 && part.bytes().all(|b| b.is_ascii_hexdigit());
            plain.then(|| u16::from_str_radix(part, 16).ok()).flatten()
        };
        let parts: Option<Vec<u16>> = text.split(':').map(id).collect();
        match parts?.as_slice() {
            [vendor, device] => Some(Self {
                device: (*vendor, *device),
                subsystem: None,
            }),
            [vendor, device, of, which] => Some(Self {
                device: (*vendor, *device),
                subsystem: Some((*of, *which)),
            }),
            _ => None,
        }
    }
}

/// What looks like an accelerator and is none: switches, and displays that accelerate nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotAccelerator {
    /// PCI vendor.
    pub vendor: u16,
    /// PCI device; without one, all of the vendor's displays.
    pub device: Option<u16>,
    /// What it is.
    pub what: &'static str,
    /// Keys of the sources, to be looked up with [`source`].
    pub sources: &'static [&'static str],
}

/// Every product, in the catalogue's order.
pub fn catalogue() -> &'static [Facts] {
    TABLE
}

/// Everything that looks like an accelerator and is none.
pub fn not_accelerators() -> &'static [NotAccelerator] {
    OTHERS
}

/// What `ids` are where they are known to be no accelerator.
pub fn no_accelerator(ids: PciIds) -> Option<&'static NotAccelerator> {
    let is_display = ids.class.is_some_and(|class| class >> 16 == 0x03);
    OTHERS.iter().find(|other| {
        other.vendor == ids.vendor
            && other
                .device
                .map_or(is_display, |device| device == ids.device)
    })
}

/// Whether the catalogue has a product with this vendor and device, whatever class it calls itself.
pub fn is_listed(ids: PciIds) -> bool {
    let device = (ids.vendor, ids.device);
    let mut patterns = TABLE.iter().flat_map(|facts| facts.pci_ids);
    patterns.any(|pattern| pattern.device == device)
}

/// The citation behind a key of [`Facts::sources`].
pub fn source(key: &str) -> Option<&'static str> {
    let (_, citation) = SOURCES.iter().find(|(name, _)| *name == key)?;
    Some(citation)
}

/// All sources: keys and citations.
pub(super) fn sources() -> &'static [(&'static str, &'static str)] {
    SOURCES
}

/// The products that `ids` may be: those of its subsystem where the catalogue knows it, and of its device id otherwise.
pub(super) fn with_ids(ids: PciIds) -> Vec<&'static Facts> {
    let device = (ids.vendor, ids.device);
    let subsystem = Some((ids.subsystem_vendor, ids.subsystem_device));
    let with = |subsystem| -> Vec<&'static Facts> {
        let pattern = PciPattern { device, subsystem };
        TABLE
            .iter()
            .filter(|facts| facts.pci_ids.contains(&pattern))
            .collect()
    };
    let exact = with(subsystem);
    if exact.is_empty() { with(None) } else { exact }
}
