//! Attributes and capacities of devices, by which claims select.
//!
//! Names and values are those of NVIDIA's driver, in its domain `gpu.nvidia.com`, so that selectors and constraints work
//! with both drivers. What only Octavo reports is in the domain of our driver. Source: kubernetes-sigs/dra-driver-nvidia-gpu,
//! `cmd/gpu-kubelet-plugin/deviceinfo.go`; Kubernetes `dynamic-resource-allocation/deviceattribute`.

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1::{
    CapacityRequestPolicy, Device as ApiDevice, DeviceAttribute, DeviceCapacity,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use octavo_model::catalog::{GpuInstanceProfile, Placement};
use octavo_model::id::PciAddress;
use octavo_model::inventory::{Architecture, Device, Inventory};
use octavo_model::quantity::{DriverVersion, Mebibytes};

use crate::DRIVER;

/// Domain of NVIDIA's driver.
const NVIDIA: &str = "gpu.nvidia.com";
/// Domain of the attributes that Kubernetes defines.
const STANDARD: &str = "resource.kubernetes.io";
/// Maximum length of a string value. Source: Kubernetes `api/resource/v1`, `DeviceAttributeMaxValueLength`.
const MAX_VALUE: usize = 64;

/// Attributes by qualified name.
pub(crate) type Attributes = BTreeMap<String, DeviceAttribute>;
/// Capacities by qualified name.
pub(crate) type Capacities = BTreeMap<String, DeviceCapacity>;

/// Facts about a GPU that its own record does not have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Surroundings<'a> {
    pub(crate) inventory: &'a Inventory,
    /// Name of the PCIe root complex, such as `pci0000:15`.
    pub(crate) pcie_root: Option<&'a String>,
    /// First GPU of the set that NVLink connects.
    pub(crate) nvlink_domain: Option<PciAddress>,
}

/// Attributes of a whole GPU.
pub(crate) fn of_gpu(device: &Device, around: Surroundings<'_>) -> Attributes {
    let mut all = common(device, around);
    add(&mut all, NVIDIA, "type", Some(text("gpu")));
    add(&mut all, NVIDIA, "uuid", device.uuid.as_ref().map(|uuid| text(uuid.as_str())));
    all
}

/// Attributes of a partition.
pub(crate) fn of_partition(
    device: &Device,
    around: Surroundings<'_>,
    profile: &GpuInstanceProfile,
    placement: Placement,
) -> Attributes {
    let mut all = common(device, around);
    add(&mut all, NVIDIA, "type", Some(text("mig")));
    add(&mut all, NVIDIA, "parentUUID", device.uuid.as_ref().map(|uuid| text(uuid.as_str())));
    add(&mut all, NVIDIA, "profile", Some(text(&profile.name.to_string())));
    add(&mut all, DRIVER, "gpuSlices", Some(number(profile.resources.gpu_slices)));
    add(&mut all, DRIVER, "placementStart", Some(number(placement.start)));
    add(&mut all, DRIVER, "placementSize", Some(number(placement.size)));
    all
}

/// Capacities of a whole GPU.
pub(crate) fn capacities_of_gpu(device: &Device) -> Capacities {
    let memory = device.memory.map(|memory| capacity("memory", memory_quantity(memory)));
    memory.into_iter().collect()
}

/// Capacities of a partition.
pub(crate) fn capacities_of_partition(profile: &GpuInstanceProfile) -> Capacities {
    let has = profile.resources;
    let counts = [
        ("multiprocessors", has.multiprocessors),
        ("copyEngines", has.copy_engines),
        ("decoders", has.decoders),
        ("encoders", has.encoders),
        ("jpegEngines", has.jpeg_engines),
        ("ofaEngines", has.ofa_engines),
    ];
    let memory = capacity("memory", memory_quantity(profile.memory));
    let counts = counts.map(|(name, count)| capacity(name, count_quantity(count.into())));
    counts.into_iter().chain([memory]).collect()
}

/// Lets this number of claims share a device.
///
/// A claim takes one replica. Every other capacity needs a default of 0: otherwise, the first claim takes it whole. Source:
/// Kubernetes `dynamic-resource-allocation/structured`, `fillEmptyRequest`.
pub(crate) fn share(mut device: ApiDevice, replicas: Option<u32>) -> ApiDevice {
    let Some(replicas) = replicas else {
        return device;
    };
    device.allow_multiple_allocations = Some(true);
    let shared = DeviceAttribute { bool: Some(true), ..DeviceAttribute::default() };
    add(device.attributes.get_or_insert_default(), DRIVER, "shared", Some(shared));
    let policy = |default: u64, valid: Option<u64>| {
        Some(CapacityRequestPolicy {
            default: Some(count_quantity(default)),
            valid_values: valid.map(|value| vec![count_quantity(value)]),
            ..CapacityRequestPolicy::default()
        })
    };
    let capacities = device.capacity.get_or_insert_default();
    for capacity in capacities.values_mut() {
        capacity.request_policy = policy(0, None);
    }
    let value = count_quantity(replicas.into());
    let replicas = DeviceCapacity { value, request_policy: policy(1, Some(1)) };
    capacities.insert(format!("{DRIVER}/replicas"), replicas);
    device
}

