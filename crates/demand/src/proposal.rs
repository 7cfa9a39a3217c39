//! Proposals for pending pods: idle instances to create or replace, and the obstacles elsewhere.

mod change;
mod defragmentation;
mod explanation;
mod obstacle;
mod request;
mod reservation;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use octavo_fleet::cluster::{Amounts, ClusterNode, ClusterPod, ClusterSnapshot, PODS};
use octavo_model::API_VERSION;
use octavo_model::resource::ResourceName;
use octavo_policy::DemandMode;

pub use self::change::NodeChange;
use self::change::WaitingChange;
pub(crate) use self::request::MIN_AGE_SECONDS;
pub use self::request::has_requests;
use self::request::{Request, is_instance};
use crate::choice::{Fragmentation, Score, candidates};
use crate::fleet::Fleet;
use crate::geometry::{Geometry, Place, Profile};
use crate::observed::{Models, ObservedDevice, ObservedNode};
use crate::report::{Defragmentation, DemandReport, Obstacle, Outcome, PodProposal};

/// Maximum number of planned pods, because users choose how many pods they create.
pub(crate) const MAX_PODS: usize = 256;
/// Maximum number of pods that are planned in a second order.
const MAX_REORDERED: usize = 128;
/// Maximum sum over all pods of the devices that are compared for each instance. 1,000 nodes with 8 GPUs and pods with one instance of each
/// profile need 60,000.
const MAX_COMPARISONS: usize = 1_000_000;
/// Maximum number of blocked pods for which running pods are searched whose restart makes room.
const MAX_SEARCHES: usize = 8;
/// Number of nodes that are listed as alternatives.
const MAX_ALTERNATIVES: usize = 2;

/// Proposals for the pending pods of a cluster.
#[derive(Debug)]
pub struct DemandPlan {
    /// Proposals by pod, with the changes of the devices.
    pub report: DemandReport,
    /// Changes by node.
    pub changes: Vec<NodeChange>,
}

/// Proposes instances for the pending pods of the cluster. `now` is in seconds since 1970.
///
/// The pods that have waited longest are planned first, each with the instances of all pods before it. Of the pods that were created in the
/// same minute, the largest are planned first if more pods get instances then. Instances in use are never destroyed. Nothing is changed.
pub fn propose(snapshot: &ClusterSnapshot, nodes: &[ObservedNode], now: i64) -> DemandPlan {
    let (pods, recent_pods) = Request::all(snapshot, now);
    let planning = Planning::new((snapshot, now), nodes, &pods);
    let reordered = (pods.len() <= MAX_REORDERED).then(|| planning.clone());
    let by_age = request::by_age(&pods);
    let mut plan = planning.plan_all(&by_age);
    if let Some(planning) = reordered
        && plan.placed() < plan.report.items.len()
    {
        let by_size = request::by_size(&pods, &planning.fleet);
        let is_other = |(one, other): (&&Request<'_>, &&Request<'_>)| one.pod.key != other.pod.key;
        if by_age.iter().zip(&by_size).any(is_other) {
            let other = planning.plan_all(&by_size);
            if other.placed() > plan.placed() {
                plan = other;
            }
        }
    }
    plan.report.recent_pods = recent_pods;
    plan
}

impl DemandPlan {
    /// Number of pods for which instances exist or are proposed.
    fn placed(&self) -> usize {
        let items = self.report.items.iter();
        items.filter(|one| one.outcome.known().is_some_and(Outcome::is_placed)).count()
    }
}

