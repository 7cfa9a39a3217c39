//! Room for a blocked pod: running pods that would have to restart on other instances.

use std::collections::BTreeSet;

use octavo_fleet::cluster::{ClusterPod, PodKey, PodRequirements};
use octavo_model::resource::ResourceName;

use super::explanation::instance_place;
use super::{ChosenPlace, PlannedNode, Planning, Request, is_instance, profile_of};
use crate::choice::candidates;
use crate::fleet::{Fleet, Gpu, User};
use crate::geometry::{Geometry, Place};
use crate::report::{Defragmentation, PodMove};

/// Maximum number of pods that restart for one pod.
const MAX_MOVES: usize = 3;
/// Maximum number of places whose users are looked up, those with the fewest and smallest instances first.
const MAX_EXAMINED: usize = 64;
/// Maximum number of places for whose users other instances are searched, the best first.
const MAX_TRIED: usize = 16;
/// Number of the pods that restart. No request has it.
const MOVED: usize = usize::MAX;

/// A place for the instance of a blocked pod.
#[derive(Debug)]
struct Room {
    node: usize,
    gpu: usize,
    place: Place,
    /// Instances in use that overlap it.
    occupied: Vec<Place>,
    /// GPU slices of these instances.
    slices: u32,
}

/// Only user of an instance.
#[derive(Debug, Clone, Copy)]
struct RunningPod<'a> {
    pod: &'a ClusterPod,
    place: Place,
    /// GPU slices of its instance.
    slices: u32,
    /// Seconds since its start.
    running: Option<u64>,
}

impl<'a> Planning<'a> {
    /// The fewest pods on these nodes that could restart on other instances so that the pod fits. Of equally many, those whose restart
    /// repeats the least work. Nothing is allocated.
    pub(super) fn defragmentation(
        &self,
        number: usize,
        request: &Request<'_>,
        nodes: &[usize],
    ) -> Option<Defragmentation> {
        // Several instances can need several devices.
        let [(resource, 1)] = request.amounts.as_slice() else { return None };
        let mut rooms: Vec<Room> = Vec::new();
        for node in nodes {
            rooms.extend(self.rooms(*node, number, resource));
        }
        rooms.sort_by_key(|room| (room.occupied.len(), room.slices, room.gpu));
        let examined = rooms.iter().take(MAX_EXAMINED);
        let examined = examined.filter_map(|room| Some((room, self.users(room)?)));
        let mut examined: Vec<(&Room, Vec<RunningPod<'a>>)> = examined.collect();
        examined.sort_by_key(|(room, users)| (users.len(), repeated_work(users), room.gpu));
        let mut tried = examined.into_iter().take(MAX_TRIED);
        tried.find_map(|(room, users)| self.moved(room, users, number))
    }

    /// Places on the devices of a node that a few instances in use occupy.
    fn rooms(&self, node: usize, number: usize, resource: &str) -> Vec<Room> {
        let mut rooms = Vec::new();
        let gpus = self.nodes.get(node).map(PlannedNode::gpus).unwrap_or_default();
        for gpu in gpus.filter(|gpu| self.fleet.is_open_to(*gpu, number)) {
            let Some((planned, geometry)) = self.device(gpu) else { continue };
            let Some(profile) = profile_of(geometry, resource) else { continue };
            for addition in geometry.additions_of(Geometry::EMPTY, profile) {
                let place = addition.place;
                let in_use = planned.instances().iter().filter(|one| one.user.is_some());
                let (occupied, others): (Vec<Place>, Vec<Place>) =
                    in_use.map(|one| one.place).partition(|other| other.overlaps(&place));
                let fits = geometry.set_of(others.iter().chain([&place])).is_some();
                if fits && (1..=MAX_MOVES).contains(&occupied.len()) {
                    let profiles =
                        occupied.iter().filter_map(|one| geometry.profiles().get(one.profile));
                    let slices = profiles.map(|one| one.slices).fold(0, u32::saturating_add);
                    rooms.push(Room { node, gpu, place, occupied, slices });
                }
            }
        }
        rooms
    }

    /// The pods that use the instances of a room, if all of them can restart.
    fn users(&self, room: &Room) -> Option<Vec<RunningPod<'a>>> {
        let (planned, _) = self.device(room.gpu)?;
        let users = room.occupied.iter().map(|place| {
            let is_planned = planned
                .instances()
                .iter()
                .any(|one| one.place == *place && matches!(one.user, Some(User::Request(_))));
            self.running_pod(room, *place).filter(|_| !is_planned)
        });
        let users = users.collect::<Option<Vec<RunningPod<'a>>>>()?;
        let pods: BTreeSet<&PodKey> = users.iter().map(|one| &one.pod.key).collect();
        (pods.len() == users.len()).then_some(users)
    }

