//! What kubelet would give out, held against what the node has.

use std::collections::{BTreeMap, BTreeSet};

use super::facts::Facts;
use super::neuron;
use crate::domain::id::GpuUuid;
use crate::domain::inventory::{Condition, Device, Inventory, LogicalSource, Mig, Vendor};

/// Ids by resource.
pub(super) type Offered = BTreeMap<String, BTreeSet<String>>;

/// How what is offered compares with what there is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Comparison {
    /// It is the same; the words say what.
    Same(String),
    /// It is not; likewise.
    Differs(String),
    /// It cannot be told what there is.
    Untold(String),
}

/// NVIDIA's ids are UUIDs, so each device and partition is looked for. Ids of another form are of network cards and the like.
pub(super) fn nvidia(inventory: &Inventory, offered: &Offered) -> Comparison {
    let devices = inventory.devices.iter();
    let devices: Vec<&Device> = devices
        .filter(|device| device.vendor == Vendor::Nvidia && device.condition == Condition::Working)
        .collect();
    if !devices
        .iter()
        .all(|device| device.mig.is_told() && device.uuid.is_some())
    {
        return Comparison::Untold("the driver does not tell all partitions or UUIDs".to_owned());
    }
    let ids: BTreeSet<&str> = offered.values().flatten().map(|id| uuid(id)).collect();
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
    let told = |id: &&&str| id.starts_with("GPU-") || id.starts_with("MIG-");
    let gone: Vec<String> = ids
        .iter()
        .filter(told)
        .filter(|id| !there.contains(*id))
        .map(|id| (*id).to_owned())
        .collect();
    match (missing.is_empty(), gone.is_empty()) {
        (true, true) => Comparison::Same(format!("all {count} devices and partitions are offered")),
        (_, false) => Comparison::Differs(format!(
            "offered, and not there (any more): {}",
            super::listed(&gone)
        )),
        (false, true) => Comparison::Differs(format!(
            "there, and not offered: {}",
            super::listed(&missing)
        )),
    }
}

/// What of a device can be given out.
fn units(device: &Device) -> Vec<&str> {
    match &device.mig {
        Mig::Capable(state) if device.mig.is_enabled() => {
            let instances = state.gpu_instances.iter();
            let parts = instances.flat_map(|instance| &instance.compute_instances);
            parts
                .filter_map(|part| Some(part.uuid.as_ref()?.as_str()))
                .collect()
        }
        Mig::Capable(_) | Mig::NotCapable | Mig::Unknown => {
            device.uuid.iter().map(GpuUuid::as_str).collect()
        }
    }
}

/// An id without the number of a replica. Source: NVIDIA k8s-device-plugin, `AnnotatedID`.
pub(super) fn uuid(id: &str) -> &str {
    id.split_once("::").map_or(id, |(uuid, _)| uuid)
}

/// Of Neuron devices the ids say nothing that the driver does, so they are counted.
pub(super) fn neuron(facts: &Facts<'_>, counts: &BTreeMap<String, usize>) -> Comparison {
    let Some(devices) = neuron::count(facts) else {
        return Comparison::Untold("nobody tells what the driver shows".to_owned());
    };
    let count = |name: &str| counts.get(name).copied();
    let mut said = Vec::new();
    let mut differs = false;
    for name in ["aws.amazon.com/neuron", "aws.amazon.com/neurondevice"] {
        if let Some(offered) = count(name) {
            differs |= offered != devices;
            said.push(format!("{name}: {offered} offered, {devices} there"));
        }
    }
    if let Some(offered) = count("aws.amazon.com/neuroncore") {
        let (there, is_right) = cores(facts.inventory, offered);
        differs |= !is_right;
        said.push(format!(
            "aws.amazon.com/neuroncore: {offered} offered, {there}"
        ));
    }
    judged(&said, differs)
}

/// What `offered` is held against in words, and whether it is right. Where the node's setting was not found, the chip's default is a guess,
/// and whoever offers cores may know better: each core may be one, as they all are without a setting on other chips.
fn cores(inventory: &Inventory, offered: usize) -> (String, bool) {
    let logical = logical_cores(inventory);
    let source = inventory.neuron.as_ref().and_then(|neuron| neuron.logical);
    let guess = source.filter(|logical| logical.source == LogicalSource::Default);
    let size = guess.map_or(1, |logical| logical.size);
    let physical = physical_cores(inventory).filter(|_| size > 1);
    match (logical, physical) {
        (None, _) => (
            "an unknown number of logical cores there".to_owned(),
            offered > 0,
        ),
        (Some(_), Some(physical)) if physical == offered => (
            format!(
                "{physical} of physical cores there: each is a logical one, though by the chip's default {size} are"
            ),
            true,
        ),
        (Some(logical), Some(physical)) => (
            format!(
                "{logical} of logical cores there by the chip's default, {physical} of physical ones"
            ),
            logical == offered,
        ),
        (Some(logical), None) => (
            format!("{logical} of logical cores there"),
            logical == offered,
        ),
    }
}

/// Logical cores of all devices together: two physical cores may be one.
fn logical_cores(inventory: &Inventory) -> Option<usize> {
    let neuron = inventory.neuron.as_ref()?;
    let devices = neuron.devices.iter();
    sum(devices.map(|device| neuron.logical_cores(device)))
}

fn physical_cores(inventory: &Inventory) -> Option<usize> {
    let devices = inventory.neuron.as_ref()?.devices.iter();
    sum(devices.map(|device| device.cores))
}

/// `None` where one of them is not told.
fn sum(mut counts: impl Iterator<Item = Option<u32>>) -> Option<usize> {
    counts.try_fold(0_usize, |sum, count| {
        sum.checked_add(usize::try_from(count?).ok()?)
    })
}

/// Of AMD's devices there is one id for each partition, under whatever name.
pub(super) fn amd(devices: &[&Device], counts: &BTreeMap<String, usize>) -> Comparison {
    let parts = |device: &&Device| {
        let amd = device.amd.as_ref();
        amd.map_or(1, |amd| amd.partitions.len().max(1))
    };
    let there: usize = devices.iter().map(parts).sum();
    let offered: usize = counts.values().sum();
    let names: Vec<String> = counts.keys().cloned().collect();
    let said = format!(
        "{}: {offered} offered, {there} devices and partitions there",
        super::listed(&names)
    );
    judged(&[said], offered != there)
}

fn judged(said: &[String], differs: bool) -> Comparison {
    let said = said.join("; ");
    if differs {
        Comparison::Differs(said)
    } else {
        Comparison::Same(said)
    }
}
