//! I3: the real agent is killed at any call of a Prepare or an Unprepare and with any state of its files, restarted, and
//! the kubelet repeats its call or calls the opposite. Hardware, record and CDI specifications then equal the claims. I1:
//! instances in use survive.
//!
//! `make crash-sweep` kills before and after every call of every case, and truncates the files at every byte. `cargo test`
//! runs a sample.

#![expect(clippy::print_stderr, reason = "a sweep reports its number of points")]

mod cases;
mod cycle;
mod files;

use self::cases::{Action, CASES, Case};
use self::cycle::InterruptedCycle;
use self::files::{DamagedFiles, Scope};
use crate::sweep::points::{SweepPoint, SweepScope, points};
use crate::sweep::tally::{Lcg, SweepCounts};
use crate::sweep::{SEED, is_full, sweep};

/// The kills of each cycle: one for each step, as long as there are points.
fn cycles(case: &'static Case, scope: SweepScope, lcg: &mut Lcg) -> Vec<Vec<Option<SweepPoint>>> {
    let calls = InterruptedCycle::new(case).calls();
    let steps = case.steps.iter().zip(&calls).map(|(step, calls)| match step.action {
        Action::StartProcess(_) => Vec::new(),
        Action::Call(..) | Action::EndProcess => points(calls, scope, lcg),
    });
    let steps: Vec<Vec<SweepPoint>> = steps.collect();
    eprintln!("{}: {:?} calls", case.name, calls.iter().map(Vec::len).collect::<Vec<_>>());
    let length = steps.iter().map(Vec::len).max().unwrap();
    let kills = |cycle: usize| steps.iter().map(move |points| points.get(cycle).copied()).collect();
    (0..length).map(kills).collect()
}

/// Number of points that run concurrently on one core. The programs of a point mostly wait for each other, but a sample is
/// shorter than the start of many machines.
fn per_core() -> usize {
    if is_full() { 3 } else { 1 }
}

#[test]
fn i3_agent_killed_at_any_call_of_prepare_or_unprepare_converges() {
    let mut lcg = Lcg::new(SEED);
    let total = SweepCounts::default();
    let mut failures = Vec::new();
    eprintln!("seed {SEED}");
    let scope = if is_full() { SweepScope::Every } else { SweepScope::Some(2) };
    for case in CASES {
        let before = total.points();
        let cycles = cycles(case, scope, &mut lcg);
        let cycles: Vec<&[Option<SweepPoint>]> = cycles.iter().map(Vec::as_slice).collect();
        let run = |own: &mut InterruptedCycle, kills: &[_]| own.run(kills, &total);
        let new = || InterruptedCycle::new(case);
        failures.extend(sweep((case.name, per_core()), new, &cycles, run));
        eprintln!("{}: {} cycles, {} points", case.name, cycles.len(), total.points() - before);
    }
    eprintln!("killed at calls: {total}");
    assert!(failures.is_empty(), "\n{}\n", failures.join("\n\n"));
    assert!(total.points() > 40, "the sweep found nothing to do");
}

#[test]
fn i3_any_file_left_by_kill_or_faulty_disk_converges() {
    let mut lcg = Lcg::new(SEED);
    let total = SweepCounts::default();
    let case = &CASES[0];
    let scope =
        if is_full() { Scope { bytes: 1, others: 16 } } else { Scope { bytes: 997, others: 997 } };
    let states = DamagedFiles::new(case).states(scope, &mut lcg);
    let run = |own: &mut DamagedFiles, state| own.run(state, &total);
    let failures = sweep((case.name, per_core()), || DamagedFiles::new(case), &states, run);
    eprintln!("states of files: {total}");
    assert!(failures.is_empty(), "\n{}\n", failures.join("\n\n"));
    assert!(total.points() > 20, "the sweep found nothing to do");
}
