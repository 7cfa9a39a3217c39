//! `POST /api/v1/estimates`: the built-in estimate, and real HTTP engines with valid and invalid responses.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use axum::http::StatusCode;
use octavo_files::config_files::prices::PriceFile;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::fleet::{Aggregator, Machines};
use crate::engine::{EngineBehavior, TestEngine, engine_client};
use crate::process;
use crate::time_limits::TIME_LIMIT;

const ESTIMATES: &str = "/api/v1/estimates";

/// An aggregator with the engine at `url` and this timeout.
fn asking(url: &str, timeout: Duration) -> Aggregator {
    let engine = engine_client(url, timeout);
    Aggregator::viewed(&Machines::default(), |view| view.with_engine(engine))
}

fn training() -> Value {
    json!({
        "workload": {"kind": "training", "parameters": 7e9, "tokens": 1e12, "precision": "bf16"},
        "devices": [{"type": "nvidia-h100-80gb", "count": 8}],
    })
}

async fn requested(aggregator: &Aggregator, request: &Value) -> Value {
    let answer = aggregator.post(ESTIMATES, &request.to_string()).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
    answer.json()
}

#[tokio::test]
async fn ac_007_built_in_estimate_states_assumptions_and_price_book_costs() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("prices.yaml");
    let text = "apiVersion: octavo.dev/v1\nkind: PriceBook\ncurrency: USD\nprices:\n- {type: nvidia-h100-80gb, perHour: 2}\n";
    std::fs::write(&path, text).unwrap();
    let prices = PriceFile::open(&path).unwrap();
    let aggregator = Aggregator::viewed(&Machines::read().await, |view| view.with_prices(prices));
    let answer = requested(&aggregator, &training()).await;
    assert_eq!(answer["isEstimate"], true);
    assert_eq!(answer["times"], "estimated");
    assert!(answer["source"].as_str().unwrap().contains("roofline"), "{answer}");
    assert!(answer["assumptions"][0].as_str().unwrap().contains("6 operations"), "{answer}");
    let row = &answer["items"][0];
    let (low, high) =
        (row["seconds"]["low"].as_f64().unwrap(), row["seconds"]["high"].as_f64().unwrap());
    assert!(low < high && (low - 6.0 * 7e21 / (989e12 * 0.48 * 8.0)).abs() < 1.0, "{row}");
    assert_eq!(row["interpolated"], true);
    let cost = 16.0 * low / 3600.0;
    let shown: f64 = row["cost"]["low"].as_str().unwrap().parse().unwrap();
    assert!((cost - shown).abs() < 0.01, "{row}");
    assert_eq!((&row["cost"]["per"], &row["cost"]["currency"]), (&json!("run"), &json!("USD")));

    // Without devices: one of each type of the fleet.
    let decoding =
        json!({"workload": {"kind": "decoding", "parameters": 30e9, "precision": "fp16"}});
    let answer = requested(&aggregator, &decoding).await;
    let rows = answer["items"].as_array().unwrap();
    let types: Vec<&str> = rows.iter().map(|row| row["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["nvidia-h100-80gb", "nvidia-l4-24gb"]);
    assert!(rows[0]["tokensPerSecond"]["low"].as_f64().unwrap() > 1.0, "{answer}");
    assert_eq!(rows[0]["cost"]["per"], "million-tokens");
    assert_eq!(
        rows[1]["whyNot"],
        "the weights alone need 60.0 GB, but 1 x nvidia-l4-24gb have 24.0 GB"
    );
    assert_eq!((rows[1].get("cost"), rows[1].get("tokensPerSecond")), (None, None));
}

#[tokio::test]
async fn req_004_estimate_of_valid_engine_is_returned_with_its_name() {
    let engine_response = json!({
        "source": "bench 2026.3", "assumptions": ["flash attention"],
        "items": [{"type": "nvidia-h100-80gb", "count": 8, "seconds": {"low": 100, "high": 150.5}, "interpolated": true}],
    });
    let engine = TestEngine::new(EngineBehavior::Responds(engine_response.to_string())).await;
    let aggregator = asking(&engine.url, Duration::from_mins(1));
    let answer = requested(&aggregator, &training()).await;
    assert_eq!(answer["source"], "bench 2026.3");
    assert_eq!(answer["assumptions"], json!(["flash attention"]));
    let row = &answer["items"][0];
    assert_eq!(row["seconds"], json!({"low": 100.0, "high": 150.5}));
    assert_eq!((&row["interpolated"], row.get("cost")), (&json!(true), None));
    let mut other = training();
    other["devices"] =
        json!([{"type": "nvidia-h100-80gb", "count": 8}, {"type": "L4", "count": 1}]);
    let answer = requested(&aggregator, &other).await;
    assert_eq!(
        answer["items"][1]["whyNot"],
        "the estimate engine returned no value for these devices"
    );
    assert_eq!(engine.request_count(), 2);
    // The cached response is returned.
    assert_eq!(requested(&aggregator, &other).await, answer);
    assert_eq!(engine.request_count(), 2);
}

#[tokio::test]
async fn req_006_unavailable_or_invalid_engine_yields_reason_without_times() {
    let one = |seconds: &str| {
        format!(
            r#"{{"source": "s", "items": [{{"type": "nvidia-h100-80gb", "count": 8, "seconds": {seconds}}}]}}"#
        )
    };
    let unknown = one(r#"{"low": 1, "high": 2}"#).replace("h100", "h9000");
    let engine_response = |text: String| EngineBehavior::Responds(text);
    for (behavior, timeout_ms, reason) in [
        (EngineBehavior::Hangs, 50, "did not respond within 50ms"),
        (EngineBehavior::Stalls, 50, "did not respond within 50ms"),
        (EngineBehavior::Fails(StatusCode::INTERNAL_SERVER_ERROR), 60_000, "returned status 500"),
        (EngineBehavior::Fails(StatusCode::FOUND), 60_000, "returned status 302"),
        (engine_response("x".repeat(1 << 20)), 60_000, "more than 256 KiB"),
        (engine_response(one(r#"{"low": NaN, "high": 2}"#)), 60_000, "cannot parse"),
        (engine_response(one(r#"{"low": -1, "high": 2}"#)), 60_000, "-1 is not a valid time"),
        (engine_response(one(r#"{"low": 3, "high": 2}"#)), 60_000, "reversed"),
        (engine_response(unknown), 60_000, "nvidia-h9000-80gb, which was not requested"),
    ] {
        let engine = TestEngine::new(behavior).await;
        let aggregator = asking(&engine.url, Duration::from_millis(timeout_ms));
        let answer = requested(&aggregator, &training()).await;
        assert_eq!(answer["times"], "none", "{answer}");
        assert!(answer["reason"].as_str().unwrap().contains(reason), "{reason}: {answer}");
        let row = &answer["items"][0];
        assert_eq!(
            (&row["type"], row.get("seconds"), row.get("cost")),
            (&json!("nvidia-h100-80gb"), None, None)
        );
    }
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", gone.local_addr().unwrap());
    drop(gone);
    let answer = requested(&asking(&url, Duration::from_mins(1)), &training()).await;
    assert!(
        answer["reason"].as_str().unwrap().contains("cannot reach the estimate engine"),
        "{answer}"
    );
}

#[tokio::test]
async fn engine_is_suspended_after_three_failures() {
    let engine = TestEngine::new(EngineBehavior::Fails(StatusCode::BAD_GATEWAY)).await;
    let aggregator = asking(&engine.url, Duration::from_mins(1));
    let mut reasons = Vec::new();
    for _ in 0..5 {
        let answer = requested(&aggregator, &training()).await;
        reasons.push(answer["reason"].as_str().unwrap().to_owned());
    }
    assert_eq!(engine.request_count(), 3);
    assert!(
        reasons[2].contains("returned status 502")
            && reasons[3].contains("suspended for a few seconds"),
        "{reasons:?}"
    );
}

#[tokio::test]
async fn samples_are_sent_as_tokens_and_ignored_batch_is_reported() {
    let engine_response = json!({
        "source": "bench", "items": [{"type": "nvidia-h100-80gb", "count": 8, "seconds": {"low": 1, "high": 2}}],
    });
    let mut question = training();
    question["workload"] = json!({
        "kind": "training", "model": "llama-3-8b", "parameters": 7e9, "samples": 1e9, "tokensPerSample": 1000,
        "batch": 512, "precision": "bf16",
    });
    let engine = TestEngine::new(EngineBehavior::Responds(engine_response.to_string())).await;
    let answer = requested(&asking(&engine.url, Duration::from_mins(1)), &question).await;
    assert_eq!((&answer["times"], answer.get("notices")), (&json!("estimated"), None));
    let workload = &engine.last_request()["workload"];
    assert_eq!(
        (&workload["tokens"], &workload["batch"], &workload["model"]),
        (&json!(1e12), &json!(512.0), &json!("llama-3-8b"))
    );
    let ruled = Aggregator::of(&Machines::default());
    let by_samples = requested(&ruled, &question).await;
    let by_tokens = requested(&ruled, &training()).await;
    assert_eq!(by_samples["items"], by_tokens["items"]);
    let notices = by_samples["notices"].as_array().unwrap();
    assert_eq!(notices.len(), 2, "{by_samples}");
    assert!(notices[1].as_str().unwrap().starts_with("the batch is ignored"));
}

#[tokio::test]
async fn request_that_cannot_be_estimated_is_a_problem_naming_its_field() {
    let aggregator = Aggregator::of(&Machines::default());
    let workload = |text: &str| format!("{{\"workload\": {text}}}");
    for (body, parameter, detail) in [
        (
            workload(
                r#"{"kind": "training", "parameters": 7, "tokens": 1e9, "precision": "bf16"}"#,
            ),
            "workload.parameters",
            "from 1e6 to 1e14, not 7e0",
        ),
        (
            workload(r#"{"kind": "decoding", "parameters": 7e9, "precision": "int3"}"#),
            "workload",
            "bf16, fp16, fp8",
        ),
        (
            workload(
                r#"{"kind": "training", "parameters": 7e9, "samples": 9, "precision": "bf16"}"#,
            ),
            "workload.tokens",
            "either tokens, or samples and tokensPerSample",
        ),
        (
            workload(r#"{"kind": "decoding", "parameters": 7e9}"#),
            "workload",
            "missing field `precision`",
        ),
        ("{}".to_owned(), "", "missing field `workload`"),
    ] {
        let answer = aggregator.post(ESTIMATES, &body).await;
        let problem = answer.json();
        assert_eq!(
            (answer.status.as_u16(), &problem["type"]),
            (400, &json!("/problems/invalid-body")),
            "{problem}"
        );
        assert_eq!(problem["parameter"].as_str().unwrap_or_default(), parameter, "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains(detail), "{problem}");
    }
}

#[test]
fn aggregator_answers_without_times_if_engine_is_unavailable() {
    // Nothing listens on a released port.
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", gone.local_addr().unwrap());
    drop(gone);
    let aggregator = process::Aggregator::start(&["--plaintext", "--estimate-engine", &url]);
    let body = training().to_string();
    let mut stream = TcpStream::connect(aggregator.http).unwrap();
    write!(
        stream,
        "POST {ESTIMATES} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    stream.set_read_timeout(Some(TIME_LIMIT)).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert!(
        answer.contains("\"times\":\"none\"")
            && answer.contains("cannot reach the estimate engine"),
        "{answer}"
    );
}
