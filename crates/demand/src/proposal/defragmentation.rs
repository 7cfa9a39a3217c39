//! Places for a blocked pod that are free once running pods have restarted on other nodes.

use std::collections::BTreeSet;

use octavo_fleet::cluster::{ClusterPod, Effect, PodKey, PodRequirements, Taint};
use octavo_model::resource::ResourceName;
use octavo_node::node_object::REPARTITIONING_TAINT;
use octavo_node::node_object::drain::CRITICAL_PRIORITY;

use super::change::WaitingChange;
use super::explanation::instance_place;
use super::request::Request;
use super::{ChosenPlace, PlannedNode, Planning, is_instance, profile_of};
use crate::choice::candidates;
use crate::fleet::{Fleet, Gpu, User};
use crate::geometry::{Geometry, Place};
use crate::report::{Defragmentation, PodMove};

/// Maximum number of pods that restart for one pod.
const MAX_MOVES: usize = 3;
/// Maximum number of places whose users are looked up, those with the fewest and smallest instances first.
const MAX_EXAMINED: usize = 512;
/// Maximum number of places for whose users other instances are searched, the best first.
const MAX_TRIED: usize = 8;
/// Holder number of the restarted pods. No request has it.
const RESTARTED: usize = usize::MAX;
/// Kinds of owners that create a deleted pod again.
const RECREATING_OWNERS: [&str; 5] =
    ["Deployment", "ReplicaSet", "StatefulSet", "ReplicationController", "Job"];

/// A place that instances in use occupy.
#[derive(Debug)]
pub(super) struct OccupiedPlace {
    node: usize,
    gpu: usize,
    pub(super) place: Place,
    /// Instances in use that overlap it.
    pub(super) instances: Vec<Place>,
    /// GPU slices of these instances.
    pub(super) slices: u32,
}

/// Only user of an instance.
#[derive(Debug, Clone)]
struct RunningPod<'a> {
    pod: &'a ClusterPod,
    place: Place,
    /// GPU slices of its instance.
    slices: u32,
    /// Seconds since its start.
    running: Option<u64>,
    /// Other nodes that have room for it besides its instance.
    nodes: BTreeSet<usize>,
}

impl<'a> Planning<'a> {
    /// The fewest running pods on these nodes that must restart on other nodes to make room for a pod, and the change of the node. If several
    /// places need the same number of restarts, the restarts that repeat the least work are chosen. Nodes with a policy that can evict the
    /// pods come first. Nothing is allocated.
    pub(super) fn defragmentation(
        &self,
        number: usize,
        request: &Request<'_>,
        (resource, nodes): (&str, &[usize]),
    ) -> Option<(Defragmentation, Option<WaitingChange>)> {
        let mut places: Vec<OccupiedPlace> = Vec::new();
        for node in nodes {
            places.extend(self.occupied_places(*node, number, resource));
        }
        let is_manual = |place: &OccupiedPlace, count: usize| {
            self.nodes.get(place.node).is_none_or(|node| !node.can_evict(count))
        };
        places.sort_by_key(|place| {
            let count = place.instances.len();
            (is_manual(place, count), count, place.slices, place.gpu)
        });
        let examined = places.iter().take(MAX_EXAMINED);
        let examined =
            examined.filter_map(|place| Some((place, self.users(place, request.pod.priority)?)));
        let mut examined: Vec<(&OccupiedPlace, Vec<RunningPod<'a>>)> = examined.collect();
        examined.sort_by_key(|(place, users)| {
            (is_manual(place, users.len()), users.len(), repeated_work(users), place.gpu)
        });
        let mut first = None;
        for (place, users) in examined.into_iter().take(MAX_TRIED) {
            let found = self.restarted(place, users, (number, request));
            if found.as_ref().is_some_and(|(_, eviction)| eviction.is_some()) {
                return found;
            }
            first = first.or(found);
        }
        first
    }

    fn occupied_places(&self, node: usize, number: usize, resource: &str) -> Vec<OccupiedPlace> {
        let gpus = self.nodes.get(node).map(PlannedNode::gpus).unwrap_or_default();
        let gpus = gpus.filter(|gpu| self.fleet.is_open_to(*gpu, number));
        let places = gpus.flat_map(|gpu| self.places_of(node, gpu, resource));
        places.filter(|place| (1..=MAX_MOVES).contains(&place.instances.len())).collect()
    }

    /// All places of a device for an instance, with the instances in use that overlap them.
    pub(super) fn places_of(&self, node: usize, gpu: usize, resource: &str) -> Vec<OccupiedPlace> {
        let Some((planned, geometry)) = self.device(gpu) else { return Vec::new() };
        let Some(profile) = profile_of(geometry, resource) else { return Vec::new() };
        let places = geometry.additions_of(Geometry::EMPTY, profile).filter_map(|addition| {
            let place = addition.place;
            let in_use = planned.instances().iter().filter(|one| one.user.is_some());
            let (instances, others): (Vec<Place>, Vec<Place>) =
                in_use.map(|one| one.place).partition(|other| other.overlaps(&place));
            geometry.set_of(others.iter().chain([&place]))?;
            let slices = instances.iter().map(|one| slices_of(geometry, one));
            let slices = slices.fold(0, u32::saturating_add);
            Some(OccupiedPlace { node, gpu, place, instances, slices })
        });
        places.collect()
    }

    /// The pods that use a place, if all of them can restart.
    fn users(&self, occupied: &OccupiedPlace, priority: i32) -> Option<Vec<RunningPod<'a>>> {
        let users = occupied.instances.iter().map(|place| self.running_pod(occupied, *place));
        let users = users.collect::<Option<Vec<RunningPod<'a>>>>()?;
        if users.iter().any(|user| user.pod.priority > priority) {
            return None;
        }
        let pods: BTreeSet<&PodKey> = users.iter().map(|one| &one.pod.key).collect();
        (pods.len() == users.len()).then_some(users)
    }

