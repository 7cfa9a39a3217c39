//! The state of the simulation, and the events that change it.

pub(crate) mod agent;
pub(crate) mod cluster;
pub(crate) mod connection;
pub(crate) mod gpu;
pub(crate) mod layouts;
pub(crate) mod machine;
pub(crate) mod messages;
pub(crate) mod queue;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::ops::Add;
use std::time::Duration;

use jiff::Timestamp;
use octavo_files::config_files::LayoutFileSnapshot;
use octavo_model::digest::Digest;

use self::agent::Agent;
use self::cluster::{ApiServer, Controller};
use self::connection::{Aggregator, Connection, SentStatuses};
use self::machine::{Link, Machine};
use self::messages::{Call, Client, Request};
use self::queue::{AgentTask, ControllerTask, Event, Queue};
use crate::Options;

/// Everything that is simulated.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) options: Options,
    pub(crate) now: Duration,
    pub(crate) random: fastrand::Rng,
    pub(crate) machines: Vec<Machine>,
    pub(crate) aggregator: Option<Box<Aggregator>>,
    pub(crate) aggregator_run: u32,
    pub(crate) connections: BTreeMap<u64, Connection>,
    pub(crate) last_connection: u64,
    pub(crate) api: ApiServer,
    pub(crate) controllers: Vec<Controller>,
    pub(crate) layouts: LayoutFileSnapshot,
    /// Statuses sent by the agent of each node.
    pub(crate) sent: Vec<SentStatuses>,
    /// Number of nodes that the policy may make unavailable.
    pub(crate) budget: u32,
    /// Nodes that the policy has made unavailable.
    pub(crate) taken_down: BTreeSet<usize>,
    pub(crate) last_request: u64,
    pub(crate) phase: Phase,
    /// API writes at the end of the convergence.
    pub(crate) writes_when_converged: u64,
    pub(crate) counts: Counts,
    /// The first violation of an invariant.
    pub(crate) violation: Option<String>,
    pub(crate) digest: Digest,
    queue: Queue,
    trace: VecDeque<String>,
}

/// Phase of the simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Faults occur.
    Faults,
    /// No fault occurs any longer, and everything must converge.
    Convergence,
    /// Everything has converged, and nothing may change.
    Quiet,
}

/// Numbers of what happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Simulated events.
    pub events: u64,
    /// Driver calls that change a GPU.
    pub calls: u64,
    /// Ended changes of GPUs.
    pub changes: u64,
    /// Kills of agents during a change.
    pub kills: u64,
    /// Interrupted changes that a later agent continued.
    pub resumed: u64,
    /// Other injected faults.
    pub faults: u64,
    /// Messages of the status stream.
    pub messages: u64,
    /// Written objects of the API server.
    pub writes: u64,
}

/// Delay of most messages and requests.
const DELAYS: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(40));
/// Delay of a slow one.
const LONG_DELAYS: (Duration, Duration) = (Duration::from_millis(40), Duration::from_secs(4));
/// Time limit of a request, and of one for the Lease.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
const LEASE_TIMEOUT: Duration = Duration::from_secs(3);

/// Parts of a world that exist before its first event.
#[derive(Debug)]
pub(crate) struct Beginning {
    pub(crate) random: fastrand::Rng,
    pub(crate) machines: Vec<Machine>,
    pub(crate) api: ApiServer,
    pub(crate) controllers: Vec<Controller>,
    pub(crate) layouts: LayoutFileSnapshot,
    /// Number of nodes that the policy may make unavailable.
    pub(crate) budget: u32,
}

impl World {
    /// A world without events.
    pub(crate) fn new(options: Options, beginning: Beginning) -> Self {
        let nodes = beginning.machines.len();
        Self {
            options,
            now: Duration::ZERO,
            random: beginning.random,
            machines: beginning.machines,
            aggregator: None,
            aggregator_run: 0,
            connections: BTreeMap::new(),
            last_connection: 0,
            api: beginning.api,
            controllers: beginning.controllers,
            layouts: beginning.layouts,
            sent: (0..nodes).map(|_| SentStatuses::default()).collect(),
            budget: beginning.budget,
            taken_down: BTreeSet::new(),
            last_request: 0,
            phase: Phase::Faults,
            writes_when_converged: 0,
            counts: Counts::default(),
            violation: None,
            digest: Digest::START,
            queue: Queue::default(),
            trace: VecDeque::new(),
        }
    }

