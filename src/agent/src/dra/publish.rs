//! Publishes the devices of this node as `ResourceSlices`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use octavo_dra::claims::is_instance;
use octavo_dra::slices::NodeDevices;
use octavo_dra::{ClaimRules, DeviceName, LastReadings};
use octavo_hardware::pcie_root;
use octavo_kube::resource_slices::ResourceSlicesHandle;
use octavo_model::id::{NodeName, PciAddress};
use octavo_model::inventory::{Inventory, NvmlState};
use octavo_model::xid::Xid;
use octavo_node::sharing::health::{HealthMonitor, XidTable};

use super::claim_store::ClaimStore;

/// Publication of the devices of a node.
#[derive(Debug)]
pub struct DraPublisher {
    slices: Arc<ResourceSlicesHandle>,
    node: NodeName,
    sys_root: PathBuf,
    readings: LastReadings,
    /// Root complex of each GPU: it never changes, so it is read once.
    pcie_roots: BTreeMap<PciAddress, Option<String>>,
    claims: Arc<ClaimStore>,
    monitor: HealthMonitor,
    /// The inputs of the last publication. Reports of progress and of scans rarely change them.
    last: Option<PublishedInputs>,
}

/// Inputs of a publication.
#[derive(Debug, PartialEq)]
struct PublishedInputs {
    inventory: Inventory,
    rules: ClaimRules,
    claimed: BTreeSet<DeviceName>,
    faulty: BTreeSet<DeviceName>,
}

impl DraPublisher {
    /// Creates the publication; sysfs is mounted at `sys_root`. Devices in `claims` do not count as occupied by something
    /// else. `xids` are the errors that make a device unhealthy.
    pub fn new(
        slices: Arc<ResourceSlicesHandle>,
        node: NodeName,
        sys_root: PathBuf,
        claims: Arc<ClaimStore>,
        xids: XidTable,
    ) -> Self {
        Self {
            slices,
            node,
            sys_root,
            readings: LastReadings::default(),
            pcie_roots: BTreeMap::new(),
            claims,
            monitor: HealthMonitor::new(xids),
            last: None,
        }
    }

    /// Records the errors that devices reported until `now`, and the hardware if it was scanned since the last call.
    pub(crate) fn record_errors(
        &mut self,
        now: Duration,
        inventory: &Inventory,
        is_read: bool,
        xids: &[Xid],
    ) {
        if is_read {
            self.monitor.record_inventory(now, inventory, xids);
        } else {
            self.monitor.record_errors(now, xids);
        }
        let devices = octavo_dra::devices(inventory, &BTreeSet::new()).into_iter();
        let faults: BTreeMap<DeviceName, String> = devices
            .filter_map(|device| {
                let gpu = inventory.device(device.pci)?;
                let mut parts = gpu.mig.compute_instances();
                let part = parts.find(|(instance, _)| is_instance(&device, gpu.pci, instance));
                let part = part.map(|(instance, compute)| (instance.id, compute.id));
                Some((device.name(), self.monitor.reported_fault(device.pci, part)?))
            })
            .collect();
        self.claims.set_faults(faults);
    }

    /// Publishes the devices of the GPUs that the layout does not cover, if they differ from the published ones. Nothing is
    /// published before it is known which GPUs these are.
    pub(crate) fn publish(&mut self, inventory: &Inventory) {
        let Some(rules) = self.claims.rules().filter(|_| inventory.nvml != NvmlState::Loading)
        else {
            return;
        };
        let (claimed, faulty) =
            (self.claims.device_names(&inventory.devices), self.claims.faulty());
        let is_same = |last: &PublishedInputs| {
            (&last.inventory, &last.rules, &last.claimed, &last.faulty)
                == (inventory, &rules, &claimed, &faulty)
        };
        if self.last.as_ref().is_some_and(is_same) {
            return;
        }
        let current = inventory;
        let inventory = self.readings.complete(current);
        for device in &inventory.devices {
            let root = || pcie_root(&self.sys_root, device.pci);
            self.pcie_roots.entry(device.pci).or_insert_with(root);
        }
        let known = self.pcie_roots.iter();
        let pcie_roots = known.filter_map(|(pci, root)| Some((*pci, root.clone()?))).collect();
        let devices = NodeDevices {
            node: &self.node,
            inventory: &inventory,
            rules: &rules,
            claimed: &claimed,
            faulty: &faulty,
            pcie_roots: &pcie_roots,
        };
        self.slices.set(devices.slices());
        let inventory = current.clone();
        self.last = Some(PublishedInputs { inventory, rules, claimed, faulty });
    }
}
