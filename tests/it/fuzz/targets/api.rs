//! Requests to the aggregator's API, and names in requests, labels and messages.

use std::fmt::{Debug, Display};
use std::str::FromStr;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::Query;
use axum::http::{Request, Response, Uri, header};
use http_body_util::BodyExt;
use jiff::Timestamp;
use octavo_access::guard::Guard;
use octavo_aggregator::access::guarded;
use octavo_aggregator::rest;
use octavo_files::config_files::LayoutFile;
use octavo_files::config_files::prices::PriceFile;
use octavo_fleet::cluster::{
    Amounts, ClusterNode, ClusterPod, ClusterSnapshot, Phase, PodKey, PodRequirements, Readiness,
};
use octavo_kube::cluster::WatchedCluster;
use octavo_kube::hardware_profiles::Presence;
use octavo_kube::policies::KnownPolicies;
use octavo_model::digest::Digest;
use octavo_store::availability::{AvailabilityQuery, Counter};
use octavo_store::clock::Clock;
use octavo_store::fleet::Fleet;
use octavo_store::ledger::{BudgetQuery, CostQuery, FocusQuery, parse_audit_query};
use octavo_store::policies::PolicyView;
use octavo_store::profiles::Profiles;
use octavo_store::query::{QueryError, Selector, SelectorError};
use octavo_store::stats::Stats;
use octavo_store::view::FleetView;
use octavo_store::{history, query as nodes, usage};
use prometheus_client::registry::Registry;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

use super::stream::fleet;
use crate::fuzz::fuzzer::{Outcome, Target};
use crate::fuzz::seeds::root;

/// Query strings.
const QUERIES: [&str; 12] = [
    "type=nvidia-h100-80gb&state=ok,drifted&sort=-free&limit=10&selector=a%3Db%2C!c",
    "problem=needs-reset&sharing=whole&layout=all-1g&layoutState=applied&search=gpu",
    "continue=eyJmaWx0ZXIiOjAsInNvcnQiOiJub2RlIiwibGFzdCI6eyJyYW5rIjp7Ik51bWJlciI6MX0sIm5hbWUiOiJuIn19",
    "node=gpu-07&namespace=team&pod=job&over=true&sort=memory&limit=5",
    "continue=eyJyYW5rIjoxLCJub2RlIjoibiIsImtleSI6IlgifQ",
    "type=mixed&resource=nvidia.com/gpu&minFree=4",
    "metric=utilization&window=1h&step=10s&groupBy=node&device=0000:07:00.0&selector=a in (b, c)",
    "from=2026-11-01&until=2026-11-29T12:00:00Z&by=namespace,type,day&compare=spot&limit=10&sort=cost",
    "limitBy=namespace&by=namespace&namespace=team&type=nvidia-h100-80gb",
    "from=2026-11-01&until=2026-12-01",
    "from=2026-11-01&namespace=team&kind=price",
    "namespace=team-a",
];

/// Parameters of every endpoint.
pub(super) fn query() -> Target {
    let now: Timestamp = "2026-11-29T12:00:00Z".parse().unwrap();
    Target::text(QUERIES, move |text| {
        let encoded: String = text.chars().filter(char::is_ascii_graphic).collect();
        let pairs = format!("/?{encoded}")
            .parse::<Uri>()
            .ok()
            .and_then(|uri| Query::<Vec<(String, String)>>::try_from_uri(&uri).ok());
        let Some(Query(pairs)) = pairs else { return Outcome::Rejected("no query".to_owned()) };
        let pairs = || pairs.iter().cloned();
        let results: [Result<(), QueryError>; 8] = [
            nodes::Query::parse(pairs()).map(drop),
            usage::Query::parse(pairs()).map(drop),
            history::Query::parse(pairs()).map(drop),
            AvailabilityQuery::parse(pairs()).map(drop),
            CostQuery::parse(pairs(), now).map(drop),
            FocusQuery::parse(pairs(), now).map(|query| assert!(query.days().count() < 1000)),
            BudgetQuery::parse(pairs()).map(drop),
            parse_audit_query(pairs()).map(drop),
        ];
        let mut messages = String::new();
        for result in &results {
            match result {
                Ok(()) => return Outcome::Accepted,
                Err(error) => messages += &short(error),
            }
        }
        Outcome::Rejected(messages)
    })
}

