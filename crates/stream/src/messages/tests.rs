//! Round trips of all messages, and rejection of invalid messages with the field.

use proptest::collection::vec;
use proptest::prelude::*;
use prost::Message;

use super::*;

fn digest() -> impl Strategy<Value = Digest> {
    any::<u64>().prop_map(Digest::from_number)
}

fn parts() -> impl Strategy<Value = Vec<(PartKey, Content)>> {
    let content = vec(any::<u8>(), 0..9).prop_map(Content::new);
    vec(("[!-~]{1,64}".prop_map(|key| key.parse().unwrap()), content), 0..5)
}

fn from_agent() -> impl Strategy<Value = FromAgent> {
    let keys = vec("[!-~]{1,64}".prop_map(|key| key.parse().unwrap()), 0..3);
    prop_oneof![
        (any::<u64>(), "[0-9a-f-]{0,36}", any::<u64>(), digest()).prop_map(
            |(epoch, boot_id, seq, hash)| {
                let run = Run { epoch, boot_id };
                FromAgent::Hello(Hello { identity: identity(), run, seq, hash })
            }
        ),
        (1..u64::MAX, parts()).prop_map(|(seq, parts)| FromAgent::Snapshot {
            seq,
            parts: parts.into_iter().collect(),
        }),
        (1..u64::MAX, parts(), keys, digest()).prop_map(|(seq, changed, removed, hash)| {
            let change = Change { changed, removed };
            FromAgent::Delta { seq, change, hash }
        }),
        (1..u64::MAX, digest()).prop_map(|(seq, hash)| FromAgent::Heartbeat { seq, hash }),
    ]
}

fn identity() -> Identity {
    Identity { node: "node-7.example".parse().unwrap(), agent_version: "0.1.0".to_owned() }
}

proptest! {
    #[test]
    fn agent_messages_round_trip(message in from_agent()) {
        let bytes = encode_from_agent(&message).encode_to_vec();
        let received = parse_from_agent(v1::FromAgent::decode(bytes.as_slice()).unwrap());
        prop_assert_eq!(received, Ok(message));
    }

    #[test]
    fn parsers_never_panic_on_arbitrary_bytes(bytes in vec(any::<u8>(), 0..60)) {
        let _ = v1::FromAgent::decode(bytes.as_slice()).map(parse_from_agent);
        let _ = v1::ToAgent::decode(bytes.as_slice()).map(parse_to_agent);
    }
}

#[test]
fn aggregator_messages_round_trip() {
    for answer in [
        AggregatorMessage::Ack { seq: 7 },
        AggregatorMessage::Resync { reason: "a change is missing".into() },
        AggregatorMessage::HoldOff {
            retry_after: Duration::from_millis(12_345),
            reason: "busy".to_owned(),
        },
    ] {
        assert_eq!(parse_to_agent(encode_to_agent(&answer)), Ok(answer));
    }
}

#[test]
fn hold_off_delay_is_clamped_and_reason_sanitized() {
    let parsed = |retry_after_ms| {
        let message = Answer::HoldOff(v1::HoldOff {
            retry_after_ms,
            reason: format!("a\n\u{1b}[2J{}", "x".repeat(4000)),
        });
        let message = Some(message);
        parse_to_agent(v1::ToAgent { message }).unwrap()
    };
    for (requested, waited) in [(0, 1_000), (1_500, 1_500), (u64::MAX, 600_000)] {
        let AggregatorMessage::HoldOff { retry_after, reason } = parsed(requested) else {
            panic!("another answer");
        };
        assert_eq!(retry_after, Duration::from_millis(waited));
        assert!(reason.starts_with("a  [2Jxxx"), "{reason}");
        assert_eq!(reason.chars().count(), 128);
    }
}

#[test]
fn last_of_duplicate_parts_wins() {
    let part = |content: &'static [u8]| v1::Part {
        key: "node".to_owned(),
        content: Bytes::from_static(content),
    };
    let snapshot = v1::Snapshot { seq: 1, parts: vec![part(b"first"), part(b"last")] };
    let message = Some(AgentMessage::Snapshot(snapshot));
    let Ok(FromAgent::Snapshot { parts, .. }) = parse_from_agent(v1::FromAgent { message }) else {
        panic!("refused");
    };
    assert_eq!(parts.len(), 1);
    assert_eq!(parts.get("node").unwrap().bytes(), b"last");
}

fn message(content: AgentMessage) -> v1::FromAgent {
    let message = Some(content);
    v1::FromAgent { message }
}

fn hello(edit: impl FnOnce(&mut v1::Hello)) -> v1::FromAgent {
    let mut hello = v1::Hello { node: "node-7".to_owned(), ..v1::Hello::default() };
    edit(&mut hello);
    message(AgentMessage::Hello(hello))
}

#[test]
fn i12_invalid_agent_message_is_rejected_with_its_field() {
    let part = |key: &str| v1::Part { key: key.to_owned(), content: Bytes::new() };
    let snapshot = |seq, parts| message(AgentMessage::Snapshot(v1::Snapshot { seq, parts }));
    let delta = |edit: fn(&mut v1::Delta)| {
        let mut delta = v1::Delta { seq: 2, ..v1::Delta::default() };
        edit(&mut delta);
        message(AgentMessage::Delta(delta))
    };
    for (message, field) in [
        (v1::FromAgent { message: None }, "message"),
        (hello(|hello| hello.node = "A_b".into()), "hello.node"),
        (hello(|hello| hello.node = "a".repeat(9000)), "hello.node"),
        (hello(|hello| hello.boot_id = "a".repeat(129)), "hello.boot_id"),
        (hello(|hello| hello.boot_id = "a\nb".into()), "hello.boot_id"),
        (hello(|hello| hello.agent_version = "\u{1b}".into()), "hello.agent_version"),
        (snapshot(0, vec![]), "snapshot.seq"),
        (snapshot(1, vec![part("node"), part("a b")]), "snapshot.parts[1].key"),
        (snapshot(1, vec![part("node"); 1025]), "snapshot.parts"),
        (delta(|delta| delta.seq = 0), "delta.seq"),
        (delta(|delta| delta.removed = vec![String::new()]), "delta.removed[0]"),
        (delta(|delta| delta.removed = vec!["a".into(); 1025]), "delta.removed"),
        (delta(|delta| delta.changed = vec![v1::Part::default()]), "delta.changed[0].key"),
        (message(AgentMessage::Heartbeat(v1::Heartbeat::default())), "heartbeat.seq"),
    ] {
        let error = parse_from_agent(message).unwrap_err();
        assert_eq!(error.field, field, "{error:?}");
        assert!(format!("{error:?}").len() < 1000, "{field}");
    }
    let accepted = hello(|hello| hello.boot_id = "ü".repeat(128));
    assert!(parse_from_agent(accepted).is_ok());
    assert_eq!(parse_to_agent(v1::ToAgent { message: None }).unwrap_err().field, "message");
}