/// State of the fleet while pods are planned.
#[derive(Debug, Clone)]
struct Planning<'a> {
    snapshot: &'a ClusterSnapshot,
    /// Current time in seconds since 1970.
    now: i64,
    nodes: Vec<PlannedNode<'a>>,
    fleet: Fleet,
    fragmentation: Fragmentation,
    held: BTreeMap<&'a str, Amounts>,
    /// Number of pods that get instances of a device.
    pods_by_gpu: BTreeMap<usize, usize>,
    /// Devices of which instances are created or destroyed.
    changed: BTreeSet<usize>,
    /// Results for the instances of a pod on a node, which most pods have in common.
    known: BTreeMap<Vec<(&'a str, u64)>, KnownChoices>,
    /// Sum of the devices that were compared for each instance.
    comparisons: usize,
    /// Number of blocked pods for which running pods are still searched whose restart makes room.
    searches: usize,
    /// Requested resource and nodes for which no device can be reserved.
    failed_reservations: BTreeSet<(&'a str, Vec<usize>)>,
    /// Requested resource and nodes of the searches without a result, which most pods have in common.
    failed_searches: BTreeSet<(&'a str, Vec<usize>)>,
    /// Change that waits for running pods.
    waiting: Option<WaitingChange>,
}

/// Results by position of the node.
type KnownChoices = BTreeMap<usize, Result<Choice, Obstacle>>;

/// A node and its devices in MIG mode.
#[derive(Debug, Clone)]
struct PlannedNode<'a> {
    observed: &'a ObservedNode,
    cluster: &'a ClusterNode,
    /// Position of its first device in the fleet.
    first: usize,
    devices: Vec<ObservedDevice>,
    /// True if other devices in MIG mode are not planned.
    is_incomplete: bool,
    /// Resources whose instances the node offers in another way.
    shared: BTreeSet<String>,
}

/// Order of nodes; the smallest is the best. The first part is absent if no instance must be created, because the scheduler takes existing ones
/// first. Otherwise, a node whose policy carries out proposals is better.
type NodeScore = (Option<DemandMode>, Score);

/// The best instances on a node.
#[derive(Debug, Clone)]
struct Choice {
    node: usize,
    score: NodeScore,
    growth: i64,
    places: Vec<ChosenPlace>,
}

impl Choice {
    /// Returns whether an instance must be created.
    fn creates(&self) -> bool {
        self.score.0.is_some()
    }
}

#[derive(Debug, Clone)]
struct ChosenPlace {
    gpu: usize,
    place: Place,
    exists: bool,
    destroys: Vec<Place>,
}

impl<'a> Planning<'a> {
    fn new(
        (snapshot, now): (&'a ClusterSnapshot, i64),
        nodes: &'a [ObservedNode],
        requests: &[Request<'a>],
    ) -> Self {
        let mut bound: BTreeMap<&str, Vec<&ClusterPod>> = BTreeMap::new();
        for pod in snapshot.pods().values() {
            let mut resources = pod.requirements.amounts.accelerators();
            if let Some(node) = pod.holding_node()
                && resources.any(|(resource, _)| is_instance(resource))
            {
                bound.entry(node).or_default().push(pod);
            }
        }
        let resources = requests.iter().flat_map(|request| &request.amounts);
        let mut models = Models::new(resources.map(|(resource, _)| *resource).collect());
        let mut fleet = Fleet::default();
        let mut planned = Vec::new();
        for observed in nodes.iter().filter(|node| node.has_mig()) {
            let Some(cluster) = snapshot.nodes.get(&observed.name) else { continue };
            let first = fleet.gpus().len();
            let bound = bound.get(observed.name.as_str()).map_or(&[][..], Vec::as_slice);
            let found = observed.add_to(&mut fleet, &mut models, bound);
            planned.push(PlannedNode {
                observed,
                cluster,
                first,
                devices: found.devices,
                is_incomplete: found.are_incomplete,
                shared: found.shared,
            });
        }
        let held = snapshot.held();
        let fragmentation = Fragmentation::new(&fleet);
        Self {
            snapshot,
            now,
            nodes: planned,
            fleet,
            fragmentation,
            held,
            pods_by_gpu: BTreeMap::new(),
            changed: BTreeSet::new(),
            known: BTreeMap::new(),
            comparisons: 0,
            searches: MAX_SEARCHES,
            failed_reservations: BTreeSet::new(),
            failed_searches: BTreeSet::new(),
            waiting: None,
        }
    }

    /// Plans the pods in this order.
    fn plan_all(mut self, pods: &[&Request<'a>]) -> DemandPlan {
        let mut items = Vec::new();
        let pods_by_number = || pods.iter().take(MAX_PODS).enumerate();
        self.restore_reservation(pods_by_number());
        for (number, pod) in pods_by_number() {
            if !self.is_too_costly(pod) {
                items.push(self.plan(number, pod));
            }
        }
        let changes = self.changes(&items);
        let report = DemandReport {
            api_version: API_VERSION.to_owned(),
            kind: "DemandReport".to_owned(),
            as_of: String::new(),
            stale: false,
            omitted_pods: pods.len().saturating_sub(items.len()),
            items,
            recent_pods: 0,
            devices: self.devices(),
        };
        DemandPlan { report, changes }
    }

    /// Plans one pod, and allocates its instances in the planned fleet.
    fn plan(&mut self, number: usize, request: &Request<'a>) -> PodProposal {
        let mut known = self.known.remove(&request.amounts).unwrap_or_default();
        let mut comparisons = 0_usize;
        let mut choices = Vec::new();
        let mut obstacles: BTreeMap<Obstacle, Vec<usize>> = BTreeMap::new();
        for (index, node) in self.nodes.iter().enumerate() {
            let choice = if let Some(obstacle) = self.obstacle(node, &request.pod.requirements) {
                Err(obstacle)
            } else {
                let choice = known.entry(index).or_insert_with(|| {
                    let devices = node.devices.len().saturating_mul(request.count());
                    comparisons = comparisons.saturating_add(devices);
                    self.choose(node, index, number, request)
                });
                choice.as_ref().map_err(|obstacle| *obstacle)
            };
            let is_reserved = self.is_reserved_for_other(index, number);
            let choice = choice.and_then(|choice| {
                // A policy changes no other instances of the node at the same time.
                if is_reserved && choice.creates() { Err(Obstacle::Reserved) } else { Ok(choice) }
            });
            match choice {
                Ok(choice) => choices.push((choice.score, index)),
                Err(obstacle) => obstacles.entry(obstacle).or_default().push(index),
            }
        }
        self.comparisons = self.comparisons.saturating_add(comparisons);
        // Otherwise, the waiting time of a change would begin again whenever another node becomes a little better.
        let reference = request.pod.key.to_string();
        choices.sort_unstable_by_key(|((mode, score), index)| {
            let node = self.nodes.get(*index);
            let has_change =
                node.is_some_and(|node| node.observed.changed_for.contains(&reference));
            (*mode, !has_change, *score, *index)
        });
        let choices = choices.iter().take(MAX_ALTERNATIVES.saturating_add(1));
        let choices = choices.filter_map(|(_, index)| known.get(index)?.as_ref().ok().cloned());
        let mut choices = choices.collect::<Vec<Choice>>().into_iter();
        self.known.insert(request.amounts.clone(), known);
        let occupied = obstacles.get(&Obstacle::Occupied).cloned().unwrap_or_default();
        let obstacles = self.explain(obstacles);
        let Some(best) = choices.next() else {
            // The reserved device is no target of a restart.
            let reserved = self.reserve(number, request, &occupied);
            let defragmentation = self.defragment(number, request, &occupied);
            if self.waiting.is_none() {
                self.waiting = reserved.and_then(|gpu| self.reservation(number, request, gpu));
            }
            let mut blocked = self.blocked(request, obstacles, reserved);
            if let Some(found) = &defragmentation {
                blocked.message = format!("{}; {}", blocked.message, found.describe());
            }
            return PodProposal { defragmentation, ..blocked };
        };
        let alternatives = choices.map(|other| self.alternative(&best, &other)).collect();
        let proposal = self.proposal(request, &best);
        self.accept(number, request, &best);
        PodProposal { alternatives, obstacles, ..proposal }
    }

    /// Returns whether a pod cannot be planned within the limit of comparisons.
    fn is_too_costly(&self, request: &Request<'a>) -> bool {
        if self.known.contains_key(&request.amounts) {
            return false;
        }
        let cost = self.fleet.gpus().len().saturating_mul(request.count());
        self.comparisons.saturating_add(cost) > MAX_COMPARISONS
    }

    /// Chooses the best instances for a pod on a node. The result holds until the instances of the node or a reservation change.
    fn choose(
        &self,
        node: &PlannedNode<'_>,
        index: usize,
        number: usize,
        request: &Request<'_>,
    ) -> Result<Choice, Obstacle> {
        let choice = self.choose_of_planned(node, index, number, request);
        // Devices that are not planned could be suitable.
        choice.map_err(|obstacle| if node.is_incomplete { Obstacle::Unknown } else { obstacle })
    }

    fn choose_of_planned(
        &self,
        node: &PlannedNode<'_>,
        index: usize,
        number: usize,
        request: &Request<'_>,
    ) -> Result<Choice, Obstacle> {
        let gpus = node.gpus();
        let mut resources = request.amounts.iter().map(|(resource, _)| *resource);
        if !resources.clone().all(|resource| self.has_profile(gpus.clone(), resource)) {
            return Err(Obstacle::NoProfile);
        }
        if !node.observed.offers_profiles(node.cluster)
            || resources.any(|resource| node.shared.contains(resource))
        {
            return Err(Obstacle::NotOffered);
        }
        let part = self.fleet.part(gpus.clone());
        let (slices, _) = request.size(&part);
        if slices > part.slices() {
            return Err(Obstacle::TooSmall);
        }
        if slices > part.free_slices() {
            return Err(Obstacle::Occupied);
        }
        let place = |fleet: Fleet| place_all(fleet, &self.fragmentation, number, request);
        if let Some((score, growth, places)) = place(part.clone()) {
            let places = with_offset(places, gpus.start);
            let creates = places.iter().any(|chosen| !chosen.exists);
            let score = (creates.then_some(node.observed.demand.mode), score);
            return Ok(Choice { node: index, score, growth, places });
        }
        if part.reserved_for().is_some() && place(part.clone().without_reservation()).is_some() {
            return Err(Obstacle::Reserved);
        }
        match place(part.without_instances()) {
            Some(_) => Err(Obstacle::Occupied),
            None => Err(Obstacle::TooSmall),
        }
    }

    fn has_profile(&self, gpus: Range<usize>, resource: &str) -> bool {
        let gpus = self.fleet.gpus().get(gpus).unwrap_or_default();
        let mut models = gpus.iter().filter_map(|gpu| self.fleet.geometry_of(gpu));
        models.any(|model| profile_of(model, resource).is_some())
    }

    /// Allocates the instances of a choice.
    fn accept(&mut self, number: usize, request: &Request<'a>, choice: &Choice) {
        let mut gpus: Vec<usize> = Vec::new();
        // A later pod can get the place of the change, or that of an evicted pod.
        let is_taken = |waiting: &WaitingChange| {
            choice.places.iter().any(|chosen| waiting.gpus.contains(&chosen.gpu))
        };
        if self.waiting.as_ref().is_some_and(is_taken) {
            self.waiting = None;
        }
        for chosen in &choice.places {
            let _operations = self.fleet.allocate(chosen.gpu, chosen.place, number);
            if !chosen.exists {
                self.changed.insert(chosen.gpu);
            }
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

    /// Running pods whose restart makes room for a pod, for one pod at a time.
    fn defragment(
        &mut self,
        number: usize,
        request: &Request<'a>,
        nodes: &[usize],
    ) -> Option<Defragmentation> {
        // Several instances can need several devices.
        let [(resource, 1)] = request.amounts.as_slice() else { return None };
        if nodes.is_empty() || self.failed_searches.contains(&(*resource, nodes.to_vec())) {
            return None;
        }
        self.searches = self.searches.checked_sub(1)?;
        let Some((found, eviction)) = self.defragmentation(number, request, (resource, nodes))
        else {
            self.failed_searches.insert((*resource, nodes.to_vec()));
            return None;
        };
        self.searches = 0;
        self.waiting = self.waiting.take().or(eviction);
        Some(found)
    }
}

impl PlannedNode<'_> {
    /// Positions of its devices in the fleet.
    fn gpus(&self) -> Range<usize> {
        self.first..self.first.saturating_add(self.devices.len())
    }

    /// Its device at this position in the fleet.
    fn device(&self, gpu: usize) -> Option<&ObservedDevice> {
        self.devices.get(gpu.checked_sub(self.first)?)
    }
}

/// Places all instances of a pod on the devices of one node, the largest first, each at the best place. Returns the sum of the scores and of
/// the growth of the fragmentation.
fn place_all(
    mut fleet: Fleet,
    fragmentation: &Fragmentation,
    number: usize,
    request: &Request<'_>,
) -> Option<(Score, i64, Vec<ChosenPlace>)> {
    let size = |resource: &&str| profile_of_any(&fleet, resource).map(Profile::size);
    let mut resources: Vec<&str> = request.instances().collect();
    resources.sort_by_cached_key(|resource| Reverse(size(resource)));
    let (mut total, mut growth, mut places) = (Score::default(), 0_i64, Vec::new());
    for resource in resources {
        let profile = &profile_of_any(&fleet, resource)?.name;
        let all = candidates(&fleet, profile, number);
        let best = all
            .min_by_key(|candidate| (candidate.operations() > 0, fragmentation.score(candidate)))?;
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

fn with_offset(mut places: Vec<ChosenPlace>, first: usize) -> Vec<ChosenPlace> {
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