    /// The only user of an instance, if it is a pod without another instance that is created again after its deletion.
    fn running_pod(&self, occupied: &OccupiedPlace, place: Place) -> Option<RunningPod<'a>> {
        let node = self.nodes.get(occupied.node)?;
        let device = node.device(occupied.gpu)?;
        let (planned, geometry) = self.device(occupied.gpu)?;
        let mut instances = planned.instances().iter();
        instances.find(|one| one.place == place && one.user == Some(User::Workload))?;
        let profile = geometry.profiles().get(place.profile)?;
        let key = node.observed.only_user(&device.pci, profile.id, place.placement)?;
        let pod = self.snapshot.pods().get(&key)?;
        let mut amounts = pod.requirements.amounts.accelerators();
        let is_single = amounts.next() == Some((ResourceName::mig(&profile.name).as_str(), 1))
            && amounts.next().is_none();
        let owner = pod.owner.as_ref();
        let is_recreated =
            owner.is_some_and(|owner| RECREATING_OWNERS.contains(&owner.kind.as_str()));
        let is_here = pod.holding_node() == Some(node.cluster.name.as_str());
        let taint = Taint {
            key: REPARTITIONING_TAINT.to_owned(),
            value: String::new(),
            effect: Effect::NoSchedule,
        };
        let can_leave = !pod.is_terminating
            && pod.priority < CRITICAL_PRIORITY
            && !taint.is_tolerated(&pod.requirements.tolerations);
        (is_single && is_here && is_recreated && can_leave).then(|| RunningPod {
            pod,
            place,
            slices: profile.slices,
            running: pod.started_at.and_then(|at| u64::try_from(self.now.checked_sub(at)?).ok()),
            nodes: BTreeSet::new(),
        })
    }

    /// Instances on other nodes for the users of a place, the largest first, and the change of the node; `None` if not all of them fit.
    fn restarted(
        &self,
        occupied: &OccupiedPlace,
        mut users: Vec<RunningPod<'_>>,
        (number, request): (usize, &Request<'_>),
    ) -> Option<(Defragmentation, Option<WaitingChange>)> {
        for user in &mut users {
            user.nodes = self.other_nodes(&user.pod.requirements, occupied.node);
            if user.nodes.is_empty() {
                return None;
            }
        }
        let mut fleet = self.fleet.clone();
        let before = self.fragmentation.of_fleet(&fleet);
        for user in &users {
            fleet.vacate(occupied.gpu, user.place);
        }
        fleet.allocate(occupied.gpu, occupied.place, number)?;
        users.sort_by(|one, other| (other.slices, &one.pod.key).cmp(&(one.slices, &other.pod.key)));
        let mut moves = Vec::new();
        // Each pod gets another node, because the resources of several pods are not summed up.
        let mut chosen = BTreeSet::new();
        for user in &mut users {
            user.nodes.retain(|node| !chosen.contains(node));
            let (node, restarted) = self.restart(&mut fleet, occupied, user)?;
            chosen.insert(node);
            moves.push(restarted);
        }
        let node = self.nodes.get(occupied.node)?;
        let device = node.device(occupied.gpu)?;
        let (_, geometry) = self.device(occupied.gpu)?;
        let found = Defragmentation {
            node: node.cluster.name.clone(),
            device: device.pci.clone(),
            device_name: device.name.clone(),
            instance: instance_place(geometry, &occupied.place)?,
            moves,
            fragmentation: self.fragmentation.of_fleet(&fleet) - before,
        };
        let pods: Vec<&ClusterPod> = users.iter().map(|user| user.pod).collect();
        let eviction = self.eviction(request, &found, (&fleet, &pods));
        Some((found, eviction))
    }

    /// Allocates the best instance on another node to a running pod. Returns the node.
    fn restart(
        &self,
        fleet: &mut Fleet,
        occupied: &OccupiedPlace,
        user: &RunningPod<'_>,
    ) -> Option<(usize, PodMove)> {
        let (_, geometry) = self.device(occupied.gpu)?;
        let profile = &geometry.profiles().get(user.place.profile)?.name;
        // The reservation of a device ended with the allocation of the pod that it is for.
        let is_possible = |gpu| {
            self.fleet.is_open_to(gpu, RESTARTED)
                && self.node_of(gpu).is_some_and(|node| user.nodes.contains(&node))
        };
        let best = candidates(fleet, profile, RESTARTED)
            .filter(|candidate| is_possible(candidate.gpu))
            .min_by_key(|candidate| (self.fragmentation.score(candidate), candidate.gpu))
            .map(|best| ChosenPlace {
                gpu: best.gpu,
                place: best.addition.place,
                exists: best.device.has_idle(best.addition.place),
                destroys: best.device.replaced(best.geometry, best.addition.place),
            })?;
        fleet.allocate(best.gpu, best.place, RESTARTED)?;
        let to = self.node_of(best.gpu)?;
        let restarted = PodMove {
            namespace: user.pod.key.namespace.clone(),
            pod: user.pod.key.name.clone(),
            running_seconds: user.running,
            from: instance_place(geometry, &user.place)?,
            node: self.nodes.get(to)?.cluster.name.clone(),
            to: self.instance(to, &best)?,
        };
        Some((to, restarted))
    }

    /// Nodes besides `from` that offer the instances of a pod and have room for its other resources.
    fn other_nodes(&self, requirements: &PodRequirements, from: usize) -> BTreeSet<usize> {
        let nodes = self.nodes.iter().enumerate().filter(|(index, node)| {
            let mut resources = requirements.amounts.accelerators();
            *index != from
                && node.observed.offers_profiles(node.cluster)
                && !resources.any(|(name, _)| is_instance(name) && node.shared.contains(name))
                && self.obstacle(node, requirements).is_none()
        });
        nodes.map(|(index, _)| index).collect()
    }

    /// The node of a device.
    pub(super) fn node_of(&self, gpu: usize) -> Option<usize> {
        // A node without planned devices begins where the next one does.
        self.nodes.partition_point(|node| node.first <= gpu).checked_sub(1)
    }

    pub(super) fn device(&self, gpu: usize) -> Option<(&Gpu, &Geometry)> {
        let gpu = self.fleet.gpus().get(gpu)?;
        Some((gpu, self.fleet.geometry_of(gpu)?))
    }
}

fn slices_of(geometry: &Geometry, place: &Place) -> u32 {
    geometry.profiles().get(place.profile).map_or(0, |profile| profile.slices)
}

/// Slice-seconds that the pods have run. A pod without a start time counts as the oldest.
fn repeated_work(users: &[RunningPod<'_>]) -> u64 {
    let each = users
        .iter()
        .map(|user| user.running.unwrap_or(u64::MAX).saturating_mul(u64::from(user.slices)));
    each.fold(0, u64::saturating_add)
}
