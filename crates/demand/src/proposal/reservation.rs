//! Devices that are reserved for a pod that has waited for a long time, until running pods have ended.

use std::collections::BTreeSet;

use octavo_model::text::{count_noun, join};
use octavo_policy::DemandMode;

use super::change::{NodeChange, WaitingChange, inventory_after};
use super::defragmentation::OccupiedPlace;
use super::explanation::{gpu_slices, instance_place};
use super::request::Request;
use super::{PlannedNode, Planning, profile_of_any};

/// Age of a pod after which the report reserves a device for it, unless the policy of the node has another one.
const RESERVE_AFTER_SECONDS: u64 = 600;

impl PlannedNode<'_> {
    /// Returns whether its policy reserves devices.
    fn can_reserve(&self) -> bool {
        let demand = &self.observed.demand;
        demand.mode != DemandMode::Observe && demand.reserve_after.is_some()
    }

    /// Age of a pod in seconds after which a device is reserved for it.
    fn reserve_after(&self) -> u64 {
        let after = self.observed.demand.reserve_after.filter(|_| self.can_reserve());
        after.map_or(RESERVE_AFTER_SECONDS, |after| after.get().as_secs())
    }
}

impl<'a> Planning<'a> {
    /// Reserves the device that a policy reserves, or proposes to reserve, for one of these pods, so that no other pod gets it.
    pub(super) fn restore_reservation<'r>(
        &mut self,
        pods: impl Iterator<Item = (usize, &'r &'r Request<'a>)>,
    ) where
        'a: 'r,
    {
        let reserving = self.nodes.iter().filter_map(|node| {
            let reserved = node.observed.reserved_device.as_ref()?;
            let gpu = node
                .gpus()
                .find(|gpu| node.device(*gpu).is_some_and(|device| device.pci == *reserved))?;
            Some((&node.observed.changed_for, gpu))
        });
        let reserving: Vec<_> = reserving.collect();
        let found = pods.filter(|_| !reserving.is_empty()).find_map(|(number, request)| {
            let reference = request.pod.key.to_string();
            let mut nodes = reserving.iter().filter(|(pods, _)| pods.contains(&reference));
            Some((number, nodes.next()?.1))
        });
        if let Some((number, gpu)) = found {
            self.fleet.reserve_gpu(gpu, number);
        }
    }

    /// Returns whether a device of a node is reserved for another pod by a policy, which then changes no other instances of the node.
    pub(super) fn is_reserved_for_other(&self, node: usize, number: usize) -> bool {
        let reserved = self.fleet.reserved_for().filter(|holder| *holder != number);
        let gpu = reserved.and_then(|_| self.fleet.reserved_gpu());
        self.nodes.get(node).zip(gpu).is_some_and(|(node, gpu)| {
            let by_policy = node.can_reserve() || node.observed.reserved_device.is_some();
            by_policy && node.gpus().contains(&gpu)
        })
    }

    /// Reserves a device of these nodes, which are sorted, for a pod that has waited for a long time. Returns the device.
    ///
    /// If policies reserve devices, only theirs are considered. Nodes that other pods do not change come first.
    pub(super) fn reserve(
        &mut self,
        number: usize,
        request: &Request<'a>,
        nodes: &[usize],
    ) -> Option<usize> {
        if let Some(holder) = self.fleet.reserved_for() {
            return self.fleet.reserved_gpu().filter(|_| holder == number);
        }
        let age = u64::try_from(request.age?).ok()?;
        // Several instances can need several devices.
        let [(resource, 1)] = request.amounts.as_slice() else { return None };
        let key = (*resource, nodes.to_vec());
        if self.failed_reservations.contains(&key) {
            return None;
        }
        let profile = profile_of_any(&self.fleet, resource)?.name.clone();
        let is_carried_out = self.nodes.iter().any(PlannedNode::can_reserve);
        let rank = |gpu: usize| {
            let index = self.node_of(gpu).filter(|index| nodes.binary_search(index).is_ok())?;
            let node = self.nodes.get(index).filter(|node| age >= node.reserve_after())?;
            let is_changed = node.gpus().any(|gpu| self.changed.contains(&gpu));
            (node.can_reserve() || !is_carried_out).then_some(is_changed)
        };
        let mut reservable = self.fleet.reservable(&profile, rank).into_iter();
        let found = reservable.find(|gpu| self.place_to_free(*gpu, resource).is_some());
        let Some(gpu) = found else {
            self.failed_reservations.insert(key);
            return None;
        };
        self.fleet.reserve_gpu(gpu, number);
        self.known.clear();
        Some(gpu)
    }

    /// The place of a device for an instance with the fewest slices in use. An instance in use that is the same makes no place: the change
    /// would be applied already.
    fn place_to_free(&self, gpu: usize, resource: &str) -> Option<OccupiedPlace> {
        let places = self.places_of(self.node_of(gpu)?, gpu, resource).into_iter();
        let others = places.filter(|one| one.instances.as_slice() != [one.place]);
        others.min_by_key(|place| place.slices)
    }

    /// The change after which an instance of a pod exists on a device that is reserved for it; `None` if no policy can carry it out.
    pub(super) fn reservation(
        &self,
        number: usize,
        request: &Request<'_>,
        gpu: usize,
    ) -> Option<WaitingChange> {
        let [(resource, 1)] = request.amounts.as_slice() else { return None };
        let node = self.nodes.get(self.node_of(gpu)?).filter(|node| node.can_reserve())?;
        let chosen = self.place_to_free(gpu, resource)?;
        let mut fleet = self.fleet.clone();
        for one in &chosen.instances {
            fleet.vacate(gpu, *one);
        }
        fleet.allocate(gpu, chosen.place, number)?;
        let (planned, geometry) = self.device(gpu)?;
        let device = node.device(gpu)?;
        let name = &node.cluster.name;
        let free = geometry.free_slices(planned.in_use());
        let ended = chosen.instances.iter().filter_map(|one| instance_place(geometry, one));
        let text = format!(
            "reserve {device} of node {name}: create {} when {} no longer in use: {}; until then, other pods get none of the {} of {device} that {} not in use",
            instance_place(geometry, &chosen.place)?.describe(),
            count_noun(chosen.instances.len(), "instance is", "instances are"),
            join(ended.map(|one| one.describe()), ", "),
            gpu_slices(free),
            if free == 1 { "is" } else { "are" },
            device = device.name,
        );
        let change = NodeChange {
            node: name.clone(),
            inventory: inventory_after(node, &fleet)?,
            pods: vec![(request.pod.key.to_string(), text)],
            evictions: Vec::new(),
            reserved_device: Some(device.pci.clone()),
        };
        Some(WaitingChange { change, gpus: BTreeSet::from([gpu]) })
    }
}
