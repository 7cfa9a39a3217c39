//! Comparison of the kubelet's allocatable devices with the devices of the node.

use std::collections::{BTreeMap, BTreeSet};

use octavo_model::id::GpuUuid;
use octavo_model::inventory::{Condition, Device, Inventory, LogicalSource, Mig, Vendor};
use octavo_model::resource::ShareId;

use super::drivers;
use super::facts::Facts;

/// Device ids by resource.
pub(super) type AllocatableIds = BTreeMap<String, BTreeSet<String>>;

/// Result of the comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum OfferComparison {
    /// Equal, with a description.
    Same(String),
    /// Different, with a description.
    Differs(String),
    /// The devices of the node are not fully known, with the reason.
    Unknown(String),
}

/// Resources of NVIDIA only.
pub(super) fn nvidia_resources(all: &AllocatableIds) -> AllocatableIds {
    let its = all.iter().filter(|(name, _)| name.starts_with("nvidia.com/"));
    its.map(|(name, ids)| (name.clone(), ids.clone())).collect()
}

/// NVIDIA's ids are UUIDs, so each device and partition is looked up. Ids of other forms belong to network cards and
/// similar devices.
pub(super) fn nvidia(inventory: &Inventory, offered: &AllocatableIds) -> OfferComparison {
    let devices = inventory.devices.iter();
    let devices: Vec<&Device> = devices
        .filter(|device| device.vendor == Vendor::Nvidia && device.condition == Condition::Working)
        .collect();
    if !devices.iter().all(|device| device.mig.is_fully_known() && device.uuid.is_some()) {
        return OfferComparison::Unknown(
            "the driver does not report all partitions or UUIDs".to_owned(),
        );
    }
    let ids: BTreeSet<&str> = offered.values().flatten().map(|id| ShareId::uuid_part(id)).collect();
    let mut there = BTreeSet::new();
    let mut missing = Vec::new();
    let mut count = 0_usize;
    for device in devices {
        let Some(gpu) = &device.uuid else { continue };
        there.insert(gpu.as_str());
        let whole = ids.contains(gpu.as_str());
        let units = units(device);
        count = count.saturating_add(units.len());
        let absent = units.iter().filter(|unit| !whole && !ids.contains(**unit));
        missing.extend(absent.map(|unit| (*unit).to_owned()));
        there.extend(units);
    }
    let is_uuid = |id: &&&str| id.starts_with("GPU-") || id.starts_with("MIG-");
    let gone: Vec<String> = ids
        .iter()
        .filter(is_uuid)
        .filter(|id| !there.contains(*id))
        .map(|id| (*id).to_owned())
        .collect();
    match (missing.is_empty(), gone.is_empty()) {
        (true, true) => {
            OfferComparison::Same(format!("all {count} devices and partitions are offered"))
        }
        (_, false) => OfferComparison::Differs(format!(
            "offered but not present: {}",
            super::format_list(&gone)
        )),
        (false, true) => OfferComparison::Differs(format!(
            "present but not offered: {}",
            super::format_list(&missing)
        )),
    }
}

/// UUIDs of a device's allocatable units.
fn units(device: &Device) -> Vec<&str> {
    match &device.mig {
        mig if mig.is_enabled() => mig
            .compute_instances()
            .filter_map(|(_, part)| Some(part.uuid.as_ref()?.as_str()))
            .collect(),
        Mig::Capable(_) | Mig::NotCapable | Mig::Unknown => {
            device.uuid.iter().map(GpuUuid::as_str).collect()
        }
    }
}

/// Neuron device ids do not match the driver's, so only the numbers are compared.
pub(super) fn neuron(facts: &Facts<'_>, counts: &BTreeMap<String, usize>) -> OfferComparison {
    let Some(devices) = drivers::neuron_count(facts) else {
        return OfferComparison::Unknown("the devices of the driver are unknown".to_owned());
    };
    let count = |name: &str| counts.get(name).copied();
    let mut evidence = Vec::new();
    let mut differs = false;
    for name in ["aws.amazon.com/neuron", "aws.amazon.com/neurondevice"] {
        if let Some(offered) = count(name) {
            differs |= offered != devices;
            evidence.push(format!("{name}: {offered} offered, {devices} present"));
        }
    }
    if let Some(offered) = count("aws.amazon.com/neuroncore") {
        let (there, is_right) = cores(facts.inventory, offered);
        differs |= !is_right;
        evidence.push(format!("aws.amazon.com/neuroncore: {offered} offered, {there}"));
    }
    comparison_of(&evidence, differs)
}

/// Expected number of logical cores as text, and whether `offered` matches. If the node's setting is unknown, the
/// chip's default is a guess and the device plugin may know better: each physical core may be a logical one, which is
/// the default of other chips.
fn cores(inventory: &Inventory, offered: usize) -> (String, bool) {
    let logical = logical_cores(inventory);
    let source = inventory.neuron.as_ref().and_then(|neuron| neuron.logical);
    let guess = source.filter(|logical| logical.source == LogicalSource::Default);
    let size = guess.map_or(1, |logical| logical.size);
    let physical = physical_cores(inventory).filter(|_| size > 1);
    match (logical, physical) {
        (None, _) => ("an unknown number of logical cores present".to_owned(), offered > 0),
        (Some(_), Some(physical)) if physical == offered => (
            format!(
                "{physical} physical cores present: each is one logical core, although the chip's \
                 default is {size} per logical core"
            ),
            true,
        ),
        (Some(logical), Some(physical)) => (
            format!(
                "{logical} logical cores present with the chip's default, {physical} physical \
                 cores"
            ),
            logical == offered,
        ),
        (Some(logical), None) => (format!("{logical} logical cores present"), logical == offered),
    }
}

/// Number of logical cores of all devices; two physical cores may form one.
fn logical_cores(inventory: &Inventory) -> Option<usize> {
    let neuron = inventory.neuron.as_ref()?;
    let devices = neuron.devices.iter();
    sum(devices.map(|device| neuron.logical_cores(device)))
}

fn physical_cores(inventory: &Inventory) -> Option<usize> {
    let devices = inventory.neuron.as_ref()?.devices.iter();
    sum(devices.map(|device| device.cores))
}

/// Sum of the counts; `None` if one of them is unknown.
fn sum(mut counts: impl Iterator<Item = Option<u32>>) -> Option<usize> {
    counts.try_fold(0_usize, |sum, count| sum.checked_add(usize::try_from(count?).ok()?))
}

/// AMD's device plugins offer one id per partition, under different resource names.
pub(super) fn amd(devices: &[&Device], counts: &BTreeMap<String, usize>) -> OfferComparison {
    let parts = |device: &&Device| {
        let amd = device.amd.as_ref();
        amd.map_or(1, |amd| amd.partitions.len().max(1))
    };
    let there: usize = devices.iter().map(parts).sum();
    let offered: usize = counts.values().sum();
    let names: Vec<String> = counts.keys().cloned().collect();
    let evidence = format!(
        "{}: {offered} offered, {there} devices and partitions present",
        super::format_list(&names)
    );
    comparison_of(&[evidence], offered != there)
}

fn comparison_of(evidence: &[String], differs: bool) -> OfferComparison {
    let evidence = evidence.join("; ");
    if differs { OfferComparison::Differs(evidence) } else { OfferComparison::Same(evidence) }
}
