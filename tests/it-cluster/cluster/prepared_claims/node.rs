//! A node whose agent is killed at any call, and whose hardware, record and CDI specifications are compared with its
//! claims.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use nvml_sim::model::{Process, ProcessKind, World};
use octavo_dra::claims::{ClaimState, PreparedClaims};
use octavo_dra::{DraDevice, DraDeviceKind};

use super::rig::{Claim, ClaimRig};
use crate::cluster::Api;
use crate::process::Program;
use crate::sweep::KillPoint;
use crate::sweep::world::{in_use, instances, there};
use crate::time_limits::{eventually, until};

/// An instance: GPU, profile, first slice.
pub(super) type Instance = (usize, String, u32);

/// A call of the kubelet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    Prepare,
    Unprepare,
}

/// Everything that must match the claims.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct NodeState {
    pub(super) instances: BTreeSet<Instance>,
    /// File names of the CDI specifications.
    pub(super) specs: BTreeSet<String>,
    /// Recorded claims by UID; true for prepared ones.
    pub(super) claims: BTreeMap<String, bool>,
    /// Recorded instances of ended claims.
    pub(super) released: BTreeSet<Instance>,
    /// True if a change is unfinished.
    pub(super) has_journal: bool,
}

/// The instance that is this device.
pub(super) fn instance_of(world: &World, device: &DraDevice) -> Instance {
    let address = device.pci.to_string();
    let gpu = world.gpus.iter().position(|gpu| gpu.pci.sysfs() == address).unwrap();
    match &device.what {
        DraDeviceKind::Gpu => (gpu, "gpu".to_owned(), 0),
        DraDeviceKind::Partition { profile, placement, .. } => {
            (gpu, profile.to_string(), placement.start)
        }
    }
}

/// A node with an agent that can be killed.
pub(super) struct KillableNode {
    pub(super) rig: ClaimRig,
    arguments: &'static [&'static str],
    agent: Option<Program>,
    /// Logs of the agents that ended since the last step.
    log: Vec<String>,
}

