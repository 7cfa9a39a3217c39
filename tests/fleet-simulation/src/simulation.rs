//! The beginning of the simulation, and the order of its events.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use octavo_files::config_files::LayoutFileSnapshot;
use octavo_node::lease::LeaderElector;
use octavo_node::node_object::ObservedNode;
use octavo_policy::{Policy, PolicyStatus};
use serde_json::json;

use crate::Options;
use crate::state::cluster::{ApiServer, Controller};
use crate::state::gpu::Gpu;
use crate::state::layouts::LAYOUT_FILE;
use crate::state::machine::{Link, Machine};
use crate::state::messages::Client;
use crate::state::queue::{AgentTask, ControllerTask, Event};
use crate::state::{Beginning, World};

/// Label of the nodes that the policy selects.
const POOL: &str = "pool";

impl World {
    /// The world before its first event.
    pub(crate) fn begin(seed: u64, options: Options) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let nodes = random.usize(options.nodes.0..=options.nodes.1);
        let budget = random.u32(1..=2);
        let machines = (0..nodes).map(|node| machine(node, &mut random)).collect();
        let policy = policy(&mut random, budget);
        let api = ApiServer {
            nodes: (0..nodes).map(object).collect(),
            policy,
            lease: None,
            version: 1,
            watchers: Vec::new(),
            writes: 0,
        };
        let controllers = (0..2).map(|_| controller(random.i32(-2000..2000))).collect();
        let layouts = LayoutFileSnapshot::parse(LAYOUT_FILE).unwrap();
        let mut world =
            Self::new(options, Beginning { random, machines, api, controllers, layouts, budget });
        world.at(Duration::ZERO, Event::StartAggregator);
        for node in 0..nodes {
            let start = world.seconds(0, 30);
            world.after(start, Event::StartAgent { node, run: 0 });
            world.after(start, Event::Workload { node });
        }
        for index in 0..2 {
            world
                .after(Duration::from_secs(index as u64), Event::StartController { index, run: 0 });
        }
        world.after(Duration::from_mins(1), Event::User);
        world.after(Duration::from_secs(90), Event::Fault);
        let Options { faults, convergence, quiet, .. } = world.options;
        world.at(faults, Event::Calm);
        world.at(faults + convergence, Event::Converged);
        world.at(faults + convergence + quiet, Event::End);
        world
    }

    /// Simulates until the end or the first violation of an invariant.
    pub(crate) fn simulate(&mut self) {
        while self.violation.is_none() {
            match self.next_event() {
                None | Some(Event::End) => {
                    self.check_quiet();
                    return;
                }
                Some(event) => self.handle(event),
            }
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Agent { node, run, task } => {
                if self.machines[node].run == run {
                    self.handle_agent(node, run, task);
                }
            }
            Event::StartAgent { node, run } => self.start_agent(node, run),
            Event::Deliver { connection, to } => self.deliver(connection, to),
            Event::Disconnected { connection, end } => self.disconnected(connection, end),
            Event::Sweep { run } => self.sweep(run),
            Event::Publish { run } => self.publish(run),
            Event::StartAggregator => self.start_aggregator(),
            Event::Request(request) => self.api_request(*request),
            Event::Answer(answer) => {
                let client = answer.client;
                let link = self.link(client);
                if link.is_none_or(|link| link.back_until > self.now) {
                    return;
                }
                match client {
                    Client::Agent { node, run } => self.agent_answer(node, run, *answer),
                    Client::Controller { index, .. } => self.controller_answer(index, *answer),
                }
            }
            Event::Watch(event) => self.watch_event(*event),
            Event::Controller { index, run, task } => {
                if self.controllers[index].run == run && self.controllers[index].is_running {
                    self.handle_controller(index, task);
                }
            }
            Event::StartController { index, run } => self.start_controller(index, run),
            Event::Workload { node } => self.workload(node),
            Event::Pod { node, pid, change } => self.change_pod(node, pid, change),
            Event::User => self.user(),
            Event::Fault => self.fault(),
            Event::Calm => self.calm(),
            Event::Converged => self.check_convergence(),
            Event::End => {}
        }
    }

    fn handle_agent(&mut self, node: usize, run: u32, task: AgentTask) {
        match task {
            AgentTask::Scan => self.scan(node, run),
            AgentTask::Step(pci) => self.step(node, run, pci),
            AgentTask::Dial => self.dial(node, run),
            AgentTask::Heartbeat(connection) => self.heartbeat(node, run, connection),
            AgentTask::WriteNode => self.write_node(node, run),
            AgentTask::ListPods => self.list_pods(node, run),
            AgentTask::Relist => self.watch_node(node),
            AgentTask::Expired(id) => self.agent_request_expired(node, run, id),
        }
    }

    fn handle_controller(&mut self, index: usize, task: ControllerTask) {
        match task {
            ControllerTask::Elect => self.elect(index),
            ControllerTask::Work => self.work(index),
            ControllerTask::Relist => self.watch_all(index),
            ControllerTask::Expired(id) => self.controller_request_expired(index, id),
        }
    }
}

