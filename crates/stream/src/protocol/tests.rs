//! Guarantees of the protocol, first for given cases, then under network faults and concurrent agents.

mod chaos;

use super::*;

fn identity() -> Identity {
    Identity { node: "node-7".parse().unwrap(), agent_version: "0.1.0".to_owned() }
}

fn run(epoch: u64) -> Run {
    Run { epoch, boot_id: "boot".to_owned() }
}

/// A status identified by a number.
fn status(number: u8) -> Parts {
    [("node", number), ("labels", number / 2)]
        .into_iter()
        .map(|(key, byte)| (key.parse().unwrap(), Content::new([byte])))
        .collect()
}

fn hello(message: FromAgent) -> Hello {
    let FromAgent::Hello(hello) = message else {
        panic!("{message:?} is not a greeting");
    };
    hello
}

/// Handles a message as the aggregator does, accepting every offered status.
fn handle(receiver: &mut Receiver, message: FromAgent) -> AggregatorMessage {
    let offer = match message {
        FromAgent::Hello(hello) => panic!("{hello:?} on a greeted connection"),
        FromAgent::Snapshot { seq, parts } => receiver.snapshot(seq, parts),
        FromAgent::Delta { seq, change, hash } => receiver.delta(seq, &change, hash),
        FromAgent::Heartbeat { seq, hash } => receiver.heartbeat(seq, hash),
    };
    match offer {
        ReceiveOutcome::Status(status) => receiver.take(status),
        ReceiveOutcome::Confirmed(answer) | ReceiveOutcome::Nothing(answer) => answer,
    }
}

/// Delivers messages in both directions until there are none; returns those of the agent.
fn converse(
    sender: &mut Sender,
    receiver: &mut Receiver,
    answer: AggregatorMessage,
) -> Vec<FromAgent> {
    let mut sent = Vec::new();
    let mut answer = Some(answer);
    while let Some(message) = answer.and_then(|answer| sender.handle_message(&answer)) {
        sent.push(message.clone());
        answer = Some(handle(receiver, message));
        assert!(sent.len() < 10, "{sent:?}");
    }
    sent
}

/// Both ends after an agent that started at `epoch` has sent `parts`.
fn in_sync(epoch: u64, parts: Parts) -> (Sender, Receiver) {
    let mut sender = Sender::new(identity(), run(epoch));
    assert_eq!(sender.set_status(parts), None);
    let (mut receiver, answer) = Receiver::new(&hello(sender.connected()));
    converse(&mut sender, &mut receiver, answer);
    assert!(sender.is_in_sync());
    (sender, receiver)
}

#[test]
fn change_replaces_adds_and_removes_parts() {
    let part = |key: &str, byte: u8| (key.parse().unwrap(), Content::new([byte]));
    let parts =
        |all: &[(&str, u8)]| -> Parts { all.iter().map(|(key, byte)| part(key, *byte)).collect() };
    let before = parts(&[("labels", 1), ("node", 2)]);
    for (changed, removed, after) in [
        (&[("node", 3)][..], &[][..], &[("labels", 1), ("node", 3)][..]),
        (&[("node", 3), ("node", 4)], &[], &[("labels", 1), ("node", 4)]),
        (&[("node", 3), ("layout", 4)], &[], &[("labels", 1), ("layout", 4), ("node", 3)]),
        (&[], &["node", "layout"], &[("labels", 1)]),
        (&[("node", 3)], &["node"], &[("labels", 1), ("node", 3)]),
        (&[], &[], &[("labels", 1), ("node", 2)]),
    ] {
        let change = Change {
            changed: changed.iter().map(|(key, byte)| part(key, *byte)).collect(),
            removed: removed.iter().map(|key: &&str| key.parse().unwrap()).collect(),
        };
        assert_eq!(before.apply(&change), parts(after), "{change:?}");
    }
    assert_eq!(before, parts(&[("labels", 1), ("node", 2)]));
}

#[test]
fn new_node_sends_snapshot_then_deltas() {
    let (mut sender, mut receiver) = in_sync(1, status(1));
    assert_eq!(receiver.parts(), &status(1));

    let delta = sender.set_status(status(2)).unwrap();
    assert!(matches!(&delta, FromAgent::Delta { seq: 2, .. }), "{delta:?}");
    // The status changes twice before the answer arrives: one message follows.
    assert_eq!(sender.set_status(status(3)), None);
    assert_eq!(sender.set_status(status(4)), None);
    let answer = handle(&mut receiver, delta);
    assert_eq!(answer, AggregatorMessage::Ack { seq: 2 });
    let sent = converse(&mut sender, &mut receiver, answer);
    assert!(matches!(sent.as_slice(), [FromAgent::Delta { seq: 3, .. }]), "{sent:?}");
    assert_eq!(receiver.parts(), &status(4));
    assert!(sender.is_in_sync());
    assert_eq!(sender.set_status(status(4)), None);
}

#[test]
fn only_changes_are_sent_after_a_reconnect() {
    let (mut sender, mut receiver) = in_sync(1, status(1));
    sender.disconnected();
    assert_eq!(sender.heartbeat(), None);
    assert_eq!(sender.set_status(status(2)), None);
    let greeting = receiver.handle_hello(&hello(sender.connected()), true);
    assert_eq!(greeting, Greeting::Welcome(AggregatorMessage::Ack { seq: 1 }));
    let sent = converse(&mut sender, &mut receiver, AggregatorMessage::Ack { seq: 1 });
    assert!(matches!(sent.as_slice(), [FromAgent::Delta { seq: 2, .. }]), "{sent:?}");
    assert_eq!(receiver.parts(), &status(2));
}