    /// Advances to the next event.
    pub(crate) fn next_event(&mut self) -> Option<Event> {
        let (at, event) = self.queue.pop()?;
        self.now = at;
        self.counts.events += 1;
        let mut digest = self.digest.with(&at.as_nanos().to_le_bytes());
        for number in event.identity() {
            digest = digest.with(&number.to_le_bytes());
        }
        self.digest = digest;
        if self.options.trace > 0 {
            self.note(|| format!("{event:?}"));
        }
        Some(event)
    }

    /// Adds a line to the trace, if there is one.
    pub(crate) fn note(&mut self, line: impl FnOnce() -> String) {
        if self.options.trace == 0 {
            return;
        }
        if self.trace.len() >= self.options.trace {
            self.trace.pop_front();
        }
        let mut text = line();
        if let Some((end, _)) = text.char_indices().nth(1000) {
            text.truncate(end);
        }
        self.trace.push_back(format!("{:>14.6} {text}", self.now.as_secs_f64()));
    }

    /// The last lines of the trace.
    pub(crate) fn take_trace(&mut self) -> Vec<String> {
        std::mem::take(&mut self.trace).into()
    }

    /// Records the violation of an invariant. The first one counts.
    pub(crate) fn fail(&mut self, text: impl FnOnce() -> String) {
        if self.violation.is_none() {
            self.violation = Some(text());
        }
    }

    /// Records a violation unless the condition is met.
    pub(crate) fn check(&mut self, is_met: bool, text: impl FnOnce() -> String) {
        if !is_met {
            self.fail(text);
        }
    }

    /// Adds an event at a time that is not in the past.
    pub(crate) fn at(&mut self, at: Duration, event: Event) {
        self.queue.push(at.max(self.now), event);
    }

    /// Adds an event after this time.
    pub(crate) fn after(&mut self, delay: Duration, event: Event) {
        self.queue.push(self.now + delay, event);
    }

    /// Returns `true` in this number of 1000 cases.
    pub(crate) fn chance(&mut self, thousandths: u32) -> bool {
        self.random.u32(0..1000) < thousandths
    }

    /// A random duration.
    pub(crate) fn between(&mut self, (shortest, longest): (Duration, Duration)) -> Duration {
        let micros = |span: Duration| u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        Duration::from_micros(self.random.u64(micros(shortest)..=micros(longest)))
    }

    /// A random number of seconds.
    pub(crate) fn seconds(&mut self, shortest: u64, longest: u64) -> Duration {
        self.between((Duration::from_secs(shortest), Duration::from_secs(longest)))
    }

    /// A random delay of a message.
    pub(crate) fn delay(&mut self) -> Duration {
        let is_long = self.phase == Phase::Faults && self.chance(20);
        self.between(if is_long { LONG_DELAYS } else { DELAYS })
    }

    /// The agent of a node, if this run of it still exists.
    pub(crate) fn agent(&mut self, node: usize, run: u32) -> Option<&mut Agent> {
        let machine = &mut self.machines[node];
        (machine.run == run).then_some(machine.agent.as_deref_mut()).flatten()
    }

    /// Adds a task of the current agent of a node.
    pub(crate) fn agent_task(&mut self, node: usize, at: Duration, task: AgentTask) {
        let run = self.machines[node].run;
        self.at(at, Event::Agent { node, run, task });
    }

    /// Reads the hardware again at this time, if that is not planned earlier.
    pub(crate) fn plan_scan(&mut self, node: usize, at: Duration) {
        let Some(agent) = self.machines[node].agent.as_deref_mut() else { return };
        let at = at.max(self.now);
        if agent.next_scan.is_none_or(|planned| at < planned) {
            agent.next_scan = Some(at);
            self.agent_task(node, at, AgentTask::Scan);
        }
    }

