//! I3: the real agent is killed at any call and with any state of its journal, restarted, and ends at the target or at
//! the previous state. I1: instances in use survive. I2: the plan has, and output and history name, every device that
//! the next start changes, by an agent or a command, for the same layout or another.
//!
//! `make crash-sweep` kills before and after every call of every case, kills some of the following starts at every
//! call, and truncates the journal at every byte. `cargo test` runs a sample that is the same in every run.

#![expect(clippy::print_stderr, reason = "whoever runs the sweep wants to know what it came to")]

mod cases;
mod chosen;
mod journal;
mod kills;
mod resets;
mod rig;

use self::cases::{CASES, Case};
use self::chosen::CHOSEN;
use self::journal::RecordedChange;
use self::kills::{kill_and_recover, resumed};
use self::rig::Rig;
use crate::sweep::points::{SweepScope, points};
use crate::sweep::tally::{Lcg, SweepCounts};
use crate::sweep::{self, SEED, is_full};

/// Runs `kill_and_recover` on all `points` of a case.
fn sweep<P: Copy + Sync + std::fmt::Debug>(
    case: &'static Case,
    points: &[P],
    kill_and_recover: impl Fn(&Rig, P) -> Result<(), String> + Sync,
) -> Vec<String> {
    let name = (case.name, 1);
    sweep::sweep(name, || Rig::new(case), points, |rig, point| kill_and_recover(rig, point))
}

/// Kills at calls in all cases.
fn kill_everywhere(scope: SweepScope) -> SweepCounts {
    let mut lcg = Lcg::new(SEED);
    let total = SweepCounts::default();
    let mut failures = Vec::new();
    eprintln!("seed {SEED}");
    for case in CHOSEN.iter().chain(CASES) {
        let rig = Rig::new(case);
        rig.reset();
        let whole = rig.run();
        assert!(whole.output.status.success(), "{}", whole.reported());
        assert!(whole.changed(), "{}: nothing was changed: {}", case.name, whole.reported());
        if case.late_process.is_none() && case.other.is_none() {
            rig.sides()
                .unwrap_or_else(|what| panic!("{}: {what}: {}", case.name, whole.reported()));
        }
        // A reset waits seconds for each event listener of the driver, so only few cases have one.
        let scope = match scope {
            SweepScope::Every | SweepScope::Most if case.nvidia_smi => SweepScope::Some(12),
            SweepScope::Some(_) if case.nvidia_smi => SweepScope::Some(0),
            SweepScope::Every if case.other.is_some() || !case.first_reading.is_empty() => {
                SweepScope::Most
            }
            SweepScope::Every | SweepScope::Most | SweepScope::Some(_) => scope,
        };
        let mut points = points(&whole.calls, scope, &mut lcg);
        points.extend(resumed(&rig, &whole.calls, scope, &mut lcg));
        let before = total.points();
        failures.extend(sweep(case, &points, |rig, point| kill_and_recover(rig, point, &total)));
        eprintln!("{}: {} calls, {} points", case.name, whole.calls.len(), total.points() - before);
    }
    assert!(failures.is_empty(), "\n{}\n", failures.join("\n\n"));
    total
}

#[test]
fn i3_agent_killed_at_any_call_converges_after_restart() {
    let scope = if is_full() { SweepScope::Every } else { SweepScope::Some(2) };
    let total = kill_everywhere(scope);
    eprintln!("killed at calls: {total}");
    assert!(total.points() > 100, "the sweep found nothing to do");
}

/// Damages the journals of some changes: of the first at every byte or a sample, of the others at a few bytes.
fn damage_journals(one_of: usize, one_of_others: usize) -> SweepCounts {
    let mut lcg = Lcg::new(SEED);
    let total = SweepCounts::default();
    let mut failures = Vec::new();
    for (case, one_of) in [
        ("reshape", one_of),
        ("reshape-around-one-in-use", one_of_others),
        ("mode-on-h100", one_of_others),
        ("mode-off", one_of_others),
    ] {
        let case = CASES.iter().find(|known| known.name == case).unwrap();
        let recorded = RecordedChange::of(&Rig::new(case));
        let states = recorded.states(one_of, &mut lcg);
        failures.extend(sweep(case, &states, |rig, state| {
            recorded.kill_and_recover(rig, state, &total)
        }));
        eprintln!("{}: {} states of the journal", case.name, states.len());
    }
    assert!(failures.is_empty(), "\n{}\n", failures.join("\n\n"));
    total
}

#[test]
fn i3_any_journal_left_by_kill_or_faulty_disk_converges() {
    let total = if is_full() { damage_journals(1, 16) } else { damage_journals(101, 331) };
    eprintln!("states of the journal: {total}");
    assert!(total.points() > 50, "the sweep found nothing to do");
}
