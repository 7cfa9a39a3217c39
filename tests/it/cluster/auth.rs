//! Agents that have to prove their node, by tokens of a real API server that are bound to pods.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use octavo::proto::v1::fleet_client::FleetClient;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Endpoint;
use tonic::{Code, Request};

use super::Api;
use super::objects::Bearer;
use crate::aggregator::hello;
use crate::fleet::api::Api as Readers;
use crate::machine::Machine;
use crate::process::{Aggregator, Program};

const ACCOUNT: &str = "octavo-agent";
const AUDIENCE: &str = "octavo";

const SINGLE: &str = "
machine: single
driver: 570.133.20
gpus:
  - {board: H100_80GB_SXM}
";

/// A namespace with agents' service account, and another one that may ask about tokens and nothing else.
struct Place<'a> {
    cluster: &'a Api,
    namespace: String,
    /// What the aggregator asks with.
    asks: Bearer,
}

/// An aggregator that lets in agents of a place, with a certificate.
struct Site {
    aggregator: Aggregator,
    readers: Readers,
    folder: TempDir,
}

impl<'a> Place<'a> {
    fn new(cluster: &'a Api) -> Self {
        let namespace = cluster.namespace();
        let in_it = |name: &str| json!({"name": name, "namespace": namespace});
        let role = format!("{namespace}-reviewer");
        let objects = [
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": in_it(ACCOUNT)}),
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": in_it("other")}),
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": in_it("aggregator")}),
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": role},
                "rules": [{"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]}],
            }),
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": role},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
                "subjects": [{"kind": "ServiceAccount", "name": "aggregator", "namespace": namespace}],
            }),
        ];
        let objects = objects.map(|object| object.to_string());
        cluster.apply(&objects.join("\n---\n"));
        let token = cluster.kubectl(&["create", "token", "aggregator", "-n", &namespace]);
        Self {
            cluster,
            asks: cluster.as_bearer(token.trim_end()),
            namespace,
        }
    }

    /// A pod of a service account, on a node, which need not run.
    fn pod(&self, account: &str, node: &str) -> String {
        let name = format!("{account}-{node}");
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": self.namespace},
            "spec": {
                "nodeName": node, "serviceAccountName": account, "terminationGracePeriodSeconds": 0,
                "automountServiceAccountToken": false,
                "containers": [{"name": "one", "image": "test.invalid/none:1"}],
            },
        });
        self.cluster.apply(&pod.to_string());
        name
    }

    /// The token that kubelet would give to the agent on a node.
    fn agents_token(&self, node: &str) -> String {
        let pod = self.pod(ACCOUNT, node);
        self.token(&pod, AUDIENCE)
    }

    fn token(&self, pod: &str, audience: &str) -> String {
        self.cluster
            .token(&self.namespace, ACCOUNT, pod, &[audience])
    }

    fn arguments(&self) -> Vec<String> {
        vec![
            "--agent-auth=token-review".to_owned(),
            format!("--agent-service-account={}/{ACCOUNT}", self.namespace),
            format!("--kubeconfig={}", self.asks.path().display()),
        ]
    }

    fn site(&self, arguments: &[&str]) -> Site {
        let folder = tempfile::tempdir().unwrap();
        let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (certificate, key) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
        fs::write(&certificate, pair.cert.pem()).unwrap();
        fs::write(&key, pair.signing_key.serialize_pem()).unwrap();
        let mut all = self.arguments();
        all.push(format!("--tls-cert={}", certificate.display()));
        all.push(format!("--tls-key={}", key.display()));
        all.extend(arguments.iter().map(|&argument| argument.to_owned()));
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        let aggregator = Aggregator::start(&all);
        Site {
            readers: Readers::trusting(aggregator.http, &certificate),
            aggregator,
            folder,
        }
    }
}

impl Site {
    fn file(&self, name: &str, token: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, token).unwrap();
        path
    }

    /// An agent that says to be on `node`, with the token in a file.
    fn agent(&self, machine: &Machine, node: &str, token: Option<&Path>) -> Program {
        let mut arguments = vec![
            format!("--aggregator=https://{}", self.aggregator.grpc),
            format!(
                "--aggregator-ca={}",
                self.folder.path().join("tls.crt").display()
            ),
            "--aggregator-server-name=localhost".to_owned(),
            "--heartbeat=1s".to_owned(),
            "--log-level=trace".to_owned(),
            format!("--node-name={node}"),
        ];
        arguments.extend(token.map(|path| format!("--aggregator-token={}", path.display())));
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        machine.agent(&arguments)
    }

    /// A counter of the aggregator; 0 where it has none.
    async fn metric(&self, name: &str) -> u64 {
        let text = self.readers.get("/metrics").await.body;
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(&format!("octavo_aggregator_{name} ")));
        line.map_or(0, |value| value.parse().unwrap())
    }

    async fn names(&self) -> Vec<Value> {
        let nodes = self.readers.nodes().await;
        nodes.iter().map(|node| node["name"].clone()).collect()
    }
}

