//! Traces: requests with their arrivals and durations.

use std::time::Duration;

use fastrand::Rng;
use octavo_model::catalog::{GpuInstanceProfile, ProfileCatalog};
use octavo_model::profile::ProfileName;
use serde::Deserialize;
use strum::{IntoStaticStr, VariantArray};
use thiserror::Error;

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
/// Maximum number of requests of a trace file.
const MAX_JOBS: usize = 1_000_000;
/// Longest time in a trace file, in seconds: 100 years.
const MAX_SECONDS: f64 = 3_155_760_000.0;

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

/// Row of a trace file.
#[derive(Debug, Deserialize)]
struct Row {
    arrival: f64,
    duration: f64,
    profile: String,
}

/// Reason why a trace file cannot be read.
#[derive(Debug, Error)]
pub enum TraceError {
    /// It is no CSV with the columns of a trace.
    #[error("it is not a CSV file with the columns arrival, duration and profile")]
    Csv(#[from] csv::Error),
    /// A value is invalid.
    #[error("line {line}: {reason}")]
    Value {
        /// Line in the file, from 1.
        line: u64,
        /// Explanation.
        reason: String,
    },
    /// It has no requests.
    #[error("it has no requests")]
    Empty,
    /// It has too many requests.
    #[error("it has more than {MAX_JOBS} requests")]
    TooLong,
}

/// Parses a trace: a CSV file with the columns `arrival` and `duration` in seconds and `profile`. Lines that begin with `#` are comments.
/// The requests are returned in the order of their arrival.
pub fn parse_trace(text: &str) -> Result<Vec<Job>, TraceError> {
    let mut reader = csv::ReaderBuilder::new();
    let mut reader = reader.comment(Some(b'#')).trim(csv::Trim::All).from_reader(text.as_bytes());
    let headers = reader.headers()?.clone();
    let mut jobs = Vec::new();
    for record in reader.records() {
        let record = record?;
        let line = record.position().map_or(0, csv::Position::line);
        let row: Row = record.deserialize(Some(&headers))?;
        jobs.push(job(&row).map_err(|reason| TraceError::Value { line, reason })?);
        if jobs.len() > MAX_JOBS {
            return Err(TraceError::TooLong);
        }
    }
    if jobs.is_empty() {
        return Err(TraceError::Empty);
    }
    jobs.sort_by_key(|job| job.arrival);
    Ok(jobs)
}

fn job(row: &Row) -> Result<Job, String> {
    let seconds = |name: &str, value: f64| {
        if (0.0..=MAX_SECONDS).contains(&value) {
            return Ok(Duration::from_secs_f64(value));
        }
        Err(format!("{name} must be a number of seconds from 0 to {MAX_SECONDS}"))
    };
    Ok(Job {
        arrival: seconds("arrival", row.arrival)?,
        duration: seconds("duration", row.duration)?,
        profile: row.profile.parse().map_err(|error| format!("profile: {error}"))?,
    })
}
