//! What the aggregator shows, and why it may not.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use crate::fleet_api::Api;
use crate::machine::Machine;
use crate::patience::Finish;
use crate::process::Aggregator;
use crate::row::Row;

const SINGLE: &str = "machine: single\ngpus:\n- {board: H100_80GB_SXM}\n";

/// What `octavo` says of an aggregator.
fn asks(server: &str, arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_octavo"))
        .args(arguments)
        .args(["--server", server])
        .finish();
    let [told, noted] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    format!("{told}{noted}")
}

/// A certificate for localhost, its key, and a certificate of somebody else.
struct Certificates(TempDir);

impl Certificates {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["tls", "other"] {
            let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
            let path = |end: &str| folder.path().join(format!("{name}.{end}"));
            fs::write(path("crt"), pair.cert.pem()).unwrap();
            fs::write(path("key"), pair.signing_key.serialize_pem()).unwrap();
        }
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn argument(&self, flag: &str, name: &str) -> String {
        format!("--{flag}={}", self.path(name).display())
    }

    fn serve(&self) -> Aggregator {
        let [certificate, key] = [
            self.argument("tls-cert", "tls.crt"),
            self.argument("tls-key", "tls.key"),
        ];
        Aggregator::start(&[&certificate, &key])
    }
}

#[tokio::test]
async fn a_node_whose_agent_is_gone_is_stale_and_says_since_when() {
    let row = Row::of("node_stale");
    let aggregator = Aggregator::start(&["--plaintext", "--stale-after=1s"]);
    let machine = Machine::new(SINGLE);
    let api = Api::at(aggregator.http);
    let mut agent = machine.report(&aggregator, "n", &["--heartbeat=200ms"]);
    api.node("n", |node| node["state"] == "ok").await;
    agent.kill();
    api.node("n", |node| node["state"] == "stale").await;
    let server = format!("http://{}", aggregator.http);
    row.finds("octavo node", &asks(&server, &["node", "n"]));
    row.finds("octavo nodes", &asks(&server, &["nodes"]));
}

#[test]
fn an_aggregator_that_is_away_is_missed_by_agents_and_by_people() {
    let row = Row::of("aggregator_away");
    let machine = Machine::new(SINGLE);
    // Ports of an address that nobody else has, and nobody listens at any more.
    let mut gone = Aggregator::start(&["--plaintext"]);
    gone.kill();
    let mut agent = machine.report(&gone, "n", &[]);
    row.hears(&mut agent);
    let server = format!("http://{}", gone.http);
    row.finds("octavo nodes", &asks(&server, &["nodes"]));
}

#[test]
fn a_certificate_of_an_authority_that_nobody_named_is_not_trusted() {
    let row = Row::of("certificate_unknown");
    let certificates = Certificates::new();
    let aggregator = certificates.serve();
    let machine = Machine::new(SINGLE);
    let mut agent = machine.agent(&[
        &format!("--aggregator=https://{}", aggregator.grpc),
        &certificates.argument("aggregator-ca", "other.crt"),
        "--aggregator-server-name=localhost",
        "--node-name=n",
    ]);
    row.hears(&mut agent);
    let server = format!("https://{}", aggregator.http);
    let ca = certificates.path("other.crt").display().to_string();
    row.finds("octavo nodes", &asks(&server, &["nodes", "--ca", &ca]));
}

#[tokio::test]
async fn a_renewed_certificate_that_cannot_be_used_leaves_the_one_before_and_is_told() {
    let row = Row::of("certificate_not_renewed");
    let certificates = Certificates::new();
    let mut aggregator = certificates.serve();
    let trusted = certificates.path("kept.crt");
    fs::copy(certificates.path("tls.crt"), &trusted).unwrap();
    fs::rename(certificates.path("other.crt"), certificates.path("tls.crt")).unwrap();
    // Whoever comes next has it look at its files.
    let api = Api::trusting(aggregator.http, &trusted);
    let answer = api.get("/metrics").await;
    let counted = answer
        .body
        .lines()
        .filter(|line| line.starts_with("octavo_aggregator_tls_reload_failures_total"))
        .find(|line| !line.ends_with(" 0"));
    row.finds("/metrics", counted.unwrap());
    row.finds("log", &aggregator.says("goes on with the certificate"));
}

#[tokio::test]
async fn no_rule_of_its_own_is_broken_by_an_aggregator_that_runs() {
    let aggregator = Aggregator::start(&["--plaintext"]);
    let machine = Machine::new(SINGLE);
    let _agent = machine.report(&aggregator, "n", &["--heartbeat=200ms"]);
    let api = Api::at(aggregator.http);
    api.node("n", |node| node["state"] == "ok").await;
    let text = api.get("/metrics").await.body;
    assert!(
        !text.contains("octavo_aggregator_invariant_violations_total"),
        "{text}"
    );
}
