//! Strategies: that of this crate, and others for comparison.

use serde::Serialize;
use strum::{IntoStaticStr, VariantArray};

use crate::choice::{Candidate, Fragmentation, Score};

/// Choice of the device and the placement.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, IntoStaticStr, VariantArray,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Strategy {
    /// Least growth of the expected fragmentation, with idle instances retained and a cost for each operation.
    Octavo,
    /// Least growth of the expected fragmentation.
    ExpectedFragmentation,
    /// Fewest placements that become impossible.
    FewestBlocked,
    /// Device with the fewest free slices afterwards.
    BestFit,
    /// First device and placement.
    FirstFit,
    /// Device with the most free slices afterwards.
    Spread,
}

impl Strategy {
    /// Returns whether instances that become idle are retained.
    pub(super) fn retains_idle(self) -> bool {
        self == Self::Octavo
    }

    pub(super) fn score(self, candidate: &Candidate<'_>, fragmentation: &Fragmentation) -> Score {
        let free = candidate.free_slices();
        match self {
            Self::Octavo => fragmentation.score(candidate),
            Self::ExpectedFragmentation => [fragmentation.growth(candidate), free, 0, 0],
            Self::FewestBlocked => [candidate.blocked_placements(), free, 0, 0],
            Self::BestFit => [free, 0, 0, 0],
            Self::FirstFit => [0, 0, 0, 0],
            Self::Spread => [free.saturating_neg(), 0, 0, 0],
        }
    }
}
