//! Changes of nodes: all instances that a node has after the proposals.

use octavo_model::inventory::{ComputeInstance, Device, GpuInstance, Inventory, Mig, MigState};

use super::{PlannedNode, Planning};
use crate::fleet::Gpu;
use crate::geometry::Geometry;
use crate::report::{Outcome, PodProposal};

/// Change of the instances of a node.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeChange {
    /// Name of the node.
    pub node: String,
    /// Only the devices that can be planned, with their instances after the proposals.
    pub inventory: Inventory,
    /// Pods whose instances are created, as `namespace/name`, with the created and destroyed instances.
    pub pods: Vec<(String, String)>,
}

impl Planning<'_> {
    /// The change of each node on which instances are created.
    pub(super) fn changes(&self, proposals: &[PodProposal]) -> Vec<NodeChange> {
        let changed =
            self.nodes.iter().filter(|node| node.gpus().any(|gpu| self.changed.contains(&gpu)));
        let each = changed.filter_map(|node| {
            let name = &node.cluster.name;
            let pods =
                proposals.iter().filter(|one| creates(one) && one.node.as_ref() == Some(name));
            Some(NodeChange {
                node: name.clone(),
                inventory: self.inventory_after(node)?,
                pods: pods.map(|one| (one.reference(), one.message.clone())).collect(),
            })
        });
        each.collect()
    }

    fn inventory_after(&self, node: &PlannedNode<'_>) -> Option<Inventory> {
        let planned = node.devices.iter().zip(node.gpus());
        let devices = planned.map(|(planned, gpu)| {
            let mut all = node.observed.inventory.devices.iter();
            let device = all.find(|device| device.pci.to_string() == planned.pci)?.clone();
            let gpu = self.fleet.gpus().get(gpu)?;
            device_after(device, gpu, self.fleet.geometry_of(gpu)?)
        });
        let devices = devices.collect::<Option<Vec<Device>>>()?;
        Some(Inventory { devices, ..Inventory::default() })
    }
}

fn creates(proposal: &PodProposal) -> bool {
    matches!(proposal.outcome.known(), Some(Outcome::Create | Outcome::Replace))
}

/// The device with its planned instances. Those that exist remain as they are.
fn device_after(mut device: Device, gpu: &Gpu, geometry: &Geometry) -> Option<Device> {
    let Mig::Capable(state) = &mut device.mig else { return None };
    let instances = gpu.instances().iter().map(|planned| {
        let profile = geometry.profiles().get(planned.place.profile)?;
        let is_same = |one: &&GpuInstance| {
            one.profile_id == profile.id && one.placement == planned.place.placement
        };
        match state.gpu_instances.iter().find(is_same) {
            Some(existing) => Some(existing.clone()),
            None => Some(GpuInstance {
                id: 0,
                profile_id: profile.id,
                placement: planned.place.placement,
                compute_instances: vec![whole_compute_instance(state, profile.id)?],
            }),
        }
    });
    let mut instances = instances.collect::<Option<Vec<GpuInstance>>>()?;
    instances.sort_by_key(|one| (one.placement, one.profile_id));
    state.gpu_instances = instances;
    Some(device)
}

/// A compute instance with all slices of an instance.
fn whole_compute_instance(state: &MigState, profile: u32) -> Option<ComputeInstance> {
    let profile = state.catalog.by_id(profile)?;
    let slices = profile.resources.compute_slices;
    let whole = profile.compute_profiles.iter().find(|one| one.slices == slices);
    Some(ComputeInstance {
        id: 0,
        profile_id: whole.map_or(u32::MAX, |one| one.id),
        uuid: None,
        placement: None,
        memory: None,
        resources: Some(profile.resources),
    })
}
