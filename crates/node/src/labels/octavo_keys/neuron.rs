//! Labels for what the AWS Neuron driver reports.
//!
//! Terms: a device has physical cores; one or two of them form a logical core, which is what programs and Kubernetes
//! see. Counts are per node. A count is set only if every device reports its own; a sum over only some devices would be
//! wrong.

use octavo_model::accelerators;
use octavo_model::inventory::{Device, Inventory, LogicalSource, Neuron, NeuronDevice, Vendor};
use octavo_model::quantity::Mebibytes;

use crate::labels::labels_builder::LabelsBuilder;
use crate::labels::{Note, Omission};

/// Adds the keys of a node whose Neuron driver is loaded.
pub(super) fn add(draft: &mut LabelsBuilder, inventory: &Inventory) {
    let is_there = |device: &Device| device.vendor == Vendor::Aws;
    let expected = inventory.devices.iter().any(is_there);
    let Some(neuron) = &inventory.neuron else {
        if expected {
            draft.omit("octavo.dev/neuron-*", Omission::DriverNotReady);
        }
        return;
    };
    if neuron.devices.is_empty() && !expected {
        return;
    }
    draft.put("octavo.dev/neuron-devices", &neuron.devices.len());
    match &neuron.driver_version {
        Some(version) => draft.put("octavo.dev/neuron-driver", version),
        None => draft.omit("octavo.dev/neuron-driver", Omission::DriverVersionUnknown),
    }
    if neuron.devices.is_empty() {
        return;
    }
    add_cores(draft, neuron);
    match memory(neuron) {
        Some(memory) => draft.put("octavo.dev/neuron-memory-mib", &memory.get()),
        None => draft.omit("octavo.dev/neuron-memory-mib", Omission::NotInCatalog),
    }
}

fn add_cores(draft: &mut LabelsBuilder, neuron: &Neuron) {
    const LOGICAL: &str = "octavo.dev/neuron-logical-cores";
    const SIZE: &str = "octavo.dev/neuron-logical-core-size";
    let sum = |of: &dyn Fn(&NeuronDevice) -> Option<u32>| {
        let each = neuron.devices.iter().map(of);
        each.map(|cores| cores.map(u64::from)).sum::<Option<u64>>()
    };
    match sum(&|device| device.cores) {
        Some(physical) => draft.put("octavo.dev/neuron-cores", &physical),
        None => draft.omit("octavo.dev/neuron-cores", Omission::CoreCountUnknown),
    }
    let Some(logical) = neuron.logical else {
        draft.omit(SIZE, Omission::LogicalCoresUnknown);
        draft.omit(LOGICAL, Omission::LogicalCoresUnknown);
        return;
    };
    draft.put(SIZE, &logical.size);
    draft.put("octavo.dev/neuron-logical-source", logical.source.as_str());
    match sum(&|device| neuron.logical_cores(device)) {
        Some(count) => draft.put(LOGICAL, &count),
        None => draft.omit(LOGICAL, Omission::CoreCountUnknown),
    }
    // With one physical core per logical core there is no setting to choose.
    if logical.source == LogicalSource::Default && logical.size > 1 {
        draft.note(Note::DefaultLogicalCoreSize { size: logical.size });
    }
}

/// Returns the memory of one device by the driver's name for the chip; the smallest if devices differ. `None` if the
/// catalog does not list one of them.
pub(super) fn memory(neuron: &Neuron) -> Option<Mebibytes> {
    let each = neuron.devices.iter().map(|device| {
        let name = device.device_name.as_deref()?;
        accelerators::neuron_memory(name)
    });
    let each: Option<Vec<Mebibytes>> = each.collect();
    each?.into_iter().min()
}
