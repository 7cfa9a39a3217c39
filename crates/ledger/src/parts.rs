//! Parts of a device, from the usage by pod that its agent reports.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use octavo_model::profile::ProfileName;
use octavo_model::reading::MEMORY_SLICES;
use octavo_node::sharing::usage::{DeviceUsage, Tenant, UnitUsage};

use crate::part::{Activity, Container, Holder, Method, PPM, Part};

/// A part, and its utilization as last reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeasuredPart {
    /// The part.
    pub part: Part,
    /// Its utilization in percent; `None` if it is not reported.
    pub percent: Option<u8>,
}

/// Maximum number of parts of a device, because agents choose what they report. A device with more is unknown.
const MAX_PARTS: usize = 512;

/// The parts of a device, which are unknown without its usage. They add up to [`PPM`]. `container` describes the container of a
/// tenant.
pub fn parts(
    device: Option<&DeviceUsage>,
    container: impl Fn(&Tenant) -> Container,
) -> Vec<MeasuredPart> {
    let parts = device.and_then(|device| try_parts(device, &container));
    parts.unwrap_or_else(|| vec![MeasuredPart::new(Part::whole(Holder::Unknown), None)])
}

/// `None` if the shares cannot be determined.
fn try_parts(
    device: &DeviceUsage,
    container: &impl Fn(&Tenant) -> Container,
) -> Option<Vec<MeasuredPart>> {
    let mut instances: BTreeMap<u32, Vec<&UnitUsage>> = BTreeMap::new();
    let mut whole = None;
    for unit in &device.units {
        match unit.gpu_instance {
            Some(instance) => instances.entry(instance).or_default().push(unit),
            None if whole.is_none() => whole = Some(unit),
            None => return None,
        }
    }
    let mut parts = Parts { parts: BTreeMap::new(), container };
    match (whole, instances.is_empty()) {
        (Some(unit), true) => parts.add_unit(unit, PPM, device.utilization.map(|used| used.0)),
        (Some(_), false) => return None,
        (None, true) => parts.add(Part::whole(Holder::Unallocated), None),
        (None, false) => parts.add_instances(device, &instances)?,
    }
    let parts = parts.parts;
    (parts.len() <= MAX_PARTS).then(|| parts.into_values().collect())
}

/// Parts by everything that distinguishes them except their share.
struct Parts<'a, F> {
    parts: BTreeMap<Part, MeasuredPart>,
    container: &'a F,
}

