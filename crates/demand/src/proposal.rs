//! Proposals for pending pods: which idle instances to create or replace, and why not elsewhere.

mod explanation;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;

use octavo_fleet::cluster::{
    Amounts, ClusterNode, ClusterPod, ClusterSnapshot, PODS, PlacementObstacle, PodRequirements,
    Readiness, placement_obstacle,
};
use octavo_model::API_VERSION;
use octavo_model::resource::ResourceName;

use crate::choice::{Fragmentation, Score, candidates};
use crate::fleet::{Fleet, Operations};
use crate::geometry::{Geometry, Place, Profile};
use crate::observed::{Models, ObservedDevice, ObservedNode};
use crate::report::{DemandReport, Obstacle, PodProposal};

/// Minimum age of a pod, because the scheduler places most pods within seconds.
pub(crate) const MIN_AGE_SECONDS: i64 = 10;
/// Age after which a device is reserved for a pod that no change of idle instances can place.
const RESERVE_AFTER_SECONDS: i64 = 600;
/// Maximum number of planned pods, because anyone who may create pods chooses their number.
pub(crate) const MAX_PODS: usize = 256;
/// Maximum number of instances of a pod. No device and no node has more.
const MAX_INSTANCES: u64 = 128;
/// Number of nodes that are listed as alternatives.
const MAX_ALTERNATIVES: usize = 2;

/// Prefix of resources of MIG instances.
const MIG_RESOURCE: &str = "nvidia.com/mig-";

/// Returns whether any pod waits for MIG instances.
pub fn has_requests(snapshot: &ClusterSnapshot) -> bool {
    snapshot.pods.values().any(|pod| Request::new(pod, 0).is_some())
}

/// Proposes instances for the pending pods of the cluster. `now` is in seconds since 1970.
///
/// The pods that have waited longest are planned first, each with the instances of all pods before it. Instances in use are never
/// destroyed. Nothing is changed.
pub fn propose(snapshot: &ClusterSnapshot, nodes: &[ObservedNode], now: i64) -> DemandReport {
    let mut pods: Vec<Request<'_>> =
        snapshot.pods.values().filter_map(|pod| Request::new(pod, now)).collect();
    let waiting = pods.len();
    pods.retain(|pod| pod.age.is_none_or(|age| age >= MIN_AGE_SECONDS));
    let recent_pods = waiting.saturating_sub(pods.len());
    // Pods of unknown age come last.
    pods.sort_by_key(|one| (Reverse(one.age), &one.pod.key));
    let omitted_pods = pods.len().saturating_sub(MAX_PODS);
    pods.truncate(MAX_PODS);
    let mut planning = Planning::new(snapshot, nodes);
    let items = pods.iter().enumerate().map(|(number, pod)| planning.plan(number, pod)).collect();
    DemandReport {
        api_version: API_VERSION.to_owned(),
        kind: "DemandReport".to_owned(),
        as_of: String::new(),
        stale: false,
        items,
        omitted_pods,
        recent_pods,
        devices: planning.devices(),
    }
}

/// Pending pod that requests MIG instances.
#[derive(Debug)]
struct Request<'a> {
    pod: &'a ClusterPod,
    /// Seconds since its creation.
    age: Option<i64>,
    /// Resources of the instances, one for each instance, in the order of the resources.
    instances: Vec<&'a str>,
}

/// State of the fleet while pods are planned.
#[derive(Debug)]
struct Planning<'a> {
    nodes: Vec<PlannedNode<'a>>,
    fleet: Fleet,
    fragmentation: Fragmentation,
    held: BTreeMap<&'a str, Amounts>,
    /// Number of pods that get instances of a device.
    pods_by_gpu: BTreeMap<usize, usize>,
    /// Instances that were created and destroyed, by device.
    changes: BTreeMap<usize, Operations>,
    /// Results for the instances of a pod on a node, which most pods have in common.
    known: BTreeMap<Vec<&'a str>, KnownChoices>,
}

