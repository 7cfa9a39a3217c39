//! The simulated cluster and its controllers.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{Timestamp, ToSpan};
use octavo_fleet::cluster::{ClusterNode, LayoutReport, Readiness};
use octavo_model::reason::Reason;
use octavo_node::node_object::{
    EVICT_ANNOTATION, EvictionPermission, INSTANCES_ANNOTATION, demand_layout, is_demand_layout,
};
use serde_json::{Value, json};

use crate::record::{DRAIN_ANNOTATION, LAYOUT_LABEL, Record};
use crate::{
    ChangeEvent, NodePatch, NodeProposal, Policy, PolicyNode, PolicySpec, Step, World, next,
    release_orphan,
};

/// Reaction of a node to a layout that is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// It applies the layout after this many minutes.
    Applies(u32),
    /// It fails.
    Fails,
    /// It stays blocked.
    Blocks,
}

#[derive(Debug, Clone)]
pub(super) struct Machine {
    pub(super) node: ClusterNode,
    pub(super) fate: Fate,
    /// Annotation `octavo.dev/instances`.
    pub(super) instances: Option<String>,
    /// Annotation `octavo.dev/evict`.
    pub(super) evict: Option<String>,
    version: u64,
    age: u32,
}

/// The API server and the machines.
#[derive(Debug, Clone)]
pub(super) struct Cluster {
    pub(super) policies: BTreeMap<String, Policy>,
    pub(super) machines: BTreeMap<String, Machine>,
    pub(super) now: Timestamp,
    /// Nodes that a policy made unavailable.
    pub(super) taken_down: BTreeSet<String>,
    pub(super) writes: u32,
    /// Instances that pending pods need, by node.
    pub(super) proposals: BTreeMap<String, NodeProposal>,
    /// Nodes whose proposals are unknown.
    pub(super) unknown_nodes: BTreeSet<String>,
    /// Pods that wait no longer.
    pub(super) placed: BTreeSet<String>,
    /// Events about changes of instances.
    pub(super) events: Vec<ChangeEvent>,
    /// Times at which nodes got a layout of demand.
    pub(super) instance_changes: BTreeMap<String, Vec<Timestamp>>,
    /// Times at which nodes got permission to evict a pod.
    pub(super) evictions: BTreeMap<String, Vec<Timestamp>>,
    version: u64,
}

/// A controller with its view of the cluster.
#[derive(Debug, Clone)]
pub(super) struct Controller {
    policies: BTreeMap<String, Policy>,
    nodes: BTreeMap<String, ClusterNode>,
}

impl Cluster {
    pub(super) fn new(count: u32) -> Self {
        let mut cluster = Self {
            policies: BTreeMap::new(),
            machines: BTreeMap::new(),
            now: "2026-07-06T00:00:00Z".parse().unwrap(),
            taken_down: BTreeSet::new(),
            writes: 0,
            proposals: BTreeMap::new(),
            unknown_nodes: BTreeSet::new(),
            placed: BTreeSet::new(),
            events: Vec::new(),
            instance_changes: BTreeMap::new(),
            evictions: BTreeMap::new(),
            version: 1,
        };
        for number in 0..count {
            cluster.join(&format!("node-{number:02}"), Fate::Applies(1));
        }
        cluster
    }

    pub(super) fn join(&mut self, name: &str, fate: Fate) {
        let node = ClusterNode {
            name: name.to_owned(),
            labels: [("pool".to_owned(), "a".to_owned())].into(),
            readiness: Readiness::Ready,
            ..ClusterNode::default()
        };
        let machine = Machine { node, fate, instances: None, evict: None, version: 0, age: 0 };
        self.machines.insert(name.to_owned(), machine);
    }

    /// Creates a policy, or changes its spec.
    pub(super) fn apply(&mut self, name: &str, spec: Value) {
        let spec: PolicySpec = serde_json::from_value(spec).unwrap();
        self.version += 1;
        let policy = self.policies.entry(name.to_owned()).or_insert_with(|| Policy {
            name: name.to_owned(),
            uid: format!("uid-{name}"),
            version: String::new(),
            generation: 0,
            created: None,
            is_deleting: false,
            has_finalizer: false,
            rollback_to: None,
            approved: BTreeSet::new(),
            spec: Err("not written".to_owned()),
            status: crate::PolicyStatus::default(),
        });
        policy.generation += 1;
        policy.spec = Ok(spec);
        policy.version = self.version.to_string();
    }

