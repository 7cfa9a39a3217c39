//! The REST API through its real router, with inventories of simulated machines.

mod availability;
mod cost;
mod demand;
mod estimates;
mod events;
pub(crate) mod fleet;
mod matching;
mod matching_profiles;
mod plans;
mod policies;
mod profile_events;
mod profiles;
mod reference;
mod schemas;
mod series;
mod slo;
mod starting;
pub(crate) mod usage;
mod without_agent;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::BodyExt;
use octavo_fleet::access::Visibility;
use serde_json::{Value, json};
use tower::ServiceExt;

use fleet::{Aggregator, Machines};

/// A response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Answer {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.body))
    }
}

impl Aggregator {
    pub(crate) async fn ask(&self, method: Method, path: &str) -> Answer {
        let request = Request::builder().method(method).uri(path);
        self.answer(request.body(Body::empty()).unwrap()).await
    }

    /// Posts a document.
    pub(crate) async fn post(&self, path: &str, document: &str) -> Answer {
        let request = Request::post(path).header("content-type", "application/json");
        let request = request.body(Body::from(document.to_owned())).unwrap();
        self.answer(request).await
    }

    /// Posts a document as a reader with this visibility.
    pub(crate) async fn post_as(
        &self,
        visibility: Visibility,
        path: &str,
        document: &str,
    ) -> Answer {
        let request = Request::post(path).header("content-type", "application/json");
        let mut request = request.body(Body::from(document.to_owned())).unwrap();
        request.extensions_mut().insert(visibility);
        Self::of_router(&self.ungated, request).await
    }

    async fn answer(&self, request: Request<Body>) -> Answer {
        Self::of_router(&self.router, request).await
    }