fn machine(node: usize, random: &mut fastrand::Rng) -> Machine {
    // The second GPU has instances that another program created, which most layouts do not cover.
    let first: &[(u32, u32)] = if random.bool() { &[] } else { &[(9, 0), (9, 4)] };
    Machine {
        name: format!("node-{node:02}"),
        is_in_pool: is_in_pool(node),
        next_workload: Duration::ZERO,
        gpus: vec![Gpu::new(0, node, first), Gpu::new(1, node, &[(14, 0), (19, 3), (9, 4)])],
        tenants: Vec::new(),
        last_pid: 1000,
        version: 1,
        changed: Duration::ZERO,
        checked: None,
        journal: None,
        boot: 1,
        wall_offset: random.i64(-2000..2000),
        agent: None,
        run: 0,
        kill_chance: 0,
        hangs_until: Duration::ZERO,
        kubelet_down_until: Duration::ZERO,
        to_api: Link::default(),
        to_aggregator: Link::default(),
        open_changes: BTreeMap::new(),
    }
}

fn is_in_pool(node: usize) -> bool {
    node.is_multiple_of(2)
}

fn object(node: usize) -> ObservedNode {
    let mut labels = BTreeMap::new();
    if is_in_pool(node) {
        labels.insert(POOL.to_owned(), "a".to_owned());
    }
    let (uid, version) = (format!("uid-{node}"), "1".to_owned());
    ObservedNode { uid, version, labels, ..ObservedNode::default() }
}

fn policy(random: &mut fastrand::Rng, budget: u32) -> Policy {
    let reaction = if random.bool() { "Pause" } else { "RollBack" };
    let failures = random.u32(0..3);
    let spec = json!({
        "nodeSelector": {"matchLabels": {POOL: "a"}},
        "layout": "serving",
        "nodeLabels": {"workload": "serving"},
        "rollout": {"maxUnavailable": budget, "maxFailures": failures, "onFailure": reaction},
    });
    Policy {
        name: "pool".to_owned(),
        uid: "uid-pool".to_owned(),
        version: "1".to_owned(),
        generation: 1,
        created: None,
        is_deleting: false,
        has_finalizer: false,
        rollback_to: None,
        approved: BTreeSet::new(),
        spec: Ok(serde_json::from_value(spec).unwrap()),
        status: PolicyStatus::default(),
    }
}

fn controller(drift: i32) -> Controller {
    Controller {
        run: 0,
        is_running: false,
        began: Duration::ZERO,
        wall_offset: 0,
        drift,
        link: Link::default(),
        elector: LeaderElector::new(String::new()),
        policy: None,
        nodes: BTreeMap::new(),
        versions: BTreeMap::new(),
        watcher: 0,
        has_begun: false,
        next_work: None,
        steps: VecDeque::new(),
        has_written: false,
        requests: BTreeMap::new(),
    }
}
