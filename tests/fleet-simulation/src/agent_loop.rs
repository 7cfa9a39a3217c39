//! The loop of an agent: starts and ends, readings of the hardware, and reports to all outputs.

use std::sync::Arc;
use std::time::Duration;

use octavo_files::journal;
use octavo_model::inventory::{Driver, Inventory, NvmlState};
use octavo_model::reason::Reason;
use octavo_node::labels::{self, LayoutState, Options};
use octavo_node::node_object::drain::{DrainInputs, DrainOutcome};
use octavo_node::node_object::status_annotation::annotation;
use octavo_node::node_object::{
    Compat, DesiredLabels, REPARTITIONING_TAINT, STATUS_ANNOTATION, select,
};
use octavo_planner::reconcile::{DeviceLayoutStatus, NodeLayoutStatus};
use octavo_stream::protocol::{Identity, Run};
use octavo_stream::status;

use crate::state::World;
use crate::state::agent::{Agent, AgentRequest};
use crate::state::layouts::GPUS;
use crate::state::messages::{Call, Client};
use crate::state::queue::{AgentTask, Event};

/// Interval between readings of the hardware.
const POLL_INTERVAL: Duration = Duration::from_secs(10);
/// Minimum interval between two readings.
const MIN_SCAN_INTERVAL: Duration = Duration::from_millis(100);

impl World {
    /// Starts the agent of a node.
    pub(crate) fn start_agent(&mut self, node: usize, run: u32) {
        if self.machines[node].run != run || self.machines[node].agent.is_some() {
            return;
        }
        let machine = &self.machines[node];
        let record = machine.journal.as_ref().map(|text| journal::parse(text.as_bytes()));
        let record = match record.transpose() {
            Ok(record) => record,
            Err(error) => {
                self.fail(|| format!("I3: node {node}: the journal cannot be read: {error}"));
                return;
            }
        };
        let identity =
            Identity { node: machine.name.parse().unwrap(), agent_version: "0.1.0".to_owned() };
        let epoch = self.wall(machine.wall_offset).as_microsecond();
        let run_id = Run {
            epoch: u64::try_from(epoch).unwrap_or_default(),
            boot_id: format!("{node}-{}", machine.boot),
        };
        let agent = Agent::new(self.now, self.layouts.clone(), record, (identity, run_id));
        self.machines[node].agent = Some(Box::new(agent));
        self.watch_node(node);
        let initialization = self.seconds(1, 3);
        self.plan_scan(node, self.now + initialization);
        self.agent_task(node, self.now + initialization, AgentTask::Dial);
    }

    /// Ends the agent of a node without notice, and starts another one after this time.
    pub(crate) fn kill_agent(&mut self, node: usize, restart_after: Duration) {
        let connection =
            self.machines[node].agent.as_ref().and_then(|agent| agent.uplink.connection);
        if let Some(connection) = connection {
            self.close_agent_end(connection);
        }
        let machine = &mut self.machines[node];
        machine.agent = None;
        machine.run += 1;
        let run = machine.run;
        self.after(restart_after, Event::StartAgent { node, run });
    }

    /// Reads the Node and watches it.
    pub(crate) fn watch_node(&mut self, node: usize) {
        let run = self.machines[node].run;
        let id = self.request(Client::Agent { node, run }, Call::WatchNode { node });
        if let Some(agent) = self.agent(node, run) {
            agent.requests.insert(id, AgentRequest::Watch);
        }
    }

    /// Records a change of the hardware or its users. The agent reads it at its next poll.
    pub(crate) fn touch(&mut self, node: usize) {
        let machine = &mut self.machines[node];
        machine.version += 1;
        machine.changed = self.now;
        self.plan_poll(node);
    }

    /// Plans the next reading at the agent's interval.
    fn plan_poll(&mut self, node: usize) {
        let Some(agent) = self.machines[node].agent.as_deref() else { return };
        let interval = POLL_INTERVAL.as_nanos();
        let polls = self.now.saturating_sub(agent.began).as_nanos() / interval + 1;
        let next = Duration::from_nanos_u128(polls * interval);
        let at = agent.began + next;
        self.plan_scan(node, at);
    }

    /// Reads the hardware, reconciles, and reports. An unchanged node is not read again, because nothing would follow
    /// from it; [`World::force_scans`] checks that.
    pub(crate) fn scan(&mut self, node: usize, run: u32) {
        let now = self.now;
        let Some(agent) = self.agent(node, run) else { return };
        if agent.next_scan != Some(now) {
            return;
        }
        agent.next_scan = None;
        let inventory = self.read_inventory(node);
        let is_ready = matches!(inventory.nvml, NvmlState::Ready(_));
        let is_known = inventory.devices.iter().all(|device| device.mig.is_fully_known());
        let version = self.machines[node].version;
        let Some(agent) = self.agent(node, run) else { return };
        let local = now.saturating_sub(agent.began);
        agent.inventory = Arc::new(inventory);
        agent.scanned = version;
        let mut again = None;
        if let Some(view) = &agent.view {
            again = agent.selected.update(local, &select(view, Compat::None));
        }
        let is_busy = agent.round.is_some();
        if is_ready && !is_busy {
            let round = self.start_round(node);
            again = [again, round].into_iter().flatten().min();
        }
        // The agent may have been killed when it started the changes.
        if self.agent(node, run).is_none() {
            return;
        }
        let reported = self.report(node);
        again = [again, reported].into_iter().flatten().min();
        if let Some(wait) = again {
            self.plan_scan(node, now + wait.max(MIN_SCAN_INTERVAL));
        }
        if !is_ready || !is_known {
            self.plan_poll(node);
        }
    }

