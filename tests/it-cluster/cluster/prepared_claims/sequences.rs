//! Random sequences of everything that happens to the claims of a node, on the shipped agent. After each step, hardware,
//! record and CDI specifications equal the allocated claims, and no instance in use is gone.
//!
//! The test plays the kubelet and the scheduler: it allocates devices that the planner can combine.
//! `OCTAVO_SEQUENCE=7` runs sequence 7 only.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use nvml_sim::model::MigMode;
use octavo_dra::{DraDevice, devices};
use octavo_model::inventory::Inventory;
use octavo_planner::layout::InstanceTarget;
use octavo_planner::plan::{Feasibility, feasible};

use super::node::{Call, Instance, KillableNode, NodeState, instance_of};
use super::rig::Claim;
use crate::cluster::claims::instance_target;
use crate::sweep::tally::Lcg;
use crate::sweep::{KillPoint, KillTiming, is_full, sweep};

const GPUS: &str = "- {board: A100_40GB, mig: enabled}\n- {board: H100_80GB_SXM, mig: enabled}\n";
const STEPS: u64 = 12;
/// More than the calls of a Prepare or an Unprepare with a start of the agent.
const MAX_CALL: u64 = 250;

/// Allocated claims by name, with their devices.
type Claims = BTreeMap<String, (Claim, BTreeSet<DraDevice>)>;

/// A node during a sequence.
struct SequenceNode {
    node: KillableNode,
    keeps: bool,
    /// The hardware without instances.
    empty: Inventory,
    fresh: Vec<u8>,
    random: Lcg,
    claims: Claims,
    /// Instances of processes by process id.
    processes: BTreeMap<u32, Instance>,
    number: u32,
    /// The steps so far.
    steps: String,
}

impl SequenceNode {
    fn new(keeps: bool) -> Self {
        let arguments: &[&str] =
            if keeps { &["--dra-release=keep"] } else { &["--dra-release=destroy"] };
        let node = KillableNode::new(GPUS, arguments);
        Self {
            keeps,
            empty: node.rig.inventory(),
            fresh: node.rig.machine().machine.hardware(),
            node,
            random: Lcg::new(0),
            claims: Claims::new(),
            processes: BTreeMap::new(),
            number: 0,
            steps: String::new(),
        }
    }

    /// Runs one sequence and returns what is wrong, if anything.
    fn run(&mut self, seed: u64) -> Result<(), String> {
        self.random = Lcg::new(seed);
        self.steps.clear();
        self.node.forget();
        self.node.rig.machine().machine.set_hardware(&self.fresh);
        let ran = self.run_steps();
        ran.map_err(|what| format!("{what}\nsteps:{}", self.steps))
    }

    fn run_steps(&mut self) -> Result<(), String> {
        for _ in 0..STEPS {
            let before = self.node.world();
            self.step()?;
            self.node.check_in_use(&before)?;
            self.check()?;
        }
        for pid in self.processes.keys().copied().collect::<Vec<_>>() {
            self.end_process(pid);
        }
        self.check()?;
        for name in self.claims.keys().cloned().collect::<Vec<_>>() {
            self.end(&name)?;
        }
        self.check()
    }

    fn step(&mut self) -> Result<(), String> {
        match self.random.below(14) {
            0..5 => self.begin(),
            5..7 => self.with_claim(Self::end),
            7 => self.with_claim(Self::end_while_agent_is_down),
            8 => self.with_claim(Self::delete_while_agent_is_down),
            9 => self.reboot(),
            10 => {
                self.note("agent restarts");
                self.node.kill();
                self.node.start();
                Ok(())
            }
            11 => {
                self.note("kubelet restarts");
                self.prepare_all()
            }
            12 => self.with_claim(Self::start_process),
            _ => {
                if let Some(pid) = self.processes.keys().next().copied() {
                    self.end_process(pid);
                }
                Ok(())
            }
        }
    }

    fn note(&mut self, step: &str) {
        write!(self.steps, " {step};").unwrap();
    }

