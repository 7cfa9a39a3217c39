//! Authentication of agents by tokens of a real API server that are bound to pods.

pub(crate) mod place;

use std::fs;
use std::time::Instant;

use octavo_stream::proto::v1::fleet_client::FleetClient;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use serde_json::Value;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Endpoint;
use tonic::{Code, Request};

use self::place::{ACCOUNT, AUDIENCE, AuthNamespace, forged, now};
use super::Api;
use crate::agent_stream::hello;
use crate::machine::Machine;
use crate::process::{Aggregator, Program};
use crate::time_limits::until_async;

const SINGLE: &str = "
machine: single
driver: 570.133.20
gpus:
  - {board: H100_80GB_SXM}
";

/// Waits until an agent logs this reason for a refused connection. If the review is slow, it logs another one first.
#[track_caller]
fn await_refusal(agent: &mut Program, reason: &str) {
    let line = agent.expect_log(reason);
    assert!(
        line.contains("cannot report to the aggregator; retrying aggregator=https://"),
        "{line}"
    );
}

#[tokio::test]
async fn agent_token_reports_its_own_node_only() {
    let cluster = Api::shared();
    let place = AuthNamespace::new(cluster);
    let (a, b) = (cluster.node("auth"), cluster.node("auth"));
    let mut site = place.site(&["--log-level=trace"]);
    let machine = Machine::new(SINGLE);
    let (of_a, of_b) = (place.agents_token(a.name()), place.agents_token(b.name()));
    let token = site.file("a", &of_a);
    let mut agent = site.agent_at("trace", &machine, a.name(), Some(&token));
    let node = site.readers.node(a.name(), |node| node["connected"] == true).await;
    assert_eq!(node["inventory"]["devices"].as_array().unwrap().len(), 1);

    // The token is stolen and used from another machine under another name.
    let mut thief = site.agent(&machine, b.name(), Some(&token));
    let reason =
        format!("does not match the token, which was issued to an agent on node {}", a.name());
    await_refusal(&mut thief, &reason);
    assert_eq!(site.names().await, [a.name()]);
    assert!(site.metric("refusals_total{reason=\"not_its_node\"}").await >= 1);

    // The authenticated node is admitted.
    let token = site.file("b", &of_b);
    let mut other = site.agent(&machine, b.name(), Some(&token));
    other.expect_log("reporting to the aggregator aggregator=https://");
    site.readers.node(b.name(), |node| node["connected"] == true).await;
    assert_eq!(site.names().await.len(), 2);

    let traced = [agent.kill(), site.aggregator.kill()];
    for lines in &traced {
        assert!(lines.iter().any(|line| line.contains("TRACE")), "{lines:?}");
    }
    for lines in traced.into_iter().chain([thief.kill(), other.kill()]) {
        for token in [&of_a, &of_b] {
            let secret = token.rsplit('.').next().unwrap();
            let line = lines.iter().find(|line| line.contains(secret));
            assert!(line.is_none(), "{line:?}");
        }
    }
}

#[tokio::test]
async fn invalid_token_is_rejected_with_the_reason_and_not_stored() {
    let cluster = Api::shared();
    let place = AuthNamespace::new(cluster);
    let node = cluster.node("auth");
    let site = place.site(&[]);
    let machine = Machine::new(SINGLE);
    let pod = place.pod(ACCOUNT, node.name());
    let other = place.pod("other", node.name());
    let own_key = fs::read(cluster.directory().join("pki/service-account.key")).unwrap();
    let own_key = PrivateKeyDer::from_pem_slice(&own_key).unwrap();
    let stranger = rcgen::KeyPair::generate().unwrap().serialize_der();
    let unbound = ["create", "token", ACCOUNT, "-n", &place.namespace];
    let unbound = cluster.kubectl(&[&unbound[..], &["--audience", AUDIENCE]].concat());
    let in_an_hour = now() + 3600;
    let forged = |key: &[u8], expires| forged(&place, node.name(), key, expires);
    let gone = {
        let pod = {
            let gone = cluster.node("auth");
            place.pod(ACCOUNT, gone.name())
        };
        let token = place.token(&pod, AUDIENCE);
        let delete = ["delete", "pod", &pod, "-n", &place.namespace];
        cluster.kubectl(&[&delete[..], &["--force", "--wait=true"]].concat());
        token
    };
    let not_accepted = "the API server rejected the token: ";
    let cases = [
        (None, "no token in the request"),
        (Some("garbage".to_owned()), "cannot use the token in "),
        (Some(place.token(&pod, "another")), not_accepted),
        (Some(place.token(&pod, "https://kubernetes.default.svc.cluster.local")), not_accepted),
        (Some(cluster.token(&place.namespace, "other", &other, &[AUDIENCE])), ", not to "),
        (Some(unbound.trim_end().to_owned()), "the token contains no node"),
        (Some(gone), not_accepted),
        (Some(forged(own_key.secret_der(), now() - 60)), not_accepted),
        (Some(forged(&stranger, in_an_hour)), not_accepted),
    ];
    for (number, (token, reason)) in cases.into_iter().enumerate() {
        let file = token.map(|token| site.file(&number.to_string(), &token));
        let mut agent = site.agent(&machine, node.name(), file.as_deref());
        await_refusal(&mut agent, reason);
    }
    assert!(site.metric("refusals_total{reason=\"unauthenticated\"}").await >= 8);
    assert_eq!(site.metric("messages_total{kind=\"hello\"}").await, 0);
    assert_eq!(site.names().await, [] as [Value; 0]);
    // A token forged with the key of the API server would be valid if it had not expired.
    let file = site.file("own", &forged(own_key.secret_der(), in_an_hour));
    site.agent(&machine, node.name(), Some(&file))
        .expect_log("reporting to the aggregator aggregator=https://");
}

