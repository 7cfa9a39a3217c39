//! Two controllers of policies: leader election, decisions and their execution, as in the aggregator.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use octavo_fleet::cluster::ClusterSnapshot;
use octavo_node::lease::{LeaderElector, Step as LeaseStep};
use octavo_node::node_object::ObservedNode;
use octavo_policy::{Decision, Policy, Step, World as PolicyWorld, next, release_orphan};
use octavo_store::clock::Moment;
use octavo_store::fleet::Fleet;
use octavo_store::policies::world;

use crate::api_server::{RETRY_DELAY, cluster_node};
use crate::node_writes::version;
use crate::state::World;
use crate::state::cluster::ControllerRequest;
use crate::state::messages::{Answer, Call, Client, Object, Reply, WatchEvent};
use crate::state::queue::{ControllerTask, Event};

/// Interval between two decisions, and the maximum time between them, as in the aggregator.
const MIN_INTERVAL: Duration = Duration::from_millis(500);
const MAX_INTERVAL: Duration = Duration::from_secs(15);

impl World {
    /// Starts a controller.
    pub(crate) fn start_controller(&mut self, index: usize, run: u32) {
        let identity = format!("controller-{index}_{run}");
        let now = self.now;
        let controller = &mut self.controllers[index];
        if controller.run != run || controller.is_running {
            return;
        }
        controller.is_running = true;
        controller.began = now;
        controller.elector = LeaderElector::new(identity);
        controller.policy = None;
        controller.nodes.clear();
        controller.versions.clear();
        controller.has_begun = false;
        controller.steps.clear();
        controller.requests.clear();
        controller.next_work = None;
        self.controller_task(index, now, ControllerTask::Elect);
        self.watch_all(index);
    }

    /// Ends a controller without notice, and starts another one after this time.
    pub(crate) fn kill_controller(&mut self, index: usize, restart_after: Duration) {
        let controller = &mut self.controllers[index];
        controller.is_running = false;
        controller.run += 1;
        let run = controller.run;
        self.after(restart_after, Event::StartController { index, run });
    }

    fn controller_task(&mut self, index: usize, at: Duration, task: ControllerTask) {
        let run = self.controllers[index].run;
        self.at(at, Event::Controller { index, run, task });
    }

    fn controller_request(&mut self, index: usize, call: Call, request: ControllerRequest) {
        let run = self.controllers[index].run;
        let id = self.request(Client::Controller { index, run }, call);
        self.controllers[index].requests.insert(id, request);
    }

    /// Lists policies and nodes, and watches them.
    pub(crate) fn watch_all(&mut self, index: usize) {
        self.controller_request(index, Call::WatchAll, ControllerRequest::Watch);
    }

    /// Takes the next step of the leader election.
    pub(crate) fn elect(&mut self, index: usize) {
        let now = self.now;
        let controller = &self.controllers[index];
        let is_waiting =
            |request: &ControllerRequest| matches!(request, ControllerRequest::Lease(_));
        if controller.requests.values().any(is_waiting) {
            return;
        }
        let local = controller.local(now);
        let holder = controller.elector.identity().to_owned();
        let call = match controller.elector.step(local) {
            LeaseStep::Wait(wait) => {
                let at = controller.after(now, wait);
                self.controller_task(index, at, ControllerTask::Elect);
                return;
            }
            LeaseStep::Read => Call::ReadLease,
            LeaseStep::Create => Call::WriteLease { holder, version: None },
            LeaseStep::Write { version, .. } => Call::WriteLease { holder, version: Some(version) },
        };
        self.controller_request(index, call, ControllerRequest::Lease(local));
    }

    /// Returns whether the controller may write.
    pub(crate) fn leads(&self, index: usize) -> bool {
        let controller = &self.controllers[index];
        let local = controller.local(self.now);
        controller.is_running && controller.elector.remaining_hold(local).is_some()
    }

