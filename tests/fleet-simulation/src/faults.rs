//! Faults, users and workloads, chosen by the seed.

use std::time::Duration;

use octavo_model::call::FailureKind;
use octavo_node::node_object::drain::{Pod, PodId};
use octavo_node::node_object::{LAYOUT_LABEL, NOT_READY_TAINT, REPARTITIONING_TAINT};
use octavo_policy::PolicyStatus;

use crate::state::gpu::{CallFault, GpuUser};
use crate::state::layouts::{GPUS, IMPOSSIBLE, LAYOUTS, gpu_address};
use crate::state::machine::{Link, Tenant};
use crate::state::queue::{Event, PodChange};
use crate::state::{Phase, World};

/// Largest jump of a wall clock, in milliseconds.
const MAX_JUMP: i64 = 3_600_000;
/// Number of kinds of faults.
const KINDS: u32 = 17;

impl World {
    /// Causes a random fault, and plans the next one.
    pub(crate) fn fault(&mut self) {
        if self.phase != Phase::Faults {
            return;
        }
        self.counts.faults += 1;
        let node = self.random.usize(0..self.machines.len());
        let kind = self.random.u32(0..KINDS);
        self.note(|| format!("fault {kind}, node {node}"));
        match kind {
            0 => {
                let restart =
                    if self.chance(200) { self.seconds(60, 600) } else { self.seconds(1, 20) };
                self.kill_agent(node, restart);
            }
            1 | 2 => self.machines[node].kill_chance = self.random.u32(20..400),
            3 => {
                let restart = self.seconds(1, 120);
                self.kill_aggregator(restart);
            }
            4 => {
                let leader = (0..self.controllers.len()).find(|index| self.leads(*index));
                let restart = self.seconds(1, 60);
                self.kill_controller(leader.unwrap_or(node % 2), restart);
            }
            5 | 6 => self.machines[node].to_aggregator = self.cut(),
            7 => self.machines[node].to_api = self.cut(),
            8 => {
                let index = self.random.usize(0..self.controllers.len());
                self.controllers[index].link = self.cut();
            }
            9 => {
                let jump = self.random.i64(-MAX_JUMP..MAX_JUMP);
                self.machines[node].wall_offset += jump;
                let index = self.random.usize(0..self.controllers.len());
                self.controllers[index].wall_offset = self.random.i64(-MAX_JUMP..MAX_JUMP);
            }
            10 | 11 => self.driver_faults(node),
            12 => self.machines[node].hangs_until = self.now + self.seconds(5, 120),
            13 => self.machines[node].kubelet_down_until = self.now + self.seconds(5, 120),
            14 => self.reset_connection(node),
            15 => self.rare_fault(node),
            _ => {
                self.forget_ended_watchers();
                let watchers = &self.api.watchers;
                if !watchers.is_empty() {
                    let at = self.random.usize(0..watchers.len());
                    let number = self.api.watchers[at].number;
                    self.lose_watch(number);
                }
            }
        }
        if kind == 12 || kind == 13 {
            // The agent notices that the driver or the kubelet answers again at one of its polls.
            let until = self.machines[node].hangs_until.max(self.machines[node].kubelet_down_until);
            self.after(until.saturating_sub(self.now), Event::Workload { node });
            self.touch(node);
        }
        let interval = self.options.fault_interval;
        let next = self.between((Duration::ZERO, interval * 2));
        self.after(next, Event::Fault);
    }

    /// An interruption of one direction or both.
    fn cut(&mut self) -> Link {
        let until = self.now + self.seconds(1, 180);
        let other = if self.chance(300) { self.now + self.seconds(1, 180) } else { until };
        match self.random.u32(0..3) {
            0 => Link { out_until: until, back_until: Duration::ZERO },
            1 => Link { out_until: Duration::ZERO, back_until: until },
            _ => Link { out_until: until, back_until: other },
        }
    }

    fn driver_faults(&mut self, node: usize) {
        const KINDS: [FailureKind; 6] = [
            FailureKind::InUse,
            FailureKind::InsufficientResources,
            FailureKind::NotFound,
            FailureKind::Temporary,
            FailureKind::Rejected,
            FailureKind::DeviceLost,
        ];
        let gpu = usize::from(self.chance(300));
        for _ in 0..self.random.u32(1..5) {
            let kind = KINDS[self.random.usize(0..KINDS.len())];
            let fault = match self.random.u32(0..3) {
                0 => CallFault::Fails(kind),
                1 => CallFault::FailsLate(kind),
                _ => CallFault::FalseSuccess,
            };
            self.machines[node].gpus[gpu].faults.push(fault);
        }
        if self.chance(300) {
            self.machines[node].gpus[gpu].partial_readings = self.random.u32(1..4);
            self.touch(node);
        }
    }

    fn rare_fault(&mut self, node: usize) {
        match self.random.u32(0..4) {
            0 => {
                let takes = self.seconds(60, 300);
                self.reboot(node, takes);
            }
            1 => {
                // A backup is restored: the status of the policy is lost.
                self.api.policy.status = PolicyStatus::default();
                let _written = self.commit_policy();
                for index in 0..self.controllers.len() {
                    let restart = self.seconds(1, 10);
                    self.kill_controller(index, restart);
                }
            }
            _ => self.foreign_change(node),
        }
    }

    /// Another program destroys an instance that is not in use.
    fn foreign_change(&mut self, node: usize) {
        let gpu = usize::from(self.chance(300));
        let machine = &self.machines[node];
        let all = machine.gpus[gpu].state().gpu_instances.iter().map(|one| one.id);
        let used = |id: &u32| machine.users(gpu).any(|user| user.gpu_instance == *id);
        let idle: Vec<u32> = all.filter(|id| !used(id)).collect();
        if let Some(id) = idle.first() {
            self.machines[node].gpus[gpu].remove(*id);
            self.permit_any_state(node, gpu);
            self.touch(node);
        }
    }

