//! Last usable reading of each GPU: a device that was published must not disappear while a claim may hold it.

use std::collections::BTreeMap;

use octavo_model::id::PciAddress;
use octavo_model::inventory::{Condition, Device, Inventory, Vendor};

use crate::device::devices_of;

/// Last usable readings.
///
/// The scheduler charges a shared counter only for devices that it finds in `ResourceSlices`. If a GPU that fails lost its
/// devices, the counters of its allocated partitions would be free again. Source: Kubernetes issue 140802.
#[derive(Debug, Default)]
pub struct LastReadings {
    devices: BTreeMap<PciAddress, Device>,
}

impl LastReadings {
    /// Returns the inventory with the last usable reading of each GPU that is gone or that the driver no longer
    /// describes; these count as failing. A GPU that was reserved for a virtual machine is forgotten.
    pub fn complete(&mut self, inventory: &Inventory) -> Inventory {
        let mut complete = inventory.clone();
        self.devices.retain(|pci, _| {
            !inventory.device(*pci).is_some_and(|device| device.condition.is_passthrough())
        });
        for device in &mut complete.devices {
            if !devices_of(device).is_empty() {
                self.devices.insert(device.pci, device.clone());
            } else if let Some(last) = self.devices.get(&device.pci)
                && device.vendor == Vendor::Nvidia
            {
                let reason = match &device.condition {
                    Condition::Failing { reason } => reason.clone(),
                    Condition::PciOnly { .. } => "no driver library reports it".to_owned(),
                    Condition::Working => "the driver does not report its MIG mode".to_owned(),
                };
                *device = Device { condition: Condition::Failing { reason }, ..last.clone() };
            }
        }
        for (pci, last) in &self.devices {
            if inventory.device(*pci).is_none() {
                let reason = "it is no longer on the PCI bus".to_owned();
                let condition = Condition::Failing { reason };
                complete.devices.push(Device { condition, ..last.clone() });
            }
        }
        complete.devices.sort_by_key(|device| device.pci);
        complete
    }
}

#[cfg(test)]
mod tests {
    use octavo_model::inventory::Mig;

    use super::*;
    use crate::tests_support::{gpu, node};

    fn conditions(inventory: &Inventory) -> Vec<(String, String)> {
        let of = |device: &Device| match &device.condition {
            Condition::Failing { reason } => reason.clone(),
            Condition::PciOnly { .. } => "no driver".to_owned(),
            Condition::Working => "works".to_owned(),
        };
        inventory.devices.iter().map(|device| (device.pci.to_string(), of(device))).collect()
    }

    #[test]
    fn gpu_that_fails_keeps_its_devices() {
        let mut readings = LastReadings::default();
        let (one, other, third) = (gpu("0000:01:00.0"), gpu("0000:02:00.0"), gpu("0000:03:00.0"));
        let all = node([one.clone(), other, third.clone()]);
        assert_eq!(readings.complete(&all), all);
        let mut failing = one;
        failing.mig = Mig::Unknown;
        failing.condition = Condition::Failing { reason: "GPU is lost".to_owned() };
        let mut silent = third;
        silent.mig = Mig::Unknown;
        let after = readings.complete(&node([failing, silent]));
        assert_eq!(
            conditions(&after),
            [
                ("0000:01:00.0", "GPU is lost"),
                ("0000:02:00.0", "it is no longer on the PCI bus"),
                ("0000:03:00.0", "the driver does not report its MIG mode"),
            ]
            .map(|(pci, why)| (pci.to_owned(), why.to_owned()))
        );
        assert!(after.devices.iter().all(|device| devices_of(device).len() == 1));
        assert_eq!(readings.complete(&all), all);
    }

    #[test]
    fn gpu_without_driver_is_retained_until_a_virtual_machine_gets_it() {
        let mut readings = LastReadings::default();
        let mut device = gpu("0000:01:00.0");
        readings.complete(&node([device.clone()]));
        device.condition = Condition::PciOnly { kernel_driver: None };
        let after = readings.complete(&node([device.clone()]));
        assert_eq!(conditions(&after)[0].1, "no driver library reports it");
        device.condition = Condition::PciOnly { kernel_driver: Some("vfio-pci".to_owned()) };
        assert_eq!(conditions(&readings.complete(&node([device])))[0].1, "no driver");
        assert!(readings.complete(&node([])).devices.is_empty());
    }

    #[test]
    fn gpu_that_never_answered_has_no_reading() {
        let mut device = gpu("0000:01:00.0");
        device.mig = Mig::Unknown;
        let inventory = node([device]);
        assert_eq!(LastReadings::default().complete(&inventory), inventory);
    }
}