    /// Executes the next step of the decision, or decides again.
    pub(crate) fn work(&mut self, index: usize) {
        let now = self.now;
        if self.controllers[index].next_work != Some(now) {
            return;
        }
        self.controllers[index].next_work = None;
        if !self.leads(index) {
            let controller = &mut self.controllers[index];
            controller.has_begun = false;
            controller.steps.clear();
            return;
        }
        let controller = &self.controllers[index];
        let is_busy =
            controller.requests.values().any(|one| !matches!(one, ControllerRequest::Lease(_)));
        if is_busy {
            return;
        }
        if !controller.has_begun || controller.policy.is_none() {
            // The status of the policies is the memory of the predecessor.
            self.watch_all(index);
            return;
        }
        if controller.steps.is_empty() {
            let decision = self.decide(index);
            let wake_at = decision.wake_at.map(|at| {
                let wall = self.wall(self.controllers[index].wall_offset);
                Duration::try_from(at.duration_since(wall)).unwrap_or_default()
            });
            let controller = &mut self.controllers[index];
            controller.steps = decision.steps.into();
            controller.has_written = false;
            if controller.steps.is_empty() {
                let wait = wake_at.unwrap_or(MAX_INTERVAL).clamp(MIN_INTERVAL, MAX_INTERVAL);
                self.plan_work(index, now + wait);
                return;
            }
        }
        self.execute_step(index);
    }

    fn decide(&mut self, index: usize) -> Decision {
        let controller = &self.controllers[index];
        let Some(policy) = controller.policy.clone() else { return Decision::default() };
        let nodes = ClusterSnapshot::with_nodes(controller.nodes.clone());
        self.with_policy_world(index, &[policy], &nodes, next)
    }

