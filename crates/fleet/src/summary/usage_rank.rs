//! Index of a node's usage, by which the largest users of a fleet, and pods, are found without reading all nodes' usage.

use std::collections::BTreeSet;
use std::sync::Arc;

use octavo_model::digest::Digest;
use octavo_model::quantity::Mebibytes;
use octavo_node::sharing::usage::{UnitUsage, Usage};

/// Memory of each tenant of a node, whether it exceeds its fair share, and the hashes of the names of pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageRank {
    /// Memory in MiB times two, plus one if over the share; descending and deduplicated.
    tenants: Arc<[u32]>,
    /// Hashes of the names of pods, ascending and deduplicated.
    pods: Arc<[u32]>,
    /// True if a unit has replicas, or a container holds one.
    has_replicas: bool,
    /// Utilization of the devices that report it.
    utilization: UtilizationSum,
}

/// Sum of the utilization of devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UtilizationSum {
    /// Sum in percent.
    pub percent: u32,
    /// Number of devices that report their utilization.
    pub devices: u32,
}

/// Memory in MiB by which a tenant is ranked: unknown memory ranks last, and values are limited to 2 PiB.
pub fn rank_memory(memory: Option<u64>) -> u64 {
    memory.unwrap_or_default().min(u64::from(u32::MAX >> 1))
}

impl UsageRank {
    /// Creates the index of a node's usage.
    pub fn from_usage(usage: &Usage) -> Self {
        let units = usage.devices.iter().flat_map(|device| &device.units);
        let is_shared = |unit: &UnitUsage| {
            let mut ids = unit.tenants.iter().flat_map(|tenant| &tenant.ids);
            unit.replicas.is_some() || ids.any(|id| id.number().is_some())
        };
        let has_replicas = units.clone().any(is_shared);
        let tenants = units.flat_map(|unit| &unit.tenants);
        let pods = tenants.clone().filter_map(|tenant| tenant.pod.as_deref());
        let pods: BTreeSet<u32> = pods.map(hash).collect();
        let mut all: Vec<u32> = tenants
            .map(|tenant| {
                let memory = rank_memory(tenant.memory.map(Mebibytes::get));
                let twice = memory.saturating_mul(2) | u64::from(tenant.is_over_share);
                u32::try_from(twice).unwrap_or(u32::MAX)
            })
            .collect();
        all.sort_unstable_by(|a, b| b.cmp(a));
        all.dedup();
        let utilization = usage.devices.iter().filter_map(|device| device.utilization);
        let utilization = utilization.fold(UtilizationSum::default(), |sum, one| {
            sum.plus(UtilizationSum { percent: one.0.into(), devices: 1 })
        });
        let pods = pods.into_iter().collect();
        Self { tenants: all.into(), pods, has_replicas, utilization }
    }

    /// Returns whether a pod with this name can be among the tenants. A few names have the same hash.
    pub fn may_have_pod(&self, name: &str) -> bool {
        self.pods.binary_search(&hash(name)).is_ok()
    }

    /// Utilization of the devices of the node that report it.
    pub fn utilization(&self) -> UtilizationSum {
        self.utilization
    }

    /// Returns whether a device or partition of the node is time-sliced.
    pub fn has_replicas(&self) -> bool {
        self.has_replicas
    }

    /// Largest rank, as defined by [`rank_memory`], that is at most `most`, among tenants over their share or not if
    /// `over` is set. `None` if there is none.
    pub fn first(&self, over: Option<bool>, most: u64) -> Option<u64> {
        let mut all = self.tenants.iter().map(|one| (u64::from(one >> 1), one & 1 == 1));
        let found = all.find(|(memory, is_over)| {
            *memory <= most && over.is_none_or(|wanted| wanted == *is_over)
        });
        found.map(|(memory, _)| memory)
    }
}

/// Index of a node that reports no usage.
impl Default for UsageRank {
    fn default() -> Self {
        Self {
            tenants: Arc::from([]),
            pods: Arc::from([]),
            has_replicas: false,
            utilization: UtilizationSum::default(),
        }
    }
}

/// The lower half of the digest of a name, because a fleet has millions of pods.
fn hash(name: &str) -> u32 {
    let [a, b, c, d, ..] = Digest::from_bytes(name.as_bytes()).get().to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

impl UtilizationSum {
    /// Sum of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            percent: self.percent.saturating_add(other.percent),
            devices: self.devices.saturating_add(other.devices),
        }
    }

    /// Mean in percent, rounded; `None` if no device reports its utilization.
    pub fn mean(self) -> Option<u32> {
        let half = self.devices / 2;
        self.percent.saturating_add(half).checked_div(self.devices)
    }
}
