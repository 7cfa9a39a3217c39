//! Sweeps over the points at which a program is killed: their scope, random numbers, results and hardware.

#![expect(clippy::print_stderr, reason = "a sweep that takes an hour reports its progress")]

pub(crate) mod points;
pub(crate) mod tally;
pub(crate) mod world;

use std::fmt::Debug;
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Seed of the random numbers that choose kill points, so that every run is the same.
pub(crate) const SEED: u64 = 20_261_121;
/// Stops after this many failures.
const ENOUGH: usize = 8;

/// A call at which a program is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct KillPoint {
    /// Number of the call in the process, from 1.
    pub(crate) call: u64,
    pub(crate) when: KillTiming,
}

/// Before or after the call takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum KillTiming {
    Before,
    After,
}

impl KillPoint {
    /// The fault of the simulator that kills a process at this one of the calls of `functions`.
    pub(crate) fn rule(self, functions: &str) -> String {
        let when = match self.when {
            KillTiming::Before => "before",
            KillTiming::After => "after",
        };
        let nth = self.call;
        format!("{{call: \"{functions}\", nth: {nth}, times: 1, count: process, abort: {when}}}")
    }
}

/// True in `make crash-sweep`.
pub(crate) fn is_full() -> bool {
    std::env::var_os("OCTAVO_CRASH_SWEEP").is_some_and(|scope| scope == "full")
}

/// Runs `kill_and_recover` on all `points` in `per_core` threads for each core, each with its own rig, which a failure
/// replaces. Returns the failures.
pub(crate) fn sweep<R, P: Copy + Sync + Debug>(
    (name, per_core): (&str, usize),
    rig: impl Fn() -> R + Sync,
    points: &[P],
    kill_and_recover: impl Fn(&mut R, P) -> Result<(), String> + Sync,
) -> Vec<String> {
    let next = AtomicUsize::new(0);
    let failures = Mutex::new(Vec::new());
    let run = || {
        let mut own = rig();
        while failures.lock().unwrap().len() < ENOUGH
            && let number = next.fetch_add(1, Ordering::Relaxed)
            && let Some(point) = points.get(number)
        {
            if number.is_multiple_of(100) {
                eprintln!("{name}: {number} of {}", points.len());
            }
            let result = catch_unwind(AssertUnwindSafe(|| kill_and_recover(&mut own, *point)));
            let result = result.unwrap_or_else(|panic| {
                let text = panic.downcast_ref::<String>();
                Err(text.cloned().unwrap_or_else(|| "panicked".to_owned()))
            });
            if let Err(what) = result {
                let what = format!("{name} {point:?}: {what}");
                eprintln!("{what}");
                failures.lock().unwrap().push(what);
                own = rig();
            }
        }
    };
    let cores = thread::available_parallelism().map_or(2, NonZero::get);
    thread::scope(|scope| {
        for _ in 0..(cores * per_core).min(points.len()) {
            scope.spawn(run);
        }
    });
    failures.into_inner().unwrap()
}
