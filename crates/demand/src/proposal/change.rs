//! Changes of nodes: all instances that a node has after the proposals.

use std::collections::BTreeSet;

use octavo_fleet::cluster::ClusterPod;
use octavo_model::inventory::{ComputeInstance, Device, GpuInstance, Inventory, Mig, MigState};
use octavo_model::text::{count_noun, join};
use octavo_policy::{DemandMode, PodEviction};

use super::explanation::difference;
use super::request::Request;
use super::{PlannedNode, Planning};
use crate::fleet::{Fleet, Gpu};
use crate::geometry::Geometry;
use crate::report::{Defragmentation, InstancePlace, Outcome, PodProposal};

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
    /// PCI address of the device that is reserved until its pods have ended.
    pub reserved_device: Option<String>,
}

/// A change that waits for running pods.
#[derive(Debug, Clone)]
pub(super) struct WaitingChange {
    pub(super) change: NodeChange,
    /// Devices of the change and of the other instances of the evicted pods.
    pub(super) gpus: BTreeSet<usize>,
}

impl PlannedNode<'_> {
    /// Returns whether its policy can evict this number of pods.
    pub(super) fn can_evict(&self, count: usize) -> bool {
        let demand = &self.observed.demand;
        demand.mode != DemandMode::Observe && count <= demand.max_evictions()
    }
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
                reserved_device: None,
            })
        });
        let mut all: Vec<NodeChange> = each.collect();
        // A node that changes for other pods cannot wait for running ones at the same time.
        if let Some(waiting) = &self.waiting
            && all.iter().all(|one| one.node != waiting.change.node)
        {
            all.push(waiting.change.clone());
        }
        all
    }

    /// The change after which an instance of a blocked pod exists and these pods have been evicted; `None` if no policy can carry it out.
    pub(super) fn eviction(
        &self,
        request: &Request<'_>,
        found: &Defragmentation,
        (fleet, pods): (&Fleet, &[&ClusterPod]),
    ) -> Option<WaitingChange> {
        let node = self.node_named(&found.node)?;
        // Otherwise, an evicted pod would wait for its new instance.
        let has_policy = |name: &str| {
            self.node_named(name)
                .is_some_and(|node| node.observed.demand.mode != DemandMode::Observe)
        };
        let mut moves = found.moves.iter();
        if !node.can_evict(pods.len()) || !moves.all(|one| one.to.exists || has_policy(&one.node)) {
            return None;
        }
        let both = self.fleet.gpus().iter().zip(fleet.gpus()).enumerate();
        let changed = both.filter(|(_, (before, after))| before.instances() != after.instances());
        let (mut gpus, mut destroyed) = (BTreeSet::new(), Vec::new());
        for (gpu, (before, after)) in changed {
            gpus.insert(gpu);
            if node.gpus().contains(&gpu) {
                let geometry = self.fleet.geometry_of(before)?;
                destroyed.extend(difference(geometry, &before.places(), &after.places()));
            }
        }
        let evictions = pods
            .iter()
            .map(|pod| Some(PodEviction { pod: pod.key.to_string(), uid: pod.uid.clone()? }));
        let text = format!(
            "create on node {}: {} of {}; destroy after {} evicted: {}",
            found.node,
            found.instance.describe(),
            found.device_name,
            count_noun(pods.len(), "pod is", "pods are"),
            join(destroyed.iter().map(InstancePlace::describe), ", ")
        );
        let change = NodeChange {
            node: found.node.clone(),
            inventory: inventory_after(node, fleet)?,
            pods: vec![(request.pod.key.to_string(), text)],
            evictions: evictions.collect::<Option<Vec<PodEviction>>>()?,
            reserved_device: None,
        };
        Some(WaitingChange { change, gpus })
    }

    fn node_named(&self, name: &str) -> Option<&PlannedNode<'_>> {
        self.nodes.iter().find(|node| node.cluster.name == name)
    }
}

/// The devices of a node with their instances in this fleet.
pub(super) fn inventory_after(node: &PlannedNode<'_>, fleet: &Fleet) -> Option<Inventory> {
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
