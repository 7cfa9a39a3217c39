//! Changes of nodes: all instances that a node has after the proposals.

use std::collections::BTreeSet;

use octavo_fleet::cluster::ClusterPod;
use octavo_model::inventory::{ComputeInstance, Device, GpuInstance, Inventory, Mig, MigState};

use octavo_model::text::{count_noun, join};
use octavo_policy::{DemandMode, PodEviction};

use super::explanation::instance_place;
use super::request::Request;
use super::{PlannedNode, Planning};
use crate::fleet::{Fleet, Gpu};
use crate::geometry::{Geometry, Place};
use crate::report::{Defragmentation, Outcome, PodProposal};

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

/// A change for which pods must be evicted.
#[derive(Debug, Clone)]
pub(super) struct Eviction {
    change: NodeChange,
    /// Devices of the change and of the other instances of the evicted pods.
    pub(super) gpus: BTreeSet<usize>,
}

impl PlannedNode<'_> {
    /// Returns whether its policy can evict this number of pods.
    pub(super) fn can_evict(&self, count: usize) -> bool {
        let demand = &self.observed.demand;
        let limit = usize::try_from(demand.evictions_per_hour).unwrap_or(usize::MAX);
        demand.mode != DemandMode::Observe && count <= limit
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
            })
        });
        let mut all: Vec<NodeChange> = each.collect();
        // Pods are not evicted on a node that changes for other pods.
        let eviction = self.eviction.iter().map(|eviction| &eviction.change);
        let eviction: Vec<NodeChange> = eviction
            .filter(|change| all.iter().all(|one| one.node != change.node))
            .cloned()
            .collect();
        all.extend(eviction);
        all
    }

    /// The change after which an instance of a blocked pod exists and these pods have been evicted; `None` if no policy can carry it out.
    pub(super) fn eviction(
        &self,
        request: &Request<'_>,
        found: &Defragmentation,
        (fleet, pods): (&Fleet, &[&ClusterPod]),
    ) -> Option<Eviction> {
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
        let gpus: BTreeSet<usize> = (0..fleet.gpus().len())
            .filter(|gpu| {
                let instances =
                    |fleet: &Fleet| fleet.gpus().get(*gpu).map(|gpu| gpu.instances().to_vec());
                instances(fleet) != instances(&self.fleet)
            })
            .collect();
        let destroyed = node.gpus().flat_map(|gpu| self.destroyed(gpu, fleet));
        let evictions = pods
            .iter()
            .map(|pod| Some(PodEviction { pod: pod.key.to_string(), uid: pod.uid.clone()? }));
        let text = format!(
            "create on node {}: {} of {}; destroy after {} evicted: {}",
            found.node,
            found.instance.describe(),
            found.device_name,
            count_noun(pods.len(), "pod is", "pods are"),
            join(destroyed, ", ")
        );
        let change = NodeChange {
            node: found.node.clone(),
            inventory: inventory_after(node, fleet)?,
            pods: vec![(request.pod.key.to_string(), text)],
            evictions: evictions.collect::<Option<Vec<PodEviction>>>()?,
        };
        Some(Eviction { change, gpus })
    }

    fn node_named(&self, name: &str) -> Option<&PlannedNode<'_>> {
        self.nodes.iter().find(|node| node.cluster.name == name)
    }

    /// The instances of a device that another state of the fleet does not have.
    fn destroyed(&self, gpu: usize, after: &Fleet) -> Vec<String> {
        let instances = |fleet: &Fleet| -> Vec<Place> {
            let gpu = fleet.gpus().get(gpu).map(Gpu::instances);
            gpu.unwrap_or_default().iter().map(|one| one.place).collect()
        };
        let geometry = self.fleet.gpus().get(gpu).and_then(|gpu| self.fleet.geometry_of(gpu));
        let remaining = instances(after);
        let gone = instances(&self.fleet).into_iter().filter(|place| !remaining.contains(place));
        let described = gone.filter_map(|place| instance_place(geometry?, &place));
        described.map(|place| place.describe()).collect()
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
