//! I3: the real agent is killed at any call and beside any state of its journal, started again, and ends at the target or at
//! what was before; I1: what is in use outlives all of it; I2: the plan has, and output and history name, every device that the next
//! start changes, be it an agent or a command, for the same layout or for another one.
//!
//! `make crash-sweep` kills before and after every call of every case, and again at every call of some of the starts that follow, and
//! tears the journal at every byte; `cargo test` takes a sample that is the same in every run.

#![expect(clippy::print_stderr, reason = "whoever runs the sweep wants to know what it came to")]

mod cases;
mod chosen;
mod journal;
mod kills;
mod resets;
mod rig;
mod tally;
mod world;

use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use self::cases::{CASES, Case};
use self::chosen::CHOSEN;
use self::journal::Recorded;
use self::kills::{Reach, points, resumed, strike};
use self::rig::Rig;
use self::tally::{Lcg, Tally};

/// Of the numbers that choose where to kill; printed, and the same in every run.
const SEED: u64 = 20_261_121;
/// So many failures say enough.
const ENOUGH: usize = 8;

fn is_full() -> bool {
    std::env::var_os("OCTAVO_CRASH_SWEEP").is_some_and(|reach| reach == "full")
}

/// So many points are tried at the same time.
fn threads() -> usize {
    thread::available_parallelism().map_or(2, NonZero::get)
}

/// Runs `strike` on all of `points`, each of a few threads with a machine of its own.
fn sweep<P: Copy + Sync + std::fmt::Debug>(
    case: &'static Case,
    points: &[P],
    strike: impl Fn(&Rig, P) -> Result<(), String> + Sync,
) -> Vec<String> {
    let next = AtomicUsize::new(0);
    let failures = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..threads() {
            scope.spawn(|| {
                let rig = Rig::new(case);
                while failures.lock().unwrap().len() < ENOUGH
                    && let Some(point) = points.get(next.fetch_add(1, Ordering::Relaxed))
                {
                    if let Err(what) = strike(&rig, *point) {
                        let what = format!("{} {point:?}: {what}", case.name);
                        failures.lock().unwrap().push(what);
                    }
                }
            });
        }
    });
    failures.into_inner().unwrap()
}

/// Kills at calls in all cases.
fn kill_everywhere(reach: Reach) -> Tally {
    let mut lcg = Lcg::new(SEED);
    let total = Tally::default();
    let mut failures = Vec::new();
    eprintln!("seed {SEED}");
    for case in CHOSEN.iter().chain(CASES) {
        let rig = Rig::new(case);
        rig.reset();
        let whole = rig.run();
        assert!(whole.output.status.success(), "{}", whole.reported());
        assert!(whole.changed(), "{}: nothing was changed: {}", case.name, whole.reported());
        if case.newcomer.is_none() && case.other.is_none() {
            rig.sides()
                .unwrap_or_else(|what| panic!("{}: {what}: {}", case.name, whole.reported()));
        }
        // A reset waits seconds for each listener of the driver's events, so only few cases need one.
        let reach = match reach {
            Reach::Every | Reach::Most if case.nvidia_smi => Reach::Some(12),
            Reach::Some(_) if case.nvidia_smi => Reach::Some(0),
            Reach::Every if case.other.is_some() || !case.first_reading.is_empty() => Reach::Most,
            Reach::Every | Reach::Most | Reach::Some(_) => reach,
        };
        let mut points = points(&whole.calls, reach, &mut lcg);
        points.extend(resumed(&rig, &whole.calls, reach, &mut lcg));
        let before = total.points();
        failures.extend(sweep(case, &points, |rig, point| strike(rig, point, &total)));
        eprintln!("{}: {} calls, {} points", case.name, whole.calls.len(), total.points() - before);
    }
    assert!(failures.is_empty(), "\n{}\n", failures.join("\n\n"));
    total
}

#[test]
fn i3_agent_killed_at_any_call_converges_after_restart() {
    let reach = if is_full() { Reach::Every } else { Reach::Some(2) };
    let total = kill_everywhere(reach);
    eprintln!("killed at calls: {total}");
    assert!(total.points() > 100, "the sweep found nothing to do");
}

/// Tears the journals of some changes: of the first at every byte, or one of so many, of the others at a few.
fn tear(one_of: usize, one_of_others: usize) -> Tally {
    let mut lcg = Lcg::new(SEED);
    let total = Tally::default();
    let mut failures = Vec::new();
    for (case, one_of) in [
        ("reshape", one_of),
        ("reshape-around-one-in-use", one_of_others),
        ("mode-on-h100", one_of_others),
        ("mode-off", one_of_others),
    ] {
        let case = CASES.iter().find(|known| known.name == case).unwrap();
        let recorded = Recorded::of(&Rig::new(case));
        let states = recorded.states(one_of, &mut lcg);
        failures.extend(sweep(case, &states, |rig, state| recorded.strike(rig, state, &total)));
        eprintln!("{}: {} states of the journal", case.name, states.len());
    }
    assert!(failures.is_empty(), "\n{}\n", failures.join("\n\n"));
    total
}

#[test]
fn i3_any_journal_left_by_kill_or_faulty_disk_converges() {
    let total = if is_full() { tear(1, 16) } else { tear(101, 331) };
    eprintln!("states of the journal: {total}");
    assert!(total.points() > 50, "the sweep found nothing to do");
}