/// The message of an error. It repeats only a part of the request.
fn short(error: &QueryError) -> String {
    let text = octavo_toolkit::error::chain(error);
    assert!(text.len() < 4000, "{text}");
    text
}

/// Label selectors. Errors have the column of a character, or the one after the last.
pub(super) fn selector() -> Target {
    let seeds = [
        "a=b,c!=d,!e",
        "x in (a,b), y notin (c,,d)",
        "octavo.dev/type==nvidia-h100-80gb",
        "a,b,c=",
    ];
    Target::text(seeds, |text| {
        let parsed = text.parse::<Selector>();
        if let Err(SelectorError::Expected { column, .. } | SelectorError::Label { column, .. }) =
            &parsed
        {
            assert!((1..=text.chars().count() + 1).contains(column), "column {column}");
        }
        Outcome::from_result(&parsed)
    })
}

/// Names and quantities: their text is parsed as the same value.
pub(super) fn names() -> Target {
    use octavo_fleet::cluster::Quantity;
    use octavo_model::id::{NodeName, PciAddress, TypeName};
    use octavo_model::label::{LabelKey, LabelValue};
    use octavo_model::profile::ProfileName;
    use octavo_model::quantity::{ComputeCapability, DriverVersion};
    use octavo_model::resource::{ResourceName, ShareId};
    let seeds = [
        "0000:07:00.0",
        "00000000:3B:00.0",
        "1g.10gb",
        "1c.3g.40gb+me.all",
        "nvidia.com/mig-1g.10gb.shared",
        "GPU-efec5a52-f5da-a3f6-5046-d606e70d049f::3",
        "gpu-node-07.example.com",
        "octavo.dev/type",
        "nvidia-h100-80gb",
        "80GB",
        "1.5Gi",
        "100m",
        "2e3",
        "9.0",
        "580.95.05",
        "device/0000:07:00.0",
        "profiles/0123456789abcdef",
        "neuron/3",
        "gpu-0-mig-1g-10gb-0",
        "12.34",
    ];
    Target::text(seeds, |text| {
        let accepted = [
            same::<PciAddress>(text),
            same::<ProfileName>(text),
            same::<ResourceName>(text),
            same::<ShareId>(text),
            same::<NodeName>(text),
            same::<TypeName>(text),
            same::<LabelKey>(text),
            same::<LabelValue>(text),
            same::<octavo_stream::protocol::PartKey>(text),
            same::<octavo_dra::DeviceName>(text),
            same::<ComputeCapability>(text),
            same::<DriverVersion>(text),
            same::<octavo_fleet::price::Amount>(text),
            text.parse::<Quantity>().is_ok(),
            text.parse::<octavo_fleet::matching::Bytes>().is_ok(),
            text.parse::<octavo_fleet::availability::Shape>().is_ok(),
        ];
        if accepted.contains(&true) {
            Outcome::Accepted
        } else {
            Outcome::Rejected(text.parse::<LabelValue>().unwrap_err().to_string())
        }
    })
}

/// Returns whether the text is a value.
fn same<T: FromStr<Err: Debug> + Display + PartialEq + Debug>(text: &str) -> bool {
    let Ok(value) = text.parse::<T>() else { return false };
    let written = value.to_string();
    assert_eq!(
        written.parse::<T>().unwrap_or_else(|error| panic!("{written:?}: {error:?}")),
        value
    );
    true
}

/// Paths below `/api/v1`.
const PATHS: [&str; 27] = [
    "nodes",
    "nodes/node-0",
    "nodes/node-0/changes",
    "nodes/node-0/layouts",
    "nodes/node-0/plan",
    "layouts/day/plan",
    "policies",
    "policies/a",
    "policies/a/plan",
    "policies/plan",
    "types",
    "cluster-nodes",
    "usage",
    "usage/summary",
    "availability",
    "demand",
    "profiles",
    "profiles/team/a",
    "profile-draft",
    "cost",
    "cost/focus",
    "cost/budgets",
    "audit",
    "series",
    "match",
    "estimates",
    "slo",
];

