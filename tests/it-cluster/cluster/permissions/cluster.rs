//! A cluster with our manifests in it, and what those who run there are answered.

use std::path::Path;

use axum::http::Request;
use kube::Client;
use serde_json::{Value, json};

use crate::cluster::Api;
use crate::cluster::objects::Bearer;
use crate::time_limits::until_async;

/// A request.
#[derive(Debug, Clone)]
pub(super) struct Ask {
    method: &'static str,
    path: String,
    content: &'static str,
    body: Option<Value>,
}

impl Ask {
    pub(super) fn get(path: &str) -> Self {
        Self::new("GET", path, None)
    }

    pub(super) fn delete(path: &str) -> Self {
        Self::new("DELETE", path, None)
    }

    pub(super) fn post(path: &str, body: Value) -> Self {
        Self::new("POST", path, Some(body))
    }

    pub(super) fn put(path: &str, body: Value) -> Self {
        Self::new("PUT", path, Some(body))
    }

    /// A merge patch.
    pub(super) fn patch(path: &str, body: Value) -> Self {
        Self { content: "application/merge-patch+json", ..Self::new("PATCH", path, Some(body)) }
    }

    /// A strategic merge patch, which finds the container that is meant.
    pub(super) fn strategic(path: &str, body: Value) -> Self {
        Self {
            content: "application/strategic-merge-patch+json",
            ..Self::new("PATCH", path, Some(body))
        }
    }

    /// A server-side apply as the agent's field manager, who insists.
    pub(super) fn apply(path: &str, body: Value) -> Self {
        let path = format!("{path}?fieldManager=octavo-agent&force=true");
        Self { content: "application/apply-patch+yaml", ..Self::new("PATCH", &path, Some(body)) }
    }

    /// The same, and nothing is kept of it.
    fn dry(&self) -> Self {
        let path = format!("{}?dryRun=All", self.path);
        Self { path, ..self.clone() }
    }

    fn new(method: &'static str, path: &str, body: Option<Value>) -> Self {
        Self { method, path: path.to_owned(), content: "application/json", body }
    }
}

/// The expected outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Done,
    /// It is allowed, and the server knows no such kind.
    Absent,
    /// No role allows it.
    NoRight,
    /// A policy of ours forbids it, with these words.
    Refused(&'static str),
}

/// What a request came to.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) code: u16,
    pub(super) text: String,
}

impl Answer {
    fn is(&self, verdict: Verdict) -> bool {
        // Of whatever release.
        let is_ours = |program: &&str| self.text.contains(*program);
        let by_policy = self.text.contains("ValidatingAdmissionPolicy '")
            && ["octavo-agent", "octavo-aggregator"].iter().any(is_ours);
        match verdict {
            Verdict::Done => self.code == 200,
            Verdict::Absent => self.code == 404,
            Verdict::NoRight => self.code == 403 && !by_policy && self.text.contains(" cannot "),
            Verdict::Refused(words) => self.code == 403 && by_policy && self.text.contains(words),
        }
    }
}

/// A requester.
pub(super) struct Who {
    client: Client,
}

impl Who {
    pub(super) async fn asks(&self, ask: &Ask) -> Answer {
        let body = ask.body.as_ref().map(Value::to_string).unwrap_or_default();
        let request = Request::builder()
            .method(ask.method)
            .uri(&ask.path)
            .header("content-type", ask.content)
            .body(body.into_bytes())
            .unwrap();
        match self.client.request_text(request).await {
            Ok(text) => Answer { code: 200, text },
            Err(kube::Error::Api(status)) => Answer { code: status.code, text: status.message },
            Err(error) => panic!("{ask:?}: {error}"),
        }
    }

    /// Asks, and checks the answer.
    pub(super) async fn expects(&self, what: &str, ask: &Ask, verdict: Verdict) {
        let answer = self.asks(ask).await;
        assert!(answer.is(verdict), "{what}: {verdict:?} was expected\n{ask:?}\n{answer:?}");
    }