/// Results by position of the node.
type KnownChoices = BTreeMap<usize, Result<Choice, Obstacle>>;

/// A node and its devices in MIG mode.
#[derive(Debug)]
struct PlannedNode<'a> {
    observed: &'a ObservedNode,
    cluster: &'a ClusterNode,
    /// Position of its first device in the fleet.
    first: usize,
    devices: Vec<ObservedDevice>,
}

/// The best instances on a node.
#[derive(Debug, Clone)]
struct Choice {
    node: usize,
    score: Score,
    growth: i64,
    places: Vec<ChosenPlace>,
}

#[derive(Debug, Clone)]
struct ChosenPlace {
    gpu: usize,
    place: Place,
    exists: bool,
    destroys: Vec<Place>,
}

impl<'a> Request<'a> {
    fn new(pod: &'a ClusterPod, now: i64) -> Option<Self> {
        if !pod.is_pending() {
            return None;
        }
        let mut instances = Vec::new();
        for (resource, count) in pod.requirements.amounts.accelerators() {
            if resource.starts_with(MIG_RESOURCE) {
                instances.extend((0..count.min(MAX_INSTANCES)).map(|_| resource));
            }
        }
        let age = pod.created_at.map(|created| now.saturating_sub(created).max(0));
        (!instances.is_empty()).then_some(Self { pod, age, instances })
    }
}

impl<'a> Planning<'a> {
    fn new(snapshot: &'a ClusterSnapshot, nodes: &'a [ObservedNode]) -> Self {
        let held = snapshot.held();
        let (mut fleet, mut models) = (Fleet::default(), Models::default());
        let mut planned = Vec::new();
        for observed in nodes.iter().filter(|node| node.has_mig()) {
            let Some(cluster) = snapshot.nodes.get(&observed.name) else { continue };
            let first = fleet.gpus().len();
            let held = held.get(observed.name.as_str());
            let devices = observed.add_to(&mut fleet, &mut models, held);
            planned.push(PlannedNode { observed, cluster, first, devices });
        }
        let fragmentation = Fragmentation::new(&fleet);
        Self {
            nodes: planned,
            fleet,
            fragmentation,
            held,
            pods_by_gpu: BTreeMap::new(),
            changes: BTreeMap::new(),
            known: BTreeMap::new(),
        }
    }

    /// Plans one pod, and allocates its instances in the planned fleet.
    fn plan(&mut self, number: usize, request: &Request<'a>) -> PodProposal {
        let mut known = self.known.remove(&request.instances).unwrap_or_default();
        let mut choices = Vec::new();
        let mut obstacles: BTreeMap<Obstacle, Vec<usize>> = BTreeMap::new();
        for (index, node) in self.nodes.iter().enumerate() {
            let choice = if let Some(obstacle) = self.obstacle(node, request) {
                Err(obstacle)
            } else {
                let choice = known.entry(index);
                let choice = choice.or_insert_with(|| self.choose(index, number, request));
                choice.as_ref().map_err(|obstacle| *obstacle)
            };
            match choice {
                Ok(choice) => choices.push((choice.score, index)),
                Err(obstacle) => obstacles.entry(obstacle).or_default().push(index),
            }
        }
        choices.sort_unstable();
        let choices = choices.iter().take(MAX_ALTERNATIVES.saturating_add(1));
        let choices = choices.filter_map(|(_, index)| known.get(index)?.as_ref().ok().cloned());
        let mut choices = choices.collect::<Vec<Choice>>().into_iter();
        self.known.insert(request.instances.clone(), known);
        let occupied = obstacles.get(&Obstacle::Occupied).cloned().unwrap_or_default();
        let obstacles = self.explain(obstacles);
        let Some(best) = choices.next() else {
            let reserved = self.reserve(number, request, &occupied);
            return self.blocked(request, obstacles, reserved);
        };
        let alternatives = choices.map(|other| self.alternative(&best, &other)).collect();
        let proposal = self.proposal(request, &best);
        self.accept(number, request, &best);
        PodProposal { alternatives, obstacles, ..proposal }
    }

