//! The API server: reads, writes with versions and field managers, and watches that can be delayed or lost.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use octavo_fleet::cluster::{ClusterNode, LayoutReport, Readiness, Taint as PolicyTaint};
use octavo_model::reason::Reason;
use octavo_node::lease::{LEASE_DURATION, ObservedLease};
use octavo_node::node_object::drain::{EvictionResult, PodId};
use octavo_node::node_object::{LAYOUT_LABEL, NodeWrite, ObservedNode, STATUS_ANNOTATION, Taint};
use octavo_policy::NodePatch;
use octavo_policy::record::{DRAIN_ANNOTATION, RECORD_ANNOTATION};
use serde_json::Value;

use crate::state::World;
use crate::state::cluster::Watcher;
use crate::state::messages::{Answer, Call, Client, Object, Reply, Request, WatchEvent};
use crate::state::queue::{AgentTask, ControllerTask, Event, PodChange};

/// Field manager of the controller of policies.
const POLICY_MANAGER: &str = "octavo-policies";
/// Field manager of users.
const USER_MANAGER: &str = "kubectl";

impl World {
    /// Handles a request, unless it is lost on its path.
    pub(crate) fn api_request(&mut self, request: Request) {
        let Request { id, client, call } = request;
        let is_lost = |world: &Self, is_back: bool| {
            let link = world.link(client);
            link.is_none_or(|link| {
                world.now < if is_back { link.back_until } else { link.out_until }
            })
        };
        // A request of a client that has ended is still executed: it is in flight.
        if self.link(client).is_some() && is_lost(self, false) {
            return;
        }
        let reply = self.execute(id, client, call);
        if is_lost(self, true) {
            return;
        }
        let delay = self.delay();
        self.after(delay, Event::Answer(Box::new(Answer { id, client, reply })));
    }

    fn execute(&mut self, id: u64, client: Client, call: Call) -> Reply {
        match call {
            Call::WatchNode { node } => {
                self.add_watcher(id, client);
                Reply::Node(node, Box::new(self.api.nodes[node].clone()))
            }
            Call::WatchAll => {
                self.add_watcher(id, client);
                Reply::All(Box::new(self.api.policy.clone()), self.api.nodes.clone())
            }
            Call::ReadNode { node } => Reply::Node(node, Box::new(self.api.nodes[node].clone())),
            Call::WriteNode { node, version, write } => self.write_fields(node, version, write),
            Call::PatchNode { node, version, patch } => self.patch_node(node, version, *patch),
            Call::ListPods { node } => {
                let pods = self.machines[node].tenants.iter();
                Reply::Pods(pods.filter_map(|tenant| tenant.pod.clone()).collect())
            }
            Call::Evict { node, pod } => self.evict(node, pod),
            Call::ReadLease => Reply::Lease(self.api.lease.clone()),
            Call::WriteLease { holder, version } => self.write_lease(holder, version.as_deref()),
            Call::WriteStatus { version, status } => {
                if self.api.policy.version != version {
                    return Reply::Conflict;
                }
                self.api.policy.status = *status;
                self.commit_policy()
            }
            Call::AddFinalizer { version } => {
                if self.api.policy.version != version {
                    return Reply::Conflict;
                }
                self.api.policy.has_finalizer = true;
                self.commit_policy()
            }
        }
    }

    fn write_lease(&mut self, holder: String, version: Option<&str>) -> Reply {
        let current = self.api.lease.as_ref().map(|lease| lease.version.as_str());
        if current != version {
            return Reply::Conflict;
        }
        self.api.version += 1;
        let version = self.api.version.to_string();
        self.api.lease = Some(ObservedLease {
            holder: Some(holder),
            duration: Some(LEASE_DURATION),
            version: version.clone(),
        });
        Reply::LeaseWritten(version)
    }

    fn evict(&mut self, node: usize, id: PodId) -> Reply {
        let tenants = self.machines[node].tenants.iter_mut();
        let found = tenants
            .filter_map(|tenant| Some((tenant.pid, tenant.pod.as_mut()?)))
            .find(|(_, pod)| pod.id == id);
        let Some((pid, pod)) = found else {
            return Reply::Evicted(id, EvictionResult::Gone);
        };
        if !std::mem::replace(&mut pod.is_ending, true) {
            let grace = self.seconds(1, 30);
            self.after(grace, Event::Pod { node, pid, change: PodChange::End });
        }
        Reply::Evicted(id, EvictionResult::Ending)
    }

