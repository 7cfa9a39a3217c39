//! Common fixtures for tests of agent tokens: accounts, pods, their tokens, and an aggregator that reviews them.

use std::fs;
use std::path::{Path, PathBuf};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::super::Api;
use super::super::objects::TokenKubeconfig;
use crate::fleet_api::Api as Readers;
use crate::machine::Machine;
use crate::process::{Aggregator, Program};

pub(crate) const ACCOUNT: &str = "octavo-agent";
pub(crate) const AUDIENCE: &str = "octavo";

/// A namespace with the service account of agents, and another one that may only create token reviews.
pub(crate) struct AuthNamespace<'a> {
    pub(crate) cluster: &'a Api,
    pub(crate) namespace: String,
    /// Credentials of the aggregator.
    asks: TokenKubeconfig,
}

/// An aggregator that admits agents of a namespace, with a certificate.
pub(crate) struct Site {
    pub(crate) aggregator: Aggregator,
    pub(crate) readers: Readers,
    directory: TempDir,
}

impl<'a> AuthNamespace<'a> {
    pub(crate) fn new(cluster: &'a Api) -> Self {
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
        Self { cluster, asks: cluster.kubeconfig_with_token(token.trim_end()), namespace }
    }

    /// A pod of a service account on a node; it need not run.
    pub(crate) fn pod(&self, account: &str, node: &str) -> String {
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

    /// The token that kubelet would project into the agent on a node.
    pub(crate) fn agents_token(&self, node: &str) -> String {
        let pod = self.pod(ACCOUNT, node);
        self.token(&pod, AUDIENCE)
    }

    pub(crate) fn token(&self, pod: &str, audience: &str) -> String {
        self.cluster.token(&self.namespace, ACCOUNT, pod, &[audience])
    }

    pub(crate) fn arguments(&self) -> Vec<String> {
        vec![
            "--agent-auth=token-review".to_owned(),
            format!("--agent-service-account={}/{ACCOUNT}", self.namespace),
            format!("--kubeconfig={}", self.asks.path().display()),
        ]
    }

    pub(crate) fn site(&self, arguments: &[&str]) -> Site {
        let directory = tempfile::tempdir().unwrap();
        let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (certificate, key) =
            (directory.path().join("tls.crt"), directory.path().join("tls.key"));
        fs::write(&certificate, pair.cert.pem()).unwrap();
        fs::write(&key, pair.signing_key.serialize_pem()).unwrap();
        let mut all = self.arguments();
        all.push(format!("--tls-cert={}", certificate.display()));
        all.push(format!("--tls-key={}", key.display()));
        all.extend(arguments.iter().map(|&argument| argument.to_owned()));
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        let aggregator = Aggregator::start(&all);
        Site { readers: Readers::trusting(aggregator.http, &certificate), aggregator, directory }
    }
}

impl Site {
    pub(crate) fn file(&self, name: &str, token: &str) -> PathBuf {
        let path = self.directory.path().join(name);
        fs::write(&path, token).unwrap();
        path
    }

    /// An agent that claims to be on `node`, with the token in a file.
    pub(crate) fn agent(&self, machine: &Machine, node: &str, token: Option<&Path>) -> Program {
        self.agent_at("info", machine, node, token)
    }

    /// The same with this log level. At `trace` it logs continuously, so every wait for a line ends.
    pub(crate) fn agent_at(
        &self,
        level: &str,
        machine: &Machine,
        node: &str,
        token: Option<&Path>,
    ) -> Program {
        let mut arguments = vec![
            format!("--aggregator=https://{}", self.aggregator.grpc),
            format!("--aggregator-ca={}", self.directory.path().join("tls.crt").display()),
            "--aggregator-server-name=localhost".to_owned(),
            "--heartbeat=1s".to_owned(),
            format!("--log-level={level}"),
            format!("--node-name={node}"),
        ];
        arguments.extend(token.map(|path| format!("--aggregator-token={}", path.display())));
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        machine.agent(&arguments)
    }

    /// A counter of the aggregator; 0 if absent.
    pub(crate) async fn metric(&self, name: &str) -> u64 {
        let text = self.readers.get("/metrics").await.body;
        let line =
            text.lines().find_map(|line| line.strip_prefix(&format!("octavo_aggregator_{name} ")));
        line.map_or(0, |value| value.parse().unwrap())
    }

    pub(crate) async fn names(&self) -> Vec<Value> {
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

/// A forged token of an agent on `node`, signed with this key, valid until `expires`.
pub(crate) fn forged(place: &AuthNamespace<'_>, node: &str, key: &[u8], expires: i64) -> String {
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

pub(crate) fn now() -> i64 {
    jiff::Timestamp::now().as_second()
}
