//! States of the files of an agent after a kill at any step of a write, and after a disk that damaged or lost one file.
//!
//! A write creates, fills, syncs and renames a draft and syncs the directory. A kill leaves no draft, a partial or a
//! complete draft beside the file. The tests also truncate and remove each file.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::cases::Case;
use super::cycle::InterruptedCycle;
use crate::cluster::prepared_claims::node::Call;
use crate::sweep::tally::{Lcg, SweepCounts};
use crate::sweep::{KillPoint, KillTiming};

/// Files that an agent reads at its start, and their drafts.
const FILES: &[(&str, &str)] = &[
    ("claims.json", "claims.draft"),
    ("claims.copy", "claims.draft"),
    ("journal", "journal.draft"),
];
/// Calls that change the hardware.
const PREPARE_CALLS: &[&str] =
    &["nvmlDeviceCreateGpuInstanceWithPlacement", "nvmlGpuInstanceCreateComputeInstance*"];
const UNPREPARE_CALLS: &[&str] = &["nvmlComputeInstanceDestroy", "nvmlGpuInstanceDestroy"];

/// Which lengths of a truncated file are tried: one in `bytes` for the first recorded state, one in `others` for the others.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scope {
    pub(super) bytes: usize,
    pub(super) others: usize,
}

/// State of disk and hardware when the agent starts, and the first call of the kubelet.
#[derive(Debug, Clone, Copy)]
pub(super) struct FileState {
    /// Number of the recorded state.
    record: usize,
    file: &'static str,
    damage: Damage,
    call: Call,
}

/// Lengths count the first bytes of a file as the agent wrote it.
#[derive(Debug, Clone, Copy)]
enum Damage {
    /// This many bytes of a draft beside the undamaged file.
    Draft(&'static str, usize),
    /// This many bytes of the file, which no crash can cause.
    Torn(usize),
    /// The file is lost.
    Lost,
}

/// Files by name.
type Files = BTreeMap<String, Vec<u8>>;

/// Hardware and files at one moment.
#[derive(Debug)]
struct Recorded {
    hardware: Vec<u8>,
    state: Files,
    specs: Files,
}

/// A machine and its states during a preparation and a release.
pub(super) struct DamagedFiles {
    cycle: InterruptedCycle,
    case: &'static Case,
    recorded: Vec<Recorded>,
}

fn read(directory: &Path) -> Files {
    let entries = fs::read_dir(directory).into_iter().flatten().map(|entry| entry.unwrap());
    let files = entries.filter(|entry| entry.file_type().unwrap().is_file());
    let files = files
        .map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()));
    files.collect()
}

fn write(directory: &Path, files: &Files) {
    fs::create_dir_all(directory).unwrap();
    for (name, content) in files {
        fs::write(directory.join(name), content).unwrap();
    }
}

impl DamagedFiles {
    /// Lets agents prepare and release the claim of a case, and kills them at each call that changes the hardware.
    pub(super) fn new(case: &'static Case) -> Self {
        let mut own = Self { cycle: InterruptedCycle::new(case), case, recorded: Vec::new() };
        for (call, functions) in
            [(Call::Prepare, PREPARE_CALLS), (Call::Unprepare, UNPREPARE_CALLS)]
        {
            for function in functions {
                for when in [KillTiming::Before, KillTiming::After] {
                    own.record(call, function, when);
                }
            }
            own.call(call).unwrap();
            own.record_now();
        }
        own
    }

    /// Records the state after a kill at this call, and returns to the state before.
    fn record(&mut self, call: Call, function: &str, when: KillTiming) {
        let claim = &self.cycle.claims[0];
        let node = &mut self.cycle.node;
        node.arm_at(function, Some(KillPoint { call: 1, when }));
        // Unprepare answers before the instance is destroyed.
        let _answer = node.call(call, claim);
        node.await_end();
        node.arm(None);
        self.record_now();
        let before = if call == Call::Prepare { Call::Unprepare } else { Call::Prepare };
        self.call(before).unwrap();
    }

    fn record_now(&mut self) {
        let node = &self.cycle.node;
        self.recorded.push(Recorded {
            hardware: node.rig.machine().machine.hardware(),
            state: read(&node.rig.machine().state()),
            specs: read(&node.rig.cdi_dir()),
        });
    }

    /// Makes a call, which must succeed, and waits for its effect.
    fn call(&mut self, call: Call) -> Result<(), String> {
        self.cycle.node.succeed(call, &self.cycle.claims[0])?;
        let step = usize::from(call == Call::Unprepare);
        self.cycle.expect(&self.cycle.wanted(&self.case.steps[step]))
    }

    /// All states, or a sample.
    pub(super) fn states(&self, scope: Scope, lcg: &mut Lcg) -> Vec<FileState> {
        let mut states = Vec::new();
        for (record, recorded) in self.recorded.iter().enumerate() {
            let one_of = if record == 1 { scope.bytes } else { scope.others };
            for (file, draft) in FILES {
                let Some(content) = recorded.state.get(*file) else {
                    continue;
                };
                let whole = content.len();
                let mut damages = vec![Damage::Lost, Damage::Torn(whole / 2)];
                for length in (0..=whole).filter(|length| length.is_multiple_of(one_of)) {
                    damages.push(Damage::Torn(length));
                    // A draft is never read, so fewer lengths suffice.
                    if length.is_multiple_of(16 * one_of) {
                        damages.push(Damage::Draft(draft, length));
                    }
                }
                states.extend(damages.into_iter().map(|damage| FileState {
                    record,
                    file,
                    damage,
                    call: if lcg.below(2) == 0 { Call::Prepare } else { Call::Unprepare },
                }));
            }
        }
        states
    }

    /// Starts the agent on one state and returns what is wrong, if anything.
    pub(super) fn run(&mut self, state: FileState, tally: &SweepCounts) -> Result<(), String> {
        let node = &mut self.cycle.node;
        node.forget();
        let recorded = &self.recorded[state.record];
        node.rig.machine().machine.set_hardware(&recorded.hardware);
        let mut files = recorded.state.clone();
        let content = files[state.file].clone();
        let first = |length: usize| content[..length.min(content.len())].to_vec();
        match state.damage {
            Damage::Draft(draft, length) => drop(files.insert(draft.to_owned(), first(length))),
            Damage::Torn(length) => drop(files.insert(state.file.to_owned(), first(length))),
            Damage::Lost => drop(files.remove(state.file)),
        }
        write(&node.rig.machine().state(), &files);
        write(&node.rig.cdi_dir(), &recorded.specs);
        self.call(state.call)?;
        tally.converged(state.call == Call::Prepare);
        Ok(())
    }
}