#[test]
fn restarted_aggregator_requests_snapshot() {
    let (mut sender, _lost) = in_sync(1, status(1));
    sender.disconnected();
    let (mut receiver, answer) = Receiver::new(&hello(sender.connected()));
    let sent = converse(&mut sender, &mut receiver, answer);
    assert!(matches!(sent.as_slice(), [FromAgent::Snapshot { seq: 2, .. }]), "{sent:?}");
    assert_eq!(receiver.parts(), &status(1));
}

#[test]
fn later_agent_wins_contested_node() {
    let (mut old, mut receiver) = in_sync(1, status(1));
    let mut new = Sender::new(identity(), run(2));
    assert_eq!(new.set_status(status(2)), None);
    let Greeting::Welcome(answer) = receiver.handle_hello(&hello(new.connected()), true) else {
        panic!("the later one is refused");
    };
    // The known status remains until the new agent has sent its own.
    assert_eq!(receiver.parts(), &status(1));
    converse(&mut new, &mut receiver, answer);
    assert_eq!(receiver.parts(), &status(2));

    old.disconnected();
    let before = receiver.clone();
    let greeting = receiver.handle_hello(&hello(old.connected()), true);
    assert!(
        matches!(greeting, Greeting::Refused(AggregatorMessage::HoldOff { .. })),
        "{greeting:?}"
    );
    assert_eq!(receiver.run(), before.run());
    assert_eq!(receiver.parts(), before.parts());
    let heartbeat = new.heartbeat().unwrap();
    assert_eq!(handle(&mut receiver, heartbeat), AggregatorMessage::Ack { seq: 1 });
}

#[test]
fn agent_with_earlier_epoch_is_accepted_once_predecessor_is_silent() {
    let (_gone, mut receiver) = in_sync(1_000, status(1));
    let mut sender = Sender::new(identity(), run(10));
    assert_eq!(sender.set_status(status(2)), None);
    let greeting = receiver.handle_hello(&hello(sender.connected()), true);
    assert!(
        matches!(greeting, Greeting::Refused(AggregatorMessage::HoldOff { .. })),
        "{greeting:?}"
    );
    let Greeting::Refused(hold_off) = greeting else {
        panic!("the old one is alive");
    };
    assert_eq!(sender.handle_message(&hold_off), None);
    sender.disconnected();
    let Greeting::Welcome(answer) = receiver.handle_hello(&hello(sender.connected()), false) else {
        panic!("the old one is dead");
    };
    converse(&mut sender, &mut receiver, answer);
    assert_eq!((receiver.run(), receiver.parts()), (&run(10), &status(2)));
}

#[test]
fn late_heartbeat_confirms_nothing() {
    let (mut sender, mut receiver) = in_sync(1, status(1));
    let Some(FromAgent::Heartbeat { seq, hash }) = sender.heartbeat() else {
        panic!("no heartbeat");
    };
    let confirmed = receiver.heartbeat(seq, hash);
    assert_eq!(confirmed, ReceiveOutcome::Confirmed(AggregatorMessage::Ack { seq: 1 }));
    let delta = sender.set_status(status(2)).unwrap();
    handle(&mut receiver, delta);
    let late = receiver.heartbeat(seq, hash);
    assert_eq!(late, ReceiveOutcome::Nothing(AggregatorMessage::Ack { seq: 2 }));
    assert_eq!(receiver.parts(), &status(2));
}

#[test]
fn replay_is_ignored_and_gap_requests_snapshot() {
    let (mut sender, mut receiver) = in_sync(1, status(1));
    let delta = sender.set_status(status(2)).unwrap();
    handle(&mut receiver, delta.clone());
    assert_eq!(handle(&mut receiver, delta), AggregatorMessage::Ack { seq: 2 });
    assert_eq!(receiver.parts(), &status(2));

    assert_eq!(sender.handle_message(&AggregatorMessage::Ack { seq: 2 }), None);
    let lost = sender.set_status(status(3)).unwrap();
    let heartbeat = sender.heartbeat().unwrap();
    let answer = handle(&mut receiver, heartbeat);
    assert!(matches!(answer, AggregatorMessage::Resync { .. }), "{answer:?}");
    // In the lost state no message is acknowledged, not even an old one.
    let replay = FromAgent::Delta { seq: 2, change: Change::default(), hash: Digest::default() };
    let answer = handle(&mut receiver, replay);
    assert!(matches!(answer, AggregatorMessage::Resync { .. }), "{answer:?}");
    let sent = converse(&mut sender, &mut receiver, answer);
    assert!(matches!(sent.as_slice(), [FromAgent::Snapshot { seq: 4, .. }]), "{sent:?}");
    assert_eq!(receiver.parts(), &status(3));
    assert_eq!(handle(&mut receiver, lost), AggregatorMessage::Ack { seq: 4 });
}

#[test]
fn restored_agent_continues_above_acknowledged_seq() {
    let (mut sender, mut receiver) = in_sync(1, status(1));
    // A machine is restored from an image taken while the agent ran.
    let mut restored = sender.clone();
    for number in 2..5 {
        let delta = sender.set_status(status(number)).unwrap();
        let answer = handle(&mut receiver, delta);
        assert_eq!(sender.handle_message(&answer), None);
    }
    restored.disconnected();
    let Greeting::Welcome(answer) = receiver.handle_hello(&hello(restored.connected()), true)
    else {
        panic!("it is the same run");
    };
    let sent = converse(&mut restored, &mut receiver, answer);
    assert!(matches!(sent.last(), Some(FromAgent::Snapshot { seq: 5, .. })), "{sent:?}");
    assert_eq!(receiver.parts(), &status(1));
    assert!(restored.is_in_sync());
}