fn base64url(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let mut number = [0; 4];
        number[1..=three.len()].copy_from_slice(three);
        let number = u32::from_be_bytes(number);
        for digit in 0..=three.len() {
            let index = number >> (18 - 6 * digit) & 63;
            text.push(char::from(DIGITS[usize::try_from(index).unwrap()]));
        }
    }
    text
}

/// A token of an agent on `node` that the API server might have made, with its key or another one, good until `expires`.
fn forged(place: &Place<'_>, node: &str, key: &[u8], expires: i64) -> String {
    let cluster = place.cluster;
    let uid = |kind: &str, name: &str| {
        let uid = "-o=jsonpath={.metadata.uid}";
        cluster.kubectl(&["get", kind, name, "-n", &place.namespace, uid])
    };
    let pod = place.pod(ACCOUNT, node);
    let claims = json!({
        "iss": "https://kubernetes.default.svc.cluster.local",
        "aud": [AUDIENCE],
        "sub": format!("system:serviceaccount:{}:{ACCOUNT}", place.namespace),
        "iat": expires - 3600, "nbf": expires - 3600, "exp": expires,
        "kubernetes.io": {
            "namespace": place.namespace,
            "serviceaccount": {"name": ACCOUNT, "uid": uid("serviceaccount", ACCOUNT)},
            "pod": {"name": pod, "uid": uid("pod", &pod)},
            "node": {"name": node, "uid": uid("node", node)},
        },
    });
    let head = base64url(br#"{"alg":"ES256","typ":"JWT"}"#);
    let signed = format!("{head}.{}", base64url(claims.to_string().as_bytes()));
    let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, key).unwrap();
    let signature = pair.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
    format!("{signed}.{}", base64url(signature.as_ref()))
}

fn now() -> i64 {
    jiff::Timestamp::now().as_second()
}

#[tokio::test]
async fn the_token_of_an_agent_reports_its_own_node_and_no_other() {
    let cluster = Api::shared();
    let place = Place::new(cluster);
    let (a, b) = (cluster.node("auth"), cluster.node("auth"));
    let mut site = place.site(&["--log-level=trace"]);
    let machine = Machine::new(SINGLE);
    let (of_a, of_b) = (place.agents_token(a.name()), place.agents_token(b.name()));
    let token = site.file("a", &of_a);
    let mut agent = site.agent(&machine, a.name(), Some(&token));
    agent.says("reporting to https://");
    let node = site
        .readers
        .node(a.name(), |node| node["connected"] == true)
        .await;
    assert_eq!(node["inventory"]["devices"].as_array().unwrap().len(), 1);

    // The same token is stolen, and used from another machine under another name.
    let mut thief = site.agent(&machine, b.name(), Some(&token));
    let said = thief.says("not reporting to https://");
    let reason = format!("the token is that of an agent on node {}", a.name());
    assert!(said.contains(&reason), "{said}");
    assert_eq!(site.names().await, [a.name()]);
    assert!(site.metric("refusals_total{reason=\"not_its_node\"}").await >= 1);

    // Whoever is really there is let in.
    let token = site.file("b", &of_b);
    let mut other = site.agent(&machine, b.name(), Some(&token));
    other.says("reporting to https://");
    site.readers
        .node(b.name(), |node| node["connected"] == true)
        .await;
    assert_eq!(site.names().await.len(), 2);

    for lines in [
        agent.kill(),
        thief.kill(),
        other.kill(),
        site.aggregator.kill(),
    ] {
        assert!(lines.len() > 10, "{lines:?}");
        for token in [&of_a, &of_b] {
            let secret = token.rsplit('.').next().unwrap();
            let line = lines.iter().find(|line| line.contains(secret));
            assert!(line.is_none(), "{line:?}");
        }
    }
}

