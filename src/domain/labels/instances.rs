//! Each device in a few words, for rules of node-feature-discovery that look at single devices.

use std::collections::BTreeMap;

use crate::domain::inventory::{Condition, Device, Identity, Inventory, Mig, MigMode};

/// What is said of each device, in the order of their addresses; names are those of labels where there is one.
pub fn instances(inventory: &Inventory) -> Vec<BTreeMap<String, String>> {
    let mut devices: Vec<&Device> = inventory.devices.iter().collect();
    devices.sort_by_key(|device| device.pci);
    devices.into_iter().map(attributes).collect()
}

fn attributes(device: &Device) -> BTreeMap<String, String> {
    let (type_name, sku) = match &device.identity {
        Identity::Known { type_name, sku, .. } => {
            (type_name.to_string(), sku.as_ref().map(ToString::to_string))
        }
        Identity::Unknown => ("unknown".to_owned(), None),
    };
    let condition = match device.condition {
        Condition::Working => "working",
        Condition::Failing { .. } => "failing",
        Condition::PciOnly { .. } => "pci-only",
    };
    let mig = match &device.mig {
        Mig::Unknown => None,
        Mig::NotCapable => Some("not-capable"),
        Mig::Capable(state) => Some(match state.current {
            MigMode::Enabled => "enabled",
            MigMode::Disabled => "disabled",
        }),
    };
    let all = [
        ("pci", Some(device.pci.to_string())),
        ("uuid", device.uuid.as_ref().map(ToString::to_string)),
        ("vendor", Some(device.vendor.to_string())),
        ("type", Some(type_name)),
        ("sku", sku),
        ("condition", Some(condition.to_owned())),
        (
            "memory-mib",
            device.memory.map(|memory| memory.get().to_string()),
        ),
        ("mig", mig.map(ToOwned::to_owned)),
    ];
    let told = all.into_iter();
    told.filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect()
}