    pub(super) fn edit(&mut self, name: &str, change: impl FnOnce(&mut Policy)) {
        self.version += 1;
        let version = self.version.to_string();
        let policy = self.policies.get_mut(name).unwrap();
        change(policy);
        policy.version = version;
    }

    pub(super) fn node(&mut self, name: &str) -> &mut ClusterNode {
        &mut self.machines.get_mut(name).unwrap().node
    }

    pub(super) fn label(&mut self, name: &str, key: &str, value: Option<&str>) {
        let machine = self.machines.get_mut(name).unwrap();
        match value {
            Some(value) => machine.node.labels.insert(key.to_owned(), value.to_owned()),
            None => machine.node.labels.remove(key),
        };
        machine.version += 1;
        machine.age = 0;
        self.taken_down.remove(name);
    }

    /// The agent of a node without a layout reports that its own layout failed, or no longer reports it.
    pub(super) fn report(&mut self, name: &str, is_failed: bool) {
        let Some(machine) = self.machines.get_mut(name) else { return };
        if !machine.node.labels.contains_key(LAYOUT_LABEL) {
            machine.node.layout_report = is_failed.then(|| LayoutReport {
                layout: Some("default".to_owned()),
                state: Some(Reason::Failed),
                message: String::new(),
            });
        }
        if self.is_available(name) {
            self.taken_down.remove(name);
        }
    }

    pub(super) fn is_available(&self, name: &str) -> bool {
        PolicyNode::new(&self.machines[name].node, None).is_available()
    }

    /// Largest number of a roll-out in the records; 0 without records.
    pub(super) fn last_rollout(&self) -> i64 {
        let nodes = self.machines.values().map(|machine| PolicyNode::new(&machine.node, None));
        let numbers = nodes.filter_map(|node| node.record.valid().map(|record| record.rollout));
        numbers.max().unwrap_or_default()
    }

    /// One minute passes on all machines.
    pub(super) fn tick(&mut self) {
        self.now += 1.minute();
        for machine in self.machines.values_mut() {
            let layout = machine.node.labels.get(LAYOUT_LABEL).cloned();
            machine.age += 1;
            let state = match machine.fate {
                Fate::Applies(delay) if machine.age >= delay => Reason::Applied,
                Fate::Applies(_) => Reason::Applying,
                Fate::Fails => Reason::Failed,
                Fate::Blocks => Reason::Blocked,
            };
            let message = if state == Reason::Blocked { "pod team/train" } else { "" }.to_owned();
            machine.node.layout_report = layout.map(|layout| LayoutReport {
                layout: Some(layout),
                state: Some(state),
                message,
            });
        }
        let up: Vec<String> =
            self.taken_down.iter().filter(|name| self.is_available(name)).cloned().collect();
        for name in &up {
            self.taken_down.remove(name);
        }
    }

    fn patch_node(&mut self, name: &str, patch: NodePatch) {
        let was_available = self.is_available(name);
        let machine = self.machines.get_mut(name).unwrap();
        let before = machine.node.labels.get(LAYOUT_LABEL).cloned();
        for (key, value) in patch.labels {
            match value {
                Some(value) => machine.node.labels.insert(key, value),
                None => machine.node.labels.remove(&key),
            };
        }
        for (key, value) in patch.annotations {
            match key.as_str() {
                DRAIN_ANNOTATION => machine.node.drain = value,
                INSTANCES_ANNOTATION => machine.instances = value,
                EVICT_ANNOTATION => machine.evict = value,
                _ => panic!("{key}"),
            }
        }
        if let Some(taints) = patch.taints {
            machine.node.taints = taints;
        }
        machine.node.policy_record =
            patch.record.map(|record| serde_json::to_string(&record).unwrap());
        machine.version += 1;
        let layout = machine.node.labels.get(LAYOUT_LABEL);
        // The annotation always belongs to the label.
        let demanded = layout.filter(|layout| is_demand_layout(layout));
        assert_eq!(machine.instances.as_deref().map(demand_layout).as_ref(), demanded, "{name}");
        assert!(machine.evict.is_none() || demanded.is_some(), "{name}");
        if layout != before.as_ref() {
            machine.age = 0;
            if demanded.is_some() {
                self.instance_changes.entry(name.to_owned()).or_default().push(self.now);
                let evict: Option<EvictionPermission> =
                    machine.evict.as_ref().map(|text| text.parse().unwrap());
                let uids = evict.iter().flat_map(|permission| &permission.uids);
                self.evictions.entry(name.to_owned()).or_default().extend(uids.map(|_| self.now));
            }
        }
        if self.is_available(name) {
            self.taken_down.remove(name);
        } else if was_available {
            self.taken_down.insert(name.to_owned());
        }
        self.check(name);
    }

