//! Recorded streams of old agents and the current one: the aggregator reads them, and the API returns the same
//! documents.
//!
//! `tests/fixtures/stream` holds the messages that an agent of an earlier commit sent, as bytes. A release must still
//! read them, so these files are never rewritten; a new one is recorded beside them: `OCTAVO_RECORD_STREAM=FILE cargo
//! test --test it -- recorded_stream::current_agent_reports_every_part`.

mod recorder;

use std::fs;
use std::path::Path;

use octavo_stream::proto::v1::FromAgent;
use octavo_stream::proto::v1::fleet_client::FleetClient;
use octavo_stream::proto::v1::to_agent::Message as Answer;
use prost::Message;
use tonic::transport::Endpoint;

use crate::agent_stream::AgentStream;
use crate::fleet_api::Api;
use crate::golden::golden;
use crate::process::Aggregator;

/// Fields that depend on the time of the replay.
const TIMES: [&str; 5] = ["ageSeconds", "asOf", "lastChanged", "lastConfirmed", "revision"];

/// Path and name of each document that is compared.
const DOCUMENTS: [(&str, &str); 7] = [
    ("nodes/recorded", "node"),
    ("nodes", "nodes"),
    ("types", "types"),
    ("usage", "usage"),
    ("usage/summary", "usage-summary"),
    ("availability", "availability"),
    ("nodes/recorded/layouts", "layouts"),
];

#[tokio::test]
async fn stream_of_old_agent_is_read_as_before() {
    let recorded = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/stream");
    let mut files: Vec<_> =
        fs::read_dir(recorded).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty());
    for file in files {
        let name = file.file_stem().unwrap().to_str().unwrap();
        let messages = parse(&fs::read_to_string(&file).unwrap());
        for (document, text) in replay(messages).await {
            golden(&format!("stream/{name}/{document}.txt"), &text);
        }
    }
}

#[tokio::test]
async fn current_agent_reports_every_part() {
    let messages = recorder::record().await;
    if let Some(file) = std::env::var_os("OCTAVO_RECORD_STREAM") {
        fs::write(file, write(&messages)).unwrap();
    }
    let documents = replay(messages).await;
    let (_, node) = documents.into_iter().next().unwrap();
    for field in ["layout", "sharingStatus", "usage", "inventory", "neuron"] {
        assert!(node.contains(&format!("\"{field}\":")), "{field}\n{node}");
    }
}

/// Sends the messages to an aggregator, and returns name and text of each document.
async fn replay(messages: Vec<FromAgent>) -> Vec<(&'static str, String)> {
    let aggregator = Aggregator::start(&["--plaintext"]);
    let url = format!("http://{}", aggregator.grpc);
    let channel = Endpoint::from_shared(url).unwrap().connect().await.unwrap();
    let mut client = FleetClient::new(channel);
    let mut messages = messages.into_iter();
    let mut line = AgentStream::open(&mut client, messages.next().unwrap()).await.unwrap();
    assert!(matches!(line.receive().await, Ok(Some(Answer::Resync(_)))));
    for message in messages {
        line.to.send(message).await.unwrap();
        let answer = line.receive().await.unwrap();
        assert!(matches!(answer, Some(Answer::Ack(_))), "{answer:?}");
    }
    let api = Api::at(aggregator.http);
    api.node("recorded", |node| node["inventory"].to_string().contains(recorder::LAST_PROCESS))
        .await;
    let mut documents = Vec::new();
    for (path, name) in DOCUMENTS {
        let answer = api.get(&format!("/api/v1/{path}")).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        documents.push((name, lines(&answer.body)));
    }
    documents
}

/// A document with a line for each field, without times.
fn lines(body: &str) -> String {
    let text = body.replace('{', "{\n").replace('[', "[\n").replace(",\"", ",\n\"");
    let is_time = |line: &&str| TIMES.iter().any(|time| line.starts_with(&format!("\"{time}\":")));
    let retained = text.lines().filter(|line| !is_time(line));
    retained.fold(String::new(), |all, line| all + line + "\n")
}

/// Parses comments, then one message per line in hexadecimal.
fn parse(text: &str) -> Vec<FromAgent> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    lines
        .map(|line| {
            let bytes: Vec<u8> = line.as_bytes().chunks(2).map(byte).collect();
            FromAgent::decode(bytes.as_slice()).unwrap()
        })
        .collect()
}

fn write(messages: &[FromAgent]) -> String {
    let about = "# Messages of an agent to the aggregator (proto/octavo/v1/fleet.proto), one a line, as hexadecimal digits.\n\
        # Recorded with commit COMMIT by `current_agent_reports_every_part` in tests/it/recorded_stream: the shipped agent on the\n\
        # simulated machine of recorder.rs. Never rewrite this file: it stands for agents that are already installed.\n";
    messages.iter().fold(about.to_owned(), |all, message| {
        let bytes = message.encode_to_vec();
        let digits = bytes.iter().map(|byte| format!("{byte:02x}"));
        all + &digits.collect::<String>() + "\n"
    })
}
