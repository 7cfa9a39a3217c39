//! Explanations of proposals: the instances of each pod, the changes of each device, and why other nodes are worse.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use octavo_model::text::{count_noun, join};

use super::{Choice, ChosenPlace, MIG_RESOURCE, PlannedNode, Planning, Request};
use crate::fleet::Operations;
use crate::geometry::{Geometry, Place};
use crate::report::{
    Alternative, DeviceProposal, InstancePlace, Obstacle, ObstacleCount, Outcome, PodProposal,
    ProposedInstance,
};

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
        let (mut free, mut largest) = (0_u32, None);
        for gpu in gpus {
            let Some(geometry) = self.fleet.geometries().get(gpu.geometry()) else { continue };
            free = free.saturating_add(geometry.free_slices(gpu.in_use()));
            let additions = geometry.additions(gpu.in_use()).iter();
            let profiles = additions.filter_map(|one| geometry.profiles().get(one.place.profile));
            let fitting = profiles.max_by_key(|profile| (profile.slices, Reverse(profile.id)));
            largest =
                largest.max(fitting.map(|profile| (profile.slices, profile.name.to_string())));
        }
        let free = count_noun(usize::try_from(free).unwrap_or(usize::MAX), "slice", "slices");
        match largest {
            Some((_, name)) => {
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
            message: describe(outcome, &instances, node.as_deref().unwrap_or_default()),
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
        reserved: Option<(usize, usize)>,
    ) -> PodProposal {
        let reasons = join(obstacles.iter().map(|one| one.message.as_str()), "; ");
        let reasons = if obstacles.is_empty() {
            "no node with an agent has a GPU in MIG mode".to_owned()
        } else {
            reasons
        };
        let found = reserved.and_then(|(node, gpu)| {
            let node = self.nodes.get(node)?;
            let device = node.devices.get(gpu.checked_sub(node.first)?)?;
            let planned = self.fleet.gpus().get(gpu)?;
            let free =
                self.fleet.geometries().get(planned.geometry())?.free_slices(planned.in_use());
            Some((node, device, free))
        });
        match found {
            Some((node, device, free)) => PodProposal {
                node: Some(node.cluster.name.clone()),
                message: format!(
                    "reserve {} of node {} until enough of its instances are idle; other pods cannot get its {} that {} not in use; {reasons}",
                    device.name,
                    node.cluster.name,
                    count_noun(usize::try_from(free).unwrap_or(usize::MAX), "slice", "slices"),
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
        let node = self.nodes.get(other.node).map(|node| node.cluster.name.clone());
        let (operations, fewest) = (other.operations(), best.operations());
        let message = if operations > fewest {
            let more = operations.saturating_sub(fewest);
            let more = count_noun(more, "operation", "operations");
            format!("{more} more to create and destroy instances")
        } else if other.growth > best.growth {
            let more = other.growth.saturating_sub(best.growth);
            let more = f64::from(i32::try_from(more).unwrap_or(i32::MAX)) / 1_000.0;
            format!("{more:.1} more slices would be unusable for an average request")
        } else if other.score == best.score {
            "equally good, later in the order of names".to_owned()
        } else {
            "more slices would remain free on a GPU that is in use".to_owned()
        };
        Alternative { node: node.unwrap_or_default(), message }
    }

    fn instance(&self, node: usize, chosen: &ChosenPlace) -> Option<ProposedInstance> {
        let node = self.nodes.get(node)?;
        let device = node.devices.get(chosen.gpu.checked_sub(node.first)?)?;
        let planned = self.fleet.gpus().get(chosen.gpu)?;
        let geometry = self.fleet.geometries().get(planned.geometry())?;
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
                let is_changed =
                    self.changes.get(&index).is_some_and(|one| *one != Operations::default());
                let gpu = self.fleet.gpus().get(index).filter(|_| is_changed);
                let Some(gpu) = gpu else { continue };
                let Some(geometry) = self.fleet.geometries().get(gpu.geometry()) else { continue };
                let after: Vec<Place> = gpu.instances().iter().map(|one| one.place).collect();
                let difference = |of: &[Place], without: &[Place]| -> Vec<InstancePlace> {
                    let only = of.iter().filter(|place| !without.contains(place));
                    let mut only: Vec<&Place> = only.collect();
                    only.sort_by_key(|place| place.placement);
                    only.into_iter().filter_map(|one| instance_place(geometry, one)).collect()
                };
                all.push(DeviceProposal {
                    node: node.cluster.name.clone(),
                    device: device.pci.clone(),
                    device_name: device.name.clone(),
                    before: counts(geometry, &device.before),
                    after: counts(geometry, &after),
                    creates: difference(&after, &device.before),
                    destroys: difference(&device.before, &after),
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
        let amounts = amounts.filter(|(resource, _)| resource.starts_with(MIG_RESOURCE));
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

fn instance_place(geometry: &Geometry, place: &Place) -> Option<InstancePlace> {
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

/// Describes the instances of a proposal.
fn describe(outcome: Outcome, instances: &[ProposedInstance], node: &str) -> String {
    let each = |is_wanted: fn(&ProposedInstance) -> bool| {
        let wanted = instances.iter().filter(|one| is_wanted(one));
        join(wanted.map(|one| format!("{} of {}", one.instance.describe(), one.device_name)), ", ")
    };
    let destroyed = instances.iter().flat_map(|one| {
        one.destroys.iter().map(|idle| format!("{} of {}", idle.describe(), one.device_name))
    });
    let created = each(|one| !one.exists);
    match outcome {
        Outcome::Available => {
            format!("idle on node {node}: {}; the scheduler can place the pod", each(|_| true))
        }
        Outcome::Create | Outcome::Reserve | Outcome::Blocked => {
            format!("create on node {node}: {created}; no instance is destroyed")
        }
        Outcome::Replace => {
            format!("create on node {node}: {created}; destroy idle: {}", join(destroyed, ", "))
        }
    }
}
