//! Devices of a node whose type is unknown or was set manually, with the commands that set and remove it.
//!
//! Users set the label themselves: the aggregator has no permission to write Nodes, and the cluster authorizes the user.

use octavo_model::accelerators::TYPE_OVERRIDE;
use octavo_model::id::NodeName;
use octavo_model::inventory::{Device, Inventory};

use super::badges::count_noun;
use super::device_card::title as device_title;

/// Unknown and manually named devices of a node.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct UnknownDevices {
    pub(super) title: &'static str,
    /// Unknown devices and manually named devices, one sentence each.
    pub(super) sentences: Vec<String>,
    /// Command that sets the label.
    pub(super) label: String,
    /// Command that removes the label, if a device was named manually.
    pub(super) unlabel: Option<String>,
}

impl UnknownDevices {
    /// Describes the devices of a node with this inventory; `None` if every device is known.
    pub(super) fn new(node: &NodeName, inventory: &Inventory) -> Option<Self> {
        let devices = inventory.devices.iter().filter(|one| one.identity_note().is_some());
        let (named, unknown): (Vec<&Device>, Vec<&Device>) =
            devices.partition(|one| one.identity.is_manual());
        let title = match (unknown.is_empty(), named.is_empty()) {
            (true, true) => return None,
            (true, false) => "Devices with a manual type",
            (false, _) => "Unknown devices",
        };
        let overwrite = if named.is_empty() { "" } else { " --overwrite" };
        let mut sentences = Vec::new();
        if !unknown.is_empty() {
            let list =
                list(&unknown, |one| format!("{} (PCI ID {})", device_title(one), one.pci_ids));
            let count = count_noun(unknown.len(), "device has", "devices have");
            sentences.push(format!("{count} an unknown type: {list}."));
        }
        if !named.is_empty() {
            let list = list(&named, |one| format!("{} is {}", device_title(one), one.identity));
            let count = count_noun(named.len(), "device has", "devices have");
            sentences.push(format!("{count} a manually set type: {list}."));
        }
        Some(Self {
            title,
            sentences,
            label: format!("kubectl label node {node} {TYPE_OVERRIDE}=NAME{overwrite}"),
            unlabel: (!named.is_empty())
                .then(|| format!("kubectl label node {node} {TYPE_OVERRIDE}-")),
        })
    }
}

fn list(devices: &[&Device], describe: impl Fn(&Device) -> String) -> String {
    devices.iter().map(|one| describe(one)).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use octavo_model::accelerators::{Catalog, TypeOverride, identify_devices};
    use octavo_model::id::PciAddress;
    use octavo_model::inventory::PciIds;

    use super::*;

    fn device(slot: u8, vendor: u16, id: u16) -> Device {
        let ids = PciIds {
            vendor,
            device: id,
            subsystem_vendor: 0,
            subsystem_device: 0,
            class: Some(0x12_0000),
        };
        Device::new(PciAddress::new(0, slot, 0, 0).unwrap(), ids)
    }

    /// The section of a node with these devices, named by the label value `label`.
    fn section(devices: Vec<Device>, label: Option<&str>) -> Option<UnknownDevices> {
        let mut inventory = Inventory { devices, ..Inventory::default() };
        let label = label.map(|text| TypeOverride::new(text, &Catalog::built_in()));
        identify_devices(&mut inventory, label.as_ref());
        UnknownDevices::new(&"node-7".parse().unwrap(), &inventory)
    }

    #[test]
    fn section_is_absent_if_all_devices_are_known() {
        assert_eq!(section(vec![device(1, 0x10de, 0x2330)], None), None);
        assert_eq!(section(Vec::new(), None), None);
    }

    #[test]
    fn unknown_device_is_described_with_its_command() {
        let section = section(vec![device(1, 0x10de, 0xfffe)], None).unwrap();
        assert_eq!(section.title, "Unknown devices");
        assert_eq!(
            section.sentences,
            ["1 device has an unknown type: GPU 0000:01:00.0 (PCI ID 10de:fffe)."]
        );
        assert_eq!(section.label, "kubectl label node node-7 octavo.dev/type-override=NAME");
        assert_eq!(section.unlabel, None);
    }

    #[test]
    fn manual_name_is_marked_and_can_be_removed() {
        let section = section(vec![device(1, 0x1e52, 0xb140)], Some("acme-x1")).unwrap();
        assert_eq!(section.title, "Devices with a manual type");
        assert_eq!(
            section.sentences,
            ["1 device has a manually set type: GPU 0000:01:00.0 is acme-x1."]
        );
        assert_eq!(
            section.label,
            "kubectl label node node-7 octavo.dev/type-override=NAME --overwrite"
        );
        assert_eq!(
            section.unlabel.as_deref(),
            Some("kubectl label node node-7 octavo.dev/type-override-")
        );
    }
}
