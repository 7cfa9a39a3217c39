//! Traces: requests with their arrivals and durations.

use std::time::Duration;

use fastrand::Rng;
use octavo_model::catalog::{GpuInstanceProfile, ProfileCatalog};
use octavo_model::profile::ProfileName;
use strum::{IntoStaticStr, VariantArray};

/// A request of a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Time from the beginning of the trace to the arrival.
    pub arrival: Duration,
    /// Time for which the instance is allocated.
    pub duration: Duration,
    /// Profile of the instance.
    pub profile: ProfileName,
}

/// Shares of the profiles in random requests, from the smallest profile to the largest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum Mix {
    /// Equal shares.
    Uniform,
    /// Mostly small profiles.
    SkewSmall,
    /// Mostly large profiles.
    SkewBig,
    /// Mostly the smallest and the largest profile.
    Bimodal,
    /// Skew-small and skew-big in turn, each for 20 mean durations.
    Drift,
}

/// Mean demand of random requests.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Load {
    /// GPU slices of the fleet.
    pub slices: u32,
    /// Demanded part of the slices: 1.0 if requests need as many as there are.
    pub factor: f64,
}

/// Mean duration of a random request in seconds.
const MEAN_DURATION: f64 = 3_600.0;
/// Number of profiles in random requests.
const MAX_PROFILES: usize = 5;
/// Time after which a drift changes, in seconds.
const DRIFT_AFTER: f64 = 20.0 * MEAN_DURATION;

impl Mix {
    /// Shares at this time, in seconds from the beginning.
    fn shares(self, seconds: f64) -> [f64; MAX_PROFILES] {
        const SMALL: [f64; MAX_PROFILES] = [0.4, 0.3, 0.15, 0.1, 0.05];
        const BIG: [f64; MAX_PROFILES] = [0.05, 0.1, 0.15, 0.3, 0.4];
        match self {
            Self::Uniform => [0.2; MAX_PROFILES],
            Self::SkewSmall => SMALL,
            Self::Bimodal => [0.35, 0.1, 0.05, 0.1, 0.4],
            Self::Drift if seconds.rem_euclid(2.0 * DRIFT_AFTER) < DRIFT_AFTER => SMALL,
            Self::SkewBig | Self::Drift => BIG,
        }
    }

    /// Generates requests for these profiles, ordered by size, with exponential gaps and durations. Equal seeds generate equal requests.
    pub fn jobs(
        self,
        profiles: &[&GpuInstanceProfile],
        load: Load,
        count: usize,
        seed: u64,
    ) -> Vec<Job> {
        let mut rng = Rng::with_seed(seed);
        let mut now = 0.0;
        let mut jobs = Vec::with_capacity(count);
        while jobs.len() < count && !profiles.is_empty() && load.slices > 0 {
            let shares: Vec<(&GpuInstanceProfile, f64)> =
                profiles.iter().copied().zip(self.shares_of(profiles.len(), now)).collect();
            let total: f64 = shares.iter().map(|(_, share)| share).sum();
            let slices = shares
                .iter()
                .map(|(profile, share)| f64::from(profile.resources.gpu_slices) * share);
            let demand = slices.sum::<f64>() / total * MEAN_DURATION;
            now += demand / (f64::from(load.slices) * load.factor) * exponential(&mut rng);
            let mut rest = rng.f64() * total;
            let chosen = shares.iter().find(|(_, share)| {
                rest -= share;
                rest < 0.0
            });
            let Some((profile, _)) = chosen.or_else(|| shares.last()) else { break };
            jobs.push(Job {
                arrival: Duration::from_secs_f64(now),
                duration: Duration::from_secs_f64(MEAN_DURATION * exponential(&mut rng)),
                profile: profile.name.clone(),
            });
        }
        jobs
    }

    /// Shares of this number of profiles: with fewer than five, those of the smallest and the largest remain.
    fn shares_of(self, count: usize, seconds: f64) -> Vec<f64> {
        let shares = self.shares(seconds);
        let small = count.div_ceil(2).min(shares.len());
        let large = count.saturating_sub(small);
        let (first, last) = (shares.iter().take(small), shares.iter().rev().take(large));
        first.chain(last.rev()).copied().collect()
    }
}

/// Profiles of random requests: those without attributes, the one with the least memory of each number of slices, at most five, by slices.
pub fn random_profiles(catalog: &ProfileCatalog) -> Vec<&GpuInstanceProfile> {
    let all = catalog.profiles().iter();
    let mut plain: Vec<&GpuInstanceProfile> =
        all.filter(|profile| profile.name.is_plain() && !profile.placements.is_empty()).collect();
    plain.sort_by_key(|profile| (profile.resources.gpu_slices, profile.memory));
    plain.dedup_by_key(|profile| profile.resources.gpu_slices);
    plain.truncate(MAX_PROFILES);
    plain
}

/// Random number of the exponential distribution with mean 1.
fn exponential(rng: &mut Rng) -> f64 {
    -(1.0 - rng.f64()).ln()
}
