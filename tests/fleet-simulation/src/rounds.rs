//! Changes of GPUs by an agent: decision, journal, transactions and their end, in the order of `octavo_engine`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use octavo_files::journal;
use octavo_model::call::{CallFailure, CallResult, DriverCall, FailureKind};
use octavo_model::holder::Holder;
use octavo_model::id::PciAddress;
use octavo_model::inventory::{Device, Inventory};
use octavo_planner::layout::{MigTarget, Targets};
use octavo_planner::plan::Policy;
use octavo_planner::reconcile::{
    ActionResult, ChangeRound, Decision, DriftPolicy, Limits, NextAction, ObservedUsers,
    ReconcileInput, Transaction,
};

use crate::round_inputs::{drop_reached, drop_untouched, targets};
use crate::state::agent::{Round, RunningChange};
use crate::state::gpu::{destroys, processes};
use crate::state::layouts::{GPUS, IMPOSSIBLE, LAYOUTS, gpu_address, gpu_number, layout};
use crate::state::machine::{OpenChange, is_at, shapes};
use crate::state::queue::{AgentTask, Event};
use crate::state::{Phase, World};

/// Reason for unknown holders.
const KUBELET_DOWN: &str = "the kubelet does not answer";

impl World {
    /// Compares the node with its layout, and starts the changes. Returns when to compare again, if nothing changes.
    pub(crate) fn start_round(&mut self, node: usize) -> Option<Duration> {
        let now = self.now;
        let run = self.machines[node].run;
        let is_kubelet_down = self.machines[node].kubelet_down_until > now;
        let holders = if is_kubelet_down { Vec::new() } else { self.machines[node].holders() };
        let agent = self.agent(node, run)?;
        let local = now.saturating_sub(agent.began);
        let (layout, wanted) = targets(agent);
        let before = agent.record.clone();
        drop_untouched(agent);
        let inventory = Arc::clone(&agent.inventory);
        let input = ReconcileInput {
            inventory: &inventory,
            targets: &wanted,
            holders: &holders,
            holders_unknown: is_kubelet_down.then_some(KUBELET_DOWN),
            policy: &Policy::default(),
            drift: DriftPolicy::Repair,
            record: agent.record.as_ref(),
        };
        let decision = agent.reconciler.reconcile(local, &input);
        drop_reached(agent);
        if agent.record != before {
            self.write_journal(node);
        }
        self.close_changes(node);
        if decision.change.is_empty() {
            return decision.again.map(|at| at.saturating_sub(local));
        }
        if is_kubelet_down {
            // An unfinished change is continued, and its users are queried before each call.
            self.note(|| format!("node {node}: holders are unknown"));
        }
        let name = layout.unwrap_or_else(|| "(none)".to_owned());
        self.begin_changes(node, &decision, (&name, &wanted), &holders);
        None
    }

    fn begin_changes(
        &mut self,
        node: usize,
        decision: &Decision,
        (layout, targets): (&str, &Targets),
        holders: &[Holder],
    ) {
        let now = self.now;
        let run = self.machines[node].run;
        let Some(agent) = self.agent(node, run) else { return };
        agent.rounds += 1;
        let changes = ChangeRound {
            inventory: &agent.inventory,
            layout,
            targets,
            plan: &format!("{}-{}", now.as_millis(), agent.rounds),
            record: agent.record.as_ref(),
            decision,
            holders,
            policy: Policy::default(),
            limits: Limits::default(),
        };
        let requests = changes.requests();
        let journal = changes.journal(&requests);
        agent.record = Some(journal);
        let mut round =
            Round { layout: layout.to_owned(), running: [].into(), outcomes: Vec::new() };
        let mut resumed = 0;
        for request in requests {
            let (pci, is_resumed) = (request.target.pci, request.resumed);
            agent.reconciler.change_started(pci);
            resumed += u64::from(is_resumed);
            let Some(transaction) = Transaction::new(request) else { continue };
            round.running.insert(pci, RunningChange::new(transaction, now, is_resumed));
        }
        agent.round = Some(round);
        self.counts.resumed += resumed;
        self.write_journal(node);
        if self.kill_by_chance(node) {
            return;
        }
        for pci in &decision.change {
            self.schedule_action(node, *pci);
        }
    }

