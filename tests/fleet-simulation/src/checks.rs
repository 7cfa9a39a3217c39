//! Invariants that are checked while the simulation runs. `rounds` has those of driver calls.

use std::time::Duration;

use octavo_fleet::summary::NodeState;
use octavo_model::inventory::NvmlState;
use octavo_model::reason::Reason;
use octavo_node::labels::{self, LayoutState, Options as LabelOptions};
use octavo_node::node_object::FIELD_MANAGER;

use crate::aggregator::STALE_AFTER;
use crate::state::World;
use crate::state::agent::Agent;
use crate::state::layouts::{gpu_number, layout};
use crate::state::machine::{is_at, shapes};

/// Tolerance of times that the aggregator stores in milliseconds.
const ROUNDING: Duration = Duration::from_millis(2);
/// Time from the staleness of a node to the publication of that.
const PUBLICATION: Duration = Duration::from_millis(1100);
/// Longest time until readers see a status that was just received.
const NEXT_PUBLICATION: Duration = Duration::from_millis(25);
/// Time after which labels are current, if nothing prevents that: one poll, a full series of retries without failures,
/// and the slowest write.
const LABEL_TIME: Duration = Duration::from_secs(40);

impl World {
    /// I5 and I7: the status that an agent has just reported.
    pub(crate) fn check_status(&mut self, node: usize) {
        let Some(agent) = self.machines[node].agent.as_deref() else { return };
        let status = &agent.status;
        let mut wrong = None;
        let needs_message =
            |state: Reason| !matches!(state, Reason::Applied | Reason::Applying | Reason::Pending);
        for device in &status.devices {
            let is_explained = !device.message.is_empty();
            if device.state.known().is_none_or(needs_message) && !is_explained {
                wrong =
                    Some(format!("I5: node {node}: {} without a reason: {device:?}", device.pci));
            }
        }
        wrong = wrong.or_else(|| self.unsettled_device(node));
        let is_applied = status.state == Some(Reason::Applied.into());
        let row = status.layout.as_deref().and_then(layout);
        if let (true, Some(row)) = (is_applied, row) {
            for device in &agent.inventory.devices {
                if gpu_number(device.pci).is_some_and(|gpu| !row.is_on(gpu, device)) {
                    wrong = Some(format!(
                        "I7: node {node}: layout {} is reported as applied, but {} has {:?}",
                        row.name,
                        device.pci,
                        device.mig.state().map(|state| &state.gpu_instances)
                    ));
                }
            }
        }
        if let Some(wrong) = wrong {
            self.fail(|| wrong);
        }
    }

    /// I3: a GPU that is reported as blocked, infeasible or rolled back is in its previous state.
    fn unsettled_device(&self, node: usize) -> Option<String> {
        let machine = &self.machines[node];
        let agent = machine.agent.as_deref()?;
        let is_current = agent.scanned == machine.version && agent.round.is_none();
        if !is_current || !matches!(agent.inventory.nvml, NvmlState::Ready(_)) {
            return None;
        }
        let is_unchanged = |state: Reason| {
            matches!(state, Reason::Blocked | Reason::Infeasible | Reason::RolledBack)
        };
        let devices = agent.status.devices.iter();
        let mut unchanged = devices.filter(|device| device.state.known().is_some_and(is_unchanged));
        unchanged.find_map(|device| {
            let open = machine.open_changes.get(&device.pci)?;
            let state = machine.gpus[gpu_number(device.pci)?].state();
            let is_whole = agent.inventory.device(device.pci)?.mig.is_fully_known();
            let is_settled = open.is_any_state
                || shapes(state) == open.before
                || open.goals.iter().any(|goal| is_at(state, goal));
            (is_whole && !is_settled).then(|| {
                format!(
                    "I3: node {node}: {} is {}, but neither in its target nor in its previous state: {:?}, {open:?}",
                    device.pci,
                    device.state.as_str(),
                    shapes(state)
                )
            })
        })
    }

    /// Policies: never more nodes than allowed are unavailable because of a policy.
    pub(crate) fn check_budget(&mut self) {
        let (count, budget) = (self.taken_down.len(), self.budget);
        self.check(count <= budget as usize, || {
            format!("policy: {count} nodes are unavailable because of the policy, {budget} may be")
        });
    }

    /// Policies: at most one controller may write.
    pub(crate) fn check_leaders(&mut self) {
        let leaders = (0..self.controllers.len()).filter(|index| self.leads(*index)).count();
        self.check(leaders <= 1, || format!("policy: {leaders} controllers lead"));
    }

    /// I9 and I10: everything that readers of the aggregator see.
    pub(crate) fn check_fleet(&mut self) {
        for node in 0..self.machines.len() {
            self.check_stored(node);
            self.check_labels(node);
            let open = self.connections.values();
            let open = open.filter(|one| one.node == node && one.is_aggregator_open).count();
            self.check(open <= 4, || format!("I10: node {node}: {open} connections are open"));
        }
    }

