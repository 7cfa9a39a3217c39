//! Parts of a device that must not be destroyed, and their holders.

use std::collections::BTreeSet;

use octavo_model::holder::Holder;
use octavo_model::inventory::{Device, DeviceProcesses, GpuInstance};

/// The parts of a GPU instance that are in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PartsInUse {
    /// None.
    Free,
    /// All: a holder exists whose compute instance is unknown, or usage is unknown.
    Whole,
    /// These compute instances, by id.
    Parts(BTreeSet<u32>),
}

impl PartsInUse {
    /// Returns true if any part of the GPU instance is in use.
    pub(super) fn has_any(&self) -> bool {
        *self != Self::Free
    }

    /// Returns true if the compute instance with this id is in use.
    pub(super) fn contains(&self, compute_instance: u32) -> bool {
        match self {
            Self::Free => false,
            Self::Whole => true,
            Self::Parts(ids) => ids.contains(&compute_instance),
        }
    }
}

/// All known users of a device.
pub(super) struct DeviceUsers {
    holders: Vec<Holder>,
    /// True if the driver reported all processes.
    is_complete: bool,
    /// The driver's ids of the existing GPU instances.
    instances: BTreeSet<u32>,
}

impl DeviceUsers {
    /// Collects the `holders` of `device` and the processes that its driver reports.
    pub(super) fn of(holders: &[Holder], device: &Device) -> Self {
        let mut holders: Vec<Holder> =
            holders.iter().filter(|holder| holder.device == device.pci).cloned().collect();
        let processes = device.processes.iter();
        let new: Vec<Holder> = processes
            .map(|process| Holder::from_process(device, process))
            .filter(|process| !holders.iter().any(|holder| is_same_use(holder, process)))
            .collect();
        holders.extend(new);
        holders.sort();
        holders.dedup();
        let instances = device.mig.state().into_iter();
        let instances = instances.flat_map(|state| &state.gpu_instances);
        Self {
            holders,
            instances: instances.map(|instance| instance.id).collect(),
            is_complete: matches!(device.usage(), DeviceProcesses::Known(_)),
        }
    }

    /// Returns the parts of `instance` that are in use. Unknown usage counts as in use.
    pub(super) fn parts_in_use(&self, instance: &GpuInstance) -> PartsInUse {
        if !self.is_complete {
            return PartsInUse::Whole;
        }
        let mut parts = BTreeSet::new();
        let users = self.of_instance(instance.id);
        for holder in users.filter(|holder| !self.uses_compute_instance(holder)) {
            let there = |id: &u32| {
                let mut parts = instance.compute_instances.iter();
                holder.gpu_instance == Some(instance.id) && parts.any(|one| one.id == *id)
            };
            match holder.compute_instance.filter(there) {
                Some(id) => parts.insert(id),
                None => return PartsInUse::Whole,
            };
        }
        if parts.is_empty() { PartsInUse::Free } else { PartsInUse::Parts(parts) }
    }

    /// Returns the holders that use, or may use, the GPU instance with this id.
    pub(super) fn of_instance(&self, id: u32) -> impl Iterator<Item = &Holder> {
        let inside = move |holder: &&Holder| {
            holder.gpu_instance == Some(id) || self.may_use_any_instance(holder)
        };
        self.holders.iter().filter(inside)
    }

    /// Returns true if a holder has a context in an unknown instance, so that it may use any. Processes and instances
    /// are read at different times, so a process may use an instance that is not listed. A holder that only has the
    /// device open has no context and uses no instance.
    fn may_use_any_instance(&self, holder: &Holder) -> bool {
        let listed = |id: u32| self.instances.contains(&id);
        holder.details.kind.is_some() && !holder.gpu_instance.is_some_and(listed)
    }

    /// Returns true if a process has open both the device node of a GPU instance and that of one of its compute
    /// instances. The latter requires the former, so the process uses that compute instance.
    fn uses_compute_instance(&self, holder: &Holder) -> bool {
        let inside = |other: &Holder| {
            other.gpu_instance == holder.gpu_instance
                && other.details.pid == holder.details.pid
                && other.compute_instance.is_some()
        };
        let only_open = holder.details.kind.is_none() && holder.details.pid.is_some();
        only_open
            && holder.gpu_instance.is_some()
            && holder.compute_instance.is_none()
            && self.holders.iter().any(inside)
    }

    /// Returns the holders that use the device but none of `instances`; `None` if there are none. If usage is unknown,
    /// the list may be empty.
    pub(super) fn clients(&self, instances: &[GpuInstance]) -> Option<Vec<Holder>> {
        let there = |id| instances.iter().any(|instance| instance.id == id);
        let clients: Vec<Holder> = self
            .holders
            .iter()
            .filter(|holder| !holder.gpu_instance.is_some_and(there))
            .cloned()
            .collect();
        (!self.is_complete || !clients.is_empty()).then_some(clients)
    }
}

/// Returns true if both describe the same use of the device by one process, so that the more detailed one suffices. A
/// process with the device open and a context on it is two uses, because the context may be in any instance.
fn is_same_use(holder: &Holder, process: &Holder) -> bool {
    let use_of = |of: &Holder| {
        let place = (of.gpu_instance, of.compute_instance);
        (place, of.details.pid, of.details.kind)
    };
    use_of(holder) == use_of(process)
}
