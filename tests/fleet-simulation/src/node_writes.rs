//! The Node of an agent: watch, writes, pods and evictions.

use octavo_node::node_object::drain::{EvictionResult, ListError};
use octavo_node::node_object::{Compat, NodeWrite, ObservedNode, diff_node, select};

use crate::state::World;
use crate::state::agent::AgentRequest;
use crate::state::messages::{Answer, Call, Client, Object, Reply, WatchEvent};
use crate::state::queue::AgentTask;

impl World {
    /// Handles an event of the watch of an agent's Node.
    pub(crate) fn agent_watches(&mut self, node: usize, run: u32, event: WatchEvent) {
        let Object::Node(_, object) = event.object else { return };
        let Some(agent) = self.agent(node, run) else { return };
        if agent.watcher == event.watcher {
            self.see_node(node, run, *object);
        }
    }

    /// Updates the agent's view of its Node, unless it is older than the known one.
    fn see_node(&mut self, node: usize, run: u32, object: ObservedNode) {
        let now = self.now;
        let Some(agent) = self.agent(node, run) else { return };
        let known = agent.view.as_ref();
        if known.is_some_and(|known| version(known) >= version(&object)) {
            return;
        }
        let inputs = |view: &ObservedNode| {
            (select(view, Compat::None), view.uid.clone(), view.taints.clone())
        };
        let is_relevant = known.map(inputs) != Some(inputs(&object));
        agent.view = Some(object);
        if is_relevant {
            self.plan_scan(node, now);
        }
        self.plan_write(node, now);
    }

    /// Makes one write that is permitted now.
    pub(crate) fn write_node(&mut self, node: usize, run: u32) {
        let now = self.now;
        let Some(agent) = self.agent(node, run) else { return };
        if agent.next_write != Some(now) {
            return;
        }
        agent.next_write = None;
        let is_busy = |request: &AgentRequest| matches!(request, AgentRequest::Write(_));
        if agent.requests.values().any(is_busy) {
            return;
        }
        let Some(view) = &agent.view else { return };
        let local = now.saturating_sub(agent.began);
        let decision = diff_node(view, &agent.desired);
        let seen = version(view);
        let mut next = None;
        for write in decision.writes {
            let backoff = agent.write_backoffs.entry(target(&write)).or_default();
            if let Some(wait) = backoff.wait(local, &write) {
                next = [next, Some(now + wait)].into_iter().flatten().min();
                continue;
            }
            let call = Call::WriteNode { node, version: seen, write: write.clone() };
            let id = self.request(Client::Agent { node, run }, call);
            if let Some(agent) = self.agent(node, run) {
                agent.requests.insert(id, AgentRequest::Write(write));
            }
            return;
        }
        if let Some(at) = next {
            self.plan_write(node, at);
        }
    }

    /// Lists the pods of the node for a drain.
    pub(crate) fn list_pods(&mut self, node: usize, run: u32) {
        let now = self.now;
        let Some(agent) = self.agent(node, run) else { return };
        if agent.next_list != Some(now) {
            return;
        }
        agent.next_list = None;
        let id = self.request(Client::Agent { node, run }, Call::ListPods { node });
        if let Some(agent) = self.agent(node, run) {
            agent.requests.insert(id, AgentRequest::List);
        }
    }

    /// Handles an answer of the API server.
    pub(crate) fn agent_answer(&mut self, node: usize, run: u32, answer: Answer) {
        let now = self.now;
        let Some(agent) = self.agent(node, run) else { return };
        let Some(request) = agent.requests.remove(&answer.id) else { return };
        let local = now.saturating_sub(agent.began);
        match (request, answer.reply) {
            (AgentRequest::Watch, Reply::Node(_, object)) => {
                agent.watcher = answer.id;
                self.see_node(node, run, *object);
            }
            (AgentRequest::Write(write), Reply::Node(_, object)) => {
                let backoff = agent.write_backoffs.entry(target(&write)).or_default();
                backoff.record_write(local, write);
                self.see_node(node, run, *object);
                self.plan_write(node, now);
            }
            (AgentRequest::Write(write), Reply::Conflict) => {
                let backoff = agent.write_backoffs.entry(target(&write)).or_default();
                backoff.record_failure(local, None);
                self.plan_write(node, now);
            }
            (AgentRequest::List, Reply::Pods(pods)) => {
                let listed = |id: &_| pods.iter().any(|pod| pod.id == *id);
                agent.pods.answers.retain(|id, _| listed(id));
                agent.evicting.retain(listed);
                let is_changed = agent.pods.pods.as_ref() != Some(&pods);
                agent.pods.pods = Some(pods);
                agent.pods.error = None;
                if is_changed {
                    self.plan_scan(node, now);
                }
            }
            (AgentRequest::Evict(_), Reply::Evicted(id, result)) => {
                agent.evicting.remove(&id);
                agent.pods.answers.insert(id, result);
                self.plan_scan(node, now);
            }
            (request, reply) => {
                self.fail(|| format!("the simulation: {request:?} has the answer {reply:?}"));
            }
        }
    }

    /// Handles a request that has had no answer for too long.
    pub(crate) fn agent_request_expired(&mut self, node: usize, run: u32, id: u64) {
        let now = self.now;
        let Some(agent) = self.agent(node, run) else { return };
        let Some(request) = agent.requests.remove(&id) else { return };
        let local = now.saturating_sub(agent.began);
        match request {
            AgentRequest::Watch => {
                let wait = self.seconds(1, 10);
                self.agent_task(node, now + wait, AgentTask::Relist);
            }
            AgentRequest::Write(write) => {
                let backoff = agent.write_backoffs.entry(target(&write)).or_default();
                backoff.record_failure(local, None);
                self.plan_write(node, now);
            }
            AgentRequest::List => {
                agent.pods.error = Some(ListError::Other("no answer".to_owned()));
                self.plan_scan(node, now);
            }
            AgentRequest::Evict(pod) => {
                agent.evicting.remove(&pod);
                agent.pods.answers.insert(pod, EvictionResult::Refused("no answer".to_owned()));
                self.plan_scan(node, now);
            }
        }
    }
}

/// Resource version of a Node.
pub(crate) fn version(node: &ObservedNode) -> u64 {
    node.version.parse().unwrap_or_default()
}

/// The part of the Node that a write changes: a refused part does not delay the others.
fn target(write: &NodeWrite) -> String {
    match write {
        NodeWrite::Apply { manager, .. } => (*manager).to_owned(),
        NodeWrite::Taints(_) => "taints".to_owned(),
        NodeWrite::Replace { key, .. } => key.clone(),
    }
}
