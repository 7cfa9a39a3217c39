//! Choice of the device and the placement for one request.

use octavo_model::profile::ProfileName;

use crate::fleet::{Fleet, Gpu};
use crate::geometry::{Addition, Geometry, SetId};

/// A place where a request fits.
#[derive(Debug, Clone, Copy)]
pub struct Candidate<'a> {
    /// Index of the device.
    pub gpu: usize,
    /// The device.
    pub device: &'a Gpu,
    /// Its model.
    pub geometry: &'a Geometry,
    /// The instance.
    pub addition: &'a Addition,
}

/// Order of candidates; the smallest is the best.
pub type Score = [i64; 4];

/// Cost of one operation, in thousandths of a slice that a random request cannot use. Measured with the mixes of `benches/demand.rs`: with a
/// cost of 0, there are up to 1.5 times as many operations and no more accepted requests; with 2,000, there are a tenth fewer operations and
/// 0.1 % fewer accepted requests.
const OPERATION_COST: i64 = 800;
/// Sum of the weights of all profiles of a device.
const SUM_OF_WEIGHTS: i64 = 1_000;

/// Places where an instance of the profile fits beside the instances in use, by device.
pub fn candidates<'a>(
    fleet: &'a Fleet,
    profile: &ProfileName,
    holder: usize,
) -> impl Iterator<Item = Candidate<'a>> {
    let profiles: Vec<Option<usize>> =
        fleet.geometries().iter().map(|geometry| geometry.find(profile)).collect();
    let gpus = fleet.gpus().iter().enumerate();
    let open = gpus.filter(move |(gpu, _)| fleet.is_open_to(*gpu, holder));
    open.flat_map(move |(gpu, device)| {
        let geometry = fleet.geometries().get(device.geometry());
        let profile = profiles.get(device.geometry()).copied().flatten();
        let found = geometry.zip(profile).map(|(geometry, profile)| {
            geometry.additions_of(device.in_use(), profile).map(move |addition| Candidate {
                gpu,
                device,
                geometry,
                addition,
            })
        });
        found.into_iter().flatten()
    })
}

impl Candidate<'_> {
    /// Number of idle instances that it destroys and of instances that it creates.
    pub fn operations(&self) -> usize {
        let place = self.addition.place;
        let created = usize::from(!self.device.has_idle(place));
        self.device.replaced(self.geometry, place).len().saturating_add(created)
    }

    /// Number of placements of the device that become impossible.
    pub fn blocked_placements(&self) -> i64 {
        let count = |set| i64::try_from(self.geometry.additions(set).len()).unwrap_or(i64::MAX);
        count(self.device.in_use()).saturating_sub(count(self.addition.to))
    }

    /// Free slices of the device afterwards.
    pub fn free_slices(&self) -> i64 {
        i64::from(self.geometry.free_slices(self.addition.to))
    }
}

/// Expected fragmentation of each set of each model: the free slices that a random request cannot use, in thousandths.
///
/// Source of the metric: Weng et al., "Beware of Fragmentation" (USENIX ATC 2023), applied to sets of instances.
#[derive(Debug, Clone)]
pub struct Fragmentation {
    by_set: Vec<Vec<i64>>,
}

impl Fragmentation {
    /// Calculates the fragmentation for requests of all profiles with equal probability.
    pub fn new(fleet: &Fleet) -> Self {
        let by_set = fleet
            .geometries()
            .iter()
            .map(|geometry| geometry.sets().map(|set| fragmentation(geometry, set)).collect());
        Self { by_set: by_set.collect() }
    }

    /// Growth of the fragmentation by a candidate.
    pub fn growth(&self, candidate: &Candidate<'_>) -> i64 {
        let geometry = candidate.device.geometry();
        let before = self.of(geometry, candidate.device.in_use());
        self.of(geometry, candidate.addition.to).saturating_sub(before)
    }

    /// Fragmentation of all devices, in slices.
    pub fn of_fleet(&self, fleet: &Fleet) -> f64 {
        let each = fleet.gpus().iter().map(|gpu| self.of(gpu.geometry(), gpu.in_use()));
        let sum = each.fold(0_i64, i64::saturating_add);
        f64::from(i32::try_from(sum).unwrap_or(i32::MAX)) / 1_000.0
    }

    fn of(&self, geometry: usize, set: SetId) -> i64 {
        let sets = self.by_set.get(geometry);
        sets.and_then(|sets| sets.get(set.index())).copied().unwrap_or(0)
    }

    /// Score of a candidate: growth of the fragmentation and cost of the operations, then operations, free slices, and placements that
    /// become impossible.
    pub fn score(&self, candidate: &Candidate<'_>) -> Score {
        let operations = i64::try_from(candidate.operations()).unwrap_or(i64::MAX);
        let cost = OPERATION_COST.saturating_mul(operations);
        let growth = self.growth(candidate).saturating_add(cost);
        [growth, operations, candidate.free_slices(), candidate.blocked_placements()]
    }
}

fn fragmentation(geometry: &Geometry, set: SetId) -> i64 {
    let count = |items: usize| i64::try_from(items).unwrap_or(i64::MAX);
    let profiles = 0..geometry.profiles().len();
    let unplaceable =
        profiles.filter(|profile| geometry.additions_of(set, *profile).next().is_none()).count();
    let free = i64::from(geometry.free_slices(set));
    let weighted = count(unplaceable).saturating_mul(free).saturating_mul(SUM_OF_WEIGHTS);
    weighted.checked_div(count(geometry.profiles().len())).unwrap_or(0)
}
