//! Results of a sweep, and its random numbers.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// A pseudorandom generator with a fixed seed. Source of the constants: Knuth, TAOCP 2, 3.3.4 (MMIX).
#[derive(Debug)]
pub(crate) struct Lcg(u64);

impl Lcg {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `end`, which must not be 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        let next = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = next.wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    /// At most `few` of `all`, in their order.
    pub(crate) fn pick<T: Copy + Ord>(&mut self, all: &[T], few: usize) -> Vec<T> {
        let mut rest = all.to_vec();
        while rest.len() > few {
            let at = self.below(u64::try_from(rest.len()).unwrap());
            rest.remove(usize::try_from(at).unwrap());
        }
        rest
    }
}

/// Counts the results of a sweep.
#[derive(Debug, Default)]
pub(crate) struct SweepCounts {
    target: AtomicU64,
    previous: AtomicU64,
    twice: AtomicU64,
    missed: AtomicU64,
}

impl SweepCounts {
    /// The agent ended before it reached the call.
    pub(crate) fn missed(&self) {
        self.missed.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn killed_twice(&self) {
        self.twice.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn converged(&self, at_target: bool) {
        let side = if at_target { &self.target } else { &self.previous };
        side.fetch_add(1, Ordering::Relaxed);
    }

    /// Number of converged points.
    pub(crate) fn points(&self) -> u64 {
        self.target.load(Ordering::Relaxed) + self.previous.load(Ordering::Relaxed)
    }
}

impl fmt::Display for SweepCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} points: {} converged to the target, {} to what was before; {} were killed twice; {} kills came too late to \
             strike",
            self.points(),
            self.target.load(Ordering::Relaxed),
            self.previous.load(Ordering::Relaxed),
            self.twice.load(Ordering::Relaxed),
            self.missed.load(Ordering::Relaxed),
        )
    }
}
