//! A cluster with our manifests, and the responses to their accounts.

use std::fs;
use std::path::Path;

use axum::http::Request;
use kube::Client;
use serde_json::{Value, json};

use crate::cluster::Api;
use crate::cluster::objects::TokenKubeconfig;
use crate::manifests::chart::{helm_output, path};
use crate::time_limits::until_async;

/// A request.
#[derive(Debug, Clone)]
pub(super) struct ApiRequest {
    method: &'static str,
    path: String,
    content: &'static str,
    body: Option<Value>,
}

impl ApiRequest {
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

    /// A strategic merge patch, which selects the container by name.
    pub(super) fn strategic(path: &str, body: Value) -> Self {
        Self {
            content: "application/strategic-merge-patch+json",
            ..Self::new("PATCH", path, Some(body))
        }
    }

    /// A server-side apply with the field manager of the agent, which forces conflicts.
    pub(super) fn apply(path: &str, body: Value) -> Self {
        let path = format!("{path}?fieldManager=octavo-agent&force=true");
        Self { content: "application/apply-patch+yaml", ..Self::new("PATCH", &path, Some(body)) }
    }

    /// The same as a dry run.
    fn dry(&self) -> Self {
        let separator = if self.path.contains('?') { '&' } else { '?' };
        let path = format!("{}{separator}dryRun=All", self.path);
        Self { path, ..self.clone() }
    }

    fn new(method: &'static str, path: &str, body: Option<Value>) -> Self {
        Self { method, path: path.to_owned(), content: "application/json", body }
    }
}

/// The expected outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Allowed,
    /// It is allowed, and the kind does not exist.
    UnknownKind,
    /// No role allows it.
    Forbidden,
    /// Our policy denies it with this message.
    DeniedByPolicy(&'static str),
    /// A policy of the administrator denies it with this message.
    Refused(&'static str),
}

/// Response to a request.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) code: u16,
    pub(super) text: String,
}

impl Answer {
    fn is(&self, verdict: Verdict) -> bool {
        // Of any release.
        let is_ours = |program: &&str| self.text.contains(*program);
        let by_policy = self.text.contains("ValidatingAdmissionPolicy '")
            && ["octavo-agent", "octavo-aggregator"].iter().any(is_ours);
        match verdict {
            Verdict::Allowed => self.code == 200,
            Verdict::UnknownKind => self.code == 404,
            Verdict::Forbidden => self.code == 403 && !by_policy && self.text.contains(" cannot "),
            Verdict::DeniedByPolicy(words) => {
                self.code == 403 && by_policy && self.text.contains(words)
            }
            Verdict::Refused(words) => {
                matches!(self.code, 403 | 422) && !by_policy && self.text.contains(words)
            }
        }
    }
}

/// A requester.
pub(super) struct Requester {
    client: Client,
}

impl Requester {
    pub(super) async fn send(&self, request: &ApiRequest) -> Answer {
        let body = request.body.as_ref().map(Value::to_string).unwrap_or_default();
        let http_request = Request::builder()
            .method(request.method)
            .uri(&request.path)
            .header("content-type", request.content)
            .body(body.into_bytes())
            .unwrap();
        match self.client.request_text(http_request).await {
            Ok(text) => Answer { code: 200, text },
            Err(kube::Error::Api(status)) => Answer { code: status.code, text: status.message },
            Err(error) => panic!("{request:?}: {error}"),
        }
    }

    /// Sends the request and checks the response.
    pub(super) async fn expect(&self, what: &str, request: &ApiRequest, verdict: Verdict) {
        let answer = self.send(request).await;
        assert!(answer.is(verdict), "{what}: {verdict:?} was expected\n{request:?}\n{answer:?}");
    }

    /// Sends the requests and checks the responses.
    pub(super) async fn expect_all(&self, rows: &[(&str, ApiRequest, Verdict)]) {
        for (what, request, verdict) in rows {
            self.expect(what, request, *verdict).await;
        }
    }

    /// Repeats the request until the token is rejected.
    pub(super) async fn await_unauthorized(&self, request: &ApiRequest) {
        let answer = async || self.send(request).await;
        until_async("a refused token", answer, |answer| answer.code == 401).await;
    }

    /// Repeats a dry run until the expected outcome: roles and policies take effect with a delay.
    pub(super) async fn expect_eventually(&self, request: &ApiRequest, verdict: Verdict) {
        let answer = async || self.send(&request.dry()).await;
        let what = format!("{verdict:?} to {request:?}");
        until_async(&what, answer, |answer| answer.is(verdict)).await;
    }

    /// Permissions in a namespace, as listed by the server.
    pub(super) async fn rules(&self, namespace: &str) -> Vec<Value> {
        let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
        let request = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview",
            "spec": {"namespace": namespace},
        });
        let answer = self.send(&ApiRequest::post(path, request)).await;
        assert_eq!(answer.code, 200, "{answer:?}");
        let review: Value = serde_json::from_str(&answer.text).unwrap();
        assert_eq!(review["status"]["incomplete"], false);
        review["status"]["resourceRules"].as_array().unwrap().clone()
    }
}

/// An API server for one test, with the tier `applier`.
pub(super) struct PermissionCluster {
    api: Api,
}

