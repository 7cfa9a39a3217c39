//! Several agents that claim one node, one aggregator, and a network that loses, repeats, reorders and interrupts.
//!
//! In every run, the aggregator accepts only statuses that the accepted agent really had, in their order until another
//! run replaces it. Once the network works again, one live agent and a few heartbeats suffice for both sides to have the
//! same status.

mod event;

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::sample::Index;

use self::event::{Delivery, Event, events, pick};
use super::*;

struct Agent {
    sender: Sender,
    run: Run,
    latest: Parts,
    /// Every status it sent, by sequence number; the numbers must increase.
    sent: BTreeMap<u64, Parts>,
    line: Option<usize>,
}

#[derive(Default)]
struct Connection {
    agent: usize,
    up: Vec<FromAgent>,
    down: Vec<AggregatorMessage>,
}

#[derive(Default)]
struct World {
    agents: Vec<Agent>,
    lines: Vec<Connection>,
    receiver: Option<Receiver>,
    /// The connection that was welcomed last.
    connected: Option<usize>,
    /// The sequence numbers of the accepted statuses, by agent.
    taken: BTreeMap<usize, BTreeSet<u64>>,
    /// The sequence number accepted last, by agent, since another run was replaced.
    last_taken: BTreeMap<usize, u64>,
}

impl World {
    fn start(&mut self, epoch: u64) {
        let run = Run { epoch, boot_id: format!("boot {}", self.agents.len()) };
        let mut sender = Sender::new(identity(), run.clone());
        // An agent connects only after its first observation.
        let latest = status(0);
        assert_eq!(sender.set_status(latest.clone()), None);
        self.agents.push(Agent { sender, run, latest, sent: BTreeMap::new(), line: None });
    }

    /// Sends a message of an agent. It must contain the agent's status, with an increasing sequence number.
    fn send(&mut self, agent: usize, message: Option<FromAgent>) {
        let Some(message) = message else { return };
        let it = &mut self.agents[agent];
        let last = it.sent.last_key_value().map_or(0, |(seq, _)| *seq);
        let before = it.sent.get(&last).cloned().unwrap_or_default();
        let new = match &message {
            FromAgent::Snapshot { seq, parts } => Some((*seq, parts.clone())),
            FromAgent::Delta { seq, change, hash } => {
                assert_eq!(*seq, last + 1);
                let parts = before.apply(change);
                assert_eq!(parts.hash(), *hash);
                Some((*seq, parts))
            }
            FromAgent::Heartbeat { seq, hash } => {
                assert_eq!((*seq, *hash), (last, before.hash()));
                None
            }
            FromAgent::Hello(hello) => {
                assert_eq!((hello.seq, hello.hash), (last, before.hash()));
                None
            }
        };
        if let Some((seq, parts)) = new {
            assert!(seq > last, "{seq} after {last}");
            assert_eq!(parts, it.latest, "an outdated status is sent");
            it.sent.insert(seq, parts);
        }
        if let Some(line) = it.line {
            self.lines[line].up.push(message);
        }
    }

    fn connect(&mut self, agent: usize) {
        self.disconnect(agent);
        self.agents[agent].line = Some(self.lines.len());
        self.lines.push(Connection { agent, ..Connection::default() });
        let greeting = self.agents[agent].sender.connected();
        self.send(agent, Some(greeting));
    }

    fn disconnect(&mut self, agent: usize) {
        let it = &mut self.agents[agent];
        it.sender.disconnected();
        // Messages in flight may still arrive: the aggregator may not have noticed that the connection is closed.
        if let Some(line) = it.line.take() {
            self.lines[line].down.clear();
        }
    }

    /// Delivers a message to the aggregator.
    fn arrive(&mut self, line: usize, message: FromAgent, alive: bool) {
        let agent = self.lines[line].agent;
        let answer = match message {
            FromAgent::Hello(hello) => self.greet(line, &hello, alive),
            // Not greeted, rejected, or superseded by another connection.
            _ if self.connected != Some(line) => return,
            FromAgent::Snapshot { .. } | FromAgent::Delta { .. } | FromAgent::Heartbeat { .. } => {
                self.deliver(agent, message)
            }
        };
        if self.agents[agent].line == Some(line) {
            self.lines[line].down.push(answer);
        }
    }

    fn greet(&mut self, line: usize, hello: &Hello, alive: bool) -> AggregatorMessage {
        let Some(receiver) = &mut self.receiver else {
            let (receiver, answer) = Receiver::new(hello);
            self.receiver = Some(receiver);
            self.connected = Some(line);
            return answer;
        };
        let before = receiver.parts().clone();
        let known = receiver.run().clone();
        let greeting = receiver.handle_hello(hello, alive);
        assert_eq!(receiver.parts(), &before, "a greeting shows nothing new");
        match greeting {
            Greeting::Welcome(answer) => {
                assert!(!alive || hello.run == known || hello.run.epoch > known.epoch);
                assert_eq!(receiver.run(), &hello.run);
                self.connected = Some(line);
                if hello.run != known {
                    self.last_taken.clear();
                }
                answer
            }
            Greeting::Refused(answer) => {
                assert!(alive && hello.run != known && hello.run.epoch <= known.epoch);
                assert_eq!(receiver.run(), &known);
                answer
            }
        }
    }

