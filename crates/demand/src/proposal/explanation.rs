//! Explanations of proposals: the instances of each pod, the changes of each device, and why other nodes are worse.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use octavo_model::text::{count_noun, join};

use super::{Choice, ChosenPlace, PlannedNode, Planning, Request, is_instance};
use crate::geometry::{Geometry, Place, Profile};
use crate::report::{
    Alternative, DeviceProposal, InstancePlace, Obstacle, ObstacleCount, Outcome, PodProposal,
    ProposedInstance,
};

/// Smallest difference of the fragmentation that is shown, in thousandths of a slice.
const SHOWN_GROWTH: i64 = 50;

impl Planning<'_> {
    pub(super) fn explain(&self, obstacles: BTreeMap<Obstacle, Vec<usize>>) -> Vec<ObstacleCount> {
        let each = obstacles.into_iter().map(|(reason, nodes)| {
            let mut message = reason.describe(nodes.len());
            if reason == Obstacle::Occupied {
                message = format!("{message} ({})", self.room(&nodes));
            }
            ObstacleCount { reason: reason.into(), nodes: nodes.len(), message }
        });
        each.collect()
    }

    /// Describes the free slices of these nodes, and the largest instance that fits.
    fn room(&self, nodes: &[usize]) -> String {
        let ranges = nodes.iter().filter_map(|node| self.nodes.get(*node)).map(PlannedNode::gpus);
        let gpus = ranges.flat_map(|range| self.fleet.gpus().get(range).unwrap_or_default());
        let (mut free, mut largest): (u32, Option<(&Place, &Profile)>) = (0, None);
        for gpu in gpus {
            let Some(geometry) = self.fleet.geometry_of(gpu) else { continue };
            free = free.saturating_add(geometry.free_slices(gpu.in_use()));
            let fitting = geometry
                .additions(gpu.in_use())
                .iter()
                .filter_map(|one| Some((&one.place, geometry.profiles().get(one.place.profile)?)));
            // Of several profiles of equal size, the one with the lowest id has no attributes.
            largest = fitting.chain(largest).max_by_key(|(place, profile)| {
                (profile.slices, place.placement.size, Reverse(profile.id))
            });
        }
        let free = gpu_slices(free);
        match largest {
            Some((_, Profile { name, .. })) => {
                format!("{free} left; the largest instance that fits is {name}")
            }
            None => format!("{free} left, where no instance fits"),
        }
    }

    pub(super) fn proposal(&self, request: &Request<'_>, choice: &Choice) -> PodProposal {
        let instances: Vec<ProposedInstance> =
            choice.places.iter().filter_map(|chosen| self.instance(choice.node, chosen)).collect();
        let node = self.nodes.get(choice.node).map(|node| node.cluster.name.clone());
        let outcome = if instances.iter().all(|one| one.exists) {
            Outcome::Available
        } else if instances.iter().all(|one| one.destroys.is_empty()) {
            Outcome::Create
        } else {
            Outcome::Replace
        };
        let growth = i32::try_from(choice.growth).unwrap_or(i32::MAX);
        PodProposal {
            message: self.describe(outcome, &instances, (request, choice)),
            node,
            instances,
            fragmentation: Some(f64::from(growth) / 1_000.0),
            ..request.proposal(outcome)
        }
    }

    pub(super) fn blocked(
        &self,
        request: &Request<'_>,
        obstacles: Vec<ObstacleCount>,
        reserved: Option<usize>,
    ) -> PodProposal {
        let reasons = join(obstacles.iter().map(|one| one.message.as_str()), "; ");
        let reasons = if obstacles.is_empty() {
            "no agent reports a GPU in MIG mode".to_owned()
        } else {
            reasons
        };
        let found = reserved.and_then(|gpu| {
            let node = self.nodes.get(self.node_of(gpu)?)?;
            let (planned, geometry) = self.device(gpu)?;
            Some((node, node.device(gpu)?, geometry.free_slices(planned.in_use())))
        });
        match found {
            Some((node, device, free)) => PodProposal {
                node: Some(node.cluster.name.clone()),
                message: format!(
                    "reserve {} of node {} until enough of its instances are idle; other pods would not get its {} that {} not in use; {reasons}",
                    device.name,
                    node.cluster.name,
                    gpu_slices(free),
                    if free == 1 { "is" } else { "are" },
                ),
                obstacles,
                ..request.proposal(Outcome::Reserve)
            },
            None => {
                PodProposal { message: reasons, obstacles, ..request.proposal(Outcome::Blocked) }
            }
        }
    }

    pub(super) fn alternative(&self, best: &Choice, other: &Choice) -> Alternative {
        let name = |of: &Choice| {
            let node = self.nodes.get(of.node);
            node.map_or_else(String::new, |node| node.cluster.name.clone())
        };
        let (operations, fewest) = (other.operations(), best.operations());
        let message = if best.score.0.is_some() && other.score.0 > best.score.0 {
            "no policy carries out proposals for this node without approval".to_owned()
        } else if other.score < best.score {
            format!("better, but a change of node {} is already proposed for the pod", name(best))
        } else if operations > fewest {
            let more = operations.saturating_sub(fewest);
            let more = count_noun(more, "more operation", "more operations");
            format!("{more} to create and destroy instances")
        } else if other.growth.saturating_sub(best.growth) >= SHOWN_GROWTH {
            let more = other.growth.saturating_sub(best.growth);
            let more = f64::from(i32::try_from(more).unwrap_or(i32::MAX)) / 1_000.0;
            format!("{more:.1} more slices would be unusable for an average request")
        } else if other.score == best.score && other.node < best.node {
            format!("equally good, but a change of node {} is already proposed", name(best))
        } else if other.score == best.score {
            "equally good, later in the order of names".to_owned()
        } else {
            "slightly more fragmentation, or more slices that remain free on its GPU".to_owned()
        };
        Alternative { node: name(other), message }
    }

    /// Describes the instances of a proposal.
    fn describe(
        &self,
        outcome: Outcome,
        instances: &[ProposedInstance],
        (request, choice): (&Request<'_>, &Choice),
    ) -> String {
        let Some(node) = self.nodes.get(choice.node) else { return String::new() };
        let name = &node.cluster.name;
        let each = |is_wanted: fn(&ProposedInstance) -> bool| {
            let wanted = instances.iter().filter(|one| is_wanted(one));
            let each =
                wanted.map(|one| format!("{} of {}", one.instance.describe(), one.device_name));
            join(each, ", ")
        };
        let created = each(|one| !one.exists);
        match outcome {
            Outcome::Available => {
                let held = self.held.get(name.as_str());
                let is_offered = request.amounts.iter().all(|(resource, count)| {
                    let held = held.map_or(0, |held| held.get(resource));
                    node.cluster.allocatable.get(resource).saturating_sub(held) >= *count
                });
                let next = if is_offered {
                    "the scheduler can place the pod unless another rule prevents it"
                } else {
                    "the Node does not offer them to the scheduler; check its device plugin"
                };
                format!("idle on node {name}: {}; {next}", each(|_| true))
            }
            Outcome::Create | Outcome::Reserve | Outcome::Blocked => {
                format!("create on node {name}: {created}; no instance is destroyed")
            }
            Outcome::Replace => {
                let destroyed = instances.iter().flat_map(|one| {
                    let idle = one.destroys.iter();
                    idle.map(|idle| format!("{} of {}", idle.describe(), one.device_name))
                });
                format!("create on node {name}: {created}; destroy idle: {}", join(destroyed, ", "))
            }
        }
    }

    pub(super) fn instance(&self, node: usize, chosen: &ChosenPlace) -> Option<ProposedInstance> {
        let node = self.nodes.get(node)?;
        let device = node.device(chosen.gpu)?;
        let planned = self.fleet.gpus().get(chosen.gpu)?;
        let geometry = self.fleet.geometry_of(planned)?;
        Some(ProposedInstance {
            device: device.pci.clone(),
            device_name: device.name.clone(),
            instance: instance_place(geometry, &chosen.place)?,
            exists: chosen.exists,
            destroys: chosen
                .destroys
                .iter()
                .filter_map(|one| instance_place(geometry, one))
                .collect(),
        })
    }

    /// Changes of the devices by all proposals.
    pub(super) fn devices(&self) -> Vec<DeviceProposal> {
        let mut all = Vec::new();
        for node in &self.nodes {
            for (offset, device) in node.devices.iter().enumerate() {
                let index = node.first.saturating_add(offset);
                let gpu = self.fleet.gpus().get(index).filter(|_| self.changed.contains(&index));
                let Some(gpu) = gpu else { continue };
                let Some(geometry) = self.fleet.geometry_of(gpu) else { continue };
                let after = gpu.places();
                all.push(DeviceProposal {
                    node: node.cluster.name.clone(),
                    device: device.pci.clone(),
                    device_name: device.name.clone(),
                    before: counts(geometry, &device.before),
                    after: counts(geometry, &after),
                    creates: difference(geometry, &after, &device.before),
                    destroys: difference(geometry, &device.before, &after),
                    pods: self.pods_by_gpu.get(&index).copied().unwrap_or(0),
                });
            }
        }
        all
    }
}