    /// Every label and taint that only policies set has a record.
    fn check(&self, name: &str) {
        let node = &self.machines[name].node;
        let record = Record::parse(node.policy_record.as_deref());
        let record = record.valid();
        if let Some(value) = node.labels.get("workload") {
            assert_eq!(
                record.and_then(|record| record.labels.get("workload")),
                Some(value),
                "{name}"
            );
        }
        let recorded = record.and_then(|record| record.drain.as_ref());
        let is_foreign = node.drain.as_deref() == Some("never");
        assert!(node.drain.is_none() || is_foreign || recorded == node.drain.as_ref(), "{name}");
        for taint in &node.taints {
            assert!(record.is_some_and(|record| record.taints.contains(taint)), "{name}");
        }
    }

    pub(super) fn layouts(&self) -> Vec<Option<&str>> {
        let nodes = self.machines.values();
        nodes.map(|machine| machine.node.labels.get(LAYOUT_LABEL).map(String::as_str)).collect()
    }

    pub(super) fn state(&self, policy: &str) -> String {
        self.policies[policy].status.state.to_string()
    }

    /// Lets a controller with a current view work until nothing changes, for at most two days.
    pub(super) fn settle(&mut self) {
        let mut idle = 0;
        for _minute in 0..2880 {
            let mut controller = Controller::new(self);
            let mut writes = 0;
            while controller.work(self, u32::MAX) > 0 {
                controller = Controller::new(self);
                writes += 1;
                assert!(writes < 500, "the controller never comes to rest: {:#?}", self.policies);
            }
            idle = if writes == 0 { idle + 1 } else { 0 };
            if idle > 90 {
                return;
            }
            self.tick();
        }
        panic!("the roll-out does not end: {:#?}", self.policies);
    }
}

impl Controller {
    pub(super) fn new(cluster: &Cluster) -> Self {
        let nodes =
            cluster.machines.iter().map(|(name, machine)| (name.clone(), machine.node.clone()));
        Self { policies: cluster.policies.clone(), nodes: nodes.collect() }
    }

    /// Lists the policies, as a new leader does. The nodes stay as the watch last reported them.
    pub(super) fn list_policies(&mut self, cluster: &Cluster) {
        self.policies.clone_from(&cluster.policies);
    }

    /// The watch reports the nodes.
    pub(super) fn see_nodes(&mut self, cluster: &Cluster) {
        self.nodes = Self::new(cluster).nodes;
    }