    /// Runs a step for a random claim, if there is one.
    fn with_claim(
        &mut self,
        step: impl FnOnce(&mut Self, &str) -> Result<(), String>,
    ) -> Result<(), String> {
        let names: Vec<String> = self.claims.keys().cloned().collect();
        match self.random.pick(&(0..names.len()).collect::<Vec<_>>(), 1).as_slice() {
            [one] => step(self, &names[*one]),
            _ => Ok(()),
        }
    }

    /// Allocates one or two devices that no claim excludes.
    fn allocate(&mut self) -> BTreeSet<DraDevice> {
        let all = devices(&self.empty, &BTreeSet::new());
        let mut chosen = BTreeSet::new();
        let wanted = if self.random.below(4) == 0 { 2 } else { 1 };
        for _ in 0..20 {
            let at = self.random.below(u64::try_from(all.len()).unwrap());
            let device = &all[usize::try_from(at).unwrap()];
            let allocated = self.claims.values().flat_map(|(_, devices)| devices);
            let others = allocated.chain(&chosen).filter(|one| one.pci == device.pci);
            let mut targets: Vec<InstanceTarget> =
                others.chain([device]).filter_map(instance_target).collect();
            targets.sort();
            let gpu = self.empty.device(device.pci).unwrap();
            if feasible(gpu, &targets) == Ok(Feasibility::Feasible) {
                chosen.insert(device.clone());
            }
            if chosen.len() == wanted {
                break;
            }
        }
        chosen
    }

    /// A pod with a new claim starts.
    fn begin(&mut self) -> Result<(), String> {
        let devices = self.allocate();
        if devices.is_empty() {
            return Ok(());
        }
        self.number += 1;
        let name = format!("claim-{}", self.number);
        let names: Vec<String> = devices.iter().map(|one| one.name().to_string()).collect();
        let all: Vec<&str> = names.iter().map(String::as_str).collect();
        let claim = self.node.rig.claim(&name, &all);
        self.note(&format!("{name} begins with {}", names.join(" and ")));
        self.claims.insert(name, (claim.clone(), devices));
        self.call(Call::Prepare, &claim)
    }

    /// The pod of a claim ends.
    fn end(&mut self, name: &str) -> Result<(), String> {
        self.note(&format!("{name} ends"));
        let (claim, _) = self.claims.remove(name).unwrap();
        self.call(Call::Unprepare, &claim)?;
        self.node.rig.delete(&claim);
        Ok(())
    }

    fn end_while_agent_is_down(&mut self, name: &str) -> Result<(), String> {
        self.note("agent stops");
        self.node.kill();
        self.end(name)
    }

    /// The claim is deleted, and the kubelet has lost it.
    #[expect(clippy::unnecessary_wraps, reason = "all steps have the same signature")]
    fn delete_while_agent_is_down(&mut self, name: &str) -> Result<(), String> {
        self.note(&format!("agent stops; {name} is deleted; agent starts"));
        self.node.kill();
        let (claim, _) = self.claims.remove(name).unwrap();
        self.node.rig.delete(&claim);
        self.node.start();
        Ok(())
    }

    fn reboot(&mut self) -> Result<(), String> {
        self.note("reboot");
        self.node.kill();
        self.node.rig.reboot();
        self.processes.clear();
        // The mode of an H100 does not survive. Source: MIG User Guide.
        self.node.rig.machine().machine.change(|world| {
            let slot = world.slot_of_index(1).unwrap();
            world.set_mig_mode(slot, MigMode::Enabled)
        });
        self.prepare_all()
    }

    /// The kubelet prepares the claims of all its pods.
    fn prepare_all(&mut self) -> Result<(), String> {
        let claims: Vec<Claim> = self.claims.values().map(|(claim, _)| claim.clone()).collect();
        claims.iter().try_for_each(|claim| self.call(Call::Prepare, claim))
    }

    #[expect(clippy::unnecessary_wraps, reason = "all steps have the same signature")]
    fn start_process(&mut self, name: &str) -> Result<(), String> {
        let (_, devices) = &self.claims[name];
        let instance = instance_of(&self.node.world(), devices.first().unwrap());
        self.number += 1;
        let pid = 4000 + self.number;
        self.node.add_process(pid, &instance);
        self.note(&format!("process {pid} starts in {instance:?}"));
        self.processes.insert(pid, instance);
        Ok(())
    }

