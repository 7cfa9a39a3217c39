//! Mapping of processes to pod UIDs, and of UIDs to pod names.

use std::collections::{BTreeMap, BTreeSet};

use octavo_model::holder::DeviceAllocation;
use octavo_model::process_origin::ProcessOrigin;
use octavo_model::quantity::Mebibytes;
use octavo_model::reading::{MemoryUse, Percent, Reading};
use octavo_model::resource::ShareId;

use super::{Allocation, UsageInput, name};

/// Maximum number of pods named in one line.
const MAX_NAMED_PODS: usize = 4;

/// The pod of each process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PodAttribution {
    /// Processes cannot be inspected: this program sees only those of its own container.
    Hidden,
    /// The machine's processes are visible, but the driver reports only those of its own PID namespace to this
    /// program: its list is incomplete, and its process ids refer to other processes on the host.
    OtherNamespace,
    /// The inspected processes.
    Inspected(BTreeMap<u32, ProcessOrigin>),
}

/// Known assignments of UIDs to pods.
#[derive(Debug, Default)]
pub(super) struct PodNames<'a> {
    by_uid: BTreeMap<&'a str, PodName<'a>>,
    /// The inverse mapping.
    by_name: BTreeMap<PodName<'a>, &'a str>,
    /// UIDs with several possible pods.
    open: BTreeMap<&'a str, BTreeSet<PodName<'a>>>,
}

impl PodAttribution {
    /// The origin of a process; `None` if processes cannot be inspected.
    pub(super) fn origin(&self, pid: u32) -> Option<&ProcessOrigin> {
        match self {
            Self::Hidden => None,
            Self::OtherNamespace => Some(&ProcessOrigin::Gone),
            Self::Inspected(all) => Some(all.get(&pid).unwrap_or(&ProcessOrigin::Unknown)),
        }
    }
}

impl<'a> PodNames<'a> {
    pub(super) fn name(&self, uid: &str) -> Option<PodName<'a>> {
        self.by_uid.get(uid).copied()
    }

    pub(super) fn uid(&self, name: PodName<'_>) -> Option<&'a str> {
        self.by_name.get(&name).copied()
    }

    /// The possible pods of this UID.
    pub(super) fn possible_pods(&self, uid: &str) -> impl Iterator<Item = PodName<'a>> {
        self.open.get(uid).into_iter().flatten().copied()
    }

    /// Reports UIDs that could not be assigned although possible pods exist.
    pub(super) fn unresolved(&self) -> impl Iterator<Item = String> {
        self.open.iter().map(|(uid, pods)| {
            let first = pods.iter().take(MAX_NAMED_PODS);
            let mut names: Vec<String> =
                first.map(|(namespace, pod)| format!("{namespace}/{pod}")).collect();
            if let Some(surplus) = pods.len().checked_sub(MAX_NAMED_PODS).filter(|n| *n > 0) {
                names.push(format!("and {surplus} more"));
            }
            format!("it is unknown which of {} has UID {uid}", names.join(", "))
        })
    }

    fn assign(&mut self, uid: &'a str, name: PodName<'a>) {
        self.by_uid.insert(uid, name);
        self.by_name.entry(name).or_insert(uid);
    }
}

/// Finds the pod of each UID. Kubelet's own data takes precedence. Otherwise, a pod that has processes on some units
/// must hold an allocation on each of them; if only one such pod is left, it is assigned, and excluded for the other
/// UIDs. A UID whose only possible pod is also the only one of another UID stays unknown, as does the other.
pub(super) fn identify<'a>(
    input: &UsageInput<'a>,
    sites: &[Vec<AllocationSite<'a>>],
) -> PodNames<'a> {
    let mut names = PodNames::default();
    for one in input.allocations {
        if let Some(uid) = &one.uid {
            names.assign(uid, pod(&one.device));
        }
    }
    for site in sites.iter().flatten() {
        let all = site.places.keys().copied();
        let unknown = all.filter(|name| !name.1.is_empty() && !names.by_name.contains_key(name));
        let holders: BTreeSet<PodName<'_>> = unknown.collect();
        for pid in site.processes.keys() {
            if let Some(ProcessOrigin::Pod { uid, .. }) = input.attribution.origin(*pid)
                && !names.by_uid.contains_key(uid.as_str())
            {
                let open = names.open.entry(uid);
                let choices = open.or_insert_with(|| holders.clone());
                choices.retain(|choice| holders.contains(choice));
            }
        }
    }
    while input.is_current && narrow(&mut names) {}
    names.open.retain(|_, choices| !choices.is_empty());
    names
}