    /// Writes the journal file of a node.
    fn write_journal(&mut self, node: usize) {
        let run = self.machines[node].run;
        let Some(agent) = self.agent(node, run) else { return };
        agent.record.take_if(|record| record.devices.is_empty());
        let text = agent.record.as_ref().map(journal::write);
        self.machines[node].journal = text;
    }

    /// Kills the agent with the probability of this run. Returns whether it was killed.
    fn kill_by_chance(&mut self, node: usize) -> bool {
        let chance = self.machines[node].kill_chance;
        if chance == 0 || !self.chance(chance) {
            return false;
        }
        self.counts.kills += 1;
        // The next agent is often killed as well.
        if self.chance(400) {
            self.machines[node].kill_chance = 0;
        }
        let restart = self.seconds(1, 20);
        self.note(|| format!("node {node}: the agent is killed during a change"));
        self.kill_agent(node, restart);
        // The user withdraws the layout whose change was interrupted, or chooses another one.
        if !self.machines[node].is_in_pool && self.chance(300) {
            let row = LAYOUTS[self.random.usize(0..LAYOUTS.len())].name;
            let is_removed = self.chance(600);
            self.choose_layout(node, (!is_removed).then_some(row));
        }
        true
    }

    /// Schedules the end of the action that a transaction requested; handles its end immediately.
    fn schedule_action(&mut self, node: usize, pci: PciAddress) {
        let run = self.machines[node].run;
        let Some(agent) = self.agent(node, run) else { return };
        let Some(round) = &mut agent.round else { return };
        let Some(change) = round.running.get(&pci) else { return };
        let takes = match change.action.clone() {
            NextAction::End(outcome) => {
                round.running.remove(&pci);
                round.outcomes.push((pci, outcome));
                if round.running.is_empty() {
                    self.finish_round(node);
                }
                return;
            }
            NextAction::Wait(wait) => wait,
            NextAction::FindUsers => self.milliseconds(5, 50),
            NextAction::Read => self.milliseconds(10, 100),
            NextAction::Call(_) => self.milliseconds(50, 1500),
        };
        let at = (self.now + takes).max(self.machines[node].hangs_until);
        self.agent_task(node, at, AgentTask::Step(pci));
    }

    fn milliseconds(&mut self, shortest: u64, longest: u64) -> Duration {
        self.between((Duration::from_millis(shortest), Duration::from_millis(longest)))
    }

    /// Performs the action that the transaction of a device requested.
    pub(crate) fn step(&mut self, node: usize, run: u32, pci: PciAddress) {
        let now = self.now;
        let Some(gpu) = gpu_number(pci) else { return };
        if self.machines[node].hangs_until > now {
            self.schedule_action(node, pci);
            return;
        }
        let is_kubelet_down = self.machines[node].kubelet_down_until > now;
        // A process starts between the plan and its calls.
        if self.phase == Phase::Faults && self.chance(15) {
            self.start_process(node, gpu);
        }
        let Some(change) = self.running(node, run, pci) else { return };
        let answer = match change.action.clone() {
            NextAction::End(_) => return,
            NextAction::Wait(_) => ActionResult::Waited,
            NextAction::FindUsers if is_kubelet_down => {
                ActionResult::UsersFound(Err(KUBELET_DOWN.to_owned()))
            }
            NextAction::FindUsers => {
                change.users_found = now;
                let machine = &mut self.machines[node];
                let processes = processes(machine.users(gpu));
                let holders = machine.holders();
                ActionResult::UsersFound(Ok(ObservedUsers { processes, holders }))
            }
            NextAction::Read => ActionResult::Read(self.read_during_change(node, gpu)),
            NextAction::Call(call) => {
                if self.kill_by_chance(node) {
                    return;
                }
                let result = self.call(node, gpu, call);
                if self.kill_by_chance(node) {
                    return;
                }
                ActionResult::Called(result)
            }
        };
        let Some(change) = self.running(node, run, pci) else { return };
        change.action = change.transaction.next(now.saturating_sub(change.began), answer);
        // A change and its rollback have a time limit each. Calls that do not return are not part of it.
        let spent = now.saturating_sub(change.began);
        self.check(spent < Duration::from_mins(10), || {
            format!("I5: node {node}: {pci} does not end")
        });
        self.schedule_action(node, pci);
    }