    fn deliver(&mut self, agent: usize, message: FromAgent) -> AggregatorMessage {
        let receiver = self.receiver.as_mut().unwrap();
        assert_eq!(receiver.run(), &self.agents[agent].run);
        let sent = &self.agents[agent].sent;
        let before = receiver.parts().clone();
        let offer = match message {
            FromAgent::Hello(_) => unreachable!(),
            FromAgent::Snapshot { seq, parts } => receiver.snapshot(seq, parts),
            FromAgent::Delta { seq, change, hash } => receiver.delta(seq, &change, hash),
            FromAgent::Heartbeat { seq, hash } => receiver.heartbeat(seq, hash),
        };
        assert_eq!(receiver.parts(), &before, "a status is known before it is accepted");
        let answer = match offer {
            ReceiveOutcome::Status(status) => {
                let answer = receiver.take(status);
                let AggregatorMessage::Ack { seq } = answer else {
                    panic!("{answer:?} to an accepted status");
                };
                self.taken.entry(agent).or_default().insert(seq);
                let last = self.last_taken.insert(agent, seq);
                assert!(last.is_none_or(|last| last <= seq), "{seq} after {last:?}");
                answer
            }
            ReceiveOutcome::Confirmed(answer) => {
                assert!(matches!(answer, AggregatorMessage::Ack { .. }), "{answer:?}");
                answer
            }
            ReceiveOutcome::Nothing(answer) => answer,
        };
        if let AggregatorMessage::Ack { seq } = answer {
            assert_eq!(sent.get(&seq), Some(receiver.parts()), "an acknowledged status is unknown");
        }
        answer
    }

    fn receive(&mut self, line: usize, message: &AggregatorMessage) {
        let agent = self.lines[line].agent;
        if self.agents[agent].line == Some(line) {
            let message = self.agents[agent].sender.handle_message(message);
            self.send(agent, message);
        }
        let it = &self.agents[agent];
        if it.sender.is_in_sync() {
            let (last, parts) = it.sent.last_key_value().unwrap();
            assert_eq!(parts, &it.latest);
            let taken = self.taken.get(&agent);
            assert!(taken.is_some_and(|taken| taken.contains(last)), "{last} of {taken:?}");
        }
    }

    fn step(&mut self, event: Event) {
        let one = |index: Index, agents: usize| index.index(agents);
        match event {
            Event::Start(epoch) => self.start(epoch),
            Event::Observe(agent, number) => {
                let agent = one(agent, self.agents.len());
                self.agents[agent].latest = status(number);
                let message = self.agents[agent].sender.set_status(status(number));
                self.send(agent, message);
            }
            Event::Connect(agent) => self.connect(one(agent, self.agents.len())),
            Event::Disconnect(agent) => self.disconnect(one(agent, self.agents.len())),
            Event::Heartbeat(agent) => {
                let agent = one(agent, self.agents.len());
                let message = self.agents[agent].sender.heartbeat();
                self.send(agent, message);
            }
            Event::Up(line, message, fate, alive) => self.up(line, message, fate, alive),
            Event::Down(line, message, fate) => self.down(line, message, fate),
            Event::Restart => {
                self.receiver = None;
                self.connected = None;
                for agent in 0..self.agents.len() {
                    self.disconnect(agent);
                }
                for line in &mut self.lines {
                    line.up.clear();
                }
            }
        }
    }

    fn up(&mut self, line: Index, message: Index, fate: Delivery, alive: bool) {
        let busy = (0..self.lines.len()).filter(|line| !self.lines[*line].up.is_empty());
        let busy: Vec<usize> = busy.collect();
        if busy.is_empty() {
            return;
        }
        let line = busy[line.index(busy.len())];
        let Some(message) = pick(&mut self.lines[line].up, message, fate) else {
            return;
        };
        self.arrive(line, message.clone(), alive);
        if matches!(fate, Delivery::ArrivesTwice) {
            let before = self.receiver.as_ref().map(|it| it.parts().clone());
            self.arrive(line, message, alive);
            let after = self.receiver.as_ref().map(|it| it.parts().clone());
            assert_eq!(before, after, "a replay changes nothing");
        }
    }

    fn down(&mut self, line: Index, message: Index, fate: Delivery) {
        let busy = (0..self.lines.len()).filter(|line| !self.lines[*line].down.is_empty());
        let busy: Vec<usize> = busy.collect();
        if busy.is_empty() {
            return;
        }
        let line = busy[line.index(busy.len())];
        let Some(message) = pick(&mut self.lines[line].down, message, fate) else {
            return;
        };
        self.receive(line, &message);
        if matches!(fate, Delivery::ArrivesTwice) {
            self.receive(line, &message);
        }
    }

    /// Repairs the network and leaves one agent; returns the number of heartbeats until both sides agree.
    fn calm(&mut self, agent: usize) -> usize {
        for other in 0..self.agents.len() {
            self.disconnect(other);
        }
        for line in &mut self.lines {
            line.up.clear();
        }
        self.connect(agent);
        let line = self.agents[agent].line.unwrap();
        for heartbeats in 0.. {
            while !(self.lines[line].up.is_empty() && self.lines[line].down.is_empty()) {
                for message in std::mem::take(&mut self.lines[line].up) {
                    self.arrive(line, message, false);
                }
                for message in std::mem::take(&mut self.lines[line].down) {
                    self.receive(line, &message);
                }
            }
            if self.agents[agent].sender.is_in_sync() {
                return heartbeats;
            }
            assert!(heartbeats < 3, "agent and aggregator do not synchronize");
            let message = self.agents[agent].sender.heartbeat();
            self.send(agent, message);
        }
        unreachable!()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn aggregator_accepts_only_true_statuses_and_converges(
        events in events(), survivor in any::<Index>(),
    ) {
        let mut world = World::default();
        world.start(3);
        for event in events {
            world.step(event);
        }
        let survivor = survivor.index(world.agents.len());
        world.calm(survivor);
        let agent = &world.agents[survivor];
        let receiver = world.receiver.as_ref().unwrap();
        prop_assert_eq!(receiver.parts(), &agent.latest);
        prop_assert_eq!(receiver.run(), &agent.run);
    }
}