    /// I9: a node is stale exactly if its agent has not confirmed its state for longer than the limit. Its state is
    /// one that the agent sent, and never an earlier one than before.
    pub(crate) fn check_stored(&mut self, node: usize) {
        let now = self.now;
        let Some(aggregator) = self.aggregator.as_deref() else { return };
        let moment = aggregator.moment(now);
        let fleet = aggregator.readers.borrow();
        let limit = self.machines.len() + 2;
        let mut wrong = (fleet.nodes.len() > limit).then(|| "I10: too many nodes".to_owned());
        let name = self.machines[node].name.parse().unwrap();
        let Some(shown) = fleet.nodes.get(&name) else { return };
        let confirmed = aggregator.confirmed.get(&node).copied();
        let age = now.saturating_sub(confirmed.unwrap_or_default());
        let is_stale = shown.state(moment) == NodeState::Stale;
        if age > STALE_AFTER && !is_stale {
            wrong = Some(format!("I9: node {node} is {age:?} old and not stale"));
        } else if age > NEXT_PUBLICATION && age + ROUNDING < STALE_AFTER && is_stale {
            wrong = Some(format!("I9: node {node} is {age:?} old and stale"));
        } else if age > STALE_AFTER + PUBLICATION && !shown.freshness.found_stale() {
            wrong = Some(format!("I9: node {node} is {age:?} old and not marked as stale"));
        }
        let seen = (aggregator.run, fleet.revision, self.acknowledged_at(node));
        let is_verified = self.sent[node].verified == Some(seen);
        if is_verified {
            drop(fleet);
            if let Some(wrong) = wrong {
                self.fail(|| wrong);
            }
            return;
        }
        self.sent[node].verified = Some(seen);
        if !self.sent[node].record_stored(shown.parts.hash()) {
            wrong = Some(format!("I9: node {node} has a status that is older or was never sent"));
        }
        if let Some(acknowledged) = self.acknowledged(node)
            && acknowledged.hash() != shown.parts.hash()
        {
            wrong = Some(format!(
                "I9: node {node}: the aggregator has acknowledged a status that it does not have"
            ));
        }
        drop(fleet);
        if let Some(wrong) = wrong {
            self.fail(|| wrong);
        }
    }

    /// Time of the last message of the current connection of a node, if [`Self::acknowledged`] counts it.
    fn acknowledged_at(&self, node: usize) -> Option<Duration> {
        self.acknowledged(node)?;
        let agent = self.machines[node].agent.as_deref()?;
        let connection = self.connections.get(&agent.uplink.connection?)?;
        Some(connection.to_agent.last)
    }

    /// The status that the aggregator has acknowledged on the current connection of a node, if it has been published
    /// since.
    fn acknowledged(&self, node: usize) -> Option<&octavo_stream::protocol::Parts> {
        let agent = self.machines[node].agent.as_deref()?;
        let connection = self.connections.get(&agent.uplink.connection?)?;
        let is_current = connection.aggregator_run == self.aggregator_run
            && connection.is_aggregator_open
            && connection.permit.is_some();
        let last = connection.to_agent.last.max(connection.to_aggregator.last);
        let is_settled = last + Duration::from_secs(1) < self.now;
        agent.uplink.sender.acknowledged().filter(|_| is_current && is_settled)
    }

    /// I6: the labels of the Node match the hardware, if nothing has changed or prevented a write for a while.
    fn check_labels(&mut self, node: usize) {
        let machine = &self.machines[node];
        let Some(agent) = machine.agent.as_deref().filter(|agent| is_idle(agent)) else { return };
        let latest = [
            machine.changed,
            machine.hangs_until,
            machine.to_api.out_until,
            machine.to_api.back_until,
            agent.began,
        ];
        let latest = latest.into_iter().max().unwrap_or_default();
        let is_due = latest + LABEL_TIME < self.now;
        let is_read = machine.gpus.iter().all(|gpu| gpu.partial_readings == 0);
        let state = (machine.version, self.api.nodes[node].version.clone(), agent.began);
        if !is_due || !is_read || machine.checked.as_ref() == Some(&state) {
            return;
        }
        let expected = self.labels_of_hardware(node, agent);
        let found = self.api.nodes[node].labels_of(FIELD_MANAGER);
        let is_equal =
            expected.iter().eq(found.iter().map(|(key, value)| (key.as_str(), value.as_str())));
        self.check(is_equal, || {
            format!("I6: node {node}: the labels are {found:?} instead of\n{expected}")
        });
        self.machines[node].checked = Some(state);
    }

    /// The labels that follow from the hardware as it is.
    pub(crate) fn labels_of_hardware(
        &self,
        node: usize,
        agent: &Agent,
    ) -> octavo_node::label_set::LabelSet {
        let machine = &self.machines[node];
        let mut inventory = octavo_model::inventory::Inventory::clone(&agent.inventory);
        for (gpu, device) in inventory.devices.iter_mut().enumerate() {
            *device = machine.gpus[gpu].device().clone();
            device.set_processes(crate::state::gpu::processes(machine.users(gpu)));
        }
        let layout = LayoutState::from_status(&agent.status);
        let options = LabelOptions { layout, ..LabelOptions::default() };
        labels::compile(&inventory, &options, None).labels
    }
}

/// Returns whether the agent waits for nothing and has had no failure.
fn is_idle(agent: &Agent) -> bool {
    let is_ready = matches!(agent.inventory.nvml, NvmlState::Ready(_));
    let mut backoffs = agent.write_backoffs.values();
    let has_failed = backoffs.any(|one| one.failures() > 0 || one.reverts() > 0);
    let is_scanning = agent.next_scan.is_some() || agent.next_write.is_some();
    is_ready
        && agent.round.is_none()
        && agent.requests.is_empty()
        && agent.view.is_some()
        && !has_failed
        && !is_scanning
}