    fn running(&mut self, node: usize, run: u32, pci: PciAddress) -> Option<&mut RunningChange> {
        self.agent(node, run)?.round.as_mut()?.running.get_mut(&pci)
    }

    fn read_during_change(&mut self, node: usize, gpu: usize) -> Result<Box<Device>, CallFailure> {
        if self.phase == Phase::Faults && self.chance(5) {
            let what = "nvmlDeviceGetGpuInstances: timeout".to_owned();
            return Err(CallFailure { kind: FailureKind::Temporary, what });
        }
        Ok(Box::new(self.machines[node].read(gpu)))
    }

    /// Makes a driver call, and checks whether it is permitted.
    fn call(
        &mut self,
        node: usize,
        gpu: usize,
        call: DriverCall,
    ) -> Result<CallResult, CallFailure> {
        self.counts.calls += 1;
        self.check_call(node, gpu, call);
        let machine = &mut self.machines[node];
        let users = machine.tenants.iter().map(|tenant| &tenant.user);
        let result = machine.gpus[gpu].call(call, users.filter(|user| user.gpu == gpu));
        self.note(|| format!("node {node}: GPU {gpu}: {call:?}: {result:?}"));
        self.touch(node);
        result
    }

    /// I1, I2, I3 and I4: no user, a layout that covers the GPU, a journal entry, and a feasible plan.
    fn check_call(&mut self, node: usize, gpu: usize, call: DriverCall) {
        let pci = gpu_address(gpu);
        let run = self.machines[node].run;
        let Some(change) = self.running(node, run, pci) else { return };
        let (users_found, is_resumed) = (change.users_found, change.is_resumed);
        let machine = &self.machines[node];
        let used = machine.tenants.iter().find(|tenant| {
            let is_here = tenant.user.gpu == gpu && destroys(call, &tenant.user);
            is_here && (tenant.pod.is_some() || tenant.user.since <= users_found)
        });
        let used = used.map(|tenant| format!("{:?}", tenant.user));
        let journal = machine.journal.as_ref().map(|text| journal::parse(text.as_bytes()));
        let record = journal.and_then(Result::ok);
        let entry = record.and_then(|record| record.devices.into_iter().find(|one| one.pci == pci));
        let state = machine.gpus[gpu].state();
        let before = shapes(state);
        self.check(used.is_none(), || {
            format!("I1: node {node}: GPU {gpu}: {call:?} destroys an instance in use: {used:?}")
        });
        let Some(entry) = entry else {
            self.fail(|| format!("I3: node {node}: GPU {gpu}: {call:?} without a journal entry"));
            return;
        };
        let row = layout(&entry.layout);
        let is_covered = row.is_some_and(|row| row.gpus[gpu].is_some());
        self.check(is_covered, || {
            format!("I2: node {node}: GPU {gpu}: {call:?} for layout {}", entry.layout)
        });
        self.check(entry.layout != IMPOSSIBLE || is_resumed, || {
            format!("I4: node {node}: GPU {gpu}: {call:?} for an infeasible layout")
        });
        let changes = &mut self.machines[node].open_changes;
        let open = changes.entry(pci).or_insert_with(|| OpenChange::new(before));
        if !open.goals.contains(&entry.target) {
            open.goals.push(entry.target);
        }
    }

