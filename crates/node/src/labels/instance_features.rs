//! Attributes of single devices for rules of node-feature-discovery.

use std::collections::BTreeMap;

use octavo_model::inventory::{Condition, Device, Inventory, Mig, MigMode};

/// Returns the attributes of each device, ordered by PCI address. Attributes that are also labels use the label's name.
pub fn instance_features(inventory: &Inventory) -> Vec<BTreeMap<String, String>> {
    let mut devices: Vec<&Device> = inventory.devices.iter().collect();
    devices.sort_by_key(|device| device.pci);
    devices.into_iter().map(attributes).collect()
}

fn attributes(device: &Device) -> BTreeMap<String, String> {
    let identity = &device.identity;
    let type_name = identity.type_name().map(ToString::to_string);
    let type_name = type_name.unwrap_or_else(|| "unknown".to_owned());
    let sku = identity.sku().map(ToString::to_string);
    let by_hand = identity.is_manual().then(|| "manual".to_owned());
    let condition = match device.condition {
        Condition::Working => "working",
        Condition::Failing { .. } => "failing",
        Condition::PciOnly { .. } if device.condition.is_passthrough() => "passthrough",
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
        ("type-source", by_hand),
        ("condition", Some(condition.to_owned())),
        ("memory-mib", device.memory.map(|memory| memory.get().to_string())),
        ("mig", mig.map(ToOwned::to_owned)),
    ];
    let present = all.into_iter();
    present.filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}