#[tokio::test]
async fn whoever_has_no_good_token_is_told_why_and_nothing_of_it_is_kept() {
    let cluster = Api::shared();
    let place = Place::new(cluster);
    let node = cluster.node("auth");
    let site = place.site(&[]);
    let machine = Machine::new(SINGLE);
    let pod = place.pod(ACCOUNT, node.name());
    let other = place.pod("other", node.name());
    let own_key = fs::read(cluster.folder().join("pki/service-account.key")).unwrap();
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
    let not_accepted = "the API server does not accept the token: ";
    let cases = [
        (None, "a token is needed"),
        (Some("garbage".to_owned()), "cannot use the token in "),
        (Some(place.token(&pod, "another")), not_accepted),
        (
            Some(place.token(&pod, "https://kubernetes.default.svc.cluster.local")),
            not_accepted,
        ),
        (
            Some(cluster.token(&place.namespace, "other", &other, &[AUDIENCE])),
            "and not of ",
        ),
        (
            Some(unbound.trim_end().to_owned()),
            "the token names no node",
        ),
        (Some(gone), not_accepted),
        (Some(forged(own_key.secret_der(), now() - 60)), not_accepted),
        (Some(forged(&stranger, in_an_hour)), not_accepted),
    ];
    for (number, (token, reason)) in cases.into_iter().enumerate() {
        let file = token.map(|token| site.file(&number.to_string(), &token));
        let mut agent = site.agent(&machine, node.name(), file.as_deref());
        let said = agent.says("not reporting to https://");
        assert!(said.contains(reason), "{number}: {reason}: {said}");
    }
    assert!(
        site.metric("refusals_total{reason=\"unauthenticated\"}")
            .await
            >= 8
    );
    assert_eq!(site.metric("messages_total{kind=\"hello\"}").await, 0);
    assert_eq!(site.names().await, [] as [Value; 0]);
    // What was made here as the API server makes it would have been taken, had it not expired.
    let file = site.file("own", &forged(own_key.secret_der(), in_an_hour));
    site.agent(&machine, node.name(), Some(&file))
        .says("reporting to https://");
}

#[tokio::test]
async fn while_the_api_server_is_away_who_is_in_stays_and_who_comes_waits() {
    let mut cluster = Api::fresh();
    let (a, b) = (cluster.node("auth"), cluster.node("auth"));
    let place = Place::new(&cluster);
    let mut site = place.site(&[]);
    let machine = Machine::new(SINGLE);
    let of_a = site.file("a", &place.agents_token(a.name()));
    let of_b = site.file("b", &place.agents_token(b.name()));
    drop(place);
    let mut known = site.agent(&machine, a.name(), Some(&of_a));
    known.says("reporting to https://");

    cluster.stop();
    let mut newcomer = site.agent(&machine, b.name(), Some(&of_b));
    let said = newcomer.says("not reporting to https://");
    assert!(said.contains("the token cannot be checked now"), "{said}");
    site.aggregator.says("agents' tokens cannot be reviewed: ");
    // The one that was there is heard all the while.
    let heard = site.metric("messages_total{kind=\"heartbeat\"}").await;
    let mut look_again = crate::fleet::api::pace();
    while site.metric("messages_total{kind=\"heartbeat\"}").await < heard + 3 {
        look_again.tick().await;
    }
    assert_eq!(site.names().await, [a.name()]);

    cluster.start();
    newcomer.says("reporting to https://");
    site.aggregator
        .says("the API server reviews agents' tokens again");
    site.readers
        .node(b.name(), |node| node["connected"] == true)
        .await;
    let lines = known.kill();
    assert!(
        !lines.iter().any(|line| line.contains("not reporting")),
        "{lines:?}"
    );
    let lines = site.aggregator.kill();
    let said = lines
        .iter()
        .filter(|line| line.contains("cannot be reviewed"));
    assert_eq!(said.count(), 1, "{lines:?}");
}

#[tokio::test]
async fn however_often_agents_come_the_api_server_is_asked_seldom() {
    let cluster = Api::fresh();
    let node = cluster.node("auth");
    let place = Place::new(&cluster);
    let mut arguments = place.arguments();
    arguments.push("--plaintext".to_owned());
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let aggregator = Aggregator::start(&arguments);
    let good = place.agents_token(node.name());
    let bad = place.token(&place.pod(ACCOUNT, node.name()), "another");
    let start = Instant::now();
    for _ in 0..100 {
        for (token, code) in [(&good, None), (&bad, Some(Code::Unauthenticated))] {
            // A connection of its own each time, as from an agent that is started again and again.
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
    let asked = cluster.audit();
    let asked = asked
        .iter()
        .filter(|event| event["objectRef"]["resource"] == "tokenreviews");
    let asked = u64::try_from(asked.count()).unwrap();
    let most = took.as_secs() / 60 + 1 + took.as_secs() / 5 + 1;
    assert!((2..=most).contains(&asked), "{asked} in {took:?}");
}