    /// Compares the Node with its desired state at this time, if that is not planned earlier.
    pub(crate) fn plan_write(&mut self, node: usize, at: Duration) {
        let Some(agent) = self.machines[node].agent.as_deref_mut() else { return };
        let at = at.max(self.now);
        if agent.next_write.is_none_or(|planned| at < planned) {
            agent.next_write = Some(at);
            self.agent_task(node, at, AgentTask::WriteNode);
        }
    }

    /// Lets a controller decide at this time, if that is not planned earlier.
    pub(crate) fn plan_work(&mut self, index: usize, at: Duration) {
        let at = at.max(self.now);
        let controller = &mut self.controllers[index];
        if controller.next_work.is_none_or(|planned| at < planned) {
            controller.next_work = Some(at);
            let run = controller.run;
            self.at(at, Event::Controller { index, run, task: ControllerTask::Work });
        }
    }

    /// The link of a client to the API server; `None` if the client has ended.
    pub(crate) fn link(&self, client: Client) -> Option<Link> {
        match client {
            Client::Agent { node, run } => {
                let machine = &self.machines[node];
                (machine.run == run && machine.agent.is_some()).then_some(machine.to_api)
            }
            Client::Controller { index, run } => {
                let controller = &self.controllers[index];
                (controller.run == run && controller.is_running).then_some(controller.link)
            }
        }
    }

    /// Sends a request to the API server. Returns its number.
    pub(crate) fn request(&mut self, client: Client, call: Call) -> u64 {
        self.last_request += 1;
        let id = self.last_request;
        let is_lease = matches!(call, Call::ReadLease | Call::WriteLease { .. });
        let is_cut = self.link(client).is_none_or(|link| link.out_until > self.now);
        let delay = self.delay();
        if !is_cut {
            self.after(delay, Event::Request(Box::new(Request { id, client, call })));
        }
        let limit = if is_lease { LEASE_TIMEOUT } else { REQUEST_TIMEOUT };
        self.after(
            limit,
            match client {
                Client::Agent { node, run } => {
                    Event::Agent { node, run, task: AgentTask::Expired(id) }
                }
                Client::Controller { index, run } => {
                    Event::Controller { index, run, task: ControllerTask::Expired(id) }
                }
            },
        );
        id
    }

    /// The wall clock of a machine with this deviation.
    pub(crate) fn wall(&self, offset: i64) -> Timestamp {
        let start: i64 = 1_796_083_200_000;
        let now = i64::try_from(self.now.as_millis()).unwrap_or(i64::MAX);
        Timestamp::from_millisecond(start + now + offset).unwrap_or(Timestamp::MAX)
    }
}

impl World {
    /// The result of a simulation that has ended.
    pub(crate) fn outcome(&self) -> crate::Outcome {
        let mut digest = self.digest;
        for machine in &self.machines {
            for gpu in &machine.gpus {
                digest = digest.with(format!("{:?}", gpu.state().gpu_instances).as_bytes());
            }
        }
        for node in &self.api.nodes {
            digest = digest.with(format!("{node:?}").as_bytes());
        }
        crate::Outcome {
            nodes: self.machines.len(),
            simulated: self.now,
            digest: digest.get(),
            counts: self.counts,
        }
    }
}

impl Add for Counts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            events: self.events + other.events,
            calls: self.calls + other.calls,
            changes: self.changes + other.changes,
            kills: self.kills + other.kills,
            resumed: self.resumed + other.resumed,
            faults: self.faults + other.faults,
            messages: self.messages + other.messages,
            writes: self.writes + other.writes,
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { events, calls, changes, kills, resumed, faults, messages, writes } = self;
        write!(
            f,
            "events {events}, messages {messages}, API writes {writes}, driver calls {calls}, changes {changes}, kills \
             during changes {kills}, resumed changes {resumed}, other faults {faults}"
        )
    }
}