    /// The only user of an instance, if it is a pod with no other instance whose controller creates it again.
    fn running_pod(&self, room: &Room, place: Place) -> Option<RunningPod<'a>> {
        let node = self.nodes.get(room.node)?;
        let device = node.devices.get(room.gpu.checked_sub(node.first)?)?;
        let (_, geometry) = self.device(room.gpu)?;
        let profile = geometry.profiles().get(place.profile)?;
        let key = node.observed.only_user(&device.pci, profile.id, place.placement)?;
        let pod = self.snapshot.pods.get(&key)?;
        let mut amounts = pod.requirements.amounts.accelerators();
        let is_single = amounts.next() == Some((ResourceName::mig(&profile.name).as_str(), 1))
            && amounts.next().is_none();
        let owner = pod.owner.as_ref().filter(|owner| owner.kind != "DaemonSet");
        let is_here = pod.holding_node() == Some(node.cluster.name.as_str());
        (is_single && is_here && owner.is_some()).then(|| RunningPod {
            pod,
            place,
            slices: profile.slices,
            running: pod.started_at.and_then(|at| u64::try_from(self.now.checked_sub(at)?).ok()),
        })
    }

    /// Other instances for the pods of a room, the largest first; `None` if not all of them fit elsewhere.
    fn moved(
        &self,
        room: &Room,
        mut users: Vec<RunningPod<'_>>,
        number: usize,
    ) -> Option<Defragmentation> {
        let mut fleet = self.fleet.clone();
        let before = self.fragmentation.of_fleet(&fleet);
        for user in &users {
            fleet.vacate(room.gpu, user.place);
        }
        fleet.allocate(room.gpu, room.place, number)?;
        users.sort_by(|one, other| (other.slices, &one.pod.key).cmp(&(one.slices, &other.pod.key)));
        let moves = users.iter().map(|user| self.move_pod(&mut fleet, room, user));
        let moves = moves.collect::<Option<Vec<PodMove>>>()?;
        let node = self.nodes.get(room.node)?;
        let device = node.devices.get(room.gpu.checked_sub(node.first)?)?;
        let (_, geometry) = self.device(room.gpu)?;
        Some(Defragmentation {
            node: node.cluster.name.clone(),
            device: device.pci.clone(),
            device_name: device.name.clone(),
            instance: instance_place(geometry, &room.place)?,
            moves,
            fragmentation: self.fragmentation.of_fleet(&fleet) - before,
        })
    }

    /// Allocates the best other instance to a running pod.
    fn move_pod(&self, fleet: &mut Fleet, room: &Room, user: &RunningPod<'_>) -> Option<PodMove> {
        let (_, geometry) = self.device(room.gpu)?;
        let profile = &geometry.profiles().get(user.place.profile)?.name;
        let requirements = &user.pod.requirements;
        let best = candidates(fleet, profile, MOVED)
            .filter(|candidate| candidate.gpu != room.gpu || candidate.addition.place != user.place)
            .map(|candidate| (self.fragmentation.score(&candidate), candidate))
            .filter(|(_, candidate)| self.can_run(requirements, candidate.gpu, room.node))
            .min_by_key(|(score, candidate)| (*score, candidate.gpu))
            .map(|(_, best)| ChosenPlace {
                gpu: best.gpu,
                place: best.addition.place,
                exists: best.device.has_idle(best.addition.place),
                destroys: best.device.replaced(best.geometry, best.addition.place),
            })?;
        fleet.allocate(best.gpu, best.place, MOVED)?;
        let to = self.node_of(best.gpu)?;
        Some(PodMove {
            namespace: user.pod.key.namespace.clone(),
            pod: user.pod.key.name.clone(),
            running_seconds: user.running,
            from: instance_place(geometry, &user.place)?,
            node: self.nodes.get(to)?.cluster.name.clone(),
            to: self.instance(to, &best)?,
        })
    }

    /// Returns whether a pod that runs on the node `from` could run on the node of a device.
    fn can_run(&self, requirements: &PodRequirements, gpu: usize, from: usize) -> bool {
        let node = self.node_of(gpu).and_then(|to| Some((to, self.nodes.get(to)?)));
        node.is_some_and(|(to, node)| {
            let resources = requirements.amounts.accelerators();
            let is_offered = node.observed.offers_profiles(node.cluster)
                && !resources
                    .filter(|(resource, _)| is_instance(resource))
                    .any(|(resource, _)| node.shared.contains(resource));
            // It already has the other resources of its own node.
            is_offered && self.obstacle(node, requirements, to != from).is_none()
        })
    }

    fn node_of(&self, gpu: usize) -> Option<usize> {
        let after = self.nodes.partition_point(|node| node.first <= gpu);
        // A node without planned devices begins where the next one does.
        after.checked_sub(1)
    }

    fn device(&self, gpu: usize) -> Option<(&Gpu, &Geometry)> {
        let gpu = self.fleet.gpus().get(gpu)?;
        Some((gpu, self.fleet.geometries().get(gpu.geometry())?))
    }
}

/// Slice-seconds that the pods have run. A pod without a start time counts as the oldest.
fn repeated_work(users: &[RunningPod<'_>]) -> u64 {
    let each = users
        .iter()
        .map(|user| user.running.unwrap_or(u64::MAX).saturating_mul(u64::from(user.slices)));
    each.fold(0, u64::saturating_add)
}