fn common(device: &Device, around: Surroundings<'_>) -> Attributes {
    let mut all = Attributes::new();
    let driver = around.inventory.nvml.driver();
    let two = |major: u32, minor: u32| version(format!("{major}.{minor}.0"));
    let compute = device.compute_capability.map(|level| two(level.major, level.minor));
    let cuda = driver.and_then(|driver| driver.cuda).map(|cuda| two(cuda.major, cuda.minor));
    let architecture = device.architecture.as_ref().map(title);
    add(&mut all, NVIDIA, "productName", device.product_name.as_deref().map(text));
    add(&mut all, NVIDIA, "architecture", architecture.as_deref().map(text));
    add(&mut all, NVIDIA, "cudaComputeCapability", compute);
    add(&mut all, NVIDIA, "driverVersion", driver.map(|driver| version(strict(&driver.version))));
    add(&mut all, NVIDIA, "cudaDriverVersion", cuda);
    let address = Some(device.pci).filter(|pci| !pci.is_unreported());
    add(&mut all, STANDARD, "pciBusID", address.map(|pci| text(&pci.to_string())));
    add(&mut all, STANDARD, "pcieRoot", around.pcie_root.map(|root| text(root)));
    add(&mut all, STANDARD, "numaNode", device.numa_node.map(number));
    let type_name = device.identity.type_name();
    add(&mut all, DRIVER, "acceleratorType", type_name.map(|name| text(name.as_str())));
    add(&mut all, DRIVER, "nvlinkDomain", around.nvlink_domain.map(|pci| text(&pci.to_string())));
    all
}

fn add(all: &mut Attributes, domain: &str, name: &str, value: Option<DeviceAttribute>) {
    if let Some(value) = value {
        all.insert(format!("{domain}/{name}"), value);
    }
}

fn text(value: &str) -> DeviceAttribute {
    let end = (0..=MAX_VALUE).rev().find(|end| value.is_char_boundary(*end));
    let value = end.and_then(|end| value.get(..end)).unwrap_or(value);
    DeviceAttribute { string: Some(value.to_owned()), ..DeviceAttribute::default() }
}

fn number(value: u32) -> DeviceAttribute {
    DeviceAttribute { int: Some(value.into()), ..DeviceAttribute::default() }
}

fn version(value: String) -> DeviceAttribute {
    DeviceAttribute { version: Some(value), ..DeviceAttribute::default() }
}

/// Returns the version as the API requires it: three numbers without leading zeros. Source: semver.org 2.0.0, 2.
fn strict(version: &DriverVersion) -> String {
    let parts = [version.major(), version.minor(), version.revision()];
    parts.map(|part| part.parse::<u32>().unwrap_or_default().to_string()).join(".")
}

/// Returns the name of an architecture as NVIDIA's driver publishes it: `Ada Lovelace` for `ada-lovelace`.
fn title(architecture: &Architecture) -> String {
    let words = architecture.as_str().split('-').map(|word| {
        let mut letters = word.chars();
        let first = letters.next().map(|first| first.to_ascii_uppercase());
        first.into_iter().chain(letters).collect::<String>()
    });
    words.collect::<Vec<_>>().join(" ")
}

fn capacity(name: &str, value: Quantity) -> (String, DeviceCapacity) {
    (format!("{NVIDIA}/{name}"), DeviceCapacity { value, request_policy: None })
}

/// Returns the quantity in the canonical form in which the API server stores it: the largest unit without a fraction.
/// Source: Kubernetes `apimachinery/pkg/api/resource`, `Quantity.CanonicalizeBytes`.
pub(crate) fn memory_quantity(memory: Mebibytes) -> Quantity {
    canonical(memory.get(), 1024, &["Mi", "Gi", "Ti", "Pi", "Ei"])
}

/// Returns a count in canonical form.
pub(crate) fn count_quantity(count: u64) -> Quantity {
    canonical(count, 1000, &["", "k", "M", "G", "T", "P", "E"])
}

fn canonical(mut value: u64, step: u64, units: &[&str]) -> Quantity {
    if value == 0 {
        return Quantity("0".to_owned());
    }
    let mut units = units.iter();
    let mut unit = units.next().copied().unwrap_or_default();
    while value.is_multiple_of(step)
        && let Some(next) = units.next()
    {
        value /= step;
        unit = next;
    }
    Quantity(format!("{value}{unit}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_canonical() {
        let memory = |mebibytes| memory_quantity(Mebibytes::new(mebibytes)).0;
        assert_eq!(
            [memory(0), memory(9_728), memory(40_960), memory(2 << 20)],
            ["0", "9728Mi", "40Gi", "2Ti"]
        );
        let count = |number| count_quantity(number).0;
        assert_eq!([count(0), count(98), count(2_000), count(1_500)], ["0", "98", "2k", "1500"]);
    }

    #[test]
    fn versions_are_strict_and_texts_are_cut_between_characters() {
        let strict = |text: &str| strict(&text.parse().unwrap());
        assert_eq!([strict("535.104.05"), strict("470.82")], ["535.104.5", "470.82.0"]);
        assert_eq!(title(&Architecture::new("Ada Lovelace")), "Ada Lovelace");
        let long = format!("{}ä tail", "x".repeat(63));
        assert_eq!(text(&long).string.unwrap(), "x".repeat(63));
        assert_eq!(text("short").string.unwrap(), "short");
    }
}
