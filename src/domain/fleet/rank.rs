//! What of a node's usage is kept at hand, so that who uses most in a fleet is found without reading what all nodes say.

use std::sync::Arc;

use crate::domain::quantity::Mebibytes;
use crate::domain::sharing::usage::Usage;

/// How much memory those have who have something of a node, and whether that is more than their share. Who they are is not kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageRank(
    /// Memory in MiB, twice, and one more where it is over the share: the most first, equal ones once.
    Arc<[u32]>,
);

/// Memory by which somebody is ranked, in MiB: who does not tell theirs comes last, and more than 2 PiB is nobody's.
pub fn ranked(memory: Option<u64>) -> u64 {
    memory.unwrap_or_default().min(u64::from(u32::MAX >> 1))
}

impl UsageRank {
    /// Of what a node tells.
    pub fn of(usage: &Usage) -> Self {
        let units = usage.devices.iter().flat_map(|device| &device.units);
        let tenants = units.flat_map(|unit| &unit.tenants);
        let mut all: Vec<u32> = tenants
            .map(|tenant| {
                let memory = ranked(tenant.memory.map(Mebibytes::get));
                let twice = memory.saturating_mul(2) | u64::from(tenant.is_over);
                u32::try_from(twice).unwrap_or(u32::MAX)
            })
            .collect();
        all.sort_unstable_by(|a, b| b.cmp(a));
        all.dedup();
        Self(all.into())
    }

    /// The most memory that somebody has, as [`ranked`] says it: of those who have `most` or less, and who are over their share or
    /// not where `over` says so. `None` where there is nobody.
    pub fn first(&self, over: Option<bool>, most: u64) -> Option<u64> {
        let mut all = self.0.iter().map(|one| (u64::from(one >> 1), one & 1 == 1));
        let found = all.find(|(memory, is_over)| {
            *memory <= most && over.is_none_or(|wanted| wanted == *is_over)
        });
        found.map(|(memory, _)| memory)
    }
}

/// Of a node that tells nothing.
impl Default for UsageRank {
    fn default() -> Self {
        Self(Arc::from([]))
    }
}
