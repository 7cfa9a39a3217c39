//! Devices and partitions with the pods that hold them and the processes that run there.

use std::collections::BTreeMap;

use octavo_model::holder::DeviceAllocation;
use octavo_model::quantity::Mebibytes;
use octavo_model::reading::{MemoryUse, Reading};
use octavo_model::resource::ShareId;

use super::Allocation;

/// A pod by namespace and name.
pub(super) type PodName<'a> = (&'a str, &'a str);

/// A whole device or a partition with its holders and processes.
#[derive(Default)]
pub(super) struct AllocationSite<'a> {
    pub(super) uuid: String,
    pub(super) partition: Option<(u32, u32)>,
    pub(super) profile: Option<String>,
    pub(super) memory: Option<MemoryUse>,
    pub(super) holders: Vec<Holder<'a>>,
    /// The index of each pod in `holders`.
    pub(super) places: BTreeMap<PodName<'a>, usize>,
    /// True if the driver reports processes.
    pub(super) has_process_list: bool,
    /// Memory by process.
    pub(super) processes: BTreeMap<u32, Option<Mebibytes>>,
}

/// A pod that holds an id of a unit.
pub(super) struct Holder<'a> {
    pub(super) device: &'a DeviceAllocation,
    /// The container; `None` if several containers of the pod hold one: a process cannot be assigned to one of them.
    pub(super) container: Option<&'a str>,
    pub(super) uid: Option<&'a str>,
    pub(super) ids: Vec<ShareId>,
}

/// Allocations by the UUID in the id.
pub(super) type AllocationsByUuid<'a> = BTreeMap<&'a str, Vec<&'a Allocation>>;

pub(super) fn by_uuid(allocations: &[Allocation]) -> AllocationsByUuid<'_> {
    let mut found = AllocationsByUuid::new();
    for one in allocations {
        let uuid = ShareId::uuid_part(&one.device.device_id);
        found.entry(uuid).or_default().push(one);
    }
    found
}

/// The whole device, or its partitions.
pub(super) fn sites<'a>(
    reading: &Reading,
    allocations: &AllocationsByUuid<'a>,
) -> Vec<AllocationSite<'a>> {
    let gpu = reading.uuid.as_ref().map(ToString::to_string);
    if !reading.is_partitioned {
        let whole = AllocationSite {
            uuid: gpu.unwrap_or_default(),
            memory: reading.memory,
            has_process_list: reading.processes.is_some(),
            processes: processes(reading, |_| true),
            ..AllocationSite::default()
        };
        return vec![whole.with_holders(allocations, None)];
    }
    let of_instance = |gi: u32| {
        let all = reading.partitions.iter();
        all.filter(|one| one.gpu_instance == gi).count()
    };
    let parts = reading.partitions.iter();
    parts
        .map(|part| {
            let (gi, ci) = (part.gpu_instance, part.compute_instance);
            let older = gpu.as_ref().map(|gpu| format!("MIG-{gpu}/{gi}/{ci}"));
            let processes = processes(reading, |(of_gi, of_ci)| match (of_gi, of_ci) {
                (Some(instance), Some(_)) => (instance, of_ci) == (gi, Some(ci)),
                (Some(instance), None) => instance == gi && of_instance(gi) == 1,
                (None, _) => false,
            });
            let part = AllocationSite {
                uuid: part.uuid.clone(),
                partition: Some((gi, ci)),
                profile: part.profile.clone(),
                memory: part.memory,
                has_process_list: reading.processes.is_some(),
                processes,
                ..AllocationSite::default()
            };
            part.with_holders(allocations, older.as_deref())
        })
        .collect()
}

fn processes(
    reading: &Reading,
    is_here: impl Fn((Option<u32>, Option<u32>)) -> bool,
) -> BTreeMap<u32, Option<Mebibytes>> {
    let mut found: BTreeMap<u32, Option<Mebibytes>> = BTreeMap::new();
    for process in reading.processes.iter().flatten() {
        if is_here((process.gpu_instance, process.compute_instance)) {
            let memory = found.entry(process.pid).or_default();
            *memory = (*memory).max(process.memory);
        }
    }
    found
}

impl<'a> AllocationSite<'a> {
    /// Adds the holders, by the UUID or by the name that older drivers have for it.
    fn with_holders(mut self, allocations: &AllocationsByUuid<'a>, older: Option<&str>) -> Self {
        let names = [Some(self.uuid.as_str()), older];
        let all = names.iter().flatten().filter_map(|name| allocations.get(name));
        let all: Vec<&'a Allocation> = all.flatten().copied().collect();
        for one in all {
            self.add_holder(one);
        }
        for holder in &mut self.holders {
            holder.ids.sort();
        }
        self
    }

    /// The only holder that can have processes there. A unit that is not shared is not allocated again before they
    /// have ended; on a shared unit, a process whose replica was released may still run.
    pub(super) fn sole_holder(&self) -> Option<usize> {
        let mut ids = self.holders.iter().flat_map(|holder| &holder.ids);
        (self.holders.len() == 1 && ids.all(|id| id.number().is_none())).then_some(0)
    }

    fn add_holder(&mut self, one: &'a Allocation) {
        let device = &one.device;
        let id = device.device_id.parse();
        let id = id.unwrap_or_else(|_| ShareId::whole(&self.uuid));
        let next = self.holders.len();
        let place = *self.places.entry(pod(device)).or_insert(next);
        match self.holders.get_mut(place) {
            Some(holder) => {
                holder.container = holder.container.filter(|known| *known == device.container);
                holder.uid = holder.uid.or(one.uid.as_deref());
                if !holder.ids.contains(&id) {
                    holder.ids.push(id);
                }
            }
            None => self.holders.push(Holder {
                device,
                container: Some(&device.container),
                uid: one.uid.as_deref(),
                ids: vec![id],
            }),
        }
    }
}

pub(super) fn pod(device: &DeviceAllocation) -> PodName<'_> {
    (&device.namespace, &device.pod)
}