    /// Decides once and makes at most this many writes. Returns the number of writes.
    pub(super) fn work(&mut self, cluster: &mut Cluster, most: u32) -> u32 {
        let policies: Vec<Policy> = self.policies.values().cloned().collect();
        // The controller reads the nodes that a status names and the watch does not report.
        let mut nodes = self.nodes.clone();
        let named = policies.iter().flat_map(|policy| {
            let failed = policy.status.failures.iter().map(|failure| &failure.node);
            policy.status.updating.iter().chain(failed)
        });
        for name in named {
            if let (false, Some(machine)) = (nodes.contains_key(name), cluster.machines.get(name)) {
                nodes.insert(name.clone(), machine.node.clone());
            }
        }
        let world = world(&policies, nodes.values(), cluster.now);
        let changes = policies.iter().flat_map(|policy| &policy.status.changes);
        let waiting = changes.flat_map(|change| &change.pods);
        let waiting = waiting.filter(|pod| !cluster.placed.contains(*pod)).cloned().collect();
        let proposals = Some(cluster.proposals.clone());
        let unknown_nodes = cluster.unknown_nodes.clone();
        let steps = next(&World { proposals, unknown_nodes, waiting, ..world }).steps;
        let mut writes = 0;
        for step in steps {
            if writes >= most {
                break;
            }
            let is_written = match step {
                Step::AddFinalizer { policy } => {
                    self.write_policy(cluster, &policy, |policy| policy.has_finalizer = true)
                }
                Step::RemoveFinalizer { policy } => {
                    self.policies.remove(&policy);
                    cluster.policies.remove(&policy).is_some()
                }
                Step::WriteStatus { policy, status, events } => {
                    let is_written =
                        self.write_policy(cluster, &policy, |policy| policy.status = *status);
                    cluster.events.extend(events.into_iter().filter(|_| is_written));
                    is_written
                }
                Step::ChangeNode { policy, node } => {
                    self.change(cluster, &policies, (&policy, &node))
                }
                Step::ReleaseOrphan { uid, node, .. } => {
                    let is_gone = cluster.policies.values().all(|policy| policy.uid != uid);
                    let fresh = cluster.machines.get(&node).map(|machine| machine.node.clone());
                    let patch =
                        fresh.as_ref().map(|fresh| release_orphan(&PolicyNode::new(fresh, None)));
                    match patch.filter(|_| is_gone) {
                        Some(patch) => {
                            cluster.patch_node(&node, patch);
                            self.see_nodes(cluster);
                            true
                        }
                        None => false,
                    }
                }
            };
            writes += u32::from(is_written);
            cluster.writes += u32::from(is_written);
        }
        writes
    }

    /// Writes a policy if it was not changed since it was read; otherwise it is read again.
    fn write_policy(
        &mut self,
        cluster: &mut Cluster,
        name: &str,
        change: impl FnOnce(&mut Policy),
    ) -> bool {
        let is_current = cluster.policies.get(name).map(|policy| &policy.version)
            == self.policies.get(name).map(|policy| &policy.version);
        if is_current {
            cluster.edit(name, change);
        }
        self.policies.clone_from(&cluster.policies);
        is_current
    }

    fn change(
        &mut self,
        cluster: &mut Cluster,
        policies: &[Policy],
        (policy, name): (&str, &str),
    ) -> bool {
        let Some(fresh) = cluster.machines.get(name).map(|machine| machine.node.clone()) else {
            return false;
        };
        let world = world(policies, [], cluster.now);
        let policy = policies.iter().find(|one| one.name == policy).unwrap();
        let Some(patch) = world.patch(policy, &PolicyNode::new(&fresh, None)) else { return false };
        cluster.patch_node(name, patch);
        let node = cluster.machines[name].node.clone();
        self.nodes.insert(name.to_owned(), node);
        true
    }
}

pub(super) fn world<'a>(
    policies: &'a [Policy],
    nodes: impl IntoIterator<Item = &'a ClusterNode>,
    now: Timestamp,
) -> World<'a> {
    let nodes = nodes.into_iter().map(|node| (node.name.as_str(), PolicyNode::new(node, Some(0))));
    World {
        policies,
        nodes: nodes.collect(),
        infeasible: BTreeMap::new(),
        proposals: None,
        unknown_nodes: BTreeSet::new(),
        waiting: BTreeSet::new(),
        now,
    }
}

/// A spec for the nodes of the pool.
pub(super) fn spec(layout: &str, rollout: Value) -> Value {
    let mut spec = json!({
        "nodeSelector": {"matchLabels": {"pool": "a"}},
        "layout": layout,
        "nodeLabels": {"workload": layout},
        "taints": [{"key": "gpu", "value": layout, "effect": "NoSchedule"}],
    });
    if layout == "training" {
        spec["drain"] = json!({"scope": "node"});
    }
    spec["rollout"] = rollout;
    spec
}
