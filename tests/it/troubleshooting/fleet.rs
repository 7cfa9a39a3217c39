//! Problems between the aggregator, its agents and its readers.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use crate::fleet_api::Api;
use crate::machine::Machine;
use crate::problem::Problem;
use crate::process::Aggregator;
use crate::time_limits::Finish;

const SINGLE: &str = "machine: single\ngpus:\n- {board: H100_80GB_SXM}\n";

/// Error output of `octavo` with an aggregator.
fn asks(server: &str, arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_octavo"))
        .args(arguments)
        .args(["--server", server])
        .finish();
    let [shown, noted] =
        [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    format!("{shown}{noted}")
}

/// A certificate for localhost, its key, and an unrelated certificate.
struct Certificates(TempDir);

impl Certificates {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        for name in ["tls", "other"] {
            let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
            let path = |end: &str| directory.path().join(format!("{name}.{end}"));
            fs::write(path("crt"), pair.cert.pem()).unwrap();
            fs::write(path("key"), pair.signing_key.serialize_pem()).unwrap();
        }
        Self(directory)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn argument(&self, flag: &str, name: &str) -> String {
        format!("--{flag}={}", self.path(name).display())
    }

    fn serve(&self) -> Aggregator {
        let [certificate, key] =
            [self.argument("tls-cert", "tls.crt"), self.argument("tls-key", "tls.key")];
        Aggregator::start(&[&certificate, &key])
    }
}

#[tokio::test]
async fn node_of_stopped_agent_is_stale_with_time() {
    let problem = Problem::documented("node_stale");
    let aggregator = Aggregator::start(&["--plaintext", "--stale-after=1s"]);
    let machine = Machine::new(SINGLE);
    let api = Api::at(aggregator.http);
    let mut agent = machine.report(&aggregator, "n", &["--heartbeat=200ms"]);
    api.node("n", |node| node["state"] == "ok").await;
    agent.kill();
    api.node("n", |node| node["state"] == "stale").await;
    let server = format!("http://{}", aggregator.http);
    problem.assert_quoted("octavo node", &asks(&server, &["node", "n"]));
    problem.assert_quoted("octavo nodes", &asks(&server, &["nodes"]));
}

#[test]
fn unavailable_aggregator_is_reported_by_agents_and_cli() {
    let problem = Problem::documented("aggregator_away");
    let machine = Machine::new(SINGLE);
    // Nothing listens any more at an address that only this test uses.
    let mut gone = Aggregator::start(&["--plaintext"]);
    gone.kill();
    let mut agent = machine.report(&gone, "n", &[]);
    problem.await_log(&mut agent);
    let server = format!("http://{}", gone.http);
    problem.assert_quoted("octavo nodes", &asks(&server, &["nodes"]));
}

#[test]
fn certificate_of_unconfigured_authority_is_not_trusted() {
    let problem = Problem::documented("certificate_unknown");
    let certificates = Certificates::new();
    let aggregator = certificates.serve();
    let machine = Machine::new(SINGLE);
    let mut agent = machine.agent(&[
        &format!("--aggregator=https://{}", aggregator.grpc),
        &certificates.argument("aggregator-ca", "other.crt"),
        "--aggregator-server-name=localhost",
        "--node-name=n",
    ]);
    problem.await_log(&mut agent);
    let server = format!("https://{}", aggregator.http);
    let ca = certificates.path("other.crt").display().to_string();
    problem.assert_quoted("octavo nodes", &asks(&server, &["nodes", "--ca", &ca]));
}

#[tokio::test]
async fn invalid_renewed_certificate_is_reported_and_last_one_stays_in_use() {
    let problem = Problem::documented("certificate_not_renewed");
    let certificates = Certificates::new();
    let mut aggregator = certificates.serve();
    let trusted = certificates.path("kept.crt");
    fs::copy(certificates.path("tls.crt"), &trusted).unwrap();
    fs::rename(certificates.path("other.crt"), certificates.path("tls.crt")).unwrap();
    // The next client makes it read its files again.
    let api = Api::trusting(aggregator.http, &trusted);
    let answer = api.get("/metrics").await;
    let counted = answer
        .body
        .lines()
        .filter(|line| line.starts_with("octavo_aggregator_tls_reload_failures_total"))
        .find(|line| !line.ends_with(" 0"));
    problem.assert_quoted("/metrics", counted.unwrap());
    problem.assert_quoted("log", &aggregator.expect_log("cannot load the renewed certificate"));
}

#[tokio::test]
async fn running_aggregator_violates_no_invariant() {
    let aggregator = Aggregator::start(&["--plaintext"]);
    let machine = Machine::new(SINGLE);
    let _agent = machine.report(&aggregator, "n", &["--heartbeat=200ms"]);
    let api = Api::at(aggregator.http);
    api.node("n", |node| node["state"] == "ok").await;
    let text = api.get("/metrics").await.body;
    assert!(!text.contains("octavo_aggregator_invariant_violations_total"), "{text}");
}