    /// Runs `act` with policies and nodes as the controller sees them.
    fn with_policy_world<T>(
        &self,
        index: usize,
        policies: &[Policy],
        snapshot: &ClusterSnapshot,
        act: impl FnOnce(&PolicyWorld<'_>) -> T,
    ) -> T {
        let (fleet, moment) = match self.aggregator.as_deref() {
            Some(aggregator) => (aggregator.readers.borrow().clone(), aggregator.moment(self.now)),
            None => (Fleet::default(), Moment::default()),
        };
        let world = world(policies, snapshot, (&fleet, moment), BTreeMap::new());
        let now = self.wall(self.controllers[index].wall_offset);
        let proposals = Some(BTreeMap::new());
        act(&PolicyWorld { now, proposals, waiting: BTreeSet::new(), ..world })
    }

    fn execute_step(&mut self, index: usize) {
        let controller = &mut self.controllers[index];
        let Some(step) = controller.steps.pop_front() else { return };
        let Some(version) = controller.policy.as_ref().map(|policy| policy.version.clone()) else {
            return;
        };
        let request = ControllerRequest::Step;
        match step.clone() {
            Step::AddFinalizer { .. } => {
                self.controller_request(index, Call::AddFinalizer { version }, request);
            }
            Step::WriteStatus { status, .. } => {
                self.controller_request(index, Call::WriteStatus { version, status }, request);
            }
            Step::ChangeNode { node, .. } | Step::ReleaseOrphan { node, .. } => {
                let Some(node) = self.machines.iter().position(|one| one.name == node) else {
                    return;
                };
                let call = Call::ReadNode { node };
                self.controller_request(index, call, ControllerRequest::Read(step));
            }
            Step::RemoveFinalizer { .. } => {
                self.fail(|| "the simulation: no policy is deleted".to_owned());
            }
        }
    }

    /// Changes a node that was just read, as a step demands.
    fn change_node(&mut self, index: usize, step: &Step, node: usize) {
        let now = self.now;
        let controller = &self.controllers[index];
        let name = self.machines[node].name.clone();
        let seen = controller.versions.get(&node).copied().unwrap_or_default();
        let (Some(policy), Some(object)) = (controller.policy.clone(), controller.nodes.get(&name))
        else {
            return;
        };
        let object = Arc::clone(object);
        let snapshot = ClusterSnapshot::with_nodes([(name.clone(), object)].into());
        let policies = [policy];
        let is_orphan = matches!(step, Step::ReleaseOrphan { .. });
        let patch = self.with_policy_world(index, &policies, &snapshot, |world| {
            let fresh = world.nodes.get(name.as_str())?;
            if is_orphan { Some(release_orphan(fresh)) } else { world.patch(&policies[0], fresh) }
        });
        match patch.filter(|_| self.leads(index)) {
            Some(patch) => {
                let call = Call::PatchNode { node, version: seen, patch: Box::new(patch) };
                self.controller_request(index, call, ControllerRequest::Step);
            }
            None => self.finish_step(index, false, now),
        }
    }

    /// Continues after a step.
    fn finish_step(&mut self, index: usize, has_written: bool, at: Duration) {
        let now = self.now;
        let controller = &mut self.controllers[index];
        controller.has_written |= has_written;
        let is_last = controller.steps.is_empty();
        let is_idle = is_last && !controller.has_written;
        self.plan_work(index, if is_idle { now + MIN_INTERVAL } else { at });
        if is_idle {
            // Nothing more follows from this state, so that time or a watch leads to the next decision.
            self.controllers[index].next_work = None;
            self.plan_work(index, now + MAX_INTERVAL);
        }
    }

    /// Handles an event of a watch.
    pub(crate) fn controller_watches(&mut self, index: usize, event: WatchEvent) {
        if self.controllers[index].watcher != event.watcher {
            return;
        }
        match event.object {
            Object::Node(node, object) => self.learn_node(index, node, &object),
            Object::Policy(policy) => self.learn_policy(index, *policy),
        }
        let at = self.now + MIN_INTERVAL;
        if self.leads(index) {
            self.plan_work(index, at);
        }
    }

    fn learn_node(&mut self, index: usize, node: usize, object: &ObservedNode) {
        let seen = version(object);
        if self.controllers[index].versions.get(&node).is_some_and(|known| *known >= seen) {
            return;
        }
        let name = self.machines[node].name.clone();
        let object = Arc::new(cluster_node(&name, object));
        self.controllers[index].versions.insert(node, seen);
        self.controllers[index].nodes.insert(name, object);
    }

    fn learn_policy(&mut self, index: usize, policy: Policy) {
        let number = |policy: &Policy| policy.version.parse::<u64>().unwrap_or_default();
        let known = self.controllers[index].policy.as_ref();
        if known.is_none_or(|known| number(known) < number(&policy)) {
            self.controllers[index].policy = Some(policy);
        }
    }

    /// Handles an answer of the API server.
    pub(crate) fn controller_answer(&mut self, index: usize, answer: Answer) {
        let now = self.now;
        let local = self.controllers[index].local(now);
        let Some(request) = self.controllers[index].requests.remove(&answer.id) else { return };
        match (request, answer.reply) {
            (ControllerRequest::Lease(sent), reply) => {
                let elector = &mut self.controllers[index].elector;
                match reply {
                    Reply::Lease(observed) => elector.record_observation(local, observed),
                    Reply::LeaseWritten(version) => elector.record_write(sent, version),
                    Reply::Node(..)
                    | Reply::Pods(_)
                    | Reply::Evicted(..)
                    | Reply::Policy(_)
                    | Reply::All(..)
                    | Reply::Conflict => elector.record_conflict(local),
                }
                self.check_leaders();
                self.controller_task(index, now, ControllerTask::Elect);
                if self.leads(index) && self.controllers[index].next_work.is_none() {
                    self.plan_work(index, now);
                }
            }
            (ControllerRequest::Watch, Reply::All(policy, nodes)) => {
                self.controllers[index].watcher = answer.id;
                self.learn_policy(index, *policy);
                for (node, object) in nodes.into_iter().enumerate() {
                    self.learn_node(index, node, &object);
                }
                if self.leads(index) {
                    self.controllers[index].has_begun = true;
                    self.plan_work(index, now);
                }
            }
            (ControllerRequest::Read(step), Reply::Node(node, object)) => {
                self.learn_node(index, node, &object);
                self.change_node(index, &step, node);
            }
            (ControllerRequest::Step, Reply::Node(node, object)) => {
                self.learn_node(index, node, &object);
                self.finish_step(index, true, now);
            }
            (ControllerRequest::Step, Reply::Policy(policy)) => {
                self.learn_policy(index, *policy);
                self.finish_step(index, true, now);
            }
            (ControllerRequest::Step, Reply::Conflict) => {
                self.controllers[index].steps.clear();
                self.finish_step(index, true, now + MIN_INTERVAL);
            }
            (request, reply) => {
                self.fail(|| format!("the simulation: {request:?} has the answer {reply:?}"));
            }
        }
    }

    /// Handles a request that has had no answer for too long.
    pub(crate) fn controller_request_expired(&mut self, index: usize, id: u64) {
        let now = self.now;
        let local = self.controllers[index].local(now);
        let Some(request) = self.controllers[index].requests.remove(&id) else { return };
        match request {
            ControllerRequest::Lease(_) => {
                self.controllers[index].elector.record_failure(local);
                self.controller_task(index, now, ControllerTask::Elect);
            }
            ControllerRequest::Watch => {
                self.controller_task(index, now + RETRY_DELAY, ControllerTask::Relist);
            }
            ControllerRequest::Read(_) | ControllerRequest::Step => {
                self.controllers[index].steps.clear();
                self.plan_work(index, now + RETRY_DELAY);
            }
        }
    }
}
