//! Expected properties of one unit of a resource, from the resource's name and the Node's labels.

use std::collections::{BTreeMap, BTreeSet};

use octavo_model::inventory::Vendor;

use crate::node_object::operands::MIG_RESOURCE_PREFIX;

/// Prefix of labels with the number of devices of a type.
const TYPE_PREFIX: &str = "type.octavo.dev/";
/// Label with the memory of one device in MiB; the minimum if devices differ.
const DEVICE_MEMORY: &str = "octavo.dev/memory-mib";
/// Prefix of Neuron resources.
const NEURON: &str = "aws.amazon.com/neuron";
/// Resource of single cores.
const NEURON_CORE: &str = "aws.amazon.com/neuroncore";

/// Expected properties of one unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expectation {
    /// The resource.
    pub resource: String,
    /// Vendor of the devices.
    pub vendor: Vendor,
    /// Name of the MIG profile in the resource's name, such as `3g.40gb`.
    pub profile: Option<String>,
    /// True if the unit is one core of a Neuron device.
    pub is_core: bool,
    /// Types that the Node lists; empty if it lists none.
    pub types: BTreeSet<String>,
    /// Labels that can have the memory of the unit in MiB, with their values.
    pub memory: BTreeMap<String, u64>,
}

impl Expectation {
    /// Derives the expectation. `None` if the resource is not one of a known vendor.
    pub fn new(resource: &str, labels: &BTreeMap<String, String>) -> Option<Self> {
        let vendor = match resource {
            name if name.starts_with("nvidia.com/") => Vendor::Nvidia,
            name if name.starts_with("amd.com/") => Vendor::Amd,
            name if name.starts_with(NEURON) => Vendor::Aws,
            _ => return None,
        };
        // Time-sliced units have a suffix, and `+` is a dot in resource names.
        let profile =
            resource.strip_prefix(MIG_RESOURCE_PREFIX).map(|name| name.trim_end_matches(".shared"));
        let keys = match profile {
            // The labels have the name of the resource.
            Some(name) => ["memory", "shared.memory"]
                .map(|suffix| format!("{MIG_RESOURCE_PREFIX}{name}.{suffix}"))
                .to_vec(),
            None if vendor == Vendor::Nvidia => {
                vec![DEVICE_MEMORY.to_owned(), "nvidia.com/gpu.memory".to_owned()]
            }
            None => vec![DEVICE_MEMORY.to_owned()],
        };
        let memory = keys.into_iter().filter_map(|key| {
            let value = labels.get(&key)?.parse().ok()?;
            Some((key, value))
        });
        let types = labels.keys().filter_map(|key| key.strip_prefix(TYPE_PREFIX));
        Some(Self {
            resource: resource.to_owned(),
            vendor,
            profile: profile.map(str::to_owned),
            is_core: resource == NEURON_CORE,
            types: types.map(str::to_owned).collect(),
            memory: memory.collect(),
        })
    }
}