    /// Repeats the request until this token is unknown.
    pub(super) async fn is_turned_away(&self, ask: &Ask) {
        let answer = async || self.asks(ask).await;
        until_async("a refused token", answer, |answer| answer.code == 401).await;
    }

    /// Repeats a dry run until the answer is that: roles and policies apply a moment after their creation.
    pub(super) async fn expects_soon(&self, ask: &Ask, verdict: Verdict) {
        let answer = async || self.asks(&ask.dry()).await;
        let what = format!("{verdict:?} to {ask:?}");
        until_async(&what, answer, |answer| answer.is(verdict)).await;
    }

    /// What roles allow in a namespace, as the server lists it.
    pub(super) async fn rules(&self, namespace: &str) -> Vec<Value> {
        let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
        let ask = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview",
            "spec": {"namespace": namespace},
        });
        let answer = self.asks(&Ask::post(path, ask)).await;
        assert_eq!(answer.code, 200, "{answer:?}");
        let review: Value = serde_json::from_str(&answer.text).unwrap();
        assert_eq!(review["status"]["incomplete"], false);
        review["status"]["resourceRules"].as_array().unwrap().clone()
    }
}

/// An API server of its own, with the tier `applier` in it.
pub(super) struct Place {
    api: Api,
}

impl Place {
    /// Starts it; node-a and node-b have a pod of the agent each.
    pub(super) async fn new() -> Self {
        let place = Self::bare();
        place.install("tiers/applier");
        place.runtime_class();
        let admin = place.admin();
        for name in ["node-a", "node-b"] {
            let ask = Ask::post("/api/v1/nodes", node(name));
            admin.expects(name, &ask, Verdict::Done).await;
        }
        for (pod, on) in [("agent-a", "node-a"), ("agent-b", "node-b")] {
            place.start_pod("daemonset/octavo-agent", pod, Some(on));
        }
        let other = Ask::patch("/api/v1/nodes/node-b", json!({}));
        let agent = place.agent("agent-a").await;
        agent.expects_soon(&other, Verdict::Refused("not allowed to change node node-b")).await;
        let event = event("default", "node-b");
        agent.expects_soon(&event, Verdict::Refused("only on its own node")).await;
        place
    }

    /// Starts it with nothing in it.
    pub(super) fn bare() -> Self {
        Self { api: Api::fresh() }
    }

    /// Some other program makes it in a real cluster; no pod that names it is let in without.
    pub(super) fn runtime_class(&self) {
        self.api.apply(
            "{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: nvidia}, handler: nvidia}",
        );
    }

    /// How an administrator gets in.
    pub(super) fn kubeconfig(&self) -> &Path {
        self.api.kubeconfig()
    }

    pub(super) fn create(&self, object: &Value) {
        self.api.create(object);
    }