    /// Why a pod gets no instances on a node, whatever instances the node has.
    fn obstacle(&self, node: &PlannedNode<'_>, request: &Request<'_>) -> Option<Obstacle> {
        let requirements = &request.pod.requirements;
        let held = self.held.get(node.cluster.name.as_str());
        if let Some(obstacle) = scheduling_obstacle(requirements, node.cluster) {
            return Some(obstacle);
        }
        if !node.observed.is_reliable {
            return Some(Obstacle::Unknown);
        }
        let has_room = has_other_resources(requirements, node.cluster, held);
        (!has_room).then_some(Obstacle::OtherResources)
    }

    /// The best instances for a pod on a node, or why it gets none. The result holds until the instances of the node or a reservation
    /// change.
    fn choose(
        &self,
        index: usize,
        number: usize,
        request: &Request<'_>,
    ) -> Result<Choice, Obstacle> {
        let node = self.nodes.get(index).ok_or(Obstacle::Unknown)?;
        let gpus = node.gpus();
        if !request.instances.iter().all(|resource| self.has_profile(gpus.clone(), resource)) {
            return Err(Obstacle::NoProfile);
        }
        if !request.instances.iter().all(|resource| node.observed.offers(resource)) {
            return Err(Obstacle::NotOffered);
        }
        let place_all = |fleet: Fleet| place_all(fleet, &self.fragmentation, number, request);
        match place_all(self.fleet.part(gpus.clone())) {
            Some((score, growth, places)) => {
                Ok(Choice { node: index, score, growth, places: shifted(places, gpus.start) })
            }
            None if place_all(self.fleet.part(gpus).without_reservation()).is_some() => {
                Err(Obstacle::Reserved)
            }
            None => Err(Obstacle::Occupied),
        }
    }

    fn has_profile(&self, gpus: Range<usize>, resource: &str) -> bool {
        let gpus = self.fleet.gpus().get(gpus).unwrap_or_default();
        let mut models = gpus.iter().filter_map(|gpu| self.fleet.geometries().get(gpu.geometry()));
        models.any(|model| profile_of(model, resource).is_some())
    }

    /// Allocates the instances of a choice.
    fn accept(&mut self, number: usize, request: &Request<'a>, choice: &Choice) {
        let mut gpus: Vec<usize> = Vec::new();
        for chosen in &choice.places {
            let operations = self.fleet.allocate(chosen.gpu, chosen.place, number);
            let change = self.changes.entry(chosen.gpu).or_default();
            let operations = operations.unwrap_or_default();
            change.created = change.created.saturating_add(operations.created);
            change.destroyed = change.destroyed.saturating_add(operations.destroyed);
            gpus.push(chosen.gpu);
        }
        gpus.sort_unstable();
        gpus.dedup();
        for gpu in gpus {
            let pods = self.pods_by_gpu.entry(gpu).or_default();
            *pods = pods.saturating_add(1);
        }
        for known in self.known.values_mut() {
            known.remove(&choice.node);
        }
        if let Some(node) = self.nodes.get(choice.node) {
            let held = self.held.entry(node.cluster.name.as_str()).or_default();
            held.add(&request.pod.requirements.amounts);
            held.add(&Amounts::default().with(PODS, 1));
        }
    }

    /// Reserves a device of these nodes for a pod that has waited for long. Returns its node and the device.
    fn reserve(
        &mut self,
        number: usize,
        request: &Request<'_>,
        nodes: &[usize],
    ) -> Option<(usize, usize)> {
        request.age.filter(|age| *age >= RESERVE_AFTER_SECONDS)?;
        let resource = request.instances.first()?;
        let gpus: Vec<Range<usize>> =
            nodes.iter().filter_map(|node| self.nodes.get(*node)).map(PlannedNode::gpus).collect();
        let profile = profile_of_any(&self.fleet, resource)?.name.clone();
        let is_possible = |gpu: usize| gpus.iter().any(|range| range.contains(&gpu));
        let gpu = self.fleet.reserve_one_of(&profile, number, is_possible)?;
        self.known.clear();
        let node = nodes
            .iter()
            .copied()
            .find(|node| self.nodes.get(*node).is_some_and(|node| node.gpus().contains(&gpu)))?;
        Some((node, gpu))
    }
}