/// Assigns the UIDs that have a single possible pod which is not the only one of another UID; returns whether there
/// was any.
fn narrow(names: &mut PodNames<'_>) -> bool {
    let mut only: BTreeMap<PodName<'_>, Vec<&str>> = BTreeMap::new();
    for (uid, choices) in &names.open {
        if choices.len() == 1 {
            for name in choices {
                only.entry(*name).or_default().push(uid);
            }
        }
    }
    only.retain(|_, uids| uids.len() == 1);
    for (name, uids) in &only {
        for uid in uids {
            names.open.remove(uid);
            names.assign(uid, *name);
        }
    }
    for choices in names.open.values_mut() {
        choices.retain(|choice| !only.contains_key(choice));
    }
    !only.is_empty()
}

/// A pod by namespace and name.
pub(super) type PodName<'a> = (&'a str, &'a str);

/// A whole device or a partition with its holders and processes.
#[derive(Default)]
pub(super) struct AllocationSite<'a> {
    pub(super) uuid: String,
    pub(super) partition: Option<(u32, u32)>,
    pub(super) profile: Option<String>,
    pub(super) memory: Option<MemoryUse>,
    /// Utilization of the GPU instance of a partition.
    pub(super) utilization: Option<Percent>,
    /// True if the GPU instance has other compute instances.
    pub(super) is_shared_instance: bool,
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
                utilization: part.compute,
                is_shared_instance: of_instance(gi) > 1,
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

/// Returns whether the usage of an allocated unit is unknown because its processes are not visible.
fn is_usage_hidden(site: &AllocationSite<'_>, attribution: &PodAttribution) -> bool {
    let is_hidden = !matches!(attribution, PodAttribution::Inspected(_));
    is_hidden
        && site.has_process_list
        && !site.holders.is_empty()
        && !is_usage_known(site, attribution)
}

/// Processes of the unit that were not inspected and may belong to any pod.
fn uninspected<'a>(
    site: &'a AllocationSite<'_>,
    attribution: &'a PodAttribution,
) -> impl Iterator<Item = u32> + 'a {
    let all = site.processes.keys().copied();
    all.filter(|pid| attribution.origin(*pid) == Some(&ProcessOrigin::Unknown))
}

/// Returns whether the processes of the unit and their pods are known.
pub(super) fn is_usage_known(site: &AllocationSite<'_>, attribution: &PodAttribution) -> bool {
    let is_unused = site.memory.is_some_and(|memory| memory.used.get() == 0);
    if is_unused && site.processes.is_empty() {
        return true;
    }
    site.has_process_list
        && match attribution {
            PodAttribution::Inspected(_) => uninspected(site, attribution).next().is_none(),
            PodAttribution::OtherNamespace => false,
            // An empty list may mean that the driver reports no process to this program.
            PodAttribution::Hidden => site.sole_holder().is_some() && !site.processes.is_empty(),
        }
}

/// Pods that may own a process of the unit that is not attributed.
pub(super) fn pods_with_unattributed<'a>(
    site: &AllocationSite<'_>,
    attribution: &PodAttribution,
    names: &PodNames<'a>,
) -> BTreeSet<PodName<'a>> {
    let origins = site.processes.keys().filter_map(|pid| attribution.origin(*pid));
    let uids = origins.filter_map(|origin| match origin {
        ProcessOrigin::Pod { uid, .. } => Some(uid),
        ProcessOrigin::NoPod | ProcessOrigin::Gone | ProcessOrigin::Unknown => None,
    });
    uids.flat_map(|uid| names.possible_pods(uid)).collect()
}

/// Reports a device with processes that were not inspected.
pub(super) fn report_uninspected(
    reading: &Reading,
    sites: &[AllocationSite<'_>],
    attribution: &PodAttribution,
) -> Option<String> {
    let mut all = sites.iter().flat_map(|site| uninspected(site, attribution));
    let first = all.next()?;
    let more = match all.count() {
        0 => String::new(),
        surplus => format!(" and {surplus} more"),
    };
    Some(format!(
        "{}: memory usage by pod is unknown: process {first}{more} could not be inspected",
        name(reading)
    ))
}

/// Reports devices whose usage by pod is unknown because processes are not visible.
pub(super) fn report_hidden<'a>(
    devices: impl Iterator<Item = (&'a Reading, &'a Vec<AllocationSite<'a>>)>,
    attribution: &PodAttribution,
) -> Option<String> {
    let dark =
        devices.filter(|(_, sites)| sites.iter().any(|site| is_usage_hidden(site, attribution)));
    let dark: Vec<String> = dark.map(|(reading, _)| name(reading)).collect();
    (!dark.is_empty()).then(|| {
        format!(
            "{}: memory usage by pod is unknown: the driver or the kernel hides the processes of other pods from \
             this program (the agent's pod needs hostPID)",
            dark.join(", ")
        )
    })
}
