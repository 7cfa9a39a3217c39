//! Shared counters of a partitioned GPU, which keep the scheduler from allocating partitions that cannot exist together.
//!
//! Each memory slice is a counter of 1, so partitions cannot overlap. The engines and the memory are counters too: they
//! exclude `+me` beside `+me`, and `+me.all` beside everything but `-me`. On every board with a complete catalog, the sets
//! of partitions whose counters fit are exactly those that the planner allows; `tests` compares all of them. The names
//! are those of NVIDIA's driver, because quotas refer to them. Source: kubernetes-sigs/dra-driver-nvidia-gpu,
//! `cmd/gpu-kubelet-plugin/partitions.go`.

use octavo_model::catalog::{GpuInstanceProfile, Placement, ProfileCatalog};

/// Counters that are not memory slices, with their share of a profile.
type Share = (&'static str, fn(&GpuInstanceProfile) -> u64);
const SHARES: [Share; 7] = [
    ("multiprocessors", |profile| profile.resources.multiprocessors.into()),
    ("copy-engines", |profile| profile.resources.copy_engines.into()),
    ("decoders", |profile| profile.resources.decoders.into()),
    ("encoders", |profile| profile.resources.encoders.into()),
    ("jpeg-engines", |profile| profile.resources.jpeg_engines.into()),
    ("ofa-engines", |profile| profile.resources.ofa_engines.into()),
    (MEMORY, |profile| profile.memory.get()),
];
/// Name of the counter of memory, which counts MiB.
pub(crate) const MEMORY: &str = "memory";

/// Maximum counters of a set. Source: Kubernetes `api/resource/v1`, `ResourceSliceMaxCountersPerCounterSet`.
const MAX_COUNTERS: usize = 32;

/// Counters of one GPU: one per memory slice, then those of [`SHARES`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Counters<'a> {
    catalog: &'a ProfileCatalog,
    slices: u32,
    totals: Vec<u64>,
}

impl<'a> Counters<'a> {
    /// Creates the counters of a device with this catalog: the total of each is the maximum over the profiles. `None` for
    /// a device without placements, or with more slices than a set can have.
    pub(crate) fn new(catalog: &'a ProfileCatalog) -> Option<Self> {
        let slices = catalog.memory_slices();
        let count = usize::try_from(slices).ok()?;
        if count == 0 || count.saturating_add(SHARES.len()) > MAX_COUNTERS {
            return None;
        }
        let most = |(_, share): &Share| catalog.profiles().iter().map(share).max().unwrap_or(0);
        let totals = std::iter::repeat_n(1, count).chain(SHARES.iter().map(most));
        Some(Self { catalog, slices, totals: totals.collect() })
    }

    /// Use of nothing.
    pub(crate) fn none(&self) -> Vec<u64> {
        vec![0; self.totals.len()]
    }

    /// Total of each counter.
    pub(crate) fn totals(&self) -> &[u64] {
        &self.totals
    }

    /// Use of each counter by an instance. A profile that the catalog does not list uses its memory slices.
    pub(crate) fn used_by(&self, profile_id: u32, placement: Placement) -> Vec<u64> {
        let profile = self.catalog.by_id(profile_id);
        let covers = placement.start..placement.end();
        let slices = (0..self.slices).map(|slice| u64::from(covers.contains(&slice)));
        let shares = SHARES.iter().map(|(_, share)| profile.map_or(0, share));
        slices.chain(shares).collect()
    }

    /// Returns whether all of these uses fit together.
    pub(crate) fn fit(&self, uses: &[&[u64]]) -> bool {
        self.totals.iter().enumerate().all(|(at, total)| {
            let each = uses.iter().filter_map(|used| used.get(at));
            each.fold(0_u64, |sum, one| sum.saturating_add(*one)) <= *total
        })
    }

