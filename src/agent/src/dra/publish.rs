//! Publishes the devices of this node as `ResourceSlices`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use octavo_dra::slices::NodeDevices;
use octavo_dra::{ClaimRules, DeviceName, LastReadings};
use octavo_hardware::pcie_root;
use octavo_kube::resource_slices::ResourceSlicesHandle;
use octavo_model::id::{NodeName, PciAddress};
use octavo_model::inventory::{Inventory, NvmlState};

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
    /// The hardware, the rules of the layout and the claimed devices of the last publication. Reports of progress and of
    /// scans rarely change them.
    last: Option<(Inventory, ClaimRules, BTreeSet<DeviceName>)>,
}

impl DraPublisher {
    /// Creates the publication; sysfs is mounted at `sys_root`. Devices in `claims` do not count as occupied by something
    /// else.
    pub fn new(
        slices: Arc<ResourceSlicesHandle>,
        node: NodeName,
        sys_root: PathBuf,
        claims: Arc<ClaimStore>,
    ) -> Self {
        let readings = LastReadings::default();
        Self { slices, node, sys_root, readings, pcie_roots: BTreeMap::new(), claims, last: None }
    }

    /// Publishes the devices of the GPUs that the layout does not cover, if they differ from the published ones. Nothing is
    /// published before it is known which GPUs these are.
    pub(crate) fn publish(&mut self, inventory: &Inventory) {
        let Some(rules) = self.claims.rules().filter(|_| inventory.nvml != NvmlState::Loading)
        else {
            return;
        };
        let claimed = self.claims.device_names();
        let is_same = |(known, known_rules, known_claimed): &(Inventory, _, _)| {
            known == inventory && *known_rules == rules && *known_claimed == claimed
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
            pcie_roots: &pcie_roots,
        };
        self.slices.set(devices.slices());
        self.last = Some((current.clone(), rules, claimed));
    }
}