    /// Applies a kustomization of ours, as people do.
    pub(super) fn install(&self, kustomization: &str) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(kustomization);
        self.api.kubectl(&["apply", "-k", path.to_str().unwrap()]);
    }

    /// Defines a kind of object, and waits until it is served.
    pub(super) fn define(&self, definition: &str) {
        self.api.apply(definition);
        let wait = "--for=condition=Established";
        self.kubectl(&["wait", wait, "crd", "--all", "--timeout=300s"]);
    }

    pub(super) fn kubectl(&self, arguments: &[&str]) -> String {
        self.api.kubectl(arguments)
    }

    /// Makes the pod that a controller would make of its template, which says whose account it has.
    pub(super) fn start_pod(&self, of: &str, name: &str, on: Option<&str>) {
        let arguments = ["get", of, "--namespace=octavo-system", "--output=json"];
        let owner: Value = serde_json::from_str(&self.kubectl(&arguments)).unwrap();
        let mut spec = owner["spec"]["template"]["spec"].clone();
        spec["nodeName"] = json!(on);
        self.api.create(&json!({
            "apiVersion": "v1", "kind": "Pod", "spec": spec,
            "metadata": {"name": name, "namespace": "octavo-system"},
        }));
    }

    /// An administrator.
    pub(super) fn admin(&self) -> Who {
        Who { client: self.api.client() }
    }

    /// The agent in this pod.
    pub(super) async fn agent(&self, pod: &str) -> Who {
        let token = self.token("octavo-agent", pod, &[]);
        self.bearer(&token).await
    }

    /// The token that a pod is given for these audiences; for the API server if there are none.
    pub(super) fn token(&self, account: &str, pod: &str, audiences: &[&str]) -> String {
        self.api.token("octavo-system", account, pod, audiences)
    }

    /// The token for the API server that a pod in this namespace is given.
    pub(super) fn token_in(&self, namespace: &str, account: &str, pod: &str) -> String {
        self.api.token(namespace, account, pod, &[])
    }

    /// A way in for a program that runs as the agent in this pod.
    pub(super) fn way_in(&self, pod: &str) -> Bearer {
        self.api.as_bearer(&self.token("octavo-agent", pod, &[]))
    }

    /// A way in for a program that has this token.
    pub(super) fn way_in_with(&self, token: &str) -> Bearer {
        self.api.as_bearer(token)
    }

    /// What the server answered to those who created something in a namespace, the oldest first.
    pub(super) fn creations(&self, namespace: &str, resource: &str) -> Vec<u64> {
        let path = format!("/api/v1/namespaces/{namespace}/{resource}");
        let of = |event: &&Value| {
            let uri = event["requestURI"].as_str().unwrap();
            // Not those that were asked only for the answer.
            event["verb"] == "create" && (uri == path || uri == format!("{path}?"))
        };
        let log = self.api.audit();
        let codes = log.iter().filter(of);
        codes.map(|event| event["responseStatus"]["code"].as_u64().unwrap()).collect()
    }

    /// The requester with this token.
    pub(super) async fn bearer(&self, token: &str) -> Who {
        let bearer = self.api.as_bearer(token);
        // The token is read at once, and the client outlives the file by far less than it reads it again.
        let client =
            octavo_kube::client::connect(Some(&bearer.path()), octavo_kube::client::Program::Agent)
                .await
                .unwrap();
        Who { client }
    }
}

/// A node with something of everybody on it; node-a is cordoned.
pub(super) fn node(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "person": "1",
                "octavo.dev/layout": "serving",
                "octavo.dev/count": "1",
                "nvidia.com/mig.config": "all-1g.10gb",
                "nvidia.com/device-plugin.config": "one",
                "nvidia.com/gpu.deploy.dcgm": "true",
                "nvidia.com/gpu.deploy.nvsm": "false",
                "nvidia.com/gpu.deploy.device-plugin": "paused-for-octavo",
                "nvidia.com/gpu.deploy.dcgm-exporter": "paused-for-mig-change",
            },
            "annotations": {"person": "1", "octavo.dev/status": "old", "octavo.dev/log-level": "info"},
            "finalizers": ["person.example/keep"],
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "1"},
            ],
        },
        "spec": {
            "providerID": format!("test://{name}"),
            "unschedulable": name == "node-a",
            "taints": [
                {"key": "person", "value": "1", "effect": "NoSchedule"},
                {"key": "octavo.dev/not-ready", "effect": "NoSchedule"},
            ],
        },
    })
}

/// An event about a node.
pub(super) fn event(namespace: &str, node: &str) -> Ask {
    let path = format!("/api/v1/namespaces/{namespace}/events");
    Ask::post(
        &path,
        json!({
            "apiVersion": "v1", "kind": "Event", "type": "Normal", "reason": "Applied", "message": "a test",
            "metadata": {"generateName": "octavo-", "namespace": namespace},
            "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": node},
        }),
    )
}
