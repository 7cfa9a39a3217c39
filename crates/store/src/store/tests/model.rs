//! Random events of many agents, compared with a model of what readers must see.

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Event {
    Connect(usize),
    Change(usize, u64),
    Heartbeat(usize),
    /// The connection breaks for both sides.
    Break(usize),
    /// The connection breaks for the agent only.
    Vanish(usize),
    Restart(usize),
    Pass(u64),
}

/// What readers must see of one node.
#[derive(Debug, Clone, PartialEq, Eq)]
struct VisibleNode {
    parts: Parts,
    connected: bool,
    stale: bool,
}

const AGENTS: usize = 6;

fn events() -> impl Strategy<Value = Vec<Event>> {
    let agent = 0..AGENTS;
    let event = prop_oneof![
        agent.clone().prop_map(Event::Connect),
        (agent.clone(), 0..5_u64).prop_map(|(agent, number)| Event::Change(agent, number)),
        agent.clone().prop_map(Event::Heartbeat),
        agent.clone().prop_map(Event::Break),
        agent.clone().prop_map(Event::Vanish),
        agent.prop_map(Event::Restart),
        (1..40_000_u64).prop_map(Event::Pass),
    ];
    prop::collection::vec(event, 1..120)
}

/// State of a node in the model: last status and time of the last message.
#[derive(Clone)]
struct ModelNode {
    parts: Parts,
    connected: bool,
    last_seen: Moment,
}

fn play(world: &mut World, event: &Event, agents: &mut [Agent], model: &mut [Option<ModelNode>]) {
    let spoken = |world: &World, agent: &Agent, known: &Parts| {
        let parts = known.clone();
        let connected = agent.permit.is_some();
        let last_seen = world.now;
        connected.then_some(ModelNode { parts, connected, last_seen })
    };
    match *event {
        Event::Connect(at) => {
            let agent = &mut agents[at];
            agent.drop_connection();
            world.connect(agent).unwrap();
            let latest = latest(agent);
            model[at] = spoken(world, agent, &latest).or_else(|| model[at].take());
        }
        Event::Change(at, number) => {
            let agent = &mut agents[at];
            if let Some(message) = agent.sender.set_status(parts(number)) {
                world.exchange_messages(agent, message).unwrap();
                model[at] = spoken(world, agent, &parts(number)).or_else(|| model[at].take());
            }
        }
        Event::Heartbeat(at) => {
            let agent = &mut agents[at];
            if let Some(message) = agent.sender.heartbeat() {
                world.exchange_messages(agent, message).unwrap();
                let latest = latest(agent);
                model[at] = spoken(world, agent, &latest).or_else(|| model[at].take());
            }
        }
        Event::Break(at) => {
            if agents[at].permit.is_some()
                && let Some(known) = &mut model[at]
            {
                known.connected = false;
            }
            world.disconnect(&mut agents[at]);
        }
        Event::Vanish(at) => agents[at].drop_connection(),
        Event::Restart(at) => {
            let now = world.now.as_millis() + 1;
            let name = agents[at].name.clone();
            let parts = latest(&agents[at]);
            agents[at] = Agent::new(&name, now);
            assert_eq!(agents[at].sender.set_status(parts), None);
        }
        Event::Pass(millis) => {
            world.pass(millis);
            world.store.sweep(world.now);
            for known in model {
                let age = known.as_ref().map(|known| known.last_seen.age(world.now));
                if age > Some(STALE + FORGET) {
                    *known = None;
                } else if age > Some(3 * STALE)
                    && let Some(known) = known
                {
                    known.connected = false;
                }
            }
        }
    }
}

/// The agent's current status; an agent in sync has reported it.
fn latest(agent: &Agent) -> Parts {
    let mut sender = agent.sender.clone();
    let _hello = sender.connected();
    let reason = "test".into();
    match sender.handle_message(&AggregatorMessage::Resync { reason }) {
        Some(FromAgent::Snapshot { parts, .. }) => parts,
        other => panic!("a resync is answered with a snapshot, not {other:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn readers_see_the_last_status_of_every_node(events in events()) {
        let mut world = World::new(AGENTS);
        let mut agents: Vec<Agent> = (0..AGENTS)
            .map(|number| Agent::with(&format!("n{number}"), parts(0)))
            .collect();
        let mut model: Vec<Option<ModelNode>> = vec![None; AGENTS];
        for event in &events {
            play(&mut world, event, &mut agents, &mut model);
            let expected = model.iter().enumerate().filter_map(|(at, known)| {
                let known = known.as_ref()?;
                Some((format!("n{at}"), VisibleNode {
                    parts: known.parts.clone(),
                    connected: known.connected,
                    stale: known.last_seen.age(world.now) > STALE,
                }))
            });
            let expected: Vec<_> = expected.collect();
            let fleet = world.fleet();
            let seen = fleet.nodes.iter().map(|node| (node.name.to_string(), VisibleNode {
                parts: node.parts.clone(),
                connected: node.connected,
                stale: node.freshness.found_stale(),
            }));
            prop_assert_eq!(seen.collect::<Vec<_>>(), expected);
        }
        world.store.sweep(world.now);
        let entries = world.store.entries.values();
        let with_status = entries.filter(|entry| entry.freshness.is_some()).count();
        prop_assert_eq!(with_status, world.fleet().nodes.len());
    }
}
