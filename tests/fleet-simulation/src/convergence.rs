//! The state after the faults: every target is reached or blocked for a reason, and nothing changes.

use octavo_fleet::summary::NodeState;
use octavo_model::reason::Reason;
use octavo_node::node_object::{
    FIELD_MANAGER, LAYOUT_LABEL, NOT_READY_TAINT, REPARTITIONING_TAINT,
};
use octavo_policy::PolicyState;

use crate::state::gpu::Gpu;
use crate::state::layouts::{GPUS, IMPOSSIBLE, layout};
use crate::state::{Phase, World};

impl World {
    /// Checks the state of everything, and begins the time in which nothing may change.
    pub(crate) fn check_convergence(&mut self) {
        for node in 0..self.machines.len() {
            let wrong = self.unfinished(node);
            if let Some(wrong) = wrong {
                self.fail(|| format!("convergence: node {node}: {wrong}"));
                return;
            }
        }
        let status = &self.api.policy.status;
        let is_settled = matches!(
            status.state,
            PolicyState::Complete | PolicyState::Stopped | PolicyState::RolledBack
        );
        if !is_settled {
            let text = format!("convergence: policy: {status:?}");
            self.fail(|| text);
            return;
        }
        self.phase = Phase::Quiet;
        self.writes_when_converged = self.api.writes;
        for sent in &mut self.sent {
            sent.when_converged = sent.count;
        }
        self.force_scans();
    }

    /// Checks that nothing was written since.
    pub(crate) fn check_quiet(&mut self) {
        let writes = self.api.writes - self.writes_when_converged;
        self.check(writes == 0, || format!("I6: {writes} writes although nothing has changed"));
        let sent = self.sent.iter().map(|sent| sent.count - sent.when_converged).sum::<u64>();
        self.check(sent == 0, || format!("stream: {sent} statuses although nothing has changed"));
        for node in 0..self.machines.len() {
            let wrong = self.unfinished(node);
            if let Some(wrong) = wrong {
                self.fail(|| format!("quiet: node {node}: {wrong}"));
            }
        }
    }

    /// Reason why a node has not converged.
    fn unfinished(&self, node: usize) -> Option<String> {
        let machine = &self.machines[node];
        let Some(agent) = machine.agent.as_deref() else { return Some("no agent".to_owned()) };
        if let Some(journal) = &machine.journal {
            return Some(format!("I3: the journal remains: {journal}"));
        }
        if !machine.open_changes.is_empty() {
            return Some(format!("I3: unfinished changes: {:?}", machine.open_changes));
        }
        let object = &self.api.nodes[node];
        let chosen = object.labels.get(LAYOUT_LABEL);
        let status = &agent.status;
        if status.layout.as_ref() != chosen {
            return Some(format!("the agent has layout {:?} instead of {chosen:?}", status.layout));
        }
        let is_applied = status.state == Some(Reason::Applied.into());
        let is_explained = status.notice.is_some()
            || status.devices.iter().any(|device| device.state == Reason::Infeasible);
        match chosen.map(String::as_str) {
            None => {}
            Some(IMPOSSIBLE) if is_explained && !is_applied => {}
            Some(name) => {
                let row = layout(name)?;
                let is_on = |gpu: &usize| row.is_on(*gpu, machine.gpus[*gpu].device());
                if !is_applied || !(0..GPUS).all(|gpu| is_on(&gpu)) {
                    return Some(format!("I5: layout {name} is not applied: {status:?}"));
                }
            }
        }
        self.unfinished_node(node).or_else(|| self.unfinished_report(node))
    }

    /// Reason why the Node object has not converged.
    fn unfinished_node(&self, node: usize) -> Option<String> {
        let agent = self.machines[node].agent.as_deref()?;
        let object = &self.api.nodes[node];
        let has = |key: &str| object.taints.iter().any(|taint| taint.key == key);
        if has(REPARTITIONING_TAINT) {
            return Some("I11: the taint of a drain remains".to_owned());
        }
        let is_ready =
            agent.status.layout.is_none() || agent.status.state == Some(Reason::Applied.into());
        if has(NOT_READY_TAINT) == is_ready {
            return Some(format!("I11: the taint of an unready node, ready: {is_ready}"));
        }
        let expected = self.labels_of_hardware(node, agent);
        let found = object.labels_of(FIELD_MANAGER);
        let found = found.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        (!expected.iter().eq(found)).then(|| "I6: the labels differ from the hardware".to_owned())
    }

    /// Reason why the aggregator does not have the state of the node.
    fn unfinished_report(&self, node: usize) -> Option<String> {
        let agent = self.machines[node].agent.as_deref()?;
        let Some(aggregator) = self.aggregator.as_deref() else {
            return Some("no aggregator".to_owned());
        };
        let fleet = aggregator.readers.borrow();
        let name = self.machines[node].name.parse().unwrap();
        let Some(shown) = fleet.nodes.get(&name) else {
            return Some("the aggregator does not know the node".to_owned());
        };
        let moment = aggregator.moment(self.now);
        if !shown.connected || shown.state(moment) == NodeState::Stale {
            return Some("I9: the node is disconnected or stale".to_owned());
        }
        let sender = &agent.uplink.sender;
        let is_equal = sender.acknowledged().is_some_and(|parts| *parts == shown.parts);
        let status = shown.status().map_err(|error| format!("I12: {error}"));
        let reported = match status {
            Ok(status) => status,
            Err(error) => return Some(error),
        };
        if !sender.is_in_sync() || !is_equal || reported.labels != agent.labels {
            return Some("the aggregator has another state than the agent".to_owned());
        }
        let shown = reported.inventory.devices.iter().map(|device| device.mig.state());
        let truth = self.machines[node].gpus.iter().map(Gpu::state);
        let same = shown.zip(truth).all(|(shown, truth)| {
            shown.is_some_and(|shown| shown.gpu_instances == truth.gpu_instances)
        });
        (!same).then(|| "the aggregator has other instances than the hardware".to_owned())
    }
}