impl Request<'_> {
    /// A proposal without instances.
    fn proposal(&self, outcome: Outcome) -> PodProposal {
        let amounts = self.pod.requirements.amounts.accelerators();
        let amounts = amounts.filter(|(resource, _)| is_instance(resource));
        PodProposal {
            namespace: self.pod.key.namespace.clone(),
            pod: self.pod.key.name.clone(),
            waiting_seconds: self.age.and_then(|age| u64::try_from(age).ok()),
            resources: amounts.map(|(resource, count)| (resource.to_owned(), count)).collect(),
            outcome: outcome.into(),
            message: String::new(),
            node: None,
            instances: Vec::new(),
            fragmentation: None,
            alternatives: Vec::new(),
            obstacles: Vec::new(),
            defragmentation: None,
        }
    }
}

impl Choice {
    fn operations(&self) -> usize {
        let each = self.places.iter();
        let each = each.map(|one| one.destroys.len().saturating_add(usize::from(!one.exists)));
        each.fold(0, usize::saturating_add)
    }
}

/// The instances that are in `of` only, ordered by placement.
pub(super) fn difference(
    geometry: &Geometry,
    of: &[Place],
    without: &[Place],
) -> Vec<InstancePlace> {
    let mut only: Vec<&Place> = of.iter().filter(|place| !without.contains(place)).collect();
    only.sort_by_key(|place| place.placement);
    only.into_iter().filter_map(|one| instance_place(geometry, one)).collect()
}

pub(super) fn instance_place(geometry: &Geometry, place: &Place) -> Option<InstancePlace> {
    let profile = geometry.profiles().get(place.profile)?;
    Some(InstancePlace { profile: profile.name.to_string(), placement: place.placement })
}

fn counts(geometry: &Geometry, places: &[Place]) -> BTreeMap<String, usize> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for instance in places.iter().filter_map(|place| instance_place(geometry, place)) {
        let count = counts.entry(instance.profile).or_default();
        *count = count.saturating_add(1);
    }
    counts
}

pub(super) fn gpu_slices(count: u32) -> String {
    count_noun(usize::try_from(count).unwrap_or(usize::MAX), "GPU slice", "GPU slices")
}
