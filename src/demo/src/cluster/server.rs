//! Requests to the API server.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::to_bytes;
use axum::extract::{Query, Request, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::kinds::{Kind, ObjectKey, Target};
use super::objects::{Objects, set_metadata};
use super::patch::{Author, check_preconditions, patch};
use super::profile;
use super::selector::Selector;
use super::status::Refusal;
use super::watch::Watch;

/// Maximum size of a request body.
const MAX_BODY_BYTES: usize = 3 << 20;
/// The user of every request: the simulated API server does not authenticate.
const USER: &str = "demo-user";

/// The API server.
#[derive(Debug)]
struct Server {
    objects: Arc<Objects>,
    watches: Mutex<JoinSet<()>>,
}

type Parameters = BTreeMap<String, String>;

/// Returns the service.
pub(super) fn router(objects: Arc<Objects>) -> Router {
    let server = Server { objects, watches: Mutex::default() };
    Router::new().fallback(respond).with_state(Arc::new(server))
}

async fn respond(State(server): State<Arc<Server>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let Ok(body) = to_bytes(body, MAX_BODY_BYTES).await else {
        return Refusal::bad_request("the request body is too large".to_owned()).into_response();
    };
    let response = server.handle((&head.method, &head.uri), &head.headers, &body);
    response.unwrap_or_else(IntoResponse::into_response)
}

impl Server {
    fn handle(
        &self,
        (method, uri): (&Method, &Uri),
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<Response, Refusal> {
        let path = uri.path();
        if let (&Method::GET, Some(document)) = (method, discovery(path)) {
            return Ok(Json(document).into_response());
        }
        if (method, path) == (&Method::POST, "/apis/authentication.k8s.io/v1/selfsubjectreviews") {
            return Ok((StatusCode::CREATED, Json(self_review())).into_response());
        }
        let parameters = Query::<Parameters>::try_from_uri(uri);
        let parameters = parameters.map_err(|error| Refusal::bad_request(error.to_string()))?.0;
        let target = Kind::parse_path(path).ok_or_else(Refusal::no_such_path)?;
        match (method, target) {
            (&Method::GET, Target::All(kind, namespace)) => {
                self.list_or_watch(kind, &namespace, &parameters)
            }
            (&Method::GET, Target::One(key)) => {
                let object = self.objects.get(&key).ok_or_else(|| Refusal::not_found(&key))?;
                Ok(Json(&*object).into_response())
            }
            (&Method::POST, Target::All(kind, namespace)) => {
                self.create(kind, &namespace, (&parameters, body))
            }
            (&Method::PATCH, Target::One(key)) => self.patch(&key, headers, (&parameters, body)),
            (&Method::PATCH, Target::Subresource(key, part))
                if part == "status" && key.kind == Kind::AcceleratorPolicy =>
            {
                self.patch(&key, headers, (&parameters, body))
            }
            (&Method::DELETE, Target::One(key)) => self.delete(&key, (&parameters, body)),
            (&Method::POST, Target::Subresource(key, part)) if part == "eviction" => {
                self.evict(&key, body)
            }
            (_, Target::Subresource(..)) => Err(Refusal::no_such_path()),
            (_, Target::All(..) | Target::One(_)) => Err(Refusal::method_not_allowed()),
        }
    }

    fn list_or_watch(
        &self,
        kind: Kind,
        namespace: &str,
        parameters: &Parameters,
    ) -> Result<Response, Refusal> {
        let text = |name: &str| parameters.get(name).map(String::as_str).unwrap_or_default();
        let selector = Selector::parse(text("fieldSelector"), text("labelSelector"))?;
        if !is_true(parameters, "watch") {
            let (version, all) = self.objects.list(kind, namespace);
            let items: Vec<_> = all.iter().filter(|object| selector.matches(object)).collect();
            let items: Vec<&Value> = items.into_iter().map(|object| &**object).collect();
            let (api_version, _) = kind.api();
            let list = json!({
                "kind": format!("{}List", kind.name()),
                "apiVersion": api_version,
                "metadata": {"resourceVersion": version.to_string()},
                "items": items,
            });
            return Ok(Json(list).into_response());
        }
        let version = match text("resourceVersion") {
            "" | "0" => None,
            version => Some(version.parse().map_err(|_| {
                Refusal::bad_request(format!("invalid resource version {version:?}"))
            })?),
        };
        let watch = Watch {
            kind,
            namespace: namespace.to_owned(),
            selector,
            version,
            bookmarks: is_true(parameters, "allowWatchBookmarks"),
            duration: text("timeoutSeconds").parse().ok().map(Duration::from_secs),
        };
        let (body, task) = watch.start(Arc::clone(&self.objects));
        let mut watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        while watches.try_join_next().is_some() {}
        watches.spawn(task);
        Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response())
    }

    fn create(
        &self,
        kind: Kind,
        namespace: &str,
        (parameters, body): (&Parameters, &[u8]),
    ) -> Result<Response, Refusal> {
        let mut object = parse(body)?;
        if kind.is_namespaced() {
            set_metadata(&mut object, "namespace", json!(namespace));
        }
        let prefix = object.pointer("/metadata/generateName").and_then(Value::as_str);
        if let (Some(prefix), None) = (prefix, object.pointer("/metadata/name")) {
            let (version, _) = self.objects.list(kind, namespace);
            let name = format!("{prefix}{version:05}");
            set_metadata(&mut object, "name", json!(name));
        }
        validate(kind, &object)?;
        if is_dry_run(parameters) {
            return Ok((StatusCode::CREATED, Json(object)).into_response());
        }
        let object = self.objects.create(kind, object)?;
        Ok((StatusCode::CREATED, Json(&*object)).into_response())
    }

    fn patch(
        &self,
        key: &ObjectKey,
        headers: &HeaderMap,
        (parameters, body): (&Parameters, &[u8]),
    ) -> Result<Response, Refusal> {
        let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let applies = match content_type.and_then(|value| value.split(';').next()) {
            Some("application/apply-patch+yaml") => true,
            Some("application/merge-patch+json") => false,
            _ => return Err(Refusal::unsupported_patch()),
        };
        let change = parse(body)?;
        let manager = parameters.get("fieldManager").map_or("unknown", String::as_str);
        let author = Author { manager, applies, force: is_true(parameters, "force") };
        let apply = |object: &mut Value| {
            check_preconditions(object, &change)?;
            patch(object, &change, author)?;
            validate(key.kind, object)
        };
        let Some(there) = self.objects.get(key) else {
            if !applies {
                return Err(Refusal::not_found(key));
            }
            let mut object = json!({"metadata": {"name": key.name}});
            if key.kind.is_namespaced() {
                set_metadata(&mut object, "namespace", json!(key.namespace));
            }
            apply(&mut object)?;
            if is_dry_run(parameters) {
                self.objects.check_namespace(key)?;
                return Ok((StatusCode::CREATED, Json(object)).into_response());
            }
            let object = self.objects.create(key.kind, object)?;
            return Ok((StatusCode::CREATED, Json(&*object)).into_response());
        };
        if is_dry_run(parameters) {
            let mut object = Value::clone(&there);
            apply(&mut object)?;
            return Ok(Json(object).into_response());
        }
        Ok(Json(&*self.objects.update(key, apply)?).into_response())
    }

    fn delete(
        &self,
        key: &ObjectKey,
        (parameters, body): (&Parameters, &[u8]),
    ) -> Result<Response, Refusal> {
        let options: Value = serde_json::from_slice(body).unwrap_or_default();
        let is_dry =
            options.get("dryRun").and_then(Value::as_array).is_some_and(|all| !all.is_empty());
        if is_dry || is_dry_run(parameters) {
            let object = self.objects.get(key).ok_or_else(|| Refusal::not_found(key))?;
            return Ok(Json(&*object).into_response());
        }
        Ok(Json(&*self.objects.delete(key)?).into_response())
    }

    /// Evicts a pod, unless a disruption budget forbids that. The pod's processes end when its kubelet observes that.
    fn evict(&self, key: &ObjectKey, body: &[u8]) -> Result<Response, Refusal> {
        let pod = self.objects.get(key).ok_or_else(|| Refusal::not_found(key))?;
        let eviction = parse(body)?;
        let wanted = eviction.pointer("/deleteOptions/preconditions/uid");
        if wanted.is_some() && wanted != pod.pointer("/metadata/uid") {
            let message = "Precondition failed: UID in precondition differs from that of the pod";
            return Err(Refusal::conflict(message.to_owned()));
        }
        let (_, budgets) = self.objects.list(Kind::PodDisruptionBudget, &key.namespace);
        if let Some(budget) = budgets.iter().find(|budget| forbids(budget, &pod)) {
            let name = budget.pointer("/metadata/name").and_then(Value::as_str);
            return Err(Refusal::budget(name.unwrap_or_default()));
        }
        self.objects.delete(key)?;
        let status =
            json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"});
        Ok((StatusCode::CREATED, Json(status)).into_response())
    }
}

/// Returns whether a budget covers a pod and allows no disruption.
fn forbids(budget: &Value, pod: &Value) -> bool {
    let labels = budget.pointer("/spec/selector/matchLabels").and_then(Value::as_object);
    let label = |key: &str| pod.get("metadata")?.get("labels")?.get(key);
    let covers =
        labels.is_some_and(|labels| labels.iter().all(|(key, value)| label(key) == Some(value)));
    let allowed = budget.pointer("/status/disruptionsAllowed").and_then(Value::as_u64);
    covers && allowed.unwrap_or_default() == 0
}

fn validate(kind: Kind, object: &Value) -> Result<(), Refusal> {
    if !object.get("metadata").is_some_and(Value::is_object) {
        return Err(Refusal::bad_request("the object has no metadata".to_owned()));
    }
    if kind == Kind::HardwareProfile { profile::validate(object) } else { Ok(()) }
}

/// Parses a body, which is YAML or JSON.
fn parse(body: &[u8]) -> Result<Value, Refusal> {
    let failed = |error: String| Refusal::bad_request(format!("cannot parse the body: {error}"));
    if let Ok(value) = serde_json::from_slice(body) {
        return Ok(value);
    }
    let text = std::str::from_utf8(body).map_err(|error| failed(error.to_string()))?;
    serde_saphyr::from_str(text).map_err(|error| failed(error.without_snippet().to_string()))
}

fn is_true(parameters: &Parameters, name: &str) -> bool {
    parameters.get(name).is_some_and(|value| matches!(value.as_str(), "true" | "1"))
}

fn is_dry_run(parameters: &Parameters) -> bool {
    parameters.get("dryRun").is_some_and(|value| value == "All")
}

fn self_review() -> Value {
    json!({
        "kind": "SelfSubjectReview",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {},
        "status": {"userInfo": {"username": USER, "groups": ["system:authenticated"]}},
    })
}

/// Returns a discovery document, with which kubectl finds the served kinds.
fn discovery(path: &str) -> Option<Value> {
    let version = |kind: Kind| kind.api().0;
    Some(match path.trim_end_matches('/') {
        "/version" => {
            json!({"major": "1", "minor": "35", "gitVersion": "v1.35.0-octavo-demo", "platform": "simulated"})
        }
        "/healthz" | "/livez" | "/readyz" => json!("ok"),
        "/api" => json!({"kind": "APIVersions", "versions": ["v1"]}),
        "/apis" => {
            let groups = Kind::ALL.into_iter().filter_map(|kind| version(kind).split_once('/'));
            let groups = groups.map(|(group, version)| {
                let version =
                    json!({"groupVersion": format!("{group}/{version}"), "version": version});
                json!({"name": group, "versions": [version], "preferredVersion": version})
            });
            json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups.collect::<Vec<_>>()})
        }
        path => {
            let group = path.strip_prefix("/apis/").or_else(|| path.strip_prefix("/api/"))?;
            let kinds = Kind::ALL.into_iter().filter(|kind| version(*kind) == group);
            let resources = kinds.map(|kind| {
                json!({
                    "name": kind.api().1,
                    "singularName": kind.name().to_lowercase(),
                    "namespaced": kind.is_namespaced(),
                    "kind": kind.name(),
                    "verbs": ["get", "list", "watch", "create", "patch", "delete"],
                    "shortNames": kind.short_names(),
                })
            });
            let resources: Vec<Value> = resources.collect();
            if resources.is_empty() {
                return None;
            }
            json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group, "resources": resources})
        }
    })
}