#[tokio::test]
async fn api_server_outage_keeps_known_agents_and_delays_new_ones() {
    let mut cluster = Api::fresh();
    let (a, b) = (cluster.node("auth"), cluster.node("auth"));
    let place = AuthNamespace::new(&cluster);
    let mut site = place.site(&[]);
    let machine = Machine::new(SINGLE);
    let of_a = site.file("a", &place.agents_token(a.name()));
    let of_b = site.file("b", &place.agents_token(b.name()));
    drop(place);
    let mut known = site.agent(&machine, a.name(), Some(&of_a));
    known.expect_log("reporting to the aggregator aggregator=https://");

    cluster.stop();
    let mut new_agent = site.agent(&machine, b.name(), Some(&of_b));
    await_refusal(&mut new_agent, "cannot review the token");
    site.aggregator.expect_log("cannot review agents' tokens; ");
    // The connected agent continues to report.
    let received = site.metric("messages_total{kind=\"heartbeat\"}").await;
    let beats = async || site.metric("messages_total{kind=\"heartbeat\"}").await;
    until_async("three heartbeats", beats, |beats| *beats >= received + 3).await;
    assert_eq!(site.names().await, [a.name()]);

    cluster.start();
    new_agent.expect_log("reporting to the aggregator aggregator=https://");
    site.aggregator.expect_log("token reviews for agents work again");
    site.readers.node(b.name(), |node| node["connected"] == true).await;
    let lines = known.kill();
    assert!(
        !lines.iter().any(|line| line.contains("cannot report to the aggregator")),
        "{lines:?}"
    );
    let lines = site.aggregator.kill();
    let reported = lines.iter().filter(|line| line.contains("cannot review agents' tokens"));
    assert_eq!(reported.count(), 1, "{lines:?}");
}

#[tokio::test]
async fn repeated_agent_connections_cause_few_token_reviews() {
    let cluster = Api::fresh();
    let node = cluster.node("auth");
    let place = AuthNamespace::new(&cluster);
    let mut arguments = place.arguments();
    arguments.push("--plaintext".to_owned());
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let aggregator = Aggregator::start(&arguments);
    let good = place.agents_token(node.name());
    let bad = place.token(&place.pod(ACCOUNT, node.name()), "another");
    let start = Instant::now();
    for _ in 0..100 {
        for (token, code) in [(&good, None), (&bad, Some(Code::Unauthenticated))] {
            // A new connection each time, like an agent that restarts repeatedly.
            let endpoint = Endpoint::from_shared(format!("http://{}", aggregator.grpc)).unwrap();
            let mut client = FleetClient::new(endpoint.connect().await.unwrap());
            let (to, messages) = tokio::sync::mpsc::channel(1);
            to.send(hello(node.name(), 1)).await.unwrap();
            let mut request = Request::new(ReceiverStream::new(messages));
            let shown = format!("Bearer {token}").parse().unwrap();
            request.metadata_mut().insert("authorization", shown);
            let answer = client.report(request).await;
            assert_eq!(answer.err().map(|status| status.code()), code);
        }
    }
    let took = start.elapsed();
    let requested = cluster.audit();
    let requested =
        requested.iter().filter(|event| event["objectRef"]["resource"] == "tokenreviews");
    let requested = u64::try_from(requested.count()).unwrap();
    let most = took.as_secs() / 60 + 1 + took.as_secs() / 5 + 1;
    assert!((2..=most).contains(&requested), "{requested} in {took:?}");
}
