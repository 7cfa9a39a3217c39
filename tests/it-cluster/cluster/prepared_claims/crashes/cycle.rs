//! A machine on which the steps of a case are repeated, each interrupted at another call.

use std::fs;
use std::path::PathBuf;

use super::cases::{Action, Case, Part, Step};
use crate::cluster::prepared_claims::node::{Call, Instance, KillableNode, NodeState};
use crate::cluster::prepared_claims::rig::Claim;
use crate::sweep::points::SweepPoint;
use crate::sweep::tally::SweepCounts;
use crate::sweep::world::there;

/// The process of a case.
const PID: u32 = 5120;

/// A machine with a case.
pub(super) struct InterruptedCycle {
    pub(super) node: KillableNode,
    case: &'static Case,
    pub(super) claims: Vec<Claim>,
}

fn instance((gpu, profile, start): Part) -> Instance {
    (gpu, profile.to_owned(), start)
}

fn opposite(call: Call) -> Call {
    match call {
        Call::Prepare => Call::Unprepare,
        Call::Unprepare => Call::Prepare,
    }
}

impl InterruptedCycle {
    /// A machine before the first step, with a running agent.
    pub(super) fn new(case: &'static Case) -> Self {
        let mut node = KillableNode::new(case.gpus, case.arguments);
        let claims = case.claims.iter().enumerate().map(|(number, devices)| {
            let devices = devices.iter();
            let devices = devices.map(|(gpu, name, start)| node.rig.device_on(*gpu, name, *start));
            let devices: Vec<String> = devices.collect();
            let devices: Vec<&str> = devices.iter().map(String::as_str).collect();
            node.rig.claim(&format!("claim-{number}"), &devices)
        });
        let claims: Vec<Claim> = claims.collect();
        if let Some(part) = case.in_use {
            node.add_process(PID, &instance(part));
        }
        // The agent has answered, so the next calls are those of the next step.
        node.succeed(Call::Unprepare, &claims[0]).unwrap();
        if let Some(claim) = case.prepared {
            node.succeed(Call::Prepare, &claims[claim]).unwrap();
        }
        Self { node, case, claims }
    }

    /// The state after a step.
    pub(super) fn wanted(&self, step: &Step) -> NodeState {
        let prepared = step.prepared.iter().map(|claim| &self.claims[*claim]);
        NodeState {
            instances: step.instances.iter().copied().map(instance).collect(),
            specs: prepared.clone().map(Claim::spec).collect(),
            claims: prepared.map(|claim| (claim.uid.clone(), true)).collect(),
            released: step.released.iter().copied().map(instance).collect(),
            has_journal: false,
        }
    }

    /// The calls of each step without interruption.
    pub(super) fn calls(&mut self) -> Vec<Vec<String>> {
        let log: PathBuf = self.node.rig.machine().machine.path().join("calls.jsonl");
        self.node.kill();
        self.node.start_with(&[("NVML_SIM_LOG", &log.display().to_string())]);
        let none = vec![None; self.case.steps.len()];
        // The first cycle starts without instances of ended claims.
        self.run(&none, &SweepCounts::default()).unwrap();
        let lines = || fs::read_to_string(&log).unwrap().lines().count();
        let mut ends = vec![lines()];
        for step in 0..self.case.steps.len() {
            self.run_step(step, None, &SweepCounts::default()).unwrap();
            ends.push(lines());
        }
        let text = fs::read_to_string(&log).unwrap();
        let calls = text.lines().map(|line| {
            let entry: serde_json::Value = serde_json::from_str(line).unwrap();
            entry["function"].as_str().unwrap().to_owned()
        });
        let calls: Vec<String> = calls.collect();
        ends.windows(2).map(|ends| calls[ends[0]..ends[1]].to_vec()).collect()
    }

    /// Runs all steps and returns what is wrong, if anything.
    pub(super) fn run(
        &mut self,
        kills: &[Option<SweepPoint>],
        tally: &SweepCounts,
    ) -> Result<(), String> {
        for (step, kill) in kills.iter().enumerate() {
            let run = self.run_step(step, *kill, tally);
            run.map_err(|what| format!("step {step}: {what}"))?;
        }
        Ok(())
    }

