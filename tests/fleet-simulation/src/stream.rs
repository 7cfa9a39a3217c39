//! The status stream: connections, messages and their loss, on both sides.

use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use octavo_model::backoff::jittered;
use octavo_store::peer::Peer;
use octavo_store::store::{HelloOutcome, Store};
use octavo_stream::messages::{
    encode_from_agent, encode_to_agent, parse_from_agent, parse_to_agent,
};
use octavo_stream::proto::v1;
use octavo_stream::protocol::{AggregatorMessage, FromAgent};
use prost::Message;

use crate::state::connection::{Connection, Direction};
use crate::state::queue::{AgentTask, End, Event};
use crate::state::{Phase, World};

/// Interval of heartbeats, the default of the agent.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(10);
/// Number of unanswered heartbeats after which a connection ends, as in the agent's uplink.
const MAX_UNANSWERED_HEARTBEATS: u32 = 3;
/// A connection that lasted this long resets the backoff, as in the agent's uplink.
const BACKOFF_RESET_AFTER: Duration = Duration::from_secs(30);

impl World {
    /// Connects an agent to the aggregator.
    pub(crate) fn dial(&mut self, node: usize, run: u32) {
        let now = self.now;
        let is_cut = self.machines[node].to_aggregator.out_until > now;
        let is_down = self.aggregator.is_none();
        let Some(agent) = self.agent(node, run) else { return };
        if agent.uplink.connection.is_some() {
            return;
        }
        agent.uplink.dialed = now;
        if is_cut || is_down {
            // A port that is closed refuses the connection; a lost packet is noticed late.
            let noticed = if is_cut {
                HEARTBEAT_INTERVAL * MAX_UNANSWERED_HEARTBEATS
            } else {
                Duration::ZERO
            };
            let wait = self.next_delay(node, run);
            self.agent_task(node, now + noticed + wait, AgentTask::Dial);
            return;
        }
        self.last_connection += 1;
        let id = self.last_connection;
        let Some(agent) = self.agent(node, run) else { return };
        let uplink = &mut agent.uplink;
        (uplink.connection, uplink.is_accepted, uplink.unanswered) = (Some(id), false, 0);
        let hello = uplink.sender.connected();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        self.connections.insert(
            id,
            Connection {
                node,
                run,
                aggregator_run: self.aggregator_run,
                peer: Arc::new(Peer::new(address)),
                permit: None,
                is_agent_open: true,
                is_aggregator_open: true,
                to_agent: Direction::default(),
                to_aggregator: Direction::default(),
            },
        );
        self.send_to_aggregator(id, &hello);
        let limit = HEARTBEAT_INTERVAL * MAX_UNANSWERED_HEARTBEATS;
        self.plan_beat(node, id, limit);
    }

    /// Sends a message of an agent.
    pub(crate) fn send_to_aggregator(&mut self, id: u64, message: &FromAgent) {
        let Some(node) = self.connections.get(&id).map(|connection| connection.node) else {
            return;
        };
        let hash = match message {
            FromAgent::Snapshot { parts, .. } => Some(parts.hash()),
            FromAgent::Delta { hash, .. } => Some(*hash),
            FromAgent::Hello(_) | FromAgent::Heartbeat { .. } => None,
        };
        if let Some(hash) = hash {
            self.sent[node].record(hash);
        }
        let bytes = encode_from_agent(message).encode_to_vec();
        self.send(id, End::Aggregator, bytes);
    }

    fn send_to_agent(&mut self, id: u64, message: &AggregatorMessage) {
        let bytes = encode_to_agent(message).encode_to_vec();
        self.send(id, End::Agent, bytes);
    }

    fn send(&mut self, id: u64, to: End, bytes: Vec<u8>) {
        self.counts.messages += 1;
        let delay = self.delay();
        let now = self.now;
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let direction = connection.direction(to);
        direction.messages.push_back(bytes);
        let at = (now + delay).max(direction.last);
        direction.last = at;
        self.at(at, Event::Deliver { connection: id, to });
    }

    /// Delivers the next message of a connection. Messages wait while the link is interrupted, and are lost with their
    /// connection.
    pub(crate) fn deliver(&mut self, id: u64, to: End) {
        let now = self.now;
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let link = self.machines[connection.node].to_aggregator;
        let until = if to == End::Aggregator { link.out_until } else { link.back_until };
        if until > now {
            connection.direction(to).last = until;
            self.at(until, Event::Deliver { connection: id, to });
            return;
        }
        let Some(bytes) = connection.direction(to).messages.pop_front() else { return };
        let is_open = if to == End::Aggregator {
            connection.is_aggregator_open
        } else {
            connection.is_agent_open
        };
        if !is_open {
            return;
        }
        match to {
            End::Aggregator => {
                let message = v1::FromAgent::decode(bytes.as_slice()).unwrap();
                match parse_from_agent(message) {
                    Ok(message) => self.aggregator_receives(id, message),
                    Err(error) => self.fail(|| format!("I12: a message of an agent: {error}")),
                }
            }
            End::Agent => {
                let message = v1::ToAgent::decode(bytes.as_slice()).unwrap();
                match parse_to_agent(message) {
                    Ok(message) => self.agent_receives(id, &message),
                    Err(error) => {
                        self.fail(|| format!("I12: a message of the aggregator: {error}"));
                    }
                }
            }
        }
    }