    fn end_process(&mut self, pid: u32) {
        self.note(&format!("process {pid} ends"));
        self.node.rig.remove_process(pid);
        self.processes.remove(&pid);
    }

    /// Calls the agent until it succeeds, like the kubelet. One agent in three is killed at a random call.
    fn call(&mut self, call: Call, claim: &Claim) -> Result<(), String> {
        let kill = (self.random.below(3) == 0).then(|| KillPoint {
            call: self.random.below(MAX_CALL) + 1,
            when: if self.random.below(2) == 0 { KillTiming::Before } else { KillTiming::After },
        });
        if let Some(kill) = kill {
            self.note(&format!("agent is killed {kill:?}"));
            self.node.arm(Some(kill));
            self.node.start();
            let answered = self.node.call(call, claim);
            self.node.arm(None);
            // An agent that answered can be at the call that ends it.
            self.node.kill();
            self.node.start();
            if let Some(Ok(_)) = answered {
                return Ok(());
            }
        }
        self.node.start();
        while let Some(Err(refused)) = self.node.call(call, claim) {
            // A process of an ended claim still runs in an instance that has slices or engines of the device.
            let Some(pid) = self.process_without_claim() else {
                let what = format!("{call:?} of {}: {refused}", claim.name);
                return Err(self.node.failure(&what));
            };
            self.end_process(pid);
        }
        if self.node.has_ended() {
            Err(self.node.failure("the agent ended by itself"))
        } else {
            Ok(())
        }
    }

    fn process_without_claim(&self) -> Option<u32> {
        let claimed = self.claimed();
        let mut others = self.processes.iter().filter(|(_, instance)| !claimed.contains(*instance));
        others.next().map(|(pid, _)| *pid)
    }

    /// The instances of all claims.
    fn claimed(&self) -> BTreeSet<Instance> {
        let world = self.node.world();
        let devices = self.claims.values().flat_map(|(_, devices)| devices);
        devices.map(|device| instance_of(&world, device)).collect()
    }

    /// Waits until everything equals the claims.
    fn check(&mut self) -> Result<(), String> {
        self.node.start();
        let claimed = self.claimed();
        let in_use: BTreeSet<Instance> =
            self.processes.values().filter(|one| !claimed.contains(*one)).cloned().collect();
        let specs: BTreeSet<String> = self.claims.values().map(|(claim, _)| claim.spec()).collect();
        let claims: BTreeMap<String, bool> =
            self.claims.values().map(|(claim, _)| (claim.uid.clone(), true)).collect();
        let keeps = self.keeps;
        let is_equal = |state: &NodeState| {
            let instances: BTreeSet<Instance> = claimed.union(&state.released).cloned().collect();
            let is_released =
                if keeps { state.released.is_disjoint(&claimed) } else { state.released == in_use };
            state.instances == instances
                && is_released
                && (&state.specs, &state.claims) == (&specs, &claims)
                && !state.has_journal
        };
        let what = (&claimed, &in_use, &specs, &claims);
        // An agent that is to be killed may reach its call after it has answered.
        let is_running = self.node.settle(&what, is_equal)? || {
            self.node.start();
            self.node.settle(&what, is_equal)?
        };
        if is_running {
            drop(self.node.take_log());
            return Ok(());
        }
        Err(self.node.failure("the agent ended by itself"))
    }
}

#[test]
fn i3_random_sequences_of_claims_end_with_hardware_that_equals_the_claims() {
    let seeds: Vec<u64> = match std::env::var("OCTAVO_SEQUENCE") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) if is_full() => (0..300).collect(),
        Err(_) => (0..4).collect(),
    };
    for keeps in [false, true] {
        let seeds: Vec<u64> =
            seeds.iter().copied().filter(|seed| seed.is_multiple_of(2) != keeps).collect();
        let new = || SequenceNode::new(keeps);
        let failures = sweep(("sequence", 3), new, &seeds, SequenceNode::run);
        assert!(failures.is_empty(), "\n{}\n", failures.join("\n\n"));
    }
}