    /// The counters of `values` that are not 0, by name.
    pub(crate) fn named(&self, values: &[u64]) -> Vec<(String, u64)> {
        let slices = (0..self.slices).map(|slice| format!("memory-slice-{slice}"));
        let names = slices.chain(SHARES.iter().map(|(name, _)| (*name).to_owned()));
        names.zip(values.iter().copied()).filter(|(_, value)| *value > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use octavo_model::inventory::Device;
    use octavo_planner::layout::InstanceTarget;
    use octavo_planner::plan::{Feasibility, feasible};

    use super::*;
    use crate::tests_support::{boards, partitioned};

    /// Instances of a GPU.
    type Set = BTreeSet<(u32, Placement)>;

    /// Returns whether the hardware can have these instances, according to the planner.
    fn can_exist(device: &Device, set: &Set) -> bool {
        let catalog = &device.mig.state().unwrap().catalog;
        let target = |(profile_id, placement): &(u32, Placement)| {
            let slices = catalog.by_id(*profile_id).unwrap().resources.gpu_slices;
            let (profile_id, placement) = (*profile_id, Some(*placement));
            InstanceTarget { profile_id, compute: vec![slices], placement }
        };
        let mut targets: Vec<InstanceTarget> = set.iter().map(target).collect();
        targets.sort();
        match feasible(device, &targets) {
            Ok(Feasibility::Feasible) => true,
            Ok(Feasibility::Unknown) => panic!("the planner cannot decide {set:?}"),
            Err(_) => false,
        }
    }

    /// Sets of instances that the hardware can have, and sets that it cannot have.
    #[derive(Default)]
    struct Sets {
        possible: BTreeSet<Set>,
        impossible: BTreeSet<Set>,
    }

    /// Grows all possible sets by one instance each. Every other set contains one of the impossible ones, and no set can
    /// exist of which a part cannot.
    fn all_sets(sku: &str) -> Sets {
        let device = partitioned("0000:01:00.0", sku, &[]);
        let profiles = device.mig.state().unwrap().catalog.profiles().iter();
        let all: Set = profiles
            .flat_map(|profile| profile.placements.iter().map(|place| (profile.id, *place)))
            .collect();
        let mut sets = Sets::default();
        let mut fresh = vec![Set::new()];
        while let Some(set) = fresh.pop() {
            for one in all.difference(&set) {
                let grown: Set = set.iter().chain([one]).copied().collect();
                let mut pairs = set.iter().map(|other| Set::from([*other, *one]));
                if sets.possible.contains(&grown) || pairs.any(|two| sets.impossible.contains(&two))
                {
                    continue;
                }
                // The planner explains every refusal, which takes long, and this one needs no planner.
                let overlaps = |other: &(u32, Placement)| {
                    one.1.start < other.1.end() && other.1.start < one.1.end()
                };
                if let Some(other) = set.iter().find(|other| overlaps(other)) {
                    sets.impossible.insert(Set::from([*other, *one]));
                } else if can_exist(&device, &grown) {
                    sets.possible.insert(grown.clone());
                    fresh.push(grown);
                } else {
                    sets.impossible.insert(grown);
                }
            }
        }
        sets
    }

    /// The claim of this crate: the scheduler, which only counts, can combine exactly what the hardware can.
    #[test]
    fn counters_fit_exactly_where_the_planner_allows_the_set() {
        // The planner uses nothing else of a catalog, so boards that are equal in this have the same sets.
        let structure = |catalog: &ProfileCatalog| {
            let profiles = catalog.profiles().iter().map(|profile| {
                let slices = profile.resources.gpu_slices;
                (profile.id, profile.index, slices, profile.max_count, profile.placements.clone())
            });
            profiles.collect::<Vec<_>>()
        };
        let mut known = BTreeMap::new();
        let mut figures = Vec::new();
        for (sku, catalog) in boards() {
            let sets = known.entry(structure(&catalog)).or_insert_with(|| all_sets(&sku));
            let counters = Counters::new(&catalog).unwrap();
            let fits = |set: &Set| {
                let uses: Vec<Vec<u64>> =
                    set.iter().map(|(id, place)| counters.used_by(*id, *place)).collect();
                counters.fit(&uses.iter().map(Vec::as_slice).collect::<Vec<_>>())
            };
            for set in &sets.possible {
                assert!(fits(set), "{sku}: {set:?} is possible");
            }
            for set in &sets.impossible {
                assert!(!fits(set), "{sku}: {set:?} is impossible");
            }
            figures.push(format!("{sku} {}", sets.possible.len()));
        }
        assert_eq!(
            figures,
            [
                "A100_40GB 2318",
                "A100_80GB 2318",
                "A30_24GB 75",
                "GH200_96GB 2318",
                "H100_80GB_PCIE 2318",
                "H100_80GB_SXM 2318",
                "H100_NVL_94GB 2318",
                "H200_141GB 2318",
                "RTX_PRO_6000_BLACKWELL_96GB 716",
            ]
        );
        assert_eq!(known.len(), 3);
    }

    #[test]
    fn device_without_placements_or_with_too_many_slices_has_no_counters() {
        assert_eq!(Counters::new(&ProfileCatalog::default()), None);
        let (_, catalog) = boards().swap_remove(0);
        let mut profiles = catalog.profiles().to_vec();
        profiles[0].placements.push(Placement { start: 25, size: 1 });
        assert_eq!(Counters::new(&ProfileCatalog::new(profiles)), None);
    }
}