    fn aggregator_receives(&mut self, id: u64, message: FromAgent) {
        let now = self.now;
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let node = connection.node;
        let Some(aggregator) = self.aggregator.as_deref_mut() else { return };
        if aggregator.run != connection.aggregator_run {
            return;
        }
        let moment = aggregator.moment(now);
        let seq = match &message {
            FromAgent::Hello(hello) => hello.seq,
            FromAgent::Snapshot { seq, .. }
            | FromAgent::Delta { seq, .. }
            | FromAgent::Heartbeat { seq, .. } => *seq,
        };
        let answered = match (&connection.permit, message) {
            (None, FromAgent::Hello(hello)) => {
                let outcome = aggregator.store.accept_hello(&hello, &connection.peer, moment);
                outcome.map(|outcome| match outcome {
                    HelloOutcome::Accepted(permit, answer) => {
                        connection.permit = Some(permit);
                        Some(answer)
                    }
                    HelloOutcome::HoldOff(answer) => Some(answer),
                })
            }
            (Some(permit), message) => aggregator.store.handle_message(permit, message, moment),
            (None, _) => return,
        };
        let answer = match answered {
            Ok(answer) => answer,
            Err(error) => {
                self.fail(|| {
                    format!("node {node}: the aggregator rejects a valid message: {error}")
                });
                return;
            }
        };
        let is_confirmed =
            matches!(&answer, Some(AggregatorMessage::Ack { seq: at }) if *at == seq);
        if is_confirmed {
            aggregator.confirmed.insert(node, now);
        }
        let is_last = matches!(answer, None | Some(AggregatorMessage::HoldOff { .. }));
        self.send_to_agent(id, &answer.unwrap_or_else(Store::superseded));
        if is_last {
            self.close_aggregator_end(id);
        }
        self.end_superseded(node, id);
        self.plan_publication();
        self.check_stored(node);
    }

    /// Ends the other connections of a node, if the store asked for it.
    fn end_superseded(&mut self, node: usize, latest: u64) {
        let open = self.connections.iter_mut();
        let superseded = open.filter_map(|(id, connection)| {
            let is_other =
                connection.node == node && *id != latest && connection.is_aggregator_open;
            let permit = connection.permit.as_mut().filter(|_| is_other)?;
            permit.superseded.try_recv().ok().map(|()| *id)
        });
        let superseded: Vec<u64> = superseded.collect();
        for id in superseded {
            self.send_to_agent(id, &Store::superseded());
            self.close_aggregator_end(id);
        }
    }

    /// Ends the connections that the store has closed.
    pub(crate) fn end_closed(&mut self) {
        let mut context = Context::from_waker(Waker::noop());
        let open = self.connections.iter().filter(|(_, connection)| connection.is_aggregator_open);
        let closed = open.filter(|(_, connection)| {
            pin!(connection.peer.ended()).as_mut().poll(&mut context).is_ready()
        });
        let closed: Vec<u64> = closed.map(|(id, _)| *id).collect();
        for id in closed {
            self.close_aggregator_end(id);
        }
    }

    fn agent_receives(&mut self, id: u64, message: &AggregatorMessage) {
        let now = self.now;
        let Some(connection) = self.connections.get(&id) else { return };
        let (node, run) = (connection.node, connection.run);
        let Some(agent) = self.agent(node, run) else { return };
        if agent.uplink.connection != Some(id) {
            return;
        }
        agent.uplink.unanswered = 0;
        let is_first = !std::mem::replace(&mut agent.uplink.is_accepted, true);
        if let AggregatorMessage::HoldOff { retry_after, .. } = message {
            let wait = jittered(*retry_after, *retry_after + *retry_after / 2, self.random.u64(..));
            self.drop_connection(node, run);
            self.agent_task(node, now + wait, AgentTask::Dial);
            return;
        }
        let next = agent.uplink.sender.handle_message(message);
        if let Some(next) = next {
            self.send_to_aggregator(id, &next);
        }
        if is_first {
            self.plan_heartbeat(node, id);
        }
    }

    fn plan_heartbeat(&mut self, node: usize, id: u64) {
        let tenth = HEARTBEAT_INTERVAL / 10;
        let random = self.random.u64(..);
        let wait =
            jittered(HEARTBEAT_INTERVAL.saturating_sub(tenth), HEARTBEAT_INTERVAL + tenth, random);
        self.plan_beat(node, id, wait);
    }

