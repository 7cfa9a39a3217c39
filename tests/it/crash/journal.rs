//! Journal states after a kill at any step of a write, and after a disk that lost writes.
//!
//! A write creates, fills, syncs and renames a draft and syncs the directory; at the end the journal is removed. A kill
//! leaves no draft, a partial or a complete draft, with or without a previous journal; then the journal; then none. The
//! tests also truncate the journal at any byte.

use std::fs;

use super::kills::{calm, converged};
use super::rig::Rig;
use crate::sweep::points::number;
use crate::sweep::tally::{Lcg, SweepCounts};
use crate::sweep::world::{changes, in_use};
use crate::sweep::{KillPoint, KillTiming};

/// State of disk and hardware when the agent starts.
#[derive(Debug, Clone, Copy)]
pub(super) struct State {
    on_disk: DiskState,
    hardware: Hardware,
    /// The start that finds it is killed as well.
    kill: Option<KillPoint>,
    /// One more start after convergence must change nothing.
    twice: bool,
}

/// Lengths count the first bytes of a journal as the agent wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DiskState {
    /// No journal, and this many bytes of a draft.
    Draft(usize),
    /// The journal, and this many bytes of the next draft.
    DraftBesideJournal(usize),
    /// The journal alone.
    Journal,
    /// The journal is removed and the history has no entry.
    Removed,
    /// This many bytes of the journal, which no crash can cause.
    Torn(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hardware {
    Previous,
    HalfWay,
    Target,
}

/// A change at its start, halfway and at its end.
#[derive(Debug)]
pub(super) struct RecordedChange {
    journal: Vec<u8>,
    half_way: Vec<u8>,
    target: Vec<u8>,
    calls: u64,
}

impl RecordedChange {
    /// Lets the agent make the change and kills it twice meanwhile.
    pub(super) fn of(rig: &Rig) -> Self {
        rig.reset();
        let whole = rig.run();
        let target = rig.machine().hardware();
        let changing: Vec<usize> =
            (0..whole.calls.len()).filter(|call| changes(&whole.calls[*call])).collect();
        let kill = |call: usize, when: KillTiming| {
            rig.reset();
            // The number of readings before a change varies with the load, so the change is found by name.
            let name = &whole.calls[call];
            let earlier = whole.calls[..call].iter().filter(|other| *other == name).count();
            let point = KillPoint { call: number(earlier), when };
            assert!(rig.kill_at_call(name, point), "{}: {name}", rig.case.name);
            (fs::read(rig.journal()).unwrap(), rig.machine().hardware())
        };
        let (journal, _) = kill(changing[0], KillTiming::Before);
        let (same, half_way) = kill(changing[changing.len() / 2], KillTiming::After);
        assert_eq!(journal.len(), same.len(), "they differ in time only");
        Self { journal, half_way, target, calls: u64::try_from(whole.calls.len()).unwrap() }
    }

    /// All states, or a sample of one in `one_of`.
    pub(super) fn states(&self, one_of: usize, lcg: &mut Lcg) -> Vec<State> {
        use DiskState::{Draft, DraftBesideJournal, Journal, Removed, Torn};
        use Hardware::{HalfWay, Previous, Target};
        let mut all =
            vec![(Journal, Previous), (Journal, HalfWay), (Journal, Target), (Removed, Target)];
        let whole = self.journal.len();
        // Always includes the end of the first line and the last byte.
        let line = self.journal.iter().position(|byte| *byte == b'\n').unwrap();
        let taken = |length: &usize| {
            length.is_multiple_of(one_of) || [line, line + 1, whole - 1, whole].contains(length)
        };
        for length in (0..=whole).filter(taken) {
            all.push((Draft(length), Previous));
            // A draft is never read, so fewer combinations suffice.
            if length.is_multiple_of(8 * one_of) {
                all.push((DraftBesideJournal(length), HalfWay));
                all.push((DraftBesideJournal(length), Target));
            }
            if length < whole {
                all.push((Torn(length), HalfWay));
                all.push((Torn(length), Previous));
                all.push((Torn(length), Target));
            }
        }
        let states = all.into_iter().map(|(on_disk, hardware)| State {
            on_disk,
            hardware,
            kill: (lcg.below(3) == 0).then(|| KillPoint {
                call: lcg.below(self.calls).saturating_add(1),
                when: KillTiming::After,
            }),
            twice: lcg.below(3) == 0,
        });
        states.collect()
    }

    fn write_layout(&self, rig: &Rig, state: State) {
        rig.reset();
        match state.hardware {
            Hardware::Previous => {}
            Hardware::HalfWay => rig.machine().set_hardware(&self.half_way),
            Hardware::Target => rig.machine().set_hardware(&self.target),
        }
        fs::create_dir(rig.state_dir()).unwrap();
        let draft = rig.journal().with_extension("draft");
        match state.on_disk {
            DiskState::Draft(length) => fs::write(draft, &self.journal[..length]).unwrap(),
            DiskState::DraftBesideJournal(length) => {
                fs::write(draft, &self.journal[..length]).unwrap();
                fs::write(rig.journal(), &self.journal).unwrap();
            }
            DiskState::Journal => fs::write(rig.journal(), &self.journal).unwrap(),
            DiskState::Removed => {}
            DiskState::Torn(length) => fs::write(rig.journal(), &self.journal[..length]).unwrap(),
        }
    }

    /// Starts the agent on one state and returns what is wrong, if anything.
    pub(super) fn kill_and_recover(
        &self,
        rig: &Rig,
        state: State,
        tally: &SweepCounts,
    ) -> Result<(), String> {
        self.write_layout(rig, state);
        let used = in_use(&rig.world());
        if state.kill.is_some_and(|kill| rig.kill_at(kill)) {
            tally.killed_twice();
        }
        let ran = rig.run();
        let side = converged(rig, &ran, &used)?;
        let wrong = |what: &str| Err(format!("{what}; the agent said:\n{}", ran.reported()));
        if ran.changed() && state.hardware == Hardware::Target && rig.case.faults.is_empty() {
            return wrong("I3: it changed what was at its target");
        }
        let aside = rig.state_dir().join("journal.unreadable");
        if let DiskState::Torn(length) = state.on_disk {
            if fs::read(aside).ok().as_deref() != Some(&self.journal[..length]) {
                return wrong("I3: the journal that could not be read is not kept");
            }
            let shown = ran.reported().contains("ERROR the journal could not be read");
            if !shown {
                return wrong("I3: it does not report that the journal could not be read");
            }
        } else if aside.exists() {
            return wrong("I3: a journal was put aside that nothing was wrong with");
        }
        if state.twice {
            calm(rig)?;
        }
        tally.converged(side);
        Ok(())
    }
}