    /// Users choose another layout for a node outside of the policy, or change the policy.
    pub(crate) fn user(&mut self) {
        if self.phase != Phase::Faults {
            return;
        }
        let row = LAYOUTS[self.random.usize(0..LAYOUTS.len())].name;
        let node = self.random.usize(0..self.machines.len());
        if self.machines[node].is_in_pool {
            if row != IMPOSSIBLE {
                let policy = &mut self.api.policy;
                policy.generation += 1;
                if let Ok(spec) = &mut policy.spec {
                    spec.layout = Some(row.to_owned());
                    spec.node_labels.insert("workload".to_owned(), row.to_owned());
                }
                let _written = self.commit_policy();
            }
        } else {
            let is_removed =
                self.api.nodes[node].labels.contains_key(LAYOUT_LABEL) && self.chance(150);
            self.choose_layout(node, (!is_removed).then_some(row));
        }
        let next = self.seconds(30, 900);
        self.after(next, Event::User);
    }

    /// A pod or a process outside of pods starts on a free partition.
    pub(crate) fn workload(&mut self, node: usize) {
        // The agent notices changes of the kubelet and the driver at its next poll.
        self.touch(node);
        if self.phase != Phase::Faults {
            return;
        }
        let next = self.seconds(20, 400);
        if self.chance(700) {
            self.start_tenant(node);
        }
        if self.machines[node].next_workload <= self.now {
            self.machines[node].next_workload = self.now + next;
            self.after(next, Event::Workload { node });
        }
    }

    fn start_tenant(&mut self, node: usize) {
        let free: Vec<(usize, u32)> = (0..GPUS).flat_map(|gpu| self.free(node, gpu)).collect();
        if free.is_empty() {
            return;
        }
        let (gpu, gpu_instance) = free[self.random.usize(0..free.len())];
        let is_pod = self.chance(800);
        let is_tainted = self.api.nodes[node]
            .taints
            .iter()
            .any(|taint| [REPARTITIONING_TAINT, NOT_READY_TAINT].contains(&taint.key.as_str()));
        let machine = &self.machines[node];
        // The device plugin runs in the agent, and allocates no partition of a GPU that is being changed.
        let agent = machine.agent.as_ref();
        let is_closed = agent.is_none_or(|agent| agent.is_changing(gpu_address(gpu)));
        let is_kubelet_down = machine.kubelet_down_until > self.now;
        if !(is_pod && (is_tainted || is_closed || is_kubelet_down)) {
            self.add_tenant(node, (gpu, gpu_instance), is_pod);
        }
    }

    /// A process outside of pods starts on a free partition of this GPU. No lock prevents that.
    pub(crate) fn start_process(&mut self, node: usize, gpu: usize) {
        if let Some(place) = self.free(node, gpu).last() {
            self.add_tenant(node, *place, false);
        }
    }

    /// Partitions without a user.
    fn free(&self, node: usize, gpu: usize) -> Vec<(usize, u32)> {
        let machine = &self.machines[node];
        let all = machine.gpus[gpu].state().gpu_instances.iter();
        let whole = all.filter(|instance| !instance.compute_instances.is_empty());
        let is_free = |id: &u32| machine.users(gpu).all(|user| user.gpu_instance != *id);
        whole.map(|instance| instance.id).filter(is_free).map(|id| (gpu, id)).collect()
    }

    fn add_tenant(&mut self, node: usize, (gpu, gpu_instance): (usize, u32), is_pod: bool) {
        let machine = &mut self.machines[node];
        machine.last_pid += 1;
        let pid = machine.last_pid;
        let uid = format!("{node}-{pid}");
        let controller = if pid.is_multiple_of(5) { None } else { Some("ReplicaSet".to_owned()) };
        let id = PodId { namespace: "team".to_owned(), name: format!("pod-{uid}"), uid };
        let pod = is_pod.then(|| Pod { id, controller, ..Pod::default() });
        let user = GpuUser {
            gpu,
            gpu_instance,
            compute_instance: 0,
            since: self.now,
            pid: (!is_pod).then_some(pid),
        };
        machine.tenants.push(Tenant { pid, user, pod });
        if is_pod && self.chance(800) {
            let starts = self.seconds(1, 10);
            self.after(starts, Event::Pod { node, pid, change: PodChange::Process });
        }
        let lasts = self.seconds(20, 1200);
        self.after(lasts, Event::Pod { node, pid, change: PodChange::End });
        self.touch(node);
    }

    /// The process of a pod starts, or the pod ends.
    pub(crate) fn change_pod(&mut self, node: usize, pid: u32, change: PodChange) {
        let tenants = &mut self.machines[node].tenants;
        match change {
            PodChange::Process => {
                let tenant = tenants.iter_mut().find(|tenant| tenant.pid == pid);
                if let Some(tenant) = tenant {
                    tenant.user.pid = Some(pid);
                }
            }
            PodChange::End => tenants.retain(|tenant| tenant.pid != pid),
        }
        self.touch(node);
    }

    /// Ends all faults.
    pub(crate) fn calm(&mut self) {
        self.phase = Phase::Convergence;
        for node in 0..self.machines.len() {
            let machine = &mut self.machines[node];
            machine.to_api = Link::default();
            machine.to_aggregator = Link::default();
            machine.hangs_until = Duration::ZERO;
            machine.kubelet_down_until = Duration::ZERO;
            machine.kill_chance = 0;
            for gpu in &mut machine.gpus {
                gpu.faults.clear();
                gpu.partial_readings = 0;
            }
            self.touch(node);
        }
        for controller in &mut self.controllers {
            controller.link = Link::default();
        }
    }
}