    /// Replaces the time of the next heartbeat, or of the limit for the first answer.
    fn plan_beat(&mut self, node: usize, id: u64, wait: Duration) {
        let at = self.now + wait;
        let Some(agent) = self.machines[node].agent.as_deref_mut() else { return };
        agent.uplink.next_beat = Some(at);
        self.agent_task(node, at, AgentTask::Heartbeat(id));
    }

    /// Sends a heartbeat, unless too many are unanswered.
    pub(crate) fn heartbeat(&mut self, node: usize, run: u32, id: u64) {
        let now = self.now;
        let Some(agent) = self.agent(node, run) else { return };
        if agent.uplink.connection != Some(id) || agent.uplink.next_beat != Some(now) {
            return;
        }
        if !agent.uplink.is_accepted {
            // The limit for the first answer has passed.
            self.lose_connection(node, run);
            return;
        }
        agent.uplink.unanswered += 1;
        if agent.uplink.unanswered > MAX_UNANSWERED_HEARTBEATS {
            self.lose_connection(node, run);
            return;
        }
        let heartbeat = agent.uplink.sender.heartbeat();
        if let Some(heartbeat) = heartbeat {
            self.send_to_aggregator(id, &heartbeat);
        }
        self.plan_heartbeat(node, id);
    }

    /// The agent's end of a connection is lost; it dials again after a delay.
    fn lose_connection(&mut self, node: usize, run: u32) {
        let now = self.now;
        let Some(agent) = self.agent(node, run) else { return };
        if now.saturating_sub(agent.uplink.dialed) >= BACKOFF_RESET_AFTER {
            agent.uplink.backoff.reset();
        }
        self.drop_connection(node, run);
        let wait = self.next_delay(node, run);
        self.agent_task(node, now + wait, AgentTask::Dial);
    }

    fn next_delay(&mut self, node: usize, run: u32) -> Duration {
        let random = self.random.u64(..);
        let agent = self.agent(node, run);
        agent.map(|agent| agent.uplink.backoff.next_delay(random)).unwrap_or_default()
    }

    fn drop_connection(&mut self, node: usize, run: u32) {
        let Some(agent) = self.agent(node, run) else { return };
        agent.uplink.sender.disconnected();
        if let Some(id) = agent.uplink.connection.take() {
            self.close_agent_end(id);
        }
    }

    /// The agent's end has closed. The other end notices that, unless the packet is lost.
    pub(crate) fn close_agent_end(&mut self, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if !std::mem::replace(&mut connection.is_agent_open, false) {
            return;
        }
        let until = self.machines[connection.node].to_aggregator.out_until;
        let is_lost = until > self.now || (self.phase == Phase::Faults && self.chance(200));
        if !is_lost {
            let at = self.now + self.delay();
            self.at(at, Event::Disconnected { connection: id, end: End::Aggregator });
        }
        self.remove_closed(id);
    }

    /// The aggregator's end has closed. The agent notices that once the link works.
    pub(crate) fn close_aggregator_end(&mut self, id: u64) {
        let now = self.now;
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if !std::mem::replace(&mut connection.is_aggregator_open, false) {
            return;
        }
        let permit = connection.permit.take();
        let until = self.machines[connection.node].to_aggregator.back_until;
        let last = connection.to_agent.last;
        if let (Some(permit), Some(aggregator)) = (permit, self.aggregator.as_deref_mut())
            && aggregator.run == connection.aggregator_run
        {
            let moment = aggregator.moment(now);
            aggregator.store.disconnected(&permit, moment);
        }
        let at = (now + self.delay()).max(until).max(last);
        self.at(at, Event::Disconnected { connection: id, end: End::Agent });
        self.plan_publication();
        self.remove_closed(id);
    }

    /// An end notices that the other one has closed.
    pub(crate) fn disconnected(&mut self, id: u64, end: End) {
        let Some(connection) = self.connections.get(&id) else { return };
        let (node, run) = (connection.node, connection.run);
        match end {
            End::Aggregator => self.close_aggregator_end(id),
            End::Agent if connection.is_agent_open => self.lose_connection(node, run),
            End::Agent => {}
        }
        self.remove_closed(id);
    }

    fn remove_closed(&mut self, id: u64) {
        let connection = self.connections.get(&id);
        if connection.is_some_and(|one| !one.is_agent_open && !one.is_aggregator_open) {
            self.connections.remove(&id);
        }
    }
}

impl Connection {
    fn direction(&mut self, to: End) -> &mut Direction {
        match to {
            End::Agent => &mut self.to_agent,
            End::Aggregator => &mut self.to_aggregator,
        }
    }
}