    fn read_inventory(&mut self, node: usize) -> Inventory {
        let is_stalled = self.machines[node].hangs_until > self.now;
        let driver = Driver { version: "570.133.20".parse().unwrap(), cuda: None };
        if is_stalled {
            let before = self.machines[node].agent.as_ref().map(|agent| &agent.inventory);
            let before = before.map(|inventory| Inventory::clone(inventory)).unwrap_or_default();
            let call = "nvmlDeviceGetGpuInstances".to_owned();
            let driver = before.nvml.driver().cloned();
            return Inventory { nvml: NvmlState::Stalled { call, driver }, ..before };
        }
        let machine = &mut self.machines[node];
        let devices = (0..GPUS).map(|gpu| machine.read(gpu)).collect();
        Inventory { nvml: NvmlState::Ready(driver), devices, ..Inventory::default() }
    }

    /// Reports to all outputs. Returns when to report again, if that is before something changes.
    pub(crate) fn report(&mut self, node: usize) -> Option<Duration> {
        let now = self.now;
        let mut again = None;
        let run = self.machines[node].run;
        let agent = self.agent(node, run)?;
        let status = node_status(agent);
        let drained = drain(agent, now, &status);
        if let Some(at) = drained.again {
            again = Some(at.saturating_sub(now.saturating_sub(agent.began)));
        }
        let layout = LayoutState::from_status(&status);
        let options = Options { layout, ..Options::default() };
        agent.labels = labels::compile(&agent.inventory, &options, None).labels;
        let is_applied = status.state == Some(Reason::Applied.into());
        let text = annotation(&status, &agent.inventory, &[], drained.drain_status.as_ref());
        let desired = &mut agent.desired;
        desired.uid = agent.view.as_ref().map(|view| view.uid.clone());
        // Nothing was read if the driver has not answered since the start.
        let is_read = agent.inventory.nvml.driver().is_some();
        desired.labels = if is_read {
            DesiredLabels::Exactly(agent.labels.clone())
        } else {
            DesiredLabels::IfAbsent(agent.labels.clone())
        };
        desired.annotations.insert(STATUS_ANNOTATION.to_owned(), text);
        desired.not_ready = status.layout.is_some() && !is_applied;
        desired.repartitioning = drained.is_tainted;
        let parts =
            status::encode(&agent.inventory, &agent.labels, status.for_aggregator().as_ref());
        agent.status = status;
        let message = agent.uplink.sender.set_status(parts);
        let connection = agent.uplink.connection;
        if let (Some(message), Some(connection)) = (message, connection) {
            self.send_to_aggregator(connection, &message);
        }
        self.plan_write(node, now);
        self.follow_drain(node, &drained);
        self.check_status(node);
        again
    }

    fn follow_drain(&mut self, node: usize, drained: &DrainOutcome) {
        let run = self.machines[node].run;
        let now = self.now;
        let Some(agent) = self.agent(node, run) else { return };
        if let Some(interval) = drained.pod_requests.list {
            let at = if agent.pods.pods.is_none() { now } else { now + interval };
            if agent.next_list.is_none_or(|planned| at < planned) {
                agent.next_list = Some(at);
                self.agent_task(node, at, AgentTask::ListPods);
            }
        }
        for pod in &drained.pod_requests.evict {
            let Some(agent) = self.agent(node, run) else { return };
            if agent.evicting.insert(pod.clone()) {
                let call = Call::Evict { node, pod: pod.clone() };
                let id = self.request(Client::Agent { node, run }, call);
                if let Some(agent) = self.agent(node, run) {
                    agent.requests.insert(id, AgentRequest::Evict(pod.clone()));
                }
            }
        }
    }

    /// Lets every agent read its hardware, although nothing has changed.
    pub(crate) fn force_scans(&mut self) {
        for node in 0..self.machines.len() {
            self.plan_scan(node, self.now);
        }
    }
}

/// The node's status, as the agent reports it.
fn node_status(agent: &Agent) -> NodeLayoutStatus {
    let reconciler = &agent.reconciler;
    let inventory = &agent.inventory;
    let devices = reconciler.states();
    let devices = devices.map(|(pci, state)| DeviceLayoutStatus::from_state(inventory, pci, state));
    let choice = agent.choice();
    let mut status = NodeLayoutStatus {
        layout: choice.map(|selected| selected.layout.clone()),
        label: choice.map(|selected| selected.key),
        state: reconciler.worst().map(|state| state.reason().into()),
        notice: agent.notice.clone(),
        devices: devices.collect(),
        ..NodeLayoutStatus::default()
    };
    if agent.is_refused {
        status.state = Some(Reason::Failed.into());
    }
    // The states are those of the layout that the last round handled.
    if status.layout != agent.handled && status.state.is_some() {
        status.state = Some(Reason::Pending.into());
    }
    status
}

/// Takes a step of the drain.
fn drain(agent: &mut Agent, now: Duration, status: &NodeLayoutStatus) -> DrainOutcome {
    let local = now.saturating_sub(agent.began);
    let answers = matches!(agent.inventory.nvml, NvmlState::Ready(_)) || status.is_busy();
    let Some(view) = agent.view.as_ref().filter(|_| answers) else {
        return agent.drain.rest();
    };
    let is_tainted = view.taints.iter().any(|taint| taint.key == REPARTITIONING_TAINT);
    let selection = select(view, Compat::None);
    let is_current = agent.selected.get() == Some(&selection);
    let inputs = DrainInputs {
        status,
        is_current,
        pod_observations: &agent.pods,
        pauses_operands: false,
        is_tainted,
        evictable: None,
    };
    agent.drain.reconcile(local, &inputs)
}