/// Methods and paths with parameters, and with a body after an empty line.
fn requests() -> Vec<String> {
    let mut all: Vec<String> = PATHS.map(|path| format!("GET /api/v1/{path}")).to_vec();
    all.extend(
        ["nodes/node-0/plan?layout=day", "profile-draft?type=nvidia-h100-80gb"]
            .map(|path| format!("GET /api/v1/{path}")),
    );
    let with = [
        "nodes",
        "nodes",
        "nodes",
        "usage",
        "usage",
        "availability",
        "series",
        "cost",
        "cost",
        "cost/focus",
        "audit",
        "cost/budgets",
    ];
    all.extend(
        with.iter()
            .zip(QUERIES)
            .map(|(path, query)| format!("GET /api/v1/{path}?{}", query.replace(' ', "+"))),
    );
    all.extend(
        [
            "GET /api/hardware-profiles",
            "GET /metrics",
            "GET /openapi.json",
            "GET /healthz",
            "GET /readyz",
        ]
        .map(str::to_owned),
    );
    let measured =
        r#"{"hardware_type":"H100","hardware_count":1,"requests_per_second":2.5,"ttft_p90":120.5}"#;
    let bodies = [
        ("match", r#"{"memoryPerDeviceAtLeast":"80GB","count":2,"architectureAtLeast":"hopper","preferred":["nvidia-h100-80gb"]}"#.to_owned()),
        ("match", r#"{"memoryTotalAtLeast":"160Gi","computeCapabilityAtLeast":"9.0","interconnect":"nvlink","isolation":"hardware"}"#.to_owned()),
        ("estimates", r#"{"workload":{"kind":"decoding","parameters":8e9,"precision":"bf16"},"devices":[{"type":"nvidia-l4-24gb","count":1}]}"#.to_owned()),
        ("estimates", r#"{"workload":{"kind":"training","parameters":7e9,"tokens":1e12,"precision":"bf16"},"purchaseOption":"spot"}"#.to_owned()),
        ("slo", format!(r#"{{"objectives":{{"requestsPerSecondAtLeast":10,"latenciesAtMost":{{"ttft_p90":200}},"priceAtMostPerHour":"99.5"}},"rows":[{measured}]}}"#)),
        ("policies/plan", r#"{"apiVersion":"octavo.dev/v1alpha1","kind":"AcceleratorPolicy","metadata":{"name":"a"},"spec":{"nodeSelector":{"matchLabels":{"octavo.dev/type":"nvidia-h100-80gb"}},"layout":"serving"}}"#.to_owned()),
        ("profiles", r#"{"namespace":"team","name":"a","type":"nvidia-h100-80gb","displayName":"A"}"#.to_owned()),
        ("profile-draft", r#"{"namespace":"team","type":"nvidia-h100-80gb","nodes":["node-0"],"counts":[{"identifier":"cpu","min":"1","default":"2","max":"4"}],"tolerations":[]}"#.to_owned()),
    ];
    all.extend(bodies.map(|(path, body)| format!("POST /api/v1/{path}\n\n{body}")));
    all
}

/// Requests to the API. Every response is a document: of the resource, or of the problem.
pub(super) fn rest() -> Target {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let router = runtime.block_on(async { router() });
    Target::text(requests(), move |text| {
        let (head, body) = text.split_once("\n\n").unwrap_or((text, ""));
        let (method, target) = head.trim_end().split_once(' ').unwrap_or(("GET", head));
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        // Few changed paths exist; most others are replaced.
        let digest = Digest::from_bytes(path.as_bytes()).get();
        let known = PATHS[usize::try_from(digest).unwrap() % PATHS.len()];
        let is_there =
            path.starts_with("/api/v1/nodes/") || PATHS.iter().any(|known| path.ends_with(known));
        let path = if is_there || digest.is_multiple_of(16) {
            path.to_owned()
        } else {
            format!("/api/v1/{known}")
        };
        let path = if query.is_empty() { path } else { format!("{path}?{query}") };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from(body.to_owned()));
        let Ok(request) = request else { return Outcome::Rejected("no request".to_owned()) };
        let response = tower::ServiceExt::oneshot(router.clone(), request);
        runtime.block_on(async { check_response(response.await.unwrap()).await })
    })
}

async fn check_response(response: Response<Body>) -> Outcome {
    let status = response.status();
    // 503: this API has no demand.
    assert!(!status.is_server_error() || status == 503, "{status}");
    let kind = response.headers().get(header::CONTENT_TYPE);
    let kind = kind.map(|kind| kind.to_str().unwrap().to_owned()).unwrap_or_default();
    if kind.starts_with("text/event-stream") {
        return Outcome::Accepted;
    }
    let body = response.into_body().collect().await.unwrap().to_bytes();
    if status.is_success() {
        assert!(
            !kind.contains("json") || serde_json::from_slice::<Value>(&body).is_ok(),
            "{body:?}"
        );
        return Outcome::Accepted;
    }
    if status.is_redirection() || body.is_empty() {
        return Outcome::Rejected(status.to_string());
    }
    assert_eq!(kind, "application/problem+json", "{status} {body:?}");
    let problem: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(problem["status"], status.as_u16());
    let detail = problem["detail"].as_str().unwrap_or_default();
    assert!(detail.len() < 8000, "{detail}");
    Outcome::Rejected(format!("{status} {detail}"))
}

/// The router with a fleet, a cluster with one of its nodes, layouts and prices.
fn router() -> Router {
    let fleet: watch::Receiver<Fleet> = fleet();
    let gpu = "nvidia.com/gpu";
    let amounts = Amounts::default().with("cpu", 192_000).with(gpu, 8).with("pods", 110);
    let label = ("octavo.dev/type".to_owned(), "nvidia-h100-80gb".to_owned());
    let node = ClusterNode {
        name: "node-0".to_owned(),
        labels: [label].into(),
        readiness: Readiness::Ready,
        capacity: amounts.clone(),
        allocatable: amounts.clone(),
        ..ClusterNode::default()
    };
    let requirements = PodRequirements { amounts, ..PodRequirements::default() };
    let pods = ["running", "pending"].map(|name| ClusterPod {
        key: PodKey { namespace: "team".to_owned(), name: name.to_owned() },
        node: (name == "running").then(|| node.name.clone()),
        phase: if name == "running" { Phase::Bound } else { Phase::Pending },
        requirements: requirements.clone(),
        ..ClusterPod::default()
    });
    let cluster = watch::channel(Arc::new(WatchedCluster {
        snapshot: Arc::new(ClusterSnapshot::new([node], pods)),
        current_at: Some(Instant::now()),
        error: None,
        invalid_objects: 0,
    }));
    let cluster = Some(cluster.1);
    let policies = watch::channel(Arc::new(KnownPolicies {
        presence: Some(Presence::Present),
        ..KnownPolicies::default()
    }));
    let profiles = Profiles::new(None, cluster.clone(), None);
    let view = FleetView::new(fleet, Clock::start())
        .with_layouts(LayoutFile::open(&root().join("demo/layouts.yaml")).unwrap())
        .with_prices(PriceFile::open(&root().join("demo/prices.yaml")).unwrap())
        .with_policies(cluster.clone().map(|cluster| PolicyView::new(policies.1, cluster)))
        .with_cluster(cluster.clone())
        .with_profiles(profiles);
    let mut registry = Registry::default();
    rest::metrics::register(&mut registry, view.clone());
    let router = rest::router(rest::ApiContext {
        view: view.clone(),
        availability: Counter::new(view, cluster),
        registry: Arc::new(registry),
        ready: watch::channel(true).1,
        max_streams: 1,
    });
    guarded(router, Guard::open(Stats::default()))
}