impl PlannedNode<'_> {
    /// Positions of its devices in the fleet.
    fn gpus(&self) -> Range<usize> {
        self.first..self.first.saturating_add(self.devices.len())
    }
}

/// Why the scheduler never places a pod on a node.
fn scheduling_obstacle(wants: &PodRequirements, node: &ClusterNode) -> Option<Obstacle> {
    match placement_obstacle(wants, node) {
        Some(PlacementObstacle::Cordoned) => Some(Obstacle::Unschedulable),
        Some(PlacementObstacle::Tainted(_)) => Some(Obstacle::Tainted),
        Some(PlacementObstacle::Selector(_) | PlacementObstacle::Affinity) => {
            Some(Obstacle::NotSelected)
        }
        None if node.readiness != Readiness::Ready => Some(Obstacle::Unschedulable),
        None => None,
    }
}

/// Returns whether everything that the pod requests besides MIG instances is free on the node.
fn has_other_resources(
    wants: &PodRequirements,
    node: &ClusterNode,
    held: Option<&Amounts>,
) -> bool {
    let mut others = wants.amounts.iter().filter(|(name, _)| !name.starts_with(MIG_RESOURCE));
    let has_free = |name: &str, count: u64| {
        let held = held.map_or(0, |held| held.get(name));
        node.allocatable.get(name).saturating_sub(held) >= count
    };
    others.all(|(name, count)| has_free(name, count)) && has_free(PODS, 1)
}

/// Places all instances of a pod on the devices of one node, the largest first, each at the best place. Returns the sum of the scores and of
/// the growth of the fragmentation.
fn place_all(
    mut fleet: Fleet,
    fragmentation: &Fragmentation,
    number: usize,
    request: &Request<'_>,
) -> Option<(Score, i64, Vec<ChosenPlace>)> {
    let slices = |resource: &&str| profile_of_any(&fleet, resource).map(|profile| profile.slices);
    let mut resources: Vec<&str> = request.instances.clone();
    resources.sort_by_cached_key(|resource| Reverse(slices(resource)));
    let (mut total, mut growth, mut places) = ([0_i64; 3], 0_i64, Vec::new());
    for resource in resources {
        let profile = &profile_of_any(&fleet, resource)?.name;
        let all = candidates(&fleet, profile, number);
        let best = all.min_by_key(|candidate| fragmentation.score(candidate))?;
        let score = fragmentation.score(&best);
        for (sum, part) in total.iter_mut().zip(score) {
            *sum = sum.saturating_add(part);
        }
        growth = growth.saturating_add(fragmentation.growth(&best));
        let place = best.addition.place;
        let chosen = ChosenPlace {
            gpu: best.gpu,
            place,
            exists: best.device.has_idle(place),
            destroys: best.device.replaced(best.geometry, place),
        };
        fleet.allocate(chosen.gpu, place, number)?;
        places.push(chosen);
    }
    Some((total, growth, places))
}

fn shifted(mut places: Vec<ChosenPlace>, first: usize) -> Vec<ChosenPlace> {
    for chosen in &mut places {
        chosen.gpu = chosen.gpu.saturating_add(first);
    }
    places
}

/// Index of the profile whose instances have this resource name.
fn profile_of(geometry: &Geometry, resource: &str) -> Option<usize> {
    let mut profiles = geometry.profiles().iter();
    profiles.position(|profile| ResourceName::mig(&profile.name).as_str() == resource)
}

/// Profile with this resource name of the first model that has it.
fn profile_of_any<'a>(fleet: &'a Fleet, resource: &str) -> Option<&'a Profile> {
    fleet.geometries().iter().find_map(|model| model.profiles().get(profile_of(model, resource)?))
}
