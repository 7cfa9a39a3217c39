//! `POST /api/v1/slo` through the real router: rows of a model catalog, compared with objectives and the fleet.

use axum::http::StatusCode;
use octavo_files::config_files::prices::PriceFile;
use octavo_fleet::access::{Visibility, VisibleTypes};
use serde_json::{Value, json};

use super::fleet::{Aggregator, Machines};
use super::profiles::{L4, ProfileFixture, node, profile};

const SLO: &str = "/api/v1/slo";

fn rows() -> Value {
    json!([
        {"hardware_type": "H100 80GB", "hardware_count": 2, "requests_per_second": 7.0, "ttft_p90": 180.5, "use_case": "chat"},
        {"hardware_type": "L4", "hardware_count": 1, "requests_per_second": 1.5, "ttft_p90": 250},
        {"hardware_type": "RTX 4090", "hardware_count": 1, "requests_per_second": 3.0, "ttft_p90": 100},
        {"hardware_type": "H200", "hardware_count": 1, "requests_per_second": 9.0, "ttft_p90": 900},
    ])
}

#[tokio::test]
async fn req_001_rows_meeting_objectives_are_joined_to_fleet_types() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("prices.yaml");
    let text = "apiVersion: octavo.dev/v1\nkind: PriceBook\ncurrency: USD\nprices:\n- {type: nvidia-h100-80gb, perHour: 2}\n\
                - {type: nvidia-l4-24gb, perHour: 0.70}\n- {type: nvidia-h200-141gb, perHour: 4}\n";
    std::fs::write(&path, text).unwrap();
    let prices = PriceFile::open(&path).unwrap();
    let aggregator = Aggregator::viewed(&Machines::read().await, |view| view.with_prices(prices));
    let objectives = json!({
        "requestsPerSecondAtLeast": 10, "latenciesAtMost": {"ttft_p90": 300}, "priceAtMostPerHour": "9"
    });
    let request = json!({"objectives": objectives, "rows": rows()});
    let answer = aggregator.post(SLO, &request.to_string()).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
    let answer = answer.json();
    assert_eq!(answer["met"], 2, "{answer}");
    let items = answer["items"].as_array().unwrap();
    let shown: Vec<(u64, &Value, &Value)> = items
        .iter()
        .map(|one| (one["row"].as_u64().unwrap(), &one["replicas"], &one["perHour"]))
        .collect();
    let expected = [
        (1, json!(7), json!("4.90")),
        (0, json!(2), json!("8")),
        (3, json!(2), json!("8")),
        (2, json!(4), Value::Null),
    ];
    let expected: Vec<(u64, &Value, &Value)> =
        expected.iter().map(|(row, copies, price)| (*row, copies, price)).collect();
    assert_eq!(shown, expected);
    assert_eq!(items[0]["here"], json!(["nvidia-l4-24gb"]));
    assert_eq!(
        (&items[2]["here"], &items[2]["types"]),
        (&json!([]), &json!(["nvidia-h200-141gb"]))
    );
    let unknown = items[3]["misses"][0].as_str().unwrap();
    assert!(unknown.starts_with("unknown hardware"), "{unknown}");
}

#[tokio::test]
async fn invalid_objectives_and_rows_are_problems_naming_the_field() {
    let aggregator = Aggregator::of(&Machines::default());
    for (objectives, rows, parameter, detail) in [
        (
            json!({"latenciesAtMost": {"speed": 1}}),
            json!([]),
            "objectives.latenciesAtMost",
            "start with ttft_",
        ),
        (
            json!({"requestsPerSecondAtLeast": -1}),
            json!([]),
            "objectives.requestsPerSecondAtLeast",
            "not greater than 0",
        ),
        (
            json!({"priceAtMostPerHour": "x"}),
            json!([]),
            "objectives.priceAtMostPerHour",
            "is not a price",
        ),
        (
            json!({"throughput": 1}),
            json!([]),
            "objectives.throughput",
            "unknown field `throughput`",
        ),
        (
            json!({}),
            json!([{"hardware_type": "H100", "hardware_count": 0}]),
            "rows",
            "row 1: hardware_count",
        ),
        (
            json!({}),
            json!([{"hardware_type": "H100", "hardware_count": 1, "itl_p90": "fast"}]),
            "rows",
            "itl_p90 must be a non-negative number",
        ),
    ] {
        let request = json!({"objectives": objectives, "rows": rows});
        let answer = aggregator.post(SLO, &request.to_string()).await;
        let problem = answer.json();
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{problem}");
        assert_eq!(problem["parameter"].as_str().unwrap_or_default(), parameter, "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains(detail), "{problem}");
    }
}

#[tokio::test]
async fn req_003_rows_name_hardware_profiles_and_availability() {
    let label = "octavo.dev/type";
    let nodes = ["gpu-1", "gpu-2"].map(|name| node(name, &[(label, L4)]));
    let mut disabled = profile("a", "disabled", label, L4);
    disabled["metadata"]["annotations"]["opendatahub.io/disabled"] = json!("true");
    let profiles = [
        profile("a", "premium", label, L4),
        profile("a", "gone", label, "nvidia-h200-141gb"),
        disabled,
    ];
    let (_fixture, profiles, seen) = ProfileFixture::of(nodes.into(), Vec::new(), &profiles);
    let aggregator = Aggregator::following(&Machines::read().await, profiles, seen);
    let request = json!({
        "objectives": {"requestsPerSecondAtLeast": 1},
        "rows": [
            {"hardware_type": "L4", "hardware_count": 1, "requests_per_second": 1.5},
            {"hardware_type": "H100 80GB", "hardware_count": 2, "requests_per_second": 7.0},
        ],
    })
    .to_string();
    let answer = aggregator.post(SLO, &request).await.json();
    let of = |hardware: &str| {
        let mut items = answer["items"].as_array().unwrap().iter();
        items.find(|one| one["hardware"] == hardware).unwrap()
    };
    let chosen = of("L4")["profiles"].as_array().unwrap();
    let names: Vec<&Value> = chosen.iter().map(|one| &one["name"]).collect();
    assert!(names.contains(&&json!("premium")), "{answer:#}");
    assert!(!names.contains(&&json!("gone")), "{answer:#}");
    let premium = chosen.iter().find(|one| one["name"] == "premium").unwrap();
    assert_eq!(
        *premium,
        json!({"namespace": "a", "name": "premium", "displayName": "Premium GPU", "types": [L4], "available": 2})
    );
    assert_eq!(of("H100 80GB")["profiles"], Value::Null);

    // NFR-003: profiles are named only to users who may list them.
    let visibility =
        Visibility { types: VisibleTypes::All, nodes: false, profiles: false, pods: false };
    let answer = aggregator.post_as(visibility, SLO, &request).await;
    assert!(!answer.body.contains("premium"), "{}", answer.body);
    assert!(answer.body.contains("hardwareprofiles"), "{}", answer.body);
}