    /// Records the results of a round, and writes the journal.
    fn finish_round(&mut self, node: usize) {
        let now = self.now;
        let run = self.machines[node].run;
        if self.kill_by_chance(node) {
            return;
        }
        let holders = self.machines[node].holders();
        let machine = &mut self.machines[node];
        let devices: Vec<_> = (0..machine.gpus.len()).map(|gpu| machine.read(gpu)).collect();
        let version = machine.version;
        let Some(agent) = self.agent(node, run) else { return };
        let Some(round) = agent.round.take() else { return };
        let mut inventory = Inventory::clone(&agent.inventory);
        inventory.devices = devices;
        agent.inventory = Arc::new(inventory);
        agent.scanned = version;
        let local = now.saturating_sub(agent.began);
        let mut ended = 0;
        for (pci, outcome) in round.outcomes {
            ended += 1;
            if outcome.is_settled()
                && let Some(record) = &mut agent.record
            {
                record.devices.retain(|entry| entry.pci != pci);
            }
            let after = (&*agent.inventory, holders.as_slice());
            agent.reconciler.ended(local, after, pci, outcome);
        }
        self.counts.changes += ended;
        self.note(|| format!("node {node}: the round for {} has ended", round.layout));
        self.write_journal(node);
        if self.kill_by_chance(node) {
            return;
        }
        self.close_changes(node);
        self.plan_scan(node, now);
    }

    /// I3: a change that the journal no longer lists has ended in its target or in the previous state.
    fn close_changes(&mut self, node: usize) {
        let machine = &mut self.machines[node];
        let Some(agent) = machine.agent.as_deref() else { return };
        let listed = agent.record.iter().flat_map(|record| &record.devices);
        let listed: BTreeSet<PciAddress> = listed.map(|entry| entry.pci).collect();
        let changing: Vec<PciAddress> =
            machine.open_changes.keys().filter(|pci| agent.is_changing(**pci)).copied().collect();
        let targets = agent.last_targets.iter().flat_map(|(_, targets)| &targets.devices);
        let wanted: Vec<(PciAddress, MigTarget)> =
            targets.filter_map(|target| Some((target.pci, target.mig.clone()?))).collect();
        let mut wrong = None;
        let gpus = &machine.gpus;
        machine.open_changes.retain(|pci, open| {
            if listed.contains(pci) || changing.contains(pci) {
                return true;
            }
            let state = gpus[gpu_number(*pci).unwrap()].state();
            // Another layout was selected meanwhile, and the GPU already had its instances.
            let wanted = wanted.iter().filter(|(of, _)| of == pci).map(|(_, target)| target);
            let is_at_goal = open.goals.iter().chain(wanted).any(|goal| is_at(state, goal));
            if !is_at_goal && !open.is_any_state && shapes(state) != open.before {
                wrong = Some(format!(
                    "I3: node {node}: {pci} is neither in its target nor in its previous state: {:?}, {open:?}",
                    shapes(state)
                ));
            }
            false
        });
        if let Some(wrong) = wrong {
            self.fail(|| wrong);
        }
    }

    /// Another program changed a GPU, or a reboot did: a change that is not finished may end in any state.
    pub(crate) fn permit_any_state(&mut self, node: usize, gpu: usize) {
        let machine = &mut self.machines[node];
        let before = shapes(machine.gpus[gpu].state());
        let changes = machine.open_changes.entry(gpu_address(gpu));
        changes.or_insert_with(|| OpenChange::new(before)).is_any_state = true;
    }

    /// Boots a machine again: its pods end, and its GPUs lose their instances.
    pub(crate) fn reboot(&mut self, node: usize, duration: Duration) {
        self.kill_agent(node, duration);
        let machine = &mut self.machines[node];
        machine.boot += 1;
        machine.tenants.clear();
        machine.hangs_until = Duration::ZERO;
        for gpu in &mut machine.gpus {
            gpu.reset();
        }
        for gpu in 0..GPUS {
            self.permit_any_state(node, gpu);
        }
        self.touch(node);
        self.after(duration, Event::Workload { node });
    }
}
