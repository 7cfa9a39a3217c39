//! Random events.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

#[derive(Debug, Clone, Copy)]
pub(super) enum Event {
    /// An agent starts, with this time on its clock.
    Start(u64),
    /// An agent observes its hardware.
    Observe(Index, u8),
    /// An agent opens a connection and closes its previous one.
    Connect(Index),
    /// An agent's connection breaks, and messages in flight are lost.
    Disconnect(Index),
    /// An agent's heartbeat is due.
    Heartbeat(Index),
    /// A message of some connection to the aggregator has this fate. Whether the known agent counts as alive is
    /// random too.
    Up(Index, Index, Delivery, bool),
    /// The same for a message to an agent.
    Down(Index, Index, Delivery),
    /// The aggregator restarts.
    Restart,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Delivery {
    Arrives,
    ArrivesTwice,
    /// It arrives, and will arrive again later.
    Lingers,
    IsLost,
}

pub(super) fn events() -> impl Strategy<Value = Vec<Event>> {
    let index = any::<Index>;
    let fate = || {
        prop_oneof![
            8 => Just(Delivery::Arrives),
            1 => Just(Delivery::ArrivesTwice),
            1 => Just(Delivery::Lingers),
            1 => Just(Delivery::IsLost),
        ]
    };
    let event = prop_oneof![
        1 => (1..6_u64).prop_map(Event::Start),
        6 => (index(), 0..6_u8).prop_map(|(agent, number)| Event::Observe(agent, number)),
        3 => index().prop_map(Event::Connect),
        1 => index().prop_map(Event::Disconnect),
        4 => index().prop_map(Event::Heartbeat),
        20 => (index(), index(), fate(), any::<bool>())
            .prop_map(|(line, message, fate, alive)| Event::Up(line, message, fate, alive)),
        20 => (index(), index(), fate())
            .prop_map(|(line, message, fate)| Event::Down(line, message, fate)),
        1 => Just(Event::Restart),
    ];
    vec(event, 0..120)
}

/// Takes a message off the line, according to its fate.
pub(super) fn pick<T: Clone>(messages: &mut Vec<T>, which: Index, fate: Delivery) -> Option<T> {
    // Usually the first: if every message were reordered, no exchange would ever start.
    let which = which.index(messages.len() * 3).saturating_sub(messages.len() * 2);
    match fate {
        Delivery::Arrives | Delivery::ArrivesTwice => Some(messages.remove(which)),
        Delivery::Lingers => Some(messages[which].clone()),
        Delivery::IsLost => {
            messages.remove(which);
            None
        }
    }
}
