//! Devices that are reserved for a pod that has waited for a long time, until running pods have ended.

use std::collections::BTreeSet;

use octavo_model::text::{count_noun, join};
use octavo_policy::DemandMode;

use super::change::{NodeChange, WaitingChange, inventory_after};
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

impl Planning<'_> {
    /// Reserves a device of these nodes, in ascending order, for a pod that has waited for a long time. Returns the device.
    ///
    /// A device that its policy reserves for the pod already comes first, then those whose policies reserve devices.
    pub(super) fn reserve(
        &mut self,
        number: usize,
        request: &Request<'_>,
        nodes: &[usize],
    ) -> Option<usize> {
        let age = u64::try_from(request.age?).ok()?;
        // Several instances can need several devices.
        let [(resource, 1)] = request.amounts.as_slice() else { return None };
        let profile = profile_of_any(&self.fleet, resource)?.name.clone();
        let reference = request.pod.key.to_string();
        let rank = |gpu: usize| {
            let index = self.node_of(gpu).filter(|index| nodes.binary_search(index).is_ok())?;
            let node = self.nodes.get(index).filter(|node| age >= node.reserve_after())?;
            let is_current = node.observed.changed_for.contains(&reference)
                && node.device(gpu).map(|device| &device.pci)
                    == node.observed.reserved_device.as_ref();
            Some((!is_current, !node.can_reserve()))
        };
        let gpu = self.fleet.best_to_reserve(&profile, rank)?;
        self.fleet.reserve_gpu(gpu, number);
        self.known.clear();
        Some(gpu)
    }

    /// The change after which an instance of a pod exists on a device that is reserved for it; `None` if no policy can carry it out. Of the
    /// places of the device, it takes the one with the fewest slices in use.
    pub(super) fn reservation(
        &self,
        number: usize,
        request: &Request<'_>,
        gpu: usize,
    ) -> Option<WaitingChange> {
        let [(resource, 1)] = request.amounts.as_slice() else { return None };
        let index = self.node_of(gpu)?;
        let node = self.nodes.get(index).filter(|node| node.can_reserve())?;
        let places = self.places_of(index, gpu, resource);
        let chosen = places.into_iter().min_by_key(|place| place.slices)?;
        let mut fleet = self.fleet.clone();
        for one in &chosen.instances {
            fleet.vacate(gpu, *one);
        }
        fleet.allocate(gpu, chosen.place, number)?;
        let (planned, geometry) = self.device(gpu)?;
        let device = node.device(gpu)?;
        let name = &node.cluster.name;
        let ended = chosen.instances.iter().filter_map(|one| instance_place(geometry, one));
        let text = format!(
            "reserve {} of node {name}: create {} when {} no longer in use: {}; until then, other pods do not get its {} that {} not in use",
            device.name,
            instance_place(geometry, &chosen.place)?.describe(),
            count_noun(chosen.instances.len(), "instance is", "instances are"),
            join(ended.map(|one| one.describe()), ", "),
            gpu_slices(geometry.free_slices(planned.in_use())),
            if geometry.free_slices(planned.in_use()) == 1 { "is" } else { "are" },
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