    fn run_step(
        &mut self,
        index: usize,
        kill: Option<SweepPoint>,
        tally: &SweepCounts,
    ) -> Result<(), String> {
        let step = &self.case.steps[index];
        let wanted = self.wanted(step);
        drop(self.node.take_log());
        let before = self.node.world();
        self.node.arm(kill.map(|kill| kill.first));
        let is_answered = match step.action {
            Action::Call(call, claim) => self.call(call, claim)?,
            Action::StartProcess(part) => {
                self.node.add_process(PID, &instance(part));
                true
            }
            Action::EndProcess => {
                self.node.rig.remove_process(PID);
                true
            }
        };
        let is_running = is_answered && self.settle(&wanted)?;
        self.node.arm(None);
        match kill {
            Some(_) if is_running => {
                tally.missed();
                // The agent may already be at the call.
                self.restart(step)?;
            }
            Some(kill) => self.recover(index, kill, tally)?,
            None if !is_running => return Err(self.node.failure("the agent ended by itself")),
            None => {}
        }
        self.node.check_in_use(&before)?;
        match kill {
            Some(kill) if kill.twice => self.restart(step),
            Some(_) | None => Ok(()),
        }
    }

    /// Calls the agent. Returns whether it answered.
    fn call(&mut self, call: Call, claim: usize) -> Result<bool, String> {
        let answer = self.node.call(call, &self.claims[claim]);
        let wanted = if call == Call::Prepare { self.case.claims[claim].len() } else { 0 };
        match answer {
            Some(Ok(devices)) if devices == wanted => Ok(true),
            Some(answer) => Err(self.node.failure(&format!("{call:?} answered {answer:?}"))),
            None => Ok(false),
        }
    }

    /// Starts agents after a kill until the state is that after the step. The kubelet repeats its call or, sometimes, calls
    /// the opposite first.
    fn recover(
        &mut self,
        index: usize,
        kill: SweepPoint,
        tally: &SweepCounts,
    ) -> Result<(), String> {
        let step = &self.case.steps[index];
        let wanted = self.wanted(step);
        if let Some(second) = kill.second {
            self.node.kill();
            self.node.arm(Some(second));
            self.node.start();
            let is_answered = match step.action {
                Action::Call(call, claim) => self.call(call, claim)?,
                Action::StartProcess(_) | Action::EndProcess => true,
            };
            if !(is_answered && self.settle(&wanted)?) {
                tally.killed_twice();
            }
            self.node.arm(None);
        }
        let is_opposite = self.case.is_reversible && kill.first.call.is_multiple_of(4);
        if let Action::Call(call, claim) = step.action {
            if is_opposite {
                let previous = index.checked_sub(1).unwrap_or(self.case.steps.len() - 1);
                self.node.succeed(opposite(call), &self.claims[claim])?;
                self.expect(&self.wanted(&self.case.steps[previous]))?;
            }
            self.node.succeed(call, &self.claims[claim])?;
        }
        self.node.start();
        self.expect(&wanted)?;
        tally.converged(!is_opposite);
        Ok(())
    }

    /// Waits until the state is `wanted` or the agent has ended. Returns whether the agent runs.
    fn settle(&mut self, wanted: &NodeState) -> Result<bool, String> {
        self.node.settle(wanted, |state| state == wanted)
    }

    pub(super) fn expect(&mut self, wanted: &NodeState) -> Result<(), String> {
        if self.settle(wanted)? {
            return Ok(());
        }
        Err(self.node.failure("the agent ended by itself"))
    }

    /// Checks that one more start and call change nothing.
    fn restart(&mut self, step: &Step) -> Result<(), String> {
        let before = there(&self.node.world());
        self.node.kill();
        self.node.start();
        if let Action::Call(call, claim) = step.action {
            self.node.succeed(call, &self.claims[claim])?;
        }
        self.expect(&self.wanted(step))?;
        if there(&self.node.world()) == before {
            return Ok(());
        }
        Err(self.node.failure("I3: the next start replaced an instance"))
    }
}