    async fn of_router(router: &Router, request: Request<Body>) -> Answer {
        let response = router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Answer {
            status: parts.status,
            headers: parts.headers,
            body: String::from_utf8(body.to_vec()).unwrap(),
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.ask(Method::GET, path).await
    }

    /// The names on a page, and the token of the next page.
    async fn names(&self, path: &str) -> (Vec<String>, Option<String>) {
        let list = self.get(path).await.json();
        let items = list["items"].as_array().unwrap_or_else(|| panic!("{list}"));
        let names = items.iter().map(|item| item["name"].as_str().unwrap().to_owned());
        (names.collect(), list["continue"].as_str().map(str::to_owned))
    }
}

#[tokio::test]
async fn node_is_listed_with_device_totals() {
    let aggregator = Aggregator::of(&Machines::read().await);
    let list = aggregator.get("/api/v1/nodes?search=mixed").await;
    assert_eq!(list.status, StatusCode::OK);
    assert_eq!(list.header("content-type"), "application/json");
    assert_eq!(list.header("x-content-type-options"), "nosniff");
    assert_eq!(list.header("cache-control"), "no-store");
    let list = list.json();
    let mut node = list["items"][0].clone();
    for moving in ["lastConfirmed", "ageSeconds"] {
        assert!(node.as_object_mut().unwrap().remove(moving).is_some());
    }
    let devices = json!({
        "total": 4, "free": 2, "inUse": 0, "partitioned": 2, "unavailable": 0, "passthrough": 0, "unknown": 0,
        "partitions": {"total": 3, "free": 2, "inUse": 1},
    });
    assert_eq!(
        node,
        json!({
            "name": "mixed-1", "state": "ok", "source": "agent", "connected": true, "sharing": "mixed", "agentVersion": "0.1.0",
            "devices": devices, "memoryMiB": 4 * 81559,
            "types": [{"type": "nvidia-h100-80gb", "typeSource": "catalog", "memoryMiB": 81559, "devices": devices}],
        })
    );
    assert_eq!(list["kind"], "NodeList");
    assert_eq!(list["apiVersion"], "octavo.dev/v1");
    assert_eq!((&list["total"], &list["continue"]), (&json!(1), &Value::Null));
}

#[tokio::test]
async fn nodes_are_filtered_ordered_and_paged_by_parameters() {
    let aggregator = Aggregator::of(&Machines::read().await);
    for (parameters, expected) in [
        ("", "bare-1 gpu-1 gpu-2 mixed-1"),
        ("sort=-name", "mixed-1 gpu-2 gpu-1 bare-1"),
        ("type=nvidia-h100-80gb", "mixed-1"),
        ("type=nvidia-l4-24gb,nvidia-h100-80gb", "gpu-1 gpu-2 mixed-1"),
        ("type=nvidia-l4-24gb&type=nvidia-h100-80gb", "gpu-1 gpu-2 mixed-1"),
        ("state=empty", "bare-1"),
        ("sharing=mixed", "mixed-1"),
        ("selector=octavo.dev%2Ftype%20in%20(nvidia-l4-24gb)", "gpu-1 gpu-2"),
        ("selector=!octavo.dev/type", "bare-1"),
        ("sort=-devices", "mixed-1 gpu-1 gpu-2 bare-1"),
        ("sort=free&search=1", "bare-1 gpu-1 mixed-1"),
        ("search=nothing", ""),
    ] {
        let (names, next) = aggregator.names(&format!("/api/v1/nodes?{parameters}")).await;
        assert_eq!(names.join(" "), expected, "{parameters}");
        assert_eq!(next, None, "{parameters}");
    }
    let (first, next) = aggregator.names("/api/v1/nodes?sort=-free&limit=3").await;
    let next = format!("/api/v1/nodes?sort=-free&limit=3&continue={}", next.unwrap());
    let (second, end) = aggregator.names(&next).await;
    assert_eq!([first.join(" "), second.join(" ")], ["mixed-1 gpu-1 gpu-2", "bare-1"]);
    assert_eq!(end, None);
}

#[tokio::test]
async fn node_is_returned_completely_and_as_inspect_prints_it() {
    let machines = Machines::read().await;
    let aggregator = Aggregator::of(&machines);
    let node = aggregator.get("/api/v1/nodes/mixed-1").await.json();
    assert_eq!((&node["kind"], &node["name"]), (&json!("Node"), &json!("mixed-1")));
    assert_eq!(node["bootId"], "boot-mixed-1");
    assert_eq!(node["labels"]["octavo.dev/type"], "nvidia-h100-80gb");
    let inventory = octavo_files::inventory::parse(&node["inventory"].to_string()).unwrap();
    assert_eq!(&inventory, machines.inventory("mixed-1"));
}

#[tokio::test]
async fn types_are_counted_and_devices_of_stale_node_are_unknown() {
    let aggregator = Aggregator::of(&Machines::read().await);
    let types = aggregator.get("/api/v1/types").await.json();
    let shown = |types: &Value| {
        let all = types["items"].as_array().unwrap().clone();
        let line = |one: Value| {
            let devices = &one["devices"];
            format!(
                "{} on {}: {} free, {} unknown of {}",
                one["type"].as_str().unwrap(),
                one["nodes"],
                devices["free"],
                devices["unknown"],
                devices["total"]
            )
        };
        all.into_iter().map(line).collect::<Vec<_>>()
    };
    assert_eq!(
        shown(&types),
        [
            "nvidia-h100-80gb on 1: 2 free, 0 unknown of 4",
            "nvidia-l4-24gb on 2: 2 free, 0 unknown of 2"
        ]
    );
    aggregator.silence("gpu-2");
    let types = aggregator.get("/api/v1/types").await.json();
    assert_eq!(shown(&types)[1], "nvidia-l4-24gb on 2: 1 free, 1 unknown of 2");
    let (stale, _) = aggregator.names("/api/v1/nodes?state=stale").await;
    assert_eq!(stale, ["gpu-2"]);
}

/// Request, status, kind, parameter, and part of the detail.
const FAILURES: &str = "GET /api/v1/nodes?limt=3|400|unknown-parameter|limt|did you mean limit?
GET /api/v1/nodes?limit=0|400|invalid-parameter|limit|1 to 1000
GET /api/v1/nodes?selector=a%3D%3D%3D|400|invalid-parameter|selector|at column 4
GET /api/v1/nodes?sort=size|400|invalid-parameter|sort|name, state
GET /api/v1/nodes?continue=x|400|invalid-parameter|continue|restart from the first page
GET /api/v1/nodes/gpu-9|404|unknown-node|name|/api/v1/nodes
GET /api/v1/nodes/GPU_9|400|invalid-name|name|lowercase
GET /api/v1/nodes/%ff|400|invalid-name|name|not UTF-8
GET /api/v1/nodes/a%2Fb|400|invalid-name|name|lowercase
GET /api/v1/nodes/gpu-1?x=1|400|unknown-parameter|x|no parameters
GET /api/v1/types?x=1|400|unknown-parameter|x|no parameters
GET /api/v1/events?change=only|400|unknown-parameter|change|the only parameter is changes
GET /api/v1/events?changes=all|400|invalid-parameter|changes|only
GET /api/v1/profiles?x=1|400|unknown-parameter|x|type, namespace
GET /api/v1/profiles?type=a&type=b|400|invalid-parameter|type|only once
GET /api/v1/profiles/none|404|unknown-profile|name|/api/v1/profiles
GET /api/v1/profiles/a/none|404|unknown-profile|name|/api/v1/profiles
GET /api/v1/profiles/%ff|404|unknown-profile|name|not UTF-8
GET /api/v1/profile-draft|400|invalid-parameter|nodes|nodes=A,B or type=TYPE
GET /api/v1/profile-draft?type=A%20B|400|invalid-parameter|type|not a type such as
GET /api/v1/profile-draft?type=a&name=A_B|400|invalid-parameter|name|lowercase
GET /api/v1/profile-draft?type=a&namespace=-|400|invalid-parameter|namespace|lowercase
GET /api/v1/profile-draft?type=a|503|no-cluster||--follow-cluster
GET /api/v1/cluster-nodes|503|no-cluster||--follow-cluster
GET /api/v1/cluster-nodes?x=1|400|unknown-parameter|x|no parameters
GET /api/hardware-profiles?x=1|400|unknown-parameter|x|no parameters
GET /api|404|not-found||/openapi.json
GET /api/v1/nodes/|404|not-found||/openapi.json
GET /api/v2/nodes|404|not-found||/openapi.json
POST /api/v1/nodes|405|method-not-allowed||POST
DELETE /api/v1/nodes/gpu-1|405|method-not-allowed||DELETE
PUT /metrics|405|method-not-allowed||PUT";

#[tokio::test]
async fn every_failure_is_a_problem_document() {
    let aggregator = Aggregator::of(&Machines::read().await);
    for line in FAILURES.lines() {
        let fields: Vec<&str> = line.split('|').collect();
        let (method, path) = fields[0].split_once(' ').unwrap();
        let answer = aggregator.ask(method.parse().unwrap(), path).await;
        let what = format!("{line}: {}", answer.body);
        assert_eq!(answer.status.as_str(), fields[1], "{what}");
        assert_eq!(answer.header("content-type"), "application/problem+json", "{what}");
        assert_eq!(answer.header("x-content-type-options"), "nosniff", "{what}");
        let problem = answer.json();
        assert_eq!(problem["status"].to_string(), fields[1], "{what}");
        assert_eq!(problem["type"], format!("/problems/{}", fields[2]), "{what}");
        assert_eq!(problem["parameter"].as_str().unwrap_or_default(), fields[3], "{what}");
        assert!(problem["detail"].as_str().unwrap().contains(fields[4]), "{what}");
        assert_eq!(problem["instance"], path.split('?').next().unwrap(), "{what}");
        assert_eq!(answer.header("allow").is_empty(), fields[1] != "405", "{what}");
    }
}

#[tokio::test]
async fn every_problem_type_is_documented() {
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/reference/rest.md"))
            .unwrap();
    let source = include_str!("../../src/aggregator/src/rest/problem.rs");
    // The rows of the table: status, last segment of the reference, title.
    let is_row = |text: &&str| text.starts_with(|first: char| first.is_ascii_digit());
    let rows = source.split('(').filter(is_row);
    let kinds = rows.filter_map(|row| row.split('"').nth(1));
    let kinds: Vec<String> = kinds.map(|kind| format!("/problems/{kind}")).collect();
    assert!(kinds.len() >= 32, "{kinds:?}");
    for kind in kinds {
        assert!(
            page.contains(&format!("`{kind}`")),
            "docs/reference/rest.md does not explain {kind}"
        );
    }
}

#[tokio::test]
async fn head_answers_like_get_without_body() {
    let aggregator = Aggregator::of(&Machines::read().await);
    for path in [
        "/api/v1/nodes",
        "/api/v1/types",
        "/api/v1/nodes/gpu-1",
        "/openapi.json",
        "/metrics",
        "/healthz",
    ] {
        let (get, head) = (aggregator.get(path).await, aggregator.ask(Method::HEAD, path).await);
        assert_eq!((head.status, head.body.as_str()), (StatusCode::OK, ""), "{path}");
        assert_eq!(head.header("content-type"), get.header("content-type"), "{path}");
        assert!(!get.body.is_empty(), "{path}");
    }
}

#[tokio::test]
async fn aggregator_is_live_immediately_and_ready_when_marked_ready() {
    let aggregator = Aggregator::of(&Machines::default());
    assert_eq!(aggregator.get("/healthz").await.body, "ok\n");
    aggregator.ready.send_replace(false);
    let answer = aggregator.get("/readyz").await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(answer.header("retry-after"), "1");
    assert_eq!(answer.json()["type"], "/problems/not-ready");
    aggregator.ready.send_replace(true);
    let answer = aggregator.get("/readyz").await;
    assert_eq!((answer.status, answer.body.as_str()), (StatusCode::OK, "ok\n"));
}
