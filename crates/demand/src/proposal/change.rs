//! Changes of nodes: all instances that a node has after the proposals.

use octavo_fleet::cluster::ClusterPod;
use octavo_model::inventory::{ComputeInstance, Device, GpuInstance, Inventory, Mig, MigState};

use octavo_model::text::count_noun;
use octavo_policy::{DemandMode, PodEviction};

use super::request::Request;
use super::{PlannedNode, Planning};
use crate::fleet::{Fleet, Gpu};
use crate::geometry::Geometry;
use crate::report::{Defragmentation, Outcome, PodMove, PodProposal};

/// Change of the instances of a node.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeChange {
    /// Name of the node.
    pub node: String,
    /// Only the devices that can be planned, with their instances after the proposals.
    pub inventory: Inventory,
    /// Pods whose instances are created, as `namespace/name`, with the created and destroyed instances.
    pub pods: Vec<(String, String)>,
    /// Running pods that must be evicted for it.
    pub evictions: Vec<PodEviction>,
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
                inventory: inventory_after(node, &self.fleet)?,
                pods: pods.map(|one| (one.reference(), one.message.clone())).collect(),
                evictions: Vec::new(),
            })
        });
        let mut all: Vec<NodeChange> = each.collect();
        // Pods are not evicted on a node that changes for other pods.
        let is_other = |change: &&NodeChange| all.iter().all(|one| one.node != change.node);
        let eviction = self.eviction.as_ref().filter(is_other).cloned();
        all.extend(eviction);
        all
    }

    /// The change after which an instance of a blocked pod exists and these pods have been evicted; `None` if no policy can carry it out.
    pub(super) fn eviction(
        &self,
        request: &Request<'_>,
        found: &Defragmentation,
        (fleet, pods): (&Fleet, &[&ClusterPod]),
    ) -> Option<NodeChange> {
        let node = self.nodes.iter().find(|node| node.cluster.name == found.node)?;
        // Otherwise, an evicted pod would wait for its new instance.
        let is_available = |restarted: &PodMove| {
            let target = self.nodes.iter().find(|node| node.cluster.name == restarted.node);
            let has_policy = |node: &PlannedNode<'_>| node.observed.mode != DemandMode::Observe;
            restarted.to.exists || target.is_some_and(has_policy)
        };
        if !found.moves.iter().all(is_available) {
            return None;
        }
        let evictions = pods
            .iter()
            .map(|pod| Some(PodEviction { pod: pod.key.to_string(), uid: pod.uid.clone()? }));
        let text = format!(
            "create on node {}: {} of {}; {} evicted",
            found.node,
            found.instance.describe(),
            found.device_name,
            count_noun(pods.len(), "running pod is", "running pods are"),
        );
        Some(NodeChange {
            node: found.node.clone(),
            inventory: inventory_after(node, fleet)?,
            pods: vec![(request.pod.key.to_string(), text)],
            evictions: evictions.collect::<Option<Vec<PodEviction>>>()?,
        })
    }
}

/// The devices of a node with their instances in this fleet.
fn inventory_after(node: &PlannedNode<'_>, fleet: &Fleet) -> Option<Inventory> {
    let planned = node.devices.iter().zip(node.gpus());
    let devices = planned.map(|(planned, gpu)| {
        let mut all = node.observed.inventory.devices.iter();
        let device = all.find(|device| device.pci.to_string() == planned.pci)?.clone();
        let gpu = fleet.gpus().get(gpu)?;
        device_after(device, gpu, fleet.geometry_of(gpu)?)
    });
    let devices = devices.collect::<Option<Vec<Device>>>()?;
    Some(Inventory { devices, ..Inventory::default() })
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
