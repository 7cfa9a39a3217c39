//! Responses conform to the `OpenAPI` document, as checked by external validators; Prometheus's own tool reads the
//! metrics.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;

use serde_json::{Value, json};

use super::fleet::{Aggregator, Machines};
use crate::time_limits::output;
use crate::{promtool, python};

/// The validators, from the package index `PyPI`.
const VALIDATORS: [&str; 2] = ["openapi-spec-validator==0.9.0", "jsonschema==4.26.0"];

/// Runs `command` with `input` and returns its output; if it cannot start, the panic names what is missing.
fn fed(command: &mut Command, input: &str, needs: &str) -> Output {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let child = command.stderr(Stdio::piped()).spawn();
    let mut child = child.unwrap_or_else(|e| panic!("{command:?}: {e}; this test needs {needs}"));
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    output(child, needs)
}

#[track_caller]
fn no_output(output: &Output) {
    let reported = [&output.stdout[..], &output.stderr[..]].concat();
    let reported = String::from_utf8_lossy(&reported);
    assert!(output.status.success() && reported.is_empty(), "{reported}");
}

/// A Python with the validators: in the cache, or the one that `OCTAVO_VALIDATORS_PYTHON` names.
static PYTHON: LazyLock<PathBuf> = LazyLock::new(|| {
    std::env::var_os("OCTAVO_VALIDATORS_PYTHON").map_or_else(
        || {
            let name = format!("python-{}", VALIDATORS.join("-").replace("==", "-"));
            python::with_packages(&name, &VALIDATORS)
        },
        PathBuf::from,
    )
});

/// A response with its path in the document.
fn case(path: &str, status: u16, media_type: &str, value: &Value) -> Value {
    json!({"path": path, "status": status.to_string(), "mediaType": media_type, "value": value})
}

/// Requests, with their path in the document.
const QUERIES: &[(&str, &str)] = &[
    ("/api/v1/nodes?limit=2", "/api/v1/nodes"),
    ("/api/v1/nodes?sort=size", "/api/v1/nodes"),
    ("/api/v1/types", "/api/v1/types"),
    ("/api/v1/types?x", "/api/v1/types"),
    ("/api/v1/cluster-nodes", "/api/v1/cluster-nodes"),
    ("/api/v1/cluster-nodes?x", "/api/v1/cluster-nodes"),
    ("/api/v1/nodes/bare-1", "/api/v1/nodes/{name}"),
    ("/api/v1/nodes/gpu-1", "/api/v1/nodes/{name}"),
    ("/api/v1/nodes/mixed-1", "/api/v1/nodes/{name}"),
    ("/api/v1/nodes/gpu-9", "/api/v1/nodes/{name}"),
    ("/api/v1/nodes/_", "/api/v1/nodes/{name}"),
    ("/api/v1/nodes/mixed-1/changes", "/api/v1/nodes/{name}/changes"),
    ("/api/v1/nodes/gpu-9/changes", "/api/v1/nodes/{name}/changes"),
    ("/api/v1/nodes/mixed-1/layouts", "/api/v1/nodes/{name}/layouts"),
    ("/api/v1/nodes/mixed-1/plan?layout=all-1g.10gb", "/api/v1/nodes/{name}/plan"),
    ("/api/v1/nodes/mixed-1/plan?layout=all-disabled", "/api/v1/nodes/{name}/plan"),
    ("/api/v1/nodes/mixed-1/plan?layout=nothing", "/api/v1/nodes/{name}/plan"),
    ("/api/v1/layouts/all-1g.10gb/plan", "/api/v1/layouts/{name}/plan"),
    ("/api/v1/layouts/all-1g.10gb/plan?sort=size", "/api/v1/layouts/{name}/plan"),
    ("/api/v1/availability", "/api/v1/availability"),
    ("/api/v1/availability?minFree=x", "/api/v1/availability"),
    ("/api/v1/demand", "/api/v1/demand"),
    ("/api/v1/demand?x", "/api/v1/demand"),
    ("/api/v1/series?groupBy=device", "/api/v1/series"),
    ("/api/v1/series?metric=load", "/api/v1/series"),
    ("/api/v1/usage?limit=1", "/api/v1/usage"),
    ("/api/v1/usage?sort=pod", "/api/v1/usage"),
    ("/api/v1/usage/summary", "/api/v1/usage/summary"),
    ("/api/v1/usage/summary?by=pod", "/api/v1/usage/summary"),
    ("/api/hardware-profiles", "/api/hardware-profiles"),
    ("/api/v1/profiles", "/api/v1/profiles"),
    ("/api/v1/profiles?x", "/api/v1/profiles"),
    ("/api/v1/profiles/large", "/api/v1/profiles/{name}"),
    ("/api/v1/profiles/twice", "/api/v1/profiles/{name}"),
    ("/api/v1/profiles/none", "/api/v1/profiles/{name}"),
    ("/api/v1/profiles/a/large", "/api/v1/profiles/{namespace}/{name}"),
    ("/api/v1/profile-draft?type=nvidia-l4-24gb", "/api/v1/profile-draft"),
    ("/api/v1/profile-draft?nodes=none", "/api/v1/profile-draft"),
    ("/openapi.json", "/openapi.json"),
];