impl KillableNode {
    pub(super) fn new(gpus: &str, arguments: &'static [&'static str]) -> Self {
        let rig = ClaimRig::new(Api::shared(), gpus);
        Self { rig, arguments, agent: None, log: Vec::new() }
    }

    /// Kills the agent at this call, counted from now or from its start.
    pub(super) fn arm(&self, kill: Option<KillPoint>) {
        self.arm_at("nvml*", kill);
    }

    /// The same, counting the calls of these functions only.
    pub(super) fn arm_at(&self, functions: &str, kill: Option<KillPoint>) {
        let rules: Vec<String> = kill.iter().map(|kill| kill.rule(functions)).collect();
        self.rig.machine().machine.faults(&format!("[{}]\n", rules.join(", ")));
    }

    /// Starts an agent if none runs.
    pub(super) fn start(&mut self) {
        self.start_with(&[]);
    }

    /// The same with additional variables of the environment.
    pub(super) fn start_with(&mut self, environment: &[(&str, &str)]) {
        if self.has_ended() {
            self.kill();
            let mut command = self.rig.agent(self.arguments);
            command.envs(environment.iter().copied());
            self.agent = Some(Program::start(&mut command));
        }
    }

    /// Kills the agent, if one runs.
    pub(super) fn kill(&mut self) {
        if let Some(mut agent) = self.agent.take() {
            self.log.push("-- an agent --".to_owned());
            self.log.extend(agent.kill());
        }
    }

    /// Kills the agent and removes its records, without which it has no claims.
    pub(super) fn forget(&mut self) {
        self.kill();
        self.log.clear();
        for directory in [self.rig.machine().state(), self.rig.cdi_dir()] {
            // Absent before the first claim.
            let _absent = fs::remove_dir_all(directory);
        }
    }

    /// The logs since the last step.
    pub(super) fn take_log(&mut self) -> String {
        std::mem::take(&mut self.log).join("\n")
    }

    /// Waits until the agent has ended.
    pub(super) fn await_end(&mut self) {
        eventually("the end of the agent", || self.has_ended());
    }

    /// Returns whether no agent runs.
    pub(super) fn has_ended(&mut self) -> bool {
        self.agent.as_mut().is_none_or(Program::has_ended)
    }

    /// Calls the agent until it answers with the number of devices or an error; `None` if it ends before.
    pub(super) fn call(&mut self, call: Call, claim: &Claim) -> Option<Result<usize, String>> {
        let Self { rig, agent, .. } = self;
        let ask = || match call {
            Call::Prepare => rig.try_prepare(claim).map(|done| done.map(|devices| devices.len())),
            Call::Unprepare => rig.try_unprepare(claim).map(|done| done.map(|()| 0)),
        };
        let mut has_ended = || agent.as_mut().is_none_or(Program::has_ended);
        let answered = until(
            "an answer or the end of the agent",
            || ask().map(Some).or_else(|| has_ended().then_some(None)),
            Option::is_some,
        );
        answered.flatten()
    }

    /// Calls a running agent, which must succeed.
    pub(super) fn succeed(&mut self, call: Call, claim: &Claim) -> Result<(), String> {
        self.start();
        match self.call(call, claim) {
            Some(Ok(_)) => Ok(()),
            Some(Err(error)) => Err(self.failure(&format!("{call:?} of {}: {error}", claim.name))),
            None => Err(self.failure("the agent ended by itself")),
        }
    }

    /// A failure with the logs.
    pub(super) fn failure(&mut self, what: &str) -> String {
        self.kill();
        format!("{what}; the agents logged:\n{}", self.take_log())
    }

    /// The current state of disk and hardware.
    pub(super) fn state(&self) -> NodeState {
        let world = self.world();
        let gpus = 0..world.gpus.len();
        let found = gpus.flat_map(|gpu| {
            let all = self.rig.machine().geometry(gpu).into_iter();
            all.map(move |(profile, start)| (gpu, profile, start))
        });
        let directory = self.rig.machine().state();
        let text = fs::read_to_string(directory.join("claims.json")).unwrap_or_default();
        let record: PreparedClaims = serde_json::from_str(&text).unwrap_or_default();
        let claims = record.claims.iter();
        let claims = claims.map(|(uid, claim)| (uid.as_str().to_owned(), claim.state));
        let released = record.released.iter().map(|device| instance_of(&world, device));
        NodeState {
            instances: found.collect(),
            specs: self.rig.specs(),
            claims: claims.map(|(uid, state)| (uid, state == ClaimState::Prepared)).collect(),
            released: released.collect(),
            has_journal: directory.join("journal").exists(),
        }
    }

    /// Waits until the state satisfies `wanted` or the agent has ended. Returns whether the agent runs.
    pub(super) fn settle(
        &mut self,
        what: &impl Debug,
        wanted: impl Fn(&NodeState) -> bool,
    ) -> Result<bool, String> {
        let settled = catch_unwind(AssertUnwindSafe(|| {
            let read = || (self.has_ended(), self.state());
            let what = format!("{what:#?}");
            until(&what, read, |(has_ended, state)| *has_ended || wanted(state))
        }));
        if let Ok((has_ended, _)) = settled {
            return Ok(!has_ended);
        }
        // With the logs, unlike the panic.
        let state = self.state();
        Err(self.failure(&format!("I3: the node has {state:#?}, wanted: {what:#?}")))
    }

    pub(super) fn world(&self) -> Arc<World> {
        self.rig.machine().machine.world()
    }

    /// Checks that the instances in use before are still there.
    pub(super) fn check_in_use(&mut self, before: &World) -> Result<(), String> {
        let now = self.world();
        let there = there(&now);
        let still_used: Vec<u32> = now.processes.iter().map(|process| process.pid).collect();
        let mut remaining = before.clone();
        remaining.processes.retain(|process| still_used.contains(&process.pid));
        match in_use(&remaining).into_iter().find(|uuid| !there.contains(uuid)) {
            Some(lost) => Err(self.failure(&format!("I1: {lost} was in use and is gone"))),
            None => Ok(()),
        }
    }

    /// Starts a process in an instance.
    pub(super) fn add_process(&self, pid: u32, (gpu, profile, start): &Instance) {
        let world = self.world();
        let gpu = &world.gpus[*gpu];
        let id = gpu.profiles.iter().find(|one| one.name == *profile).unwrap().id;
        let instance = instances(gpu)
            .find(|one| one.profile_id == id && one.placement.start == *start)
            .unwrap();
        let process = Process {
            pid,
            name: "train".to_owned(),
            gpu_uuid: gpu.uuid.clone(),
            gi: Some(instance.id),
            ci: Some(instance.compute[0].id),
            memory_mib: 100,
            kind: ProcessKind::Compute,
        };
        self.rig.machine().machine.change(|world| world.add_process(process));
    }
}
