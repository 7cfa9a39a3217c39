//! What a kill around any step of writing the journal leaves on the disk, and what a disk leaves that lied about it.
//!
//! A write is: the draft is made, filled, synced and renamed, and the directory synced; at the end the journal is removed. So a
//! kill leaves no draft, a part of it or all of it, beside no journal or the one before; then the journal; then none. Beside
//! that a journal itself that is cut at any byte.

use std::fs;

use super::kills::{calm, converged, number};
use super::rig::{Kill, Rig, When};
use super::tally::{Lcg, Tally};
use super::world::{changes, in_use};

/// What is on the disk and on the hardware when the agent starts.
#[derive(Debug, Clone, Copy)]
pub(super) struct State {
    on_disk: OnDisk,
    hardware: Hardware,
    /// The start that finds it is killed too.
    kill: Option<Kill>,
    /// It is started once more after convergence, and must find nothing to do.
    twice: bool,
}

/// Bytes are those of a journal as the agent wrote it, from the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OnDisk {
    /// No journal, and so many bytes of a draft.
    Draft(usize),
    /// The journal, and so many bytes of the next one's draft.
    DraftBesideJournal(usize),
    /// The journal alone.
    Journal,
    /// The journal is removed, and the history has nothing of it.
    Removed,
    /// So many bytes of the journal, which is more than a crash can do.
    Torn(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hardware {
    Previous,
    HalfWay,
    Target,
}

/// A change at its beginning, in its middle and at its end.
#[derive(Debug)]
pub(super) struct Recorded {
    journal: Vec<u8>,
    half_way: Vec<u8>,
    target: Vec<u8>,
    calls: u64,
}

impl Recorded {
    /// Lets the agent make the change, and kills it twice on the way.
    pub(super) fn of(rig: &Rig) -> Self {
        rig.reset();
        let whole = rig.run();
        let target = rig.hardware();
        let changing: Vec<usize> =
            (0..whole.calls.len()).filter(|call| changes(&whole.calls[*call])).collect();
        let kill = |call: usize, when: When| {
            rig.reset();
            // The number of readings before a change varies with the load, so the change is found by its name.
            let name = &whole.calls[call];
            let earlier = whole.calls[..call].iter().filter(|other| *other == name).count();
            assert!(rig.kill_at_call(name, number(earlier), when), "{}: {name}", rig.case.name);
            (fs::read(rig.journal()).unwrap(), rig.hardware())
        };
        let (journal, _) = kill(changing[0], When::Before);
        let (same, half_way) = kill(changing[changing.len() / 2], When::After);
        assert_eq!(journal.len(), same.len(), "they differ in time only");
        Self { journal, half_way, target, calls: u64::try_from(whole.calls.len()).unwrap() }
    }

    /// All states, or one of so many.
    pub(super) fn states(&self, one_of: usize, lcg: &mut Lcg) -> Vec<State> {
        use Hardware::{HalfWay, Previous, Target};
        use OnDisk::{Draft, DraftBesideJournal, Journal, Removed, Torn};
        let mut all =
            vec![(Journal, Previous), (Journal, HalfWay), (Journal, Target), (Removed, Target)];
        let whole = self.journal.len();
        // The first line's end and the last byte, whichever others are taken.
        let line = self.journal.iter().position(|byte| *byte == b'\n').unwrap();
        let taken = |length: &usize| {
            length.is_multiple_of(one_of) || [line, line + 1, whole - 1, whole].contains(length)
        };
        for length in (0..=whole).filter(taken) {
            all.push((Draft(length), Previous));
            // A draft is never read, so what is beside it is another matter.
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
            kill: (lcg.below(3) == 0)
                .then(|| Kill { call: lcg.below(self.calls).saturating_add(1), when: When::After }),
            twice: lcg.below(3) == 0,
        });
        states.collect()
    }

    fn lay_out(&self, rig: &Rig, state: State) {
        rig.reset();
        match state.hardware {
            Hardware::Previous => {}
            Hardware::HalfWay => rig.set_hardware(&self.half_way),
            Hardware::Target => rig.set_hardware(&self.target),
        }
        fs::create_dir(rig.state_dir()).unwrap();
        let draft = rig.journal().with_extension("draft");
        match state.on_disk {
            OnDisk::Draft(length) => fs::write(draft, &self.journal[..length]).unwrap(),
            OnDisk::DraftBesideJournal(length) => {
                fs::write(draft, &self.journal[..length]).unwrap();
                fs::write(rig.journal(), &self.journal).unwrap();
            }
            OnDisk::Journal => fs::write(rig.journal(), &self.journal).unwrap(),
            OnDisk::Removed => {}
            OnDisk::Torn(length) => fs::write(rig.journal(), &self.journal[..length]).unwrap(),
        }
    }

    /// Starts the agent on one state. What is wrong, if anything is.
    pub(super) fn strike(&self, rig: &Rig, state: State, tally: &Tally) -> Result<(), String> {
        self.lay_out(rig, state);
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
        if let OnDisk::Torn(length) = state.on_disk {
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