    fn write_fields(&mut self, node: usize, version: u64, write: NodeWrite) -> Reply {
        let before = self.api.nodes[node].clone();
        let is_current = before.version == version.to_string();
        let object = &mut self.api.nodes[node];
        let is_written = match write {
            NodeWrite::Apply { manager, force, labels, annotations } => {
                let owners = &mut object.owners;
                apply(manager, force, (&mut object.labels, &mut owners.labels), labels)
                    && apply(
                        manager,
                        force,
                        (&mut object.annotations, &mut owners.annotations),
                        annotations,
                    )
            }
            NodeWrite::Taints(taints) if is_current => {
                object.taints = taints;
                true
            }
            NodeWrite::Replace { key, to, .. } if is_current => {
                object.labels.insert(key, to);
                true
            }
            NodeWrite::Taints(_) | NodeWrite::Replace { .. } => false,
        };
        if !is_written {
            self.api.nodes[node] = before;
            return Reply::Conflict;
        }
        self.commit_node(node, &before);
        Reply::Node(node, Box::new(self.api.nodes[node].clone()))
    }

    fn patch_node(&mut self, node: usize, version: u64, patch: NodePatch) -> Reply {
        let before = self.api.nodes[node].clone();
        if before.version != version.to_string() {
            return Reply::Conflict;
        }
        let was_available = is_available(&before);
        let object = &mut self.api.nodes[node];
        let manager: BTreeSet<String> = [POLICY_MANAGER.to_owned()].into();
        for (key, value) in patch.labels {
            set(&mut object.labels, &mut object.owners.labels, (key, value), &manager);
        }
        let record = patch.record.map(|record| serde_json::to_string(&record).unwrap());
        let record = (RECORD_ANNOTATION.to_owned(), record);
        for (key, value) in patch.annotations.into_iter().chain([record]) {
            set(&mut object.annotations, &mut object.owners.annotations, (key, value), &manager);
        }
        if let Some(taints) = patch.taints {
            object.taints = taints.into_iter().map(node_taint).collect();
        }
        let is_taken_down = was_available && !is_available(&self.api.nodes[node]);
        self.commit_node(node, &before);
        if is_taken_down {
            self.taken_down.insert(node);
            self.check_budget();
        }
        Reply::Node(node, Box::new(self.api.nodes[node].clone()))
    }

    /// A user chooses a layout with the label of a Node.
    pub(crate) fn choose_layout(&mut self, node: usize, layout: Option<&str>) {
        let before = self.api.nodes[node].clone();
        let object = &mut self.api.nodes[node];
        let label = (LAYOUT_LABEL.to_owned(), layout.map(str::to_owned));
        let manager = [USER_MANAGER.to_owned()].into();
        set(&mut object.labels, &mut object.owners.labels, label, &manager);
        self.commit_node(node, &before);
    }

    /// Stores a changed Node, and notifies its watchers.
    fn commit_node(&mut self, node: usize, before: &ObservedNode) {
        if *before == self.api.nodes[node] {
            return;
        }
        self.api.version += 1;
        self.api.writes += 1;
        self.counts.writes += 1;
        self.api.nodes[node].version = self.api.version.to_string();
        if is_available(&self.api.nodes[node]) {
            self.taken_down.remove(&node);
        }
        self.notify(Some(node));
    }

    /// Stores the changed policy, and notifies its watchers.
    pub(crate) fn commit_policy(&mut self) -> Reply {
        self.api.version += 1;
        self.api.writes += 1;
        self.counts.writes += 1;
        self.api.policy.version = self.api.version.to_string();
        self.notify(None);
        Reply::Policy(Box::new(self.api.policy.clone()))
    }

    fn add_watcher(&mut self, number: u64, client: Client) {
        self.api.watchers.retain(|watcher| watcher.client != client);
        self.api.watchers.push(Watcher { number, client, last: self.now });
    }

    /// Sends the current state of a Node, or of the policy, to its watchers.
    fn notify(&mut self, node: Option<usize>) {
        let version = self.api.version;
        for at in 0..self.api.watchers.len() {
            let client = self.api.watchers[at].client;
            let is_watched = match client {
                Client::Agent { node: of, .. } => node == Some(of),
                Client::Controller { .. } => true,
            };
            if !is_watched || self.link(client).is_none() {
                continue;
            }
            let object = match node {
                Some(node) => Object::Node(node, Box::new(self.api.nodes[node].clone())),
                None => Object::Policy(Box::new(self.api.policy.clone())),
            };
            let arrival = (self.now + self.delay()).max(self.api.watchers[at].last);
            self.api.watchers[at].last = arrival;
            let watcher = self.api.watchers[at].number;
            self.at(
                arrival,
                Event::Watch(Box::new(WatchEvent { client, watcher, version, object })),
            );
        }
    }

    /// Delivers an event of a watch. A watch whose connection is interrupted has ended.
    pub(crate) fn watch_event(&mut self, event: WatchEvent) {
        let Some(link) = self.link(event.client) else { return };
        let is_open = self.api.watchers.iter().any(|one| one.number == event.watcher);
        if !is_open {
            return;
        }
        if link.back_until > self.now {
            self.lose_watch(event.watcher);
            return;
        }
        match event.client {
            Client::Agent { node, run } => self.agent_watches(node, run, event),
            Client::Controller { index, .. } => self.controller_watches(index, event),
        }
    }

