//! Static product tables of the built-in catalog.
#![expect(clippy::unreadable_literal, reason = "the tables are generated")]

use crate::inventory::{PciIds, Vendor};
use crate::quantity::ComputeCapability;

include!(concat!(env!("OUT_DIR"), "/accelerators.rs"));

/// Facts by which a product is identified, matched and estimated; [`Product`](super::Product) has all of its facts. A
/// field is absent if no citable source states it. Figures are the vendor's peak values, without sparsity.
#[derive(Debug, Clone, PartialEq)]
pub struct Facts {
    /// Catalog id, such as `nvidia-a100-sxm4-80gb`.
    pub sku: &'static str,
    /// Vendor of the product.
    pub vendor: Vendor,
    /// Type without the memory size, such as `nvidia-a100`.
    pub model: &'static str,
    /// Type, such as `nvidia-a100-80gb`.
    pub type_name: &'static str,
    /// Product name, in most cases as the driver reports it.
    pub name: &'static str,
    /// Chip family.
    pub architecture: &'static str,
    /// Marketed memory size.
    pub memory: Option<MarketedMemory>,
    /// Memory in MiB as a driver or a cloud reports it, where it differs much from the marketed size.
    pub visible_memory_mib: Option<u32>,
    /// Memory bandwidth in 10^9 bytes per second.
    pub memory_bandwidth_gbs: Option<f64>,
    /// Arithmetic throughput.
    pub tflops: Tflops,
    /// CUDA compute capability.
    pub compute_capability: Option<ComputeCapability>,
    /// Link between devices of this product.
    pub interconnect: Option<LinkKind>,
    /// Known PCI ids of the product.
    pub pci_ids: &'static [PciPattern],
}

/// Marketed memory size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MarketedMemory {
    /// Number in the product's name or data sheet.
    pub size: u32,
    /// Unit of the number.
    pub unit: MemoryUnit,
}

/// Unit in which a vendor states memory. Most parts sold in gigabytes in fact have that many gibibytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryUnit {
    /// "GB".
    Gigabytes,
    /// "GiB".
    Gibibytes,
}

/// Dense throughput in 10^12 operations per second, by number format.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tflops {
    /// bfloat16.
    pub bf16: Option<f64>,
    /// IEEE half precision.
    pub fp16: Option<f64>,
    /// Eight-bit floating point.
    pub fp8: Option<f64>,
}

/// Kinds of links between devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkKind {
    /// PCIe only.
    Pcie,
    /// NVIDIA NVLink on the baseboard.
    NvLink,
    /// NVLink through an optional bridge.
    NvLinkBridge,
    /// NVLink-C2C between GPU and CPU.
    NvLinkC2c,
    /// AMD Infinity Fabric (xGMI).
    InfinityFabric,
    /// AWS `NeuronLink`.
    NeuronLink,
}

/// PCI ids of a product. Products that share a device id differ in their subsystem ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PciPattern {
    /// Vendor and device id.
    pub device: (u16, u16),
    /// Subsystem vendor and subsystem device id.
    pub subsystem: Option<(u16, u16)>,
}

/// PCI devices that resemble accelerators but are none: switches, and display controllers without compute capability.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotAccelerator {
    /// PCI vendor id.
    pub vendor: u16,
    /// PCI device id; `None` for all display controllers of the vendor.
    pub device: Option<u16>,
    /// Description of the device.
    pub description: &'static str,
}

/// All products, in catalog order.
pub fn products() -> &'static [Facts] {
    TABLE
}

/// All PCI devices that resemble accelerators but are none.
pub fn non_accelerators() -> &'static [NotAccelerator] {
    OTHERS
}

/// Entry for `ids` if they are known not to be an accelerator.
pub fn non_accelerator_with_ids(ids: PciIds) -> Option<&'static NotAccelerator> {
    let is_display = ids.class.is_some_and(|class| class >> 16 == 0x03);
    OTHERS.iter().find(|other| {
        other.vendor == ids.vendor && other.device.map_or(is_display, |device| device == ids.device)
    })
}

/// Returns `true` if the catalog has a product with this vendor and device id, regardless of its PCI class.
pub fn is_known_accelerator(ids: PciIds) -> bool {
    let device = (ids.vendor, ids.device);
    let mut patterns = TABLE.iter().flat_map(|facts| facts.pci_ids);
    patterns.any(|pattern| pattern.device == device)
}

/// All sources: keys and citations.
pub(super) fn sources() -> &'static [(&'static str, &'static str)] {
    SOURCES
}

/// Products that `ids` may be: those with the same subsystem if the catalog lists it, otherwise those with the device
/// id.
pub(super) fn products_with_ids(ids: PciIds) -> Vec<&'static Facts> {
    let device = (ids.vendor, ids.device);
    let subsystem = Some((ids.subsystem_vendor, ids.subsystem_device));
    let with = |subsystem| -> Vec<&'static Facts> {
        let pattern = PciPattern { device, subsystem };
        TABLE.iter().filter(|facts| facts.pci_ids.contains(&pattern)).collect()
    };
    let exact = with(subsystem);
    if exact.is_empty() { with(None) } else { exact }
}