impl<F: Fn(&Tenant) -> Container> Parts<'_, F> {
    fn add(&mut self, part: Part, percent: Option<u8>) {
        if part.ppm == 0 {
            return;
        }
        let key = Part { ppm: 0, ..part.clone() };
        match self.parts.get_mut(&key) {
            Some(known) => known.part.ppm = known.part.ppm.saturating_add(part.ppm),
            None => drop(self.parts.insert(key, MeasuredPart::new(part, percent))),
        }
    }

    /// Adds the partitions of a device, and its memory slices without a partition.
    fn add_instances(
        &mut self,
        device: &DeviceUsage,
        instances: &BTreeMap<u32, Vec<&UnitUsage>>,
    ) -> Option<()> {
        let all = device.memory?;
        let mut free = MEMORY_SLICES;
        let mut slices = Vec::new();
        for units in instances.values() {
            // Compute instances share the memory of their GPU instance.
            let count = units.first()?.memory?.slices_of(&all)?.max(1);
            free = free.checked_sub(count)?;
            slices.push(count);
        }
        slices.push(free);
        let shares = split(PPM, &slices);
        for (units, share) in instances.values().zip(&shares) {
            let weights: Vec<u64> = units.iter().map(|unit| compute_slices(unit)).collect();
            let of_units = split(*share, &weights);
            for (unit, share) in units.iter().zip(of_units) {
                self.add_unit(unit, share, unit.utilization.map(|used| used.0));
            }
        }
        let rest = shares.last().copied()?;
        let method = Method::MigMemorySlices;
        self.add(Part { ppm: rest, method, ..Part::whole(Holder::Unallocated) }, None);
        Some(())
    }

    /// Adds the tenants of a whole device or partition with this share, and the rest of it.
    fn add_unit(&mut self, unit: &UnitUsage, share: u32, percent: Option<u8>) {
        let exclusive =
            if unit.gpu_instance.is_some() { Method::MigMemorySlices } else { Method::WholeDevice };
        let holders: Vec<&Tenant> = unit.allocated_tenants().collect();
        let is_shared =
            unit.replicas.is_some() || holders.iter().any(|tenant| unit.is_time_sliced(tenant));
        let method = if is_shared { Method::TimeSlicingReplicas } else { exclusive };
        let mut weights: Vec<u64> =
            holders.iter().map(|tenant| weight(tenant, is_shared)).collect();
        let allocated: u64 = weights.iter().sum();
        // NVIDIA's device plugin does not report the number of replicas: the allocated ones are all that is known.
        let replicas = unit.replicas.map_or(allocated, u64::from);
        let all = if is_shared { replicas.max(allocated) } else { allocated.max(1) };
        weights.push(all.saturating_sub(allocated));
        let shares = split(share, &weights);
        let part = |holder, activity, ppm| Part {
            partition: unit.gpu_instance.map(|_| unit.uuid.as_str().into()),
            profile: unit.profile.as_deref().map(Arc::from),
            method,
            holder,
            activity,
            ppm,
        };
        for (tenant, ppm) in holders.iter().zip(&shares) {
            let holder = Holder::Container(Arc::new((self.container)(tenant)));
            let percent = match (holders.len(), is_shared) {
                (1, false) => tenant.utilization.map(|used| used.0).or(percent),
                _ => tenant.utilization.map(|used| used.0),
            };
            self.add(part(holder, activity(tenant), *ppm), percent);
        }
        let rest = shares.last().copied().unwrap_or_default();
        self.add(part(Holder::Unallocated, Activity::Unknown, rest), None);
    }
}

impl MeasuredPart {
    /// Creates a part with its utilization in percent.
    pub fn new(part: Part, percent: Option<u8>) -> Self {
        Self { part, percent }
    }
}

/// Weight of a tenant: its replicas, or 1 if the unit is not shared.
fn weight(tenant: &Tenant, is_shared: bool) -> u64 {
    if !is_shared {
        return 1;
    }
    let ids: BTreeSet<_> = tenant.ids.iter().collect();
    u64::try_from(ids.len()).unwrap_or(u64::MAX)
}

/// Compute slices of a partition; 1 if its profile is not known.
fn compute_slices(unit: &UnitUsage) -> u64 {
    let profile = unit.profile.as_deref();
    let profile = profile.and_then(|text| text.parse::<ProfileName>().ok());
    profile.map_or(1, |profile| u64::from(profile.compute_slices()).max(1))
}

fn activity(tenant: &Tenant) -> Activity {
    if !tenant.processes.is_empty() {
        Activity::Active
    } else if tenant.is_without_process() {
        Activity::Idle
    } else {
        Activity::Unknown
    }
}

/// Splits `total` in proportion to the weights. The parts add up to `total`: those with the largest remainders are rounded
/// up, the first ones first. If all weights are 0, the last part is everything.
pub(crate) fn split(total: u32, weights: &[u64]) -> Vec<u32> {
    let sum: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
    if sum == 0 {
        let last = weights.len().saturating_sub(1);
        return (0..weights.len()).map(|at| if at == last { total } else { 0 }).collect();
    }
    let exact = weights.iter().map(|weight| u128::from(*weight).saturating_mul(total.into()));
    let (mut parts, remainders): (Vec<u32>, Vec<u128>) =
        exact.map(|share| (u32::try_from(share / sum).unwrap_or(total), share % sum)).unzip();
    let missing = total.saturating_sub(parts.iter().sum());
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.sort_by_key(|at| std::cmp::Reverse(remainders.get(*at).copied()));
    for at in order.into_iter().take(usize::try_from(missing).unwrap_or(usize::MAX)) {
        if let Some(part) = parts.get_mut(at) {
            *part = part.saturating_add(1);
        }
    }
    parts
}