    /// Ends a watch. Its client notices that later, and reads everything again.
    pub(crate) fn lose_watch(&mut self, number: u64) {
        let watchers = &mut self.api.watchers;
        let Some(at) = watchers.iter().position(|one| one.number == number) else { return };
        let client = watchers.remove(at).client;
        let noticed = self.seconds(1, 60);
        self.after(
            noticed,
            match client {
                Client::Agent { node, run } => Event::Agent { node, run, task: AgentTask::Relist },
                Client::Controller { index, run } => {
                    Event::Controller { index, run, task: ControllerTask::Relist }
                }
            },
        );
    }

    /// Forgets the watches of clients that have ended.
    pub(crate) fn forget_ended_watchers(&mut self) {
        let watchers = std::mem::take(&mut self.api.watchers);
        self.api.watchers =
            watchers.into_iter().filter(|one| self.link(one.client).is_some()).collect();
    }
}

/// Server-side apply of all fields of a manager. Returns whether there is no conflict.
fn apply(
    manager: &'static str,
    force: bool,
    (values, owners): (&mut BTreeMap<String, String>, &mut BTreeMap<String, BTreeSet<String>>),
    fields: BTreeMap<String, String>,
) -> bool {
    let conflicts = |(key, value): (&String, &String)| {
        let others = owners.get(key).is_some_and(|all| all.iter().any(|one| one != manager));
        others && values.get(key) != Some(value)
    };
    if !force && fields.iter().any(conflicts) {
        return false;
    }
    let owned = owners.iter().filter(|(_, all)| all.contains(manager));
    let removed: Vec<String> =
        owned.map(|(key, _)| key.clone()).filter(|key| !fields.contains_key(key)).collect();
    for key in removed {
        let Some(all) = owners.get_mut(&key) else { continue };
        all.remove(manager);
        if all.is_empty() {
            owners.remove(&key);
            values.remove(&key);
        }
    }
    for (key, value) in fields {
        owners.entry(key.clone()).or_default().insert(manager.to_owned());
        values.insert(key, value);
    }
    true
}

/// A change of one field, which makes the writer its only manager.
fn set(
    values: &mut BTreeMap<String, String>,
    owners: &mut BTreeMap<String, BTreeSet<String>>,
    (key, value): (String, Option<String>),
    manager: &BTreeSet<String>,
) {
    if let Some(value) = value {
        owners.insert(key.clone(), manager.clone());
        values.insert(key, value);
    } else {
        owners.remove(&key);
        values.remove(&key);
    }
}

fn node_taint(taint: PolicyTaint) -> Taint {
    let value = Some(taint.value).filter(|value| !value.is_empty());
    Taint { key: taint.key, value, effect: taint.effect.to_string(), added: None }
}

/// Returns whether the node is available for pods, as policies define it.
pub(crate) fn is_available(node: &ObservedNode) -> bool {
    let report = layout_report(node);
    match node.labels.get(LAYOUT_LABEL) {
        Some(layout) => report.is_some_and(|one| one.is_applied(layout)),
        None => report.is_none_or(|one| one.layout.is_none() || one.state == Some(Reason::Applied)),
    }
}

/// The layout status that the agent wrote.
fn layout_report(node: &ObservedNode) -> Option<LayoutReport> {
    let text = node.annotations.get(STATUS_ANNOTATION)?;
    let status: Value = serde_json::from_str(text).ok()?;
    let word = |value: &Value, key: &str| value[key].as_str().map(str::to_owned);
    let state = word(&status, "state").unwrap_or_default();
    let devices = status["devices"].as_array().cloned().unwrap_or_default();
    let message = devices.iter().find_map(|one| {
        let message = word(one, "message").filter(|message| !message.is_empty())?;
        (word(one, "state").as_ref() == Some(&state)).then_some(message)
    });
    let message = message.or_else(|| word(&status, "message")).unwrap_or_default();
    Some(LayoutReport { layout: word(&status, "layout"), state: state.parse().ok(), message })
}

/// A Node as policies see it.
pub(crate) fn cluster_node(name: &str, node: &ObservedNode) -> ClusterNode {
    let taints = node.taints.iter().filter_map(|taint| {
        let value = taint.value.clone().unwrap_or_default();
        Some(PolicyTaint { key: taint.key.clone(), value, effect: taint.effect.parse().ok()? })
    });
    ClusterNode {
        name: name.to_owned(),
        uid: node.uid.clone(),
        labels: node.labels.clone(),
        taints: taints.collect(),
        readiness: Readiness::Ready,
        layout_report: layout_report(node),
        policy_record: node.annotations.get(RECORD_ANNOTATION).cloned(),
        drain: node.annotations.get(DRAIN_ANNOTATION).cloned(),
        ..ClusterNode::default()
    }
}

/// Delay after which a client that got no answer asks again.
pub(crate) const RETRY_DELAY: Duration = Duration::from_secs(2);