async fn answers(aggregator: &Aggregator) -> Vec<Value> {
    let mut cases = Vec::new();
    for &(path, of) in QUERIES {
        let answer = aggregator.get(path).await;
        let media_type = answer.headers.get("content-type").unwrap().to_str().unwrap();
        cases.push(case(of, answer.status.as_u16(), media_type, &answer.json()));
    }
    let training = r#"{"workload": {"kind": "training", "parameters": 7e9, "tokens": 1e9, "precision": "bf16"}}"#;
    for (path, body) in [
        ("/api/v1/estimates", training),
        ("/api/v1/estimates", "{}"),
        (
            "/api/v1/slo",
            r#"{"objectives": {}, "rows": [{"hardware_type": "H100", "hardware_count": 1, "itl_p90": 3}]}"#,
        ),
        ("/api/v1/match", r#"{"memoryPerDeviceAtLeast": "30GB", "isolation": "mig"}"#),
        ("/api/v1/match", "{}"),
        ("/api/v1/match", "[]"),
        ("/api/v1/profile-draft", r#"{"type": "nvidia-l4-24gb"}"#),
        ("/api/v1/profile-draft", r#"{"nodes": ["none"]}"#),
        ("/api/v1/profile-draft", "{}"),
    ] {
        let answer = aggregator.post(path, body).await;
        let media_type = answer.header("content-type");
        let status = answer.status.as_u16();
        let mut one = case(path, status, media_type, &answer.json());
        one["method"] = json!("post");
        cases.push(one);
    }
    let mut reader = aggregator.follow("/api/v1/events").await;
    for number in 1..=6 {
        if number == 6 {
            aggregator.remove("gpu-2");
        }
        let shown = reader.next().await;
        cases.push(case("/api/v1/events", 200, "text/event-stream", &shown.data));
    }
    aggregator.ready.send_replace(false);
    for (path, text) in [("/healthz", "ok\n"), ("/metrics", "")] {
        let answer = aggregator.get(path).await;
        let media_type = answer.headers.get("content-type").unwrap().to_str().unwrap();
        assert!(answer.body.starts_with(text));
        cases.push(case(path, 200, media_type, &answer.body.into()));
    }
    let unready = aggregator.get("/readyz").await;
    cases.push(case("/readyz", 503, "application/problem+json", &unready.json()));
    cases
}

#[tokio::test]
async fn openapi_document_is_valid_and_every_response_conforms() {
    let (_fixture, profiles) = super::profiles::ProfileFixture::new();
    let aggregator = Aggregator::with_profiles(&Machines::read().await, profiles);
    super::usage::give(&aggregator, "gpu-1");
    let document = aggregator.get("/openapi.json").await.json();
    let mut cases = answers(&aggregator).await;
    let waiting = super::demand::with_pending_pods(&["1g.10gb", "2g.20gb", "7g.80gb"]).await;
    let proposals = waiting.get("/api/v1/demand").await.json();
    cases.push(case("/api/v1/demand", 200, "application/json", &proposals));
    let mut validate = Command::new(&*PYTHON);
    validate.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/rest/validate.py"));
    let input = json!({"document": document, "cases": cases}).to_string();
    no_output(&fed(&mut validate, &input, "the validators"));
}

#[tokio::test]
async fn openapi_document_lists_every_parameter_value() {
    let aggregator = Aggregator::of(&Machines::default());
    let document = aggregator.get("/openapi.json").await.json();
    let parameters = document["paths"]["/api/v1/nodes"]["get"]["parameters"].as_array().unwrap();
    let names: Vec<&str> = parameters.iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "search",
            "type",
            "state",
            "problem",
            "sharing",
            "layout",
            "layoutState",
            "selector",
            "sort",
            "limit",
            "continue"
        ]
    );
    let text = document.to_string();
    for word in [
        "\"nvml-stalled\"",
        "\"exclusive\"",
        "\"needs-reset\"",
        "\"-memory\"",
        "\"maximum\":1000",
        "\"default\":500",
    ] {
        assert!(text.contains(word), "{word}");
    }
}

#[tokio::test]
async fn fleet_metrics_have_no_series_per_node_and_pass_promtool() {
    let aggregator = Aggregator::of(&Machines::read().await);
    aggregator.silence("gpu-2");
    let answer = aggregator.get("/metrics").await;
    assert_eq!(
        answer.headers.get("content-type").unwrap(),
        "text/plain; version=0.0.4; charset=utf-8"
    );
    for line in [
        "octavo_nodes{state=\"stale\"} 1",
        "octavo_nodes{state=\"ok\"} 2",
        "octavo_nodes{state=\"nvml-stalled\"} 0",
        "octavo_devices{type=\"nvidia-h100-80gb\",occupancy=\"free\"} 2",
        "octavo_devices{type=\"nvidia-h100-80gb\",occupancy=\"partitioned\"} 2",
        "octavo_devices{type=\"nvidia-l4-24gb\",occupancy=\"unknown\"} 1",
        "octavo_partitions{type=\"nvidia-h100-80gb\",occupancy=\"in_use\"} 1",
        "octavo_partitions{type=\"nvidia-h100-80gb\",occupancy=\"free\"} 2",
        "octavo_type_nodes{type=\"nvidia-l4-24gb\"} 2",
        "octavo_build_info{version=\"0.1.0\"} 1",
    ] {
        assert!(answer.body.lines().any(|one| one == line), "{line}\n{}", answer.body);
    }
    assert!(!answer.body.contains("gpu-1") && !answer.body.contains("GPU-"), "{}", answer.body);
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/reference/metrics.md"))
            .unwrap();
    for line in answer.body.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let name = line.split(' ').next().unwrap();
        assert!(
            page.contains(&format!("`{name}")),
            "docs/reference/metrics.md does not explain {name}"
        );
    }
    promtool::finds_no_fault(&answer.body);
}