impl PermissionCluster {
    /// Starts it; node-a and node-b each have a pod of the agent.
    pub(super) async fn new() -> Self {
        let cluster = Self::bare();
        cluster.install("tiers/applier");
        cluster.runtime_class();
        let admin = cluster.admin();
        for name in ["node-a", "node-b"] {
            let request = ApiRequest::post("/api/v1/nodes", node(name));
            admin.expect(name, &request, Verdict::Allowed).await;
        }
        for (pod, on) in [("agent-a", "node-a"), ("agent-b", "node-b")] {
            cluster.start_pod("daemonset/octavo-agent", pod, Some(on));
        }
        let other = ApiRequest::patch("/api/v1/nodes/node-b", json!({}));
        let agent = cluster.agent("agent-a").await;
        agent
            .expect_eventually(&other, Verdict::DeniedByPolicy("not allowed to change node node-b"))
            .await;
        let event = event("default", "node-b");
        agent.expect_eventually(&event, Verdict::DeniedByPolicy("only on its own node")).await;
        cluster
    }

    /// Applies the chart with these values, as rendered by helm.
    pub(super) fn apply_chart(&self, values: &[&str]) {
        let chart = path();
        let mut arguments =
            vec!["template", "octavo", chart.to_str().unwrap(), "--namespace=octavo-system"];
        arguments.extend(values.iter().flat_map(|values| ["--set", values]));
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("rendered.yaml");
        fs::write(&file, helm_output(&arguments)).unwrap();
        self.kubectl(&["apply", "-f", file.to_str().unwrap()]);
    }

    /// Starts it without objects.
    pub(super) fn bare() -> Self {
        Self { api: Api::fresh() }
    }

    /// Created by another program in a real cluster; pods that name it are rejected without it.
    pub(super) fn runtime_class(&self) {
        self.api.apply(
            "{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: nvidia}, handler: nvidia}",
        );
    }

    /// Kubeconfig of an administrator.
    pub(super) fn kubeconfig(&self) -> &Path {
        self.api.kubeconfig()
    }

    pub(super) fn create(&self, object: &Value) {
        self.api.create(object);
    }

    /// Applies a kustomization as documented.
    pub(super) fn install(&self, kustomization: &str) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(kustomization);
        self.api.kubectl(&["apply", "-k", path.to_str().unwrap()]);
    }

    /// Applies objects.
    pub(super) fn apply(&self, objects: &str) {
        self.api.apply(objects);
    }

    /// Defines a kind of object, and waits until it is served.
    pub(super) fn define(&self, definition: &str) {
        self.api.apply(definition);
        self.await_definitions();
    }

    pub(super) fn await_definitions(&self) {
        self.api.await_definitions();
    }

    pub(super) fn kubectl(&self, arguments: &[&str]) -> String {
        self.api.kubectl(arguments)
    }

    /// Creates the pod of a controller's template, which names the account.
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
    pub(super) fn admin(&self) -> Requester {
        Requester { client: self.api.client() }
    }

    /// Requester with the token of the agent in this pod.
    pub(super) async fn agent(&self, pod: &str) -> Requester {
        let token = self.token("octavo-agent", pod, &[]);
        self.bearer(&token).await
    }

    /// The token of a pod for these audiences; for the API server if there are none.
    pub(super) fn token(&self, account: &str, pod: &str, audiences: &[&str]) -> String {
        self.api.token("octavo-system", account, pod, audiences)
    }

    /// The token for the API server of a pod in this namespace.
    pub(super) fn token_in(&self, namespace: &str, account: &str, pod: &str) -> String {
        self.api.token(namespace, account, pod, &[])
    }

    /// A kubeconfig for a program that runs as the agent in this pod.
    pub(super) fn kubeconfig_of_agent(&self, pod: &str) -> TokenKubeconfig {
        self.api.kubeconfig_with_token(&self.token("octavo-agent", pod, &[]))
    }

    /// A kubeconfig with this token.
    pub(super) fn kubeconfig_with_token(&self, token: &str) -> TokenKubeconfig {
        self.api.kubeconfig_with_token(token)
    }

    /// Status codes of create requests in a namespace, oldest first.
    pub(super) fn creations(&self, namespace: &str, resource: &str) -> Vec<u64> {
        let path = format!("/api/v1/namespaces/{namespace}/{resource}");
        let of = |event: &&Value| {
            let uri = event["requestURI"].as_str().unwrap();
            // Not dry runs.
            event["verb"] == "create" && (uri == path || uri == format!("{path}?"))
        };
        let log = self.api.audit();
        let codes = log.iter().filter(of);
        codes.map(|event| event["responseStatus"]["code"].as_u64().unwrap()).collect()
    }

    /// The requester with this token.
    pub(super) async fn bearer(&self, token: &str) -> Requester {
        let bearer = self.api.kubeconfig_with_token(token);
        // The token is read immediately, and the client lives for less than its reload interval.
        let client =
            octavo_kube::client::connect(Some(&bearer.path()), octavo_kube::client::Program::Agent)
                .await
                .unwrap();
        Requester { client }
    }
}

/// A node with fields of several owners; node-a is cordoned.
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
pub(super) fn event(namespace: &str, node: &str) -> ApiRequest {
    let path = format!("/api/v1/namespaces/{namespace}/events");
    ApiRequest::post(
        &path,
        json!({
            "apiVersion": "v1", "kind": "Event", "type": "Normal", "reason": "Applied", "message": "a test",
            "metadata": {"generateName": "octavo-", "namespace": namespace},
            "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": node},
        }),
    )
}
